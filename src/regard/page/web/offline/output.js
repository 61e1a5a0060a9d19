/**
 * What a run says: logits → temperature → cuts → softmax → a seeded draw, as the server computes it.
 *
 * In: a run and a position. Out: the JSON of /api/output. Of a large vocabulary the file knows the likeliest tokens and
 * groups of the others; of such a model without a head, only the very likeliest.
 */

import { Refused } from "regard/data.js";
import { headOff } from "regard/offline/changes.js";
import { unpack } from "regard/offline/parcel.js";

/** @typedef {Float32Array | Int32Array} Values */
/** @typedef {{ count: number, logit: number }} Group */
/** @typedef {{ temperature: number, top_k: number, top_p: number, min_p: number }} Cuts */
/** @typedef {{ weights: bigint[], total: bigint, kept: number }} Cut */

const ONE = 2n ** 40n; // the weight of the best token
const ROWS = 200;

/**
 * The logits of each position by rank: `at(run, row)` → {known: [{id, logit}], others: [{count, logit}], vocabulary}.
 * @param {FileContents} file @returns {Answers}
 */
export function createAnswers(file) {
  /** @type {Map<string, Promise<FileTensor>>} */
  const held = new Map();
  /** @param {string} key @param {Parcel} packed */
  const once = (key, packed) => {
    const known = held.get(key) ?? unpack(packed);
    held.set(key, known);
    return known;
  };
  /** @param {FileTensor} fileTensor @param {...number} index */
  const rowOf = ({ shape, values }, ...index) => {
    const width = shape[shape.length - 1];
    const from = index.reduce((offset, i, axis) => offset * shape[axis] + i, 0) * width;
    return values.subarray(from, from + width);
  };

  /** @param {FileRun} run @param {number} row */
  async function whole(run, row) {
    const logits = await run.numbers("logits");
    const values = logits.shape.length === 1 ? logits.values : rowOf(logits, row);
    return { known: byRank([...values].map((logit, id) => ({ id, logit }))), others: [], vocabulary: values.length };
  }

  /** @param {NonNullable<FileContents["answers"]>} found @param {number} row */
  async function likeliest(found, row) {
    const { ids, logits, others, vocabulary } = found;
    const parts = Object.entries({ ids, logits, others: others.logits });
    const [a, b, c] = await Promise.all(parts.map(([what, packed]) => once(what, packed)));
    const groups = rowOf(c, row);
    const counted = others.counts.map((count, g) => ({ count, logit: groups[g] }));
    return { known: named(rowOf(a, row), rowOf(b, row)), others: counted, vocabulary };
  }

  /** @param {FileRun} fileRun @param {number} row @param {number} vocabulary */
  async function without({ edits }, row, vocabulary) {
    const off = headOff(edits);
    const { rows = [], ids, logits, sums } = file.without ?? {};
    const at = rows.indexOf(row);
    if (!off || !ids?.[off.site] || !logits || !sums) throw new Refused("This file has no answer of this edited run.", 404);
    if (at < 0)
      throw new Refused(`Of the run without this head the file keeps the answer after token ${rows[0]}, the last.`, 404);
    const parts = Object.entries({ ids, logits, sums });
    const [a, b, c] = await Promise.all(parts.map(([what, packed]) => once(`${what} ${off.site}`, packed[off.site])));
    const known = named(rowOf(a, off.head, at), rowOf(b, off.head, at));
    const count = vocabulary - known.length;
    const left = Math.exp(rowOf(c, off.head)[at]) - known.reduce((sum, { logit }) => sum + Math.exp(logit), 0);
    const others = [{ count, logit: Math.log(Math.max(left, 1e-30) / count) }];
    return { known, others, vocabulary };
  }

  return {
    at(run, row) {
      if (!file.answers) return whole(run, row);
      return run.base ? without(run, row, file.answers.vocabulary) : likeliest(file.answers, row);
    },
  };
}

/** @param {Values} ids @param {Values} logits */
const named = (ids, logits) => byRank([...logits].map((logit, k) => ({ id: ids[k], logit })));
/** @param {Ranked["known"]} rows */
const byRank = (rows) => rows.sort((a, b) => b.logit - a.logit || a.id - b.id);

/**
 * What the softmax divides by: Σ e^{(logit - highest)/T} over the whole vocabulary.
 * @param {Ranked} ranked @param {number} [T]
 */
export function divisor({ known, others }, T = 1) {
  /** @param {number} logit */
  const power = (logit) => Math.exp((logit - known[0].logit) / T);
  const groups = others.reduce((sum, { count, logit }) => sum + count * power(logit), 0);
  return known.reduce((sum, { logit }) => sum + power(logit), 0) + groups;
}

const HEADLESS = "This model has no head: its output is the states themselves, the last block's out.";

/** @param {FileContents} file @param {FileRun} run @param {Answers} answers @param {OutputParameters} [asked] */
export async function output(file, run, answers, asked = {}) {
  const { position, temperature = 1, top_k = 0, top_p = 1, min_p = 0, seed } = asked;
  const { head, labels, tokens, target_tokens, nodes } = file.trace;
  if (!nodes.some(({ name }) => name === "logits")) throw new Refused(HEADLESS, 400);
  if (head === "classify") return classes("class", await answers.at(run, 0), labels);
  const length = (target_tokens ?? tokens).length;
  const { deciding } = file.trace;
  const word = deciding
    ? Math.max(
        0,
        deciding.findIndex((first) => first !== null),
      )
    : length - 1;
  const place = position ?? (head === "mlm" ? masked(file.trace) : word);
  const outside = !(place >= 0 && place < length);
  if (outside) throw new Refused(`position is ${place}, but the run has ${length} of them, counted from 0.`, 400);
  const found = await answers.at(run, place);
  if (head === "tag") return { ...classes("tags", found, labels), position: place, tagged: deciding?.[place] === place };
  const settings = { temperature, top_k, top_p, min_p };
  const chosen = cut(found, settings);
  const drawn = head === "lm" ? draw(file, place, found, chosen, settings, seed) : null;
  return { ...words(file, found, chosen, settings, head === "mlm" ? "mask" : "next"), drawn, position: place };
}

/** @param {Trace} trace */
const masked = ({ tokens }) =>
  Math.max(
    0,
    tokens.findIndex((piece) => /^[<[]mask[>\]]$/i.test(piece)),
  );

/** @param {"class" | "tags"} kind @param {Ranked} ranked @param {string[]} labels */
function classes(kind, { known }, labels) {
  const highest = known[0].logit;
  const sum = known.reduce((total, { logit }) => total + Math.exp(logit - highest), 0);
  const rows = known.map(({ id, logit }) => {
    const p = Math.exp(logit - highest) / sum;
    return { piece: labels[id], id, logit, scaled: logit, kept: true, probability: p, final: p };
  });
  return { kind, rows, kept: rows.length, vocabulary: rows.length, highest, sum, drawn: null };
}

/**
 * Whole-number weights of what is left after top-k, top-p and min-p: {weights by rank, total, kept}.
 * @param {Ranked} ranked @param {Cuts} cuts
 */
function cut({ known, others }, { temperature, top_k, top_p, min_p }) {
  if (!(temperature > 0)) return { weights: known.map((_, k) => (k ? 0n : ONE)), total: ONE, kept: 1 };
  const highest = known[0].logit;
  /** @param {number} logit */
  const weigh = (logit) => BigInt(Math.floor(Math.exp((logit - highest) / temperature) * Number(ONE)));
  const last = top_k ? known[Math.min(top_k, known.length) - 1].logit : -Infinity;
  /** @param {Group} group */
  const weighed = ({ count, logit }) => ({ count, weight: weigh(logit) });
  const named = known.map(({ logit }) => (logit >= last ? weighed({ count: 1, logit }) : { count: 1, weight: 0n }));
  const all = [...named, ...(top_k ? first(others, top_k - known.length) : others).map(weighed)];
  const W = all.reduce((sum, { count, weight }) => sum + BigInt(count) * weight, 0n);
  const bound = top_p < 1 ? BigInt(Math.ceil(top_p * Number(W))) : W;
  const least = min_p * Number(ONE);
  let before = 0n;
  const kept = all.map(({ count, weight }) => {
    const here = weight > 0n && before < bound && Number(weight) >= least ? weight : 0n;
    before += BigInt(count) * weight;
    return { count, weight: here };
  });
  const left = kept.filter(({ weight }) => weight > 0n);
  const total = left.reduce((sum, { count, weight }) => sum + BigInt(count) * weight, 0n);
  const count = left.reduce((sum, one) => sum + one.count, 0);
  return { weights: kept.slice(0, known.length).map(({ weight }) => weight), total, kept: count };
}

/**
 * As many of the grouped tokens as top-k leaves, likeliest first.
 * @param {Group[]} groups @param {number} most
 */
function first(groups, most) {
  let left = most;
  return groups.flatMap(({ count, logit }) => {
    const taken = Math.max(0, Math.min(count, left));
    left -= taken;
    return taken ? [{ count: taken, logit }] : [];
  });
}

/** @param {FileContents} file @param {Ranked} found @param {Cut} cut @param {Cuts} cuts @param {"mask" | "next"} kind */
function words(file, found, { weights, total, kept }, { temperature }, kind) {
  const T = temperature || 1;
  const highest = found.known[0].logit / T;
  const sum = divisor(found, T);
  const rows = found.known.slice(0, ROWS).map(({ id, logit }, k) => ({
    piece: file.pieces[id] ?? `#${id}`,
    id,
    logit,
    scaled: logit / T,
    kept: weights[k] > 0n,
    probability: Math.exp(logit / T - highest) / sum,
    final: Number(weights[k]) / Number(total),
  }));
  return { kind, rows, kept, vocabulary: found.vocabulary, highest, sum };
}

const MASK = 2n ** 64n - 1n;

/** @param {bigint} z */
function mix(z) {
  z &= MASK;
  z = ((z ^ (z >> 30n)) * 0xbf58476d1ce4e5b9n) & MASK;
  z = ((z ^ (z >> 27n)) * 0x94d049bb133111ebn) & MASK;
  return z ^ (z >> 31n);
}

/**
 * 64 random bits that depend on the seed and the step alone.
 * @param {number} seed @param {number} step
 */
const bits = (seed, step) => mix(mix(mix(BigInt(seed))) + BigInt(step + 1) * 0x9e3779b97f4a7c15n);

/**
 * @param {FileContents} file @param {number} place @param {Ranked} found @param {Cut} cut @param {Cuts} cuts
 * @param {number | undefined} seed
 */
function draw(file, place, found, { weights, total }, { temperature }, seed) {
  if (seed === undefined && temperature > 0) return null;
  const step = file.trace.steps.filter(({ position = Infinity }) => position <= place).length;
  const random = bits(Math.trunc(seed ?? 0), step);
  const goal = (random * total) >> 64n;
  let [at, sum] = [0, 0n];
  for (const weight of temperature > 0 ? weights : []) {
    sum += weight;
    if (sum > goal) break;
    at++;
  }
  if (at >= found.known.length) return null; // it falls on a token that the file does not know by name
  const { id, logit } = found.known[at];
  const probability = Math.exp(logit - found.known[0].logit) / divisor(found);
  const u = temperature > 0 ? Number(random) / 2 ** 64 : null;
  return { id, piece: file.pieces[id] ?? `#${id}`, probability, u, step };
}
