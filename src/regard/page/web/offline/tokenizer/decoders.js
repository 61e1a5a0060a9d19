/**
 * Tokens → text.
 *
 * In: the steps of a decoder, and tokens as the vocabulary spells them. Out: pieces of text, which joined are the text.
 */

import { BYTE_OF } from "regard/offline/tokenizer/aligned.js";
import { compiled } from "regard/offline/tokenizer/patterns.js";

/** @typedef {(tokens: string[]) => string[]} Decode */

const utf8 = new TextDecoder("utf-8", { ignoreBOM: true });
const strict = new TextDecoder("utf-8", { ignoreBOM: true, fatal: true });
const encoder = new TextEncoder();
const BYTE = /^<0x([0-9a-fA-F]{2})>$/;

// What WordPiece's decoder cleans up, in this order.
/** @type {[old: string, instead: string][]} */
const CLEAN_UP = [
  [" .", "."],
  [" ?", "?"],
  [" !", "!"],
  [" ,", ","],
  [" ' ", "'"],
  [" n't", "n't"],
  [" 'm", "'m"],
  [" do not", " don't"],
  [" 's", "'s"],
  [" 've", "'ve"],
  [" 're", "'re"],
];

/** @param {string} text @param {[old: string, instead: string][]} pairs */
export const cleanedUp = (text, pairs) => pairs.reduce((now, [old, instead]) => now.replaceAll(old, instead), text);

/** The bytes of a byte-level token; one that is spelled otherwise is plain text. @param {string} token */
export function bytesOf(token) {
  const bytes = Array.from(token, (letter) => BYTE_OF.get(letter));
  return bytes.includes(undefined) ? encoder.encode(token) : Uint8Array.from(bytes, (byte) => byte ?? 0);
}

/** The byte that a token like <0xE2> stands for. @param {string} token */
export function fallbackByte(token) {
  const found = BYTE.exec(token);
  return found ? Number.parseInt(found[1], 16) : null;
}

/** @param {number[]} run bytes of whole characters, or else so many signs that something is missing */
function decoded(run) {
  try {
    return [strict.decode(Uint8Array.from(run))];
  } catch {
    return run.map(() => "\ufffd");
  }
}

/** @type {Decode} */
function byteFallback(tokens) {
  /** @type {string[]} */
  const out = [];
  /** @type {number[]} */
  let run = [];
  const flush = () => {
    if (run.length) out.push(...decoded(run));
    run = [];
  };
  for (const token of tokens) {
    const byte = fallbackByte(token);
    if (byte === null) {
      flush();
      out.push(token);
    } else run.push(byte);
  }
  flush();
  return out;
}

/** @param {string} token @param {string} content @param {number} start @param {number} stop */
function stripped(token, content, start, stop) {
  const letters = [...token];
  let [begin, end] = [0, letters.length];
  while (begin < Math.min(start, letters.length) && letters[begin] === content) begin++;
  while (letters.length - end < stop && end > begin && letters[end - 1] === content) end--;
  return letters.slice(begin, end).join("");
}

/** @type {{ [type: string]: (step: any, classes: (name: string) => string) => Decode }} */
export const DECODERS = {
  ByteLevel: () => (tokens) => {
    const parts = tokens.map(bytesOf);
    const all = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0));
    let at = 0;
    for (const one of parts) {
      all.set(one, at);
      at += one.length;
    }
    return [utf8.decode(all)];
  },
  ByteFallback: () => byteFallback,
  Fuse: () => (tokens) => [tokens.join("")],
  BPEDecoder:
    ({ suffix }) =>
    (tokens) =>
      tokens.map((token, i) => token.replaceAll(suffix, i === tokens.length - 1 ? "" : " ")),
  WordPiece:
    ({ prefix, cleanup }) =>
    (tokens) =>
      tokens.map((token, i) => {
        const text = !i ? token : token.startsWith(prefix) ? token.slice(prefix.length) : ` ${token}`;
        return cleanup ? cleanedUp(text, CLEAN_UP) : text;
      }),
  Strip:
    ({ content, start, stop }) =>
    (tokens) =>
      tokens.map((token) => stripped(token, content, start, stop)),
  Metaspace:
    ({ replacement, prepend_scheme }) =>
    (tokens) =>
      tokens.map((token, i) => token.replaceAll(replacement, i || prepend_scheme === "never" ? " " : "")),
  Replace: ({ pattern, content }, classes) => {
    const found = compiled(pattern, classes);
    return (tokens) => tokens.map((token) => token.replaceAll(found, () => content));
  },
};

// Characters in UTF-8, their bytes written as the letters U+0000 to U+00FF; or else one byte.
const IN_UTF8 =
  /((?:[\0-\x7f]|[\xc2-\xdf][\x80-\xbf]|(?:\xe0[\xa0-\xbf]|[\xe1-\xec\xee\xef][\x80-\xbf]|\xed[\x80-\x9f]|(?:\xf0[\x90-\xbf]|[\xf1-\xf3][\x80-\xbf]|\xf4[\x80-\x8f])[\x80-\xbf])[\x80-\xbf])+)|[\x80-\xff]/g;

/**
 * Bytes as text; those of an incomplete character as \xe2.
 * @param {Uint8Array} bytes
 */
export const readable = (bytes) =>
  String.fromCharCode(...bytes).replace(IN_UTF8, (run, whole) =>
    whole
      ? utf8.decode(Uint8Array.from(run, (c) => c.charCodeAt(0)))
      : `\\x${run.charCodeAt(0).toString(16).padStart(2, "0")}`,
  );
