/**
 * Lenses in a file: computed where the weights of attention suffice, looked up where they were computed before.
 *
 * In: a run, a lens's name and what it is asked about. Out: the JSON of /api/lens.
 */

import { Refused } from "regard/data.js";
import { gates } from "regard/offline/gates.js";
import { unpack } from "regard/offline/parcel.js";

/** @typedef {{ N: number, T: number, at: (i: number, j: number) => number }} Head */
/** @typedef {ReturnType<typeof wayOf>} Way */

/**
 * @template {keyof Lenses} K
 * @param {FileContents} file @param {FileGraph} graph @param {FileRun} run @param {K} name @param {LensParameters} [asked]
 * @returns {Promise<Lenses[K]>}
 */
export async function lens(file, graph, run, name, asked = {}) {
  const found = LENSES[name];
  if (!found) throw new Refused(name === "gradient" ? NO_GRADIENTS : `There is no lens ${name} in this file.`, 404);
  return found(file, run, asked, graph);
}

const NO_GRADIENTS = "Which tokens an answer rests on takes the model’s gradients: “regard view” has them.";
const NO_EFFECTS = "This file does not keep what each head does to the answer.";
const NOT_SPOKEN_FOR =
  "This file keeps who spoke for the likeliest answers, of a large model at the last token; this one is not among them.";

/** @param {FileRun} run @param {string} words */
const plainOnly = (run, words) => {
  if (run.base) throw new Refused(`${words} is kept for the run as it was; choose A to see it.`, 404);
};

/** @type {{ [K in keyof Lenses]?: (file: FileContents, run: FileRun, asked: LensParameters, graph: FileGraph) => Promise<Lenses[K]> }} */
const LENSES = {
  async heads(file, run) {
    const { sites, ids, target_ids } = file.trace;
    const scored = sites.map(async ({ site, kind, queries, weights }) => {
      const A = await run.numbers(weights);
      const itself = kind !== "cross";
      const asks = queries === "source" ? ids : (target_ids ?? []);
      const scores = {
        entropy: perHead(A, entropy),
        first: perHead(A, (a) => first(a, itself ? 1 : 0)),
        previous: itself ? perHead(A, previous) : null,
        induction: itself ? perHead(A, (a) => induction(a, asks)) : null,
      };
      return [site, scores];
    });
    return { sites: Object.fromEntries(await Promise.all(scored)) };
  },

  async logit_lens(file, run, { token = -1 }) {
    plainOnly(run, "The logit lens");
    if (!file.lenses.logit_lens) throw new Refused("This model has no logit lens: no residual stream ends in words.", 404);
    const { nodes, ids, probabilities, refused } = file.lenses.logit_lens;
    if (refused) throw new Refused(refused, 400);
    const [a, p] = await Promise.all([unpack(ids), unpack(probabilities)]);
    const most = a.shape[a.shape.length - 1];
    const tokens = a.shape.length === 3 ? a.shape[1] : 1;
    const row = a.shape.length === 3 ? (token + tokens) % tokens : 0;
    /** @param {number} k @returns {Guess} */
    const guess = (k) => [file.pieces[a.values[k]] ?? `#${a.values[k]}`, a.values[k], p.values[k]];
    /** @param {number} n */
    const top = (n) => upTo(most).map((k) => guess((n * tokens + row) * most + k));
    return { rows: nodes.map((node, n) => ({ node, top: top(n) })) };
  },

  async rollout(file, run, { stack, layer }) {
    const all = file.trace.sites.filter(({ kind }) => kind !== "cross");
    if (!all.length) throw new Refused("Rollout follows self-attention through layers, and this model has none.", 404);
    const here = stack ?? all[0].stack;
    const path = all.filter((site) => site.stack === here);
    const kept = file.lenses.rollout?.[here];
    if (kept && !run.base && (layer ?? path.length - 1) === path.length - 1) return unpack(kept);
    const weights = await Promise.all(path.slice(0, (layer ?? path.length) + 1).map(({ weights: A }) => run.numbers(A)));
    const [first, ...others] = weights;
    const N = first.shape[1];
    return { shape: [N, N], values: others.reduce(mixed, mixed(null, first)) };
  },

  contribution: (file, run, { site = "", head = 0 }, graph) => contribution(file, run, site, head, graph),

  gates: (_, run, { node = "" }, graph) => gates(graph, run, node),

  async disagreement(file, run, _, graph) {
    const heads = file.trace.sites.filter(({ M }) => M);
    /** @param {Site} site */
    const one = async ({ site, heads: count }) => {
      const each = await Promise.all(upTo(count).map((head) => contribution(file, run, site, head, graph)));
      return [site, each.map(({ disagreement }) => disagreement)];
    };
    return { sites: Object.fromEntries(await Promise.all(heads.map(one))) };
  },

  async attribution(file, run, { token = -1, id }) {
    plainOnly(run, "Who spoke for an answer");
    const { parts = [], rows = {}, refused } = file.lenses.attribution ?? {};
    if (refused) throw new Refused(refused, 400);
    const length = (file.trace.target_tokens ?? file.trace.tokens).length;
    const row = file.trace.head === "classify" ? 0 : (token + length) % length;
    const found = rows[`${row},${id}`];
    if (!found) throw new Refused(NOT_SPOKEN_FOR, 404);
    const [values, bias, total] = found;
    return { id: Number(id), parts: parts.map(([label, node], k) => ({ label, node, value: values[k] })), bias, total };
  },

  async ablation(file, run, { token = -1, site: only }) {
    plainOnly(run, "The effect of every head");
    const { effect = {}, rows = [] } = file.without ?? {};
    const length = (file.trace.target_tokens ?? file.trace.tokens).length;
    const row = file.trace.head === "classify" ? 0 : (token + length) % length;
    const at = rows.indexOf(row);
    if (at < 0)
      throw new Refused(rows.length ? `This file keeps each head's effect after token ${rows[0]}.` : NO_EFFECTS, 404);
    const asked = Object.entries(effect).filter(([site]) => !only || site === only);
    const unpacked = asked.map(async ([site, x]) => {
      const { shape, values } = await unpack(x);
      return [site, Array.from({ length: shape[0] }, (_, h) => values[h * shape[1] + at])];
    });
    return { sites: Object.fromEntries(await Promise.all(unpacked)) };
  },
};

/**
 * What each key's value adds, as a length, beside the weight it has.
 * @param {FileContents} file @param {FileRun} run @param {string} site @param {number} head @param {FileGraph} graph
 * @returns {Promise<Lenses["contribution"]>}
 */
async function contribution(file, run, site, head, graph) {
  const way = wayOf(file, graph, site);
  const A = await run.numbers(way.weights);
  const [, N, T] = A.shape;
  const silent = await isSilent(file, run, way, head);
  const reach = silent ? new Float64Array(T) : await reachOf(file, run, way, site, head, A.shape[0]);
  const weights = upTo(N).map((i) => [...A.values.subarray((head * N + i) * T, (head * N + i + 1) * T)]);
  const norms = weights.map((row) => row.map((a, j) => Math.abs(a) * reach[j]));
  const apart = weights.map((row, i) => {
    const sum = norms[i].reduce((a, b) => a + b, 0) || Number.MIN_VALUE;
    return row.reduce((total, a, j) => total + Math.abs(a - norms[i][j] / sum), 0) / 2;
  });
  return { norms, weights, disagreement: silent ? null : apart.reduce((a, b) => a + b, 0) / N };
}

/**
 * ½ (Ā + I) R, with the mean Ā of a block's heads; R begins as I.
 * @param {Float64Array | null} R @param {FileTensor} fileTensor
 */
function mixed(R, { shape: [h, N], values: A }) {
  const out = new Float64Array(N * N);
  for (let i = 0; i < N; i++) {
    for (let k = 0; k < N; k++) {
      let looks = 0;
      for (let head = 0; head < h; head++) looks += A[(head * N + i) * N + k];
      const share = (looks / h + (i === k ? 1 : 0)) / 2;
      if (!R) out[i * N + k] = share;
      else if (share) for (let j = 0; j < N; j++) out[i * N + j] += share * R[k * N + j];
    }
  }
  return out;
}

/**
 * From a site's weights on: what they mix (V), what comes of it (Z), and its projection (M) by a matrix (W).
 * @param {FileContents} file @param {FileGraph} graph @param {string} name
 */
function wayOf({ trace }, graph, name) {
  const found = trace.sites.find(({ site }) => site === name);
  if (!found) throw new Refused(`There is no attention at ${name} in this run.`, 404);
  const { weights, V, Z, M } = found;
  return { weights, V, Z, M, W: M === null ? undefined : graph.get(M)?.inputs[1] };
}

/**
 * Whether an edit lets nothing of a head through.
 * @param {FileContents} file @param {FileRun} run @param {Way} way @param {number} head
 */
async function isSilent(file, run, { Z, M }, head) {
  /** @param {string} name */
  const edited = (name) => run.changes.has(name) || file.trace.edited.includes(name);
  /** @param {string} name @param {number} [from] @param {number} [to] */
  const none = async (name, from, to) =>
    edited(name) && (await run.numbers(name)).values.subarray(from, to).every((x) => x === 0);
  const {
    shape: [, N, d_k],
  } = await run.numbers(Z);
  return (await none(Z, head * N * d_k, (head + 1) * N * d_k)) || (M !== null && none(M));
}

/**
 * ‖V[j] W[h]‖ for every key j.
 * @param {FileContents} file @param {FileRun} run @param {Way} way @param {string} site @param {number} head
 * @param {number} heads
 */
async function reachOf(file, run, way, site, head, heads) {
  if (!way.V || !way.W || !run.has(way.W)) {
    const { shape, values } = await unpack(file.lenses.reach[site]);
    return values.subarray(head * shape[1], (head + 1) * shape[1]);
  }
  const [V, W] = await Promise.all([run.numbers(way.V), run.numbers(way.W)]);
  const [groups, T, d_k] = V.shape;
  const d = W.shape[1];
  const from = Math.floor((head * groups) / heads) * T;
  return Array.from({ length: T }, (_, j) => {
    const out = new Float64Array(d);
    for (let c = 0; c < d_k; c++) {
      const v = V.values[(from + j) * d_k + c];
      for (let f = 0; f < d; f++) out[f] += v * W.values[(head * d_k + c) * d + f];
    }
    return Math.hypot(...out);
  });
}

// Scores of heads.

/**
 * of({N, T, at(i, j)}) for every head; null where the run gives no occasion.
 * @param {FileTensor} fileTensor @param {(a: Head) => number | null} of
 */
function perHead({ shape: [h, N, T], values }, of) {
  const scores = Array.from({ length: h }, (_, head) => of({ N, T, at: (i, j) => values[(head * N + i) * T + j] }));
  return scores.includes(null) ? null : scores.map((x) => (Number.isNaN(x) ? null : x)); // edited weights may have no entropy
}

/** @param {number[]} list */
const mean = (list) => (list.length ? list.reduce((a, b) => a + b, 0) / list.length : null);
/** @param {number} n @param {number} [from] */
const upTo = (n, from = 0) => Array.from({ length: Math.max(0, n - from) }, (_, i) => i + from);

/** @param {number} p */
const bits = (p) => (p ? -p * Math.log2(p) : 0);
/** @param {Head} head */
const entropy = ({ N, T, at }) => mean(upTo(N).map((i) => upTo(T).reduce((sum, j) => sum + bits(at(i, j)), 0)));
/** @param {Head} head */
const previous = ({ N, at }) => mean(upTo(N, 1).map((i) => at(i, i - 1)));
/** @param {Head} head @param {number} skip */
const first = ({ N, at }, skip) => mean(upTo(N, skip).map((i) => at(i, 0)));

/** @param {Head} head @param {number[]} ids */
function induction({ at }, ids) {
  const found = ids.flatMap((id, i) => {
    const followers = upTo(i - 1).filter((j) => ids[j] === id);
    return followers.length ? [followers.reduce((sum, j) => sum + at(i, j + 1), 0)] : [];
  });
  return mean(found);
}
