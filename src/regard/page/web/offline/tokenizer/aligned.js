/**
 * A text while it is normalized and split: each of its characters knows which characters of the original it came from.
 *
 * In: the original, or a part of one of these. Out: {text, at, from, to}: the character at text[i] came from the original's code
 * points from[at + i] to to[at + i]. Parts share the arrays of the whole.
 */

import { SPACE } from "regard/offline/tokenizer/patterns.js";

/** @typedef {{ text: string, at: number, from: Int32Array, to: Int32Array }} Aligned */
/** @typedef {(part: Aligned) => Aligned} Change */

const NOT_ASCII = /[^\0-\x7f]/;
const STARTS_WITH_SPACE = new RegExp(`^${SPACE}+`, "u");
const NOT_SPACE = new RegExp(`[^${SPACE}]`, "u");

/** @param {string} text @returns {Aligned} */
export function original(text) {
  const from = new Int32Array(text.length);
  const to = new Int32Array(text.length);
  let point = -1;
  for (let i = 0; i < text.length; i++) {
    if (!isSecondHalf(text, i)) point++;
    from[i] = point;
    to[i] = point + 1;
  }
  return { text, at: 0, from, to };
}

/** Whether text[i] is the second half of a character. @param {string} text @param {number} i */
export const isSecondHalf = (text, i) => (text.charCodeAt(i) & 0xfc00) === 0xdc00;

/** @param {Aligned} whole @param {number} begin @param {number} end @returns {Aligned} */
export const part = ({ text, at, from, to }, begin, end) => ({ text: text.slice(begin, end), at: at + begin, from, to });

/** Collects a new text with its origins. @param {Aligned} whole */
function builder(whole) {
  /** @type {string[]} */
  const texts = [];
  /** @type {number[]} */
  const from = [];
  /** @type {number[]} */
  const to = [];
  return {
    /** A stretch as it is. @param {number} begin @param {number} end */
    keep(begin, end) {
      texts.push(whole.text.slice(begin, end));
      for (let i = whole.at + begin; i < whole.at + end; i++) {
        from.push(whole.from[i]);
        to.push(whole.to[i]);
      }
    },
    /** Something new that came from the character at `source`. @param {string} text @param {number} source */
    put(text, source) {
      texts.push(text);
      for (let i = 0; i < text.length; i++) {
        from.push(whole.from[whole.at + source]);
        to.push(whole.to[whole.at + source]);
      }
    },
    /** @returns {Aligned} */
    built: () => ({ text: texts.join(""), at: 0, from: Int32Array.from(from), to: Int32Array.from(to) }),
  };
}

/**
 * Every match replaced; what comes instead is said to come from the last character of the match.
 * @param {RegExp} pattern @param {(match: string) => string} instead @returns {Change}
 */
export function substitute(pattern, instead) {
  return (whole) => {
    let inPlace = true;
    const text = whole.text.replace(pattern, (match) => {
      const put = instead(match);
      inPlace &&= match.length === 1 && put.length === 1;
      return put;
    });
    if (inPlace) return { ...whole, text };
    const out = builder(whole);
    let done = 0;
    for (const { index, 0: match } of whole.text.matchAll(pattern)) {
      const end = index + match.length;
      out.keep(done, index);
      out.put(instead(match), end - 1);
      done = end;
    }
    out.keep(done, whole.text.length);
    return out.built();
  };
}

/**
 * Each character by itself, so that no letter's lower case depends on its neighbours, as a Σ at the end of a word does.
 * @type {Change}
 */
export const lowercase = substitute(/[A-Z]|[^\0-\x7f]/gu, (c) => c.toLowerCase());

/**
 * A text in front, from the first character; not in front of nothing, nor if `unless` is there already.
 * @param {string} text @param {string} unless @param {string} where "first": only at the original's beginning
 * @returns {Change}
 */
export function prepend(text, unless, where) {
  return (whole) => {
    if (!whole.text || (unless && whole.text.startsWith(unless))) return whole;
    if (where === "first" && whole.from[whole.at]) return whole;
    const out = builder(whole);
    out.put(text, 0);
    out.keep(0, whole.text.length);
    return out.built();
  };
}

/** @param {boolean} left @param {boolean} right @returns {Change} */
export function strip(left, right) {
  return (whole) => {
    const begin = left ? (STARTS_WITH_SPACE.exec(whole.text)?.[0].length ?? 0) : 0;
    let end = whole.text.length;
    while (right && end > begin && !NOT_SPACE.test(whole.text[end - 1])) end--;
    return part(whole, begin, end);
  };
}

// Bytes, written as GPT-2 writes them: a visible byte as itself, the others as letters from U+0100 on.

const VISIBLE = /[!-~¡-¬®-ÿ]/;
let hidden = 0x100;
export const LETTER_OF = Array.from({ length: 256 }, (_, byte) => {
  const letter = String.fromCharCode(byte);
  return VISIBLE.test(letter) ? letter : String.fromCharCode(hidden++);
});
export const BYTE_OF = new Map(LETTER_OF.map((letter, byte) => [letter, byte]));
const encoder = new TextEncoder();

/** @type {Change} */
export const bytes = substitute(/[^!-~]/gu, (c) => Array.from(encoder.encode(c), (byte) => LETTER_OF[byte]).join(""));

// Unicode's normal forms. The library says of each character of the result how many of the text it stands for: none (it
// shares the one before), one, or more, of which the first counts. Only the characters that it knows take part.

/**
 * @param {"NFC" | "NFD" | "NFKC" | "NFKD"} form @param {RegExp} taking runs of characters that take part in normal forms
 * @returns {Change}
 */
export function normalForm(form, taking) {
  const decomposition = form.replace("C", "D");
  return (whole) => {
    if (!NOT_ASCII.test(whole.text)) return whole;
    const out = builder(whole);
    let done = 0;
    for (const { index, 0: run } of whole.text.matchAll(taking)) {
      if (run.normalize(form) === run) continue;
      out.keep(done, index);
      let at = index;
      const parts = reordered(run, decomposition);
      for (const { text, added } of form === decomposition ? parts : composed(parts)) {
        out.put(text, added > 0 ? at - 1 : at);
        for (let n = added; n <= 0; n++) at += (whole.text.codePointAt(at) ?? 0) > 0xffff ? 2 : 1;
      }
      done = index + run.length;
    }
    if (!done) return whole;
    out.keep(done, whole.text.length);
    return out.built();
  };
}

/** @typedef {{ text: string, added: number }} Mark a character; added: 1 if it stands for none of the text, −n for n + 1 */

/**
 * A run decomposed, its combining marks in canonical order. The order is the browser's; equal marks keep theirs.
 * @param {string} run @param {string} form
 */
function reordered(run, form) {
  /** @type {Map<string, Mark[]>} */
  const waiting = new Map();
  let apart = "";
  for (const c of run) {
    const decomposed = c.normalize(form);
    apart += decomposed;
    let added = 0;
    for (const text of decomposed) {
      if (!waiting.has(text)) waiting.set(text, []);
      waiting.get(text)?.push({ text, added });
      added = 1;
    }
  }
  for (const queue of waiting.values()) queue.reverse();
  return Array.from(apart.normalize("NFD"), (text) => /** @type {Mark} */ (waiting.get(text)?.pop()));
}

const LAST_CLASS = "\u0345"; // of the highest combining class: it moves behind every other combining mark

/** @param {string} c */
const isCombining = (c) => c === LAST_CLASS || (LAST_CLASS + c).normalize("NFD") !== LAST_CLASS + c;

/** Whether a's combining class is lower than b's; a does not come after b. @param {string} a @param {string} b */
const isLower = (a, b) => a !== b && (b + a).normalize("NFD") === a + b;

/** @param {string} a @param {string} b */
function composition(a, b) {
  const both = (a + b).normalize("NFC");
  return both.length === 1 || (both.length === 2 && isSecondHalf(both, 1)) ? both : null;
}

/**
 * The canonical composition algorithm: a mark joins the last starter unless a mark of its class, or a starter, is between.
 * @param {Mark[]} marks
 */
function composed(marks) {
  /** @type {Mark[]} */
  const done = [];
  let [starter, last] = [-1, -1]; // indices in `done`: of the last starter, and of the last mark that stayed after it
  for (const mark of marks) {
    const combining = isCombining(mark.text);
    const base = done[starter];
    const blocked = last > starter && (!combining || !isLower(done[last].text, mark.text));
    const both = base && !blocked ? composition(base.text, mark.text) : null;
    if (both) {
      done[starter] = { text: both, added: base.added + mark.added - 1 };
      continue;
    }
    if (!combining) starter = done.length;
    last = done.length;
    done.push(mark);
  }
  return done;
}
