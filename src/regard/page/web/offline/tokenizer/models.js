/**
 * The four models: a part of a text, which is a word to them → tokens.
 *
 * In: a vocabulary in the order of ids, and a text. Out: {id, begin, end, text}: which stretch of the word a token covers, and
 * its spelling. Tokens in `hidden` are not for texts to spell: control tokens that stand in the vocabulary like any other.
 */

import { Refused } from "regard/data.js";
import { createTrie } from "regard/offline/tokenizer/trie.js";

/** @typedef {{ id: number, begin: number, end: number, text: string }} Token */
/** @typedef {(word: string) => Token[]} Tokenize */

const LONG_WORD = 256; // beyond which a word is not remembered
const REMEMBERED = 20_000; // words
const PLACES = 2 ** 23; // more than a word has symbols

/** @param {string} c one character */
const byteLength = (c) => (c < "\x80" ? 1 : c < "\u0800" ? 2 : c.length === 1 ? 3 : 4);
const encoder = new TextEncoder();

/** @param {ModelData} model @param {Set<number>} hidden */
function idsOf({ tokens }, hidden) {
  /** @type {Map<string, number>} */
  const ids = new Map();
  tokens.forEach((token, id) => {
    if (token !== null && !hidden.has(id)) ids.set(token, id);
  });
  return ids;
}

const NO_UNKNOWN = "The text has something that the tokenizer has no token for, not even one for unknown text.";

/** @type {{ [type: string]: (model: any, hidden: Set<number>) => Tokenize }} */
export const MODELS = { BPE: bpe, WordPiece: wordPiece, WordLevel: wordLevel, Unigram: unigram };

/** @param {ModelData} model @param {Set<number>} hidden @returns {Tokenize} */
function wordLevel(model, hidden) {
  const ids = idsOf(model, hidden);
  return (word) => {
    const id = ids.get(word) ?? model.unknown;
    if (id === null) throw new Refused(NO_UNKNOWN, 400);
    return [{ id, begin: 0, end: word.length, text: ids.has(word) ? word : (model.tokens[id] ?? "") }];
  };
}

/**
 * The longest token that the rest of the word begins with, again and again; an unknown token if there is none.
 * @param {WordPieceData} model @param {Set<number>} hidden @returns {Tokenize}
 */
function wordPiece(model, hidden) {
  const ids = idsOf(model, hidden);
  let most = 0;
  for (const token of ids.keys()) if (token.length > most) most = token.length;
  /** @param {string} word */
  const unknown = (word) => {
    if (model.unknown === null) throw new Refused(NO_UNKNOWN, 400);
    return [{ id: model.unknown, begin: 0, end: word.length, text: model.tokens[model.unknown] ?? "" }];
  };
  return (word) => {
    if (word.length > 2 * model.longest || [...word].length > model.longest) return unknown(word);
    /** @type {Token[]} */
    const found = [];
    for (let begin = 0; begin < word.length; ) {
      const prefix = begin ? model.prefix : "";
      let end = Math.min(word.length, begin + most);
      while (end > begin && !ids.has(prefix + word.slice(begin, end))) end--;
      const text = prefix + word.slice(begin, end);
      const id = end > begin ? ids.get(text) : undefined;
      if (id === undefined) return unknown(word);
      found.push({ id, begin, end, text });
      begin = end;
    }
    return found;
  };
}

/**
 * Byte-pair encoding: of all neighbours that a merge joins, those of the earliest merge first, from left to right.
 * @param {BPEData} model @param {Set<number>} hidden @returns {Tokenize}
 */
function bpe(model, hidden) {
  const { tokens, merges, unknown, prefix, suffix } = model;
  const ids = idsOf(model, hidden);
  /** @type {Map<number, number>} of two ids, as one number → which merge joins them */
  const ranks = new Map();
  for (let i = 0; i < merges.length; i += 3) {
    const [left, right, both] = merges.slice(i, i + 3);
    if (!hidden.has(left) && !hidden.has(right) && !hidden.has(both)) ranks.set(left * tokens.length + right, i / 3);
  }
  /** @type {Map<string, Token[]>} */
  const known = new Map();

  /** The characters of a word as ids, and how many bytes each of them counts for. @param {string} word */
  function symbols(word) {
    /** @type {number[]} */
    const found = [];
    /** @type {number[]} */
    const lengths = [];
    let pending = 0; // bytes of unknown text that is still to come
    /** @param {number} id @param {number} length */
    const add = (id, length) => {
      found.push(id);
      lengths.push(length);
    };
    const flush = () => {
      if (pending) add(unknown ?? 0, pending);
      pending = 0;
    };
    let at = 0;
    for (const c of word) {
      const spelled = (at ? prefix : "") + c + (at + c.length === word.length ? suffix : "");
      at += c.length;
      const id = ids.get(spelled);
      const fallback =
        id === undefined && model.bytes ? Array.from(encoder.encode(c), (byte) => model.bytes?.[byte] ?? null) : null;
      if (id !== undefined) {
        flush();
        add(id, byteLength(c));
      } else if (fallback && !fallback.includes(null)) {
        for (const byte of fallback) add(byte ?? 0, 1);
      } else if (unknown !== null) {
        if (!model.fuse_unknown) flush();
        pending += byteLength(c);
      }
    }
    flush();
    return { found: Int32Array.from(found), lengths: Int32Array.from(lengths) };
  }

  /** @param {string} word */
  function merged(word) {
    const { found, lengths } = symbols(word);
    const count = found.length;
    const next = Int32Array.from(found, (_, i) => (i + 1 < count ? i + 1 : -1));
    const before = Int32Array.from(found, (_, i) => i - 1);
    const queue = createHeap();
    /** @param {number} i */
    const offer = (i) => {
      if (i < 0 || next[i] < 0) return;
      const rank = ranks.get(found[i] * tokens.length + found[next[i]]);
      if (rank !== undefined) queue.push(rank * PLACES + i);
    };
    for (let i = 0; i < count; i++) offer(i);
    for (let top = queue.pop(); top !== undefined; top = queue.pop()) {
      const i = top % PLACES;
      const right = next[i];
      if (!lengths[i] || right < 0) continue;
      const both = merges[((top - i) / PLACES) * 3 + 2];
      const rank = ranks.get(found[i] * tokens.length + found[right]);
      if (rank === undefined || merges[rank * 3 + 2] !== both) continue; // one of the two was merged meanwhile
      found[i] = both;
      lengths[i] += lengths[right];
      lengths[right] = 0;
      next[i] = next[right];
      if (next[i] >= 0) before[next[i]] = i;
      offer(before[i]);
      offer(i);
    }
    return placed(word, found, lengths);
  }

  /**
   * Where tokens are in their word. Lengths are in bytes, as the library counts: a token may be a part of a character, and a
   * character without a token counts for nothing.
   * @param {string} word @param {Int32Array} found @param {Int32Array} lengths
   */
  function placed(word, found, lengths) {
    /** @type {Token[]} */
    const out = [];
    let [unit, passed, bytes] = [0, 0, 0]; // the character at `unit` begins after `passed` bytes
    const width = () => ((word.codePointAt(unit) ?? 0) > 0xffff ? 2 : 1);
    /** @param {number} byte */
    const seek = (byte) => {
      for (;;) {
        const after = passed + byteLength(word.slice(unit, unit + width()));
        if (after > byte) return;
        [unit, passed] = [unit + width(), after];
      }
    };
    lengths.forEach((length, i) => {
      if (!length) return;
      seek(bytes);
      const begin = unit;
      bytes += length;
      seek(bytes - 1);
      out.push({ id: found[i], begin, end: unit + width(), text: tokens[found[i]] ?? "" });
    });
    return out;
  }

  return (word) => {
    const remembered = known.get(word);
    if (remembered) return remembered;
    const id = model.whole_words ? ids.get(word) : undefined;
    const found = id === undefined ? merged(word) : [{ id, begin: 0, end: word.length, text: word }];
    if (word.length <= LONG_WORD && known.size < REMEMBERED) known.set(word, found);
    return found;
  };
}

/** Numbers, of which the smallest is taken first. */
function createHeap() {
  /** @type {number[]} */
  const heap = [];
  return {
    /** @param {number} x */
    push(x) {
      let i = heap.length;
      for (heap.push(x); i > 0; ) {
        const above = (i - 1) >> 1;
        if (heap[above] <= x) break;
        heap[i] = heap[above];
        i = above;
      }
      heap[i] = x;
    },
    pop() {
      const top = heap[0];
      const x = heap.pop();
      if (x === undefined || !heap.length) return top;
      let i = 0;
      for (let below = 1; below < heap.length; below = 2 * i + 1) {
        if (below + 1 < heap.length && heap[below + 1] < heap[below]) below++;
        if (heap[below] >= x) break;
        heap[i] = heap[below];
        i = below;
      }
      heap[i] = x;
      return top;
    },
  };
}

const UNKNOWN_PENALTY = 10; // below the lowest score

/**
 * The pieces whose scores add up to the most (Viterbi); neighbouring unknown characters are one token.
 * @param {UnigramData} model @param {Set<number>} hidden @returns {Tokenize}
 */
function unigram(model, hidden) {
  const { scores, unknown } = model;
  const ids = idsOf(model, hidden);
  const trie = createTrie(ids);
  const worst = scores.reduce((a, b) => Math.min(a, b), Infinity) - UNKNOWN_PENALTY;

  /** The best way to each place of the word, from the end: stretches and their ids. @param {string} word */
  function path(word) {
    const best = new Float64Array(word.length + 1);
    const start = new Int32Array(word.length + 1).fill(-1);
    const through = new Int32Array(word.length + 1);
    let here = 0;
    /** @param {number} end @param {number} id @param {number} score */
    const offer = (end, id, score) => {
      if (start[end] >= 0 && score + best[here] <= best[end]) return;
      best[end] = score + best[here];
      start[end] = here;
      through[end] = id;
    };
    while (here < word.length) {
      const after = here + ((word.codePointAt(here) ?? 0) > 0xffff ? 2 : 1);
      let single = false;
      trie.prefixes(word, here, (end, id) => {
        offer(end, id, scores[id]);
        single ||= end === after;
      });
      if (!single) {
        if (unknown === null) throw new Refused(NO_UNKNOWN, 400);
        offer(after, unknown, worst);
      }
      here = after;
    }
    /** @type {{ begin: number, end: number, id: number }[]} */
    const found = [];
    for (let end = word.length; end > 0; end = start[end]) found.push({ begin: start[end], end, id: through[end] });
    return found.reverse();
  }

  return (word) => {
    /** @type {{ begin: number, end: number, id: number }[]} */
    const stretches = [];
    for (const one of path(word)) {
      const before = stretches.at(-1);
      if (before && one.id === unknown && before.id === unknown) before.end = one.end;
      else stretches.push(one);
    }
    return stretches.flatMap(({ begin, end }) => {
      const text = word.slice(begin, end);
      const id = ids.get(text);
      if (id !== undefined) return [{ id, begin, end, text }];
      const fallback = model.bytes ? Array.from(encoder.encode(text), (byte) => model.bytes?.[byte] ?? null) : [null];
      if (!fallback.includes(null)) {
        return fallback.map((byte) => ({ id: byte ?? 0, begin, end, text: model.tokens[byte ?? 0] ?? "" }));
      }
      if (unknown === null) throw new Refused(NO_UNKNOWN, 400);
      return [{ id: unknown, begin, end, text }];
    });
  };
}
