/**
 * What the steps of an attention did in the run on the screen, in words: what its scores are divided by, whom its mask hides,
 * what is handed on.
 *
 * In: a run's graph (facts of its nodes, and which of them an edit wrote over) and the numbers of one head. Out: phrases that are
 * true of them. What the graph says holds of a node that no edit wrote over; of one that was, its numbers are compared with what
 * they would be without the edit. `explain/caption.py` says the same in the terminal.
 */

import { before, nodeOf, titleOf } from "regard/parts/wiring.js";

/**
 * The numbers of one head: what is compared, where it is shown, and each step by its node.
 * @typedef {{ Q: Tensor | null, K: Tensor | null, steps: Named<Tensor> }} HeadNumbers
 */
/** @typedef {{ [node: string]: string }} Words */

const NEAR = 2 ** -7; // relative; bfloat16 rounds by less

/**
 * Whether an edit of this run wrote over a node.
 * @param {Trace} trace @param {string} node
 */
export const isEdited = (trace, node) => trace.edited.includes(node);

/** @param {number} a @param {number} b @param {number} [unit] */
const alike = (a, b, unit = Math.abs(b)) => a === b || Math.abs(a - b) <= NEAR * unit + 1e-6;
/** @param {Float32Array} values @param {(k: number) => number} other */
const differing = (values, other) => values.reduce((count, x, k) => count + (alike(x, other(k)) ? 0 : 1), 0);
/** @param {number} count @param {number} whole */
const changed = (count, whole) => (count ? `; ${count} of ${whole} numbers changed by an edit` : "");

/**
 * The kind of attention at a site: one whose mask was edited is not taken to be causal.
 * @param {Trace} trace @param {Site} site
 */
export const kindOf = (trace, { masked, kind }) =>
  kind === "causal" && masked !== null && isEdited(trace, masked) ? "self" : kind;

/**
 * {words, titles}: by node, of each step of a site; `hidden`: whom the queries do not see.
 * @param {Context} ctx @param {Site} site @param {HeadNumbers} headNumbers
 */
export function captions({ trace, nodes }, site, { Q, K, steps }) {
  /** @type {[words: Words, titles: Words]} */
  const [words, titles] = [{}, {}];
  for (const [name, slice] of steps) {
    const node = nodeOf({ nodes }, name);
    const from = steps.get(before(nodes, site, name));
    [words[name], titles[name]] = [node.facts.said ?? "", titleOf(nodes, name)];
    if (node.op === "mask")
      words[name] = slice.values.includes(-Infinity) ? "hidden entries become −∞" : "nothing is hidden";
    if (name === site.weights && (isEdited(trace, name) || node.op !== "softmax"))
      words[name] = sums(words[name], slice, node.op === "softmax");
    if (!isEdited(trace, name)) continue;
    const made = remade(node, slice, from, Q, K);
    const moved = made === null ? null : differing(slice.values, made);
    if (from && moved !== 0 && !differing(slice.values, (k) => from.values[k])) {
      words[name] =
        node.op === "scale" ? "not divided (an edit switched the scaling off)" : "an edit switched this step off";
      if (node.op === "scale") titles[name] = "scores";
    } else words[name] += made ? changed(moved ?? 0, slice.values.length) : "; an edit changes it";
  }
  return { words, titles, hidden: hiding(nodes, site, steps.get(before(nodes, site, site.weights))) };
}

/**
 * Of weights that may be no shares, what their rows sum to. `shares`: whether they should be.
 * @param {string} words @param {Tensor} weights @param {boolean} shares
 */
function sums(words, weights, shares) {
  const all = rows(weights);
  const odd = all.filter((row) => Math.abs(row.reduce((sum, a) => sum + a, 0) - 1) > NEAR).length;
  const said = odd ? `${odd} of ${all.length} rows do not sum to 1` : "each row sums to 1";
  return shares ? said : `${words}; ${said}`;
}

/**
 * What a step's operation makes of the one before it, as k → number; null where that is not known here.
 * @param {GraphNode} node @param {Tensor} slice @param {Tensor | undefined} from @param {Tensor | null} Q @param {Tensor | null} K
 * @returns {((k: number) => number) | null}
 */
function remade({ op, facts }, { values, shape: [, T] }, from, Q, K) {
  const { several, by = 1, most = 1 } = facts;
  if (several) return null;
  if (op === "dot" && Q && K) return (k) => product(Q, K, k);
  if (op === "scale" && from) return (k) => from.values[k] * by;
  if (op === "cap" && from) return (k) => most * Math.tanh(from.values[k] / most);
  if (op === "mask" && from) return (k) => (values[k] === -Infinity ? -Infinity : from.values[k]); // whom it hides was said
  if (op !== "softmax" || !from) return null;
  const softmax = rows(from).map(shares);
  return (k) => softmax[Math.floor(k / T)][k % T];
}

/** @param {Tensor} tensor */
const rows = ({ shape: [N, T], values }) => Array.from({ length: N }, (_, i) => values.subarray(i * T, (i + 1) * T));

/** @param {Float32Array} row */
function shares(row) {
  const most = row.reduce((a, b) => Math.max(a, b), -Infinity);
  const powers = Float64Array.from(row, (x) => Math.exp(x - most));
  const total = powers.reduce((a, b) => a + b, 0);
  return powers.map((x) => x / total);
}

/**
 * Entry k of Q K^T.
 * @param {Tensor} Q @param {Tensor} K @param {number} k
 */
function product(Q, K, k) {
  const [d, T] = [Q.shape[1], K.shape[0]];
  const [i, j] = [Math.floor(k / T), k % T];
  let sum = 0;
  for (let c = 0; c < d; c++) sum += Q.values[i * d + c] * K.values[j * d + c];
  return sum;
}

/**
 * "later tokens are hidden", "3 of 25 pairs …"; "" where nothing is. `last`: the numbers that the weights are made of.
 * @param {Nodes} nodes @param {Site} site @param {Tensor} [last]
 */
export function hiding(nodes, { masked, kind }, last) {
  if (kind === "causal" && !masked) return "later tokens are hidden"; // by a mask that has no node of its own
  if (!last) return "";
  const {
    shape: [N, T],
    values,
  } = last;
  /** @param {number} i @param {number} j */
  const hidden = (i, j) => values[i * T + j] === -Infinity;
  const { window } = nodes.get(masked)?.facts ?? {};
  /** @param {number} i @param {number} j */
  const usual = (i, j) => kind === "causal" && (j > i || (window !== undefined && j <= i - window));
  let [count, more, seen] = [0, 0, 0];
  for (let i = 0; i < N; i++) {
    for (let j = 0; j < T; j++) {
      if (hidden(i, j)) count++;
      if (hidden(i, j) && !usual(i, j)) more++;
      if (!hidden(i, j) && usual(i, j)) seen++;
    }
  }
  if (!count) return "";
  if (kind !== "causal" || seen) return `${count} of ${N * T} pairs of query and key ${count === 1 ? "is" : "are"} hidden`;
  const far = window !== undefined && window < N ? `, and those ${window} or more places back` : "";
  return `later tokens are hidden${far}${more ? `, and ${more} more pair${more > 1 ? "s" : ""}` : ""}`;
}

/**
 * Whether an edit made a number another than the one worked out for it.
 * @param {Trace} trace @param {string} node @param {number} value @param {number} worked @param {number} [unit]
 */
export const isChanged = (trace, node, value, worked, unit) => isEdited(trace, node) && !alike(value, worked, unit);

/**
 * What a head hands on for one query: "" where it is the weighted sum of its values.
 * @param {Trace} trace @param {string} node @param {Float32Array} z @param {Float32Array} weights @param {Tensor} tensor
 */
export function handedOn(trace, node, z, weights, { shape: [, d], values }) {
  if (!isEdited(trace, node)) return "";
  /** @param {number} f @param {(x: number) => number} of */
  const along = (f, of) => weights.reduce((sum, a, t) => sum + of(a * values[t * d + f]), 0);
  if (
    z.every((x, f) =>
      alike(
        x,
        along(f, (x) => x),
        along(f, Math.abs),
      ),
    )
  )
    return "";
  return z.every((x) => x === 0)
    ? "An edit switched this head off: z = 0. It looks as the weights say, and nothing of what it finds is handed on."
    : "An edit changed what this head hands on: z is not the weighted sum of its values.";
}
