/**
 * What the steps of an attention did in the run on the screen, in words: what its scores are divided by, whom its mask hides,
 * what is handed on.
 *
 * In: a run's graph (facts of its nodes, and which of them an edit wrote over) and the numbers of one head. Out: phrases that are
 * true of them. What the graph says holds of a node that no edit wrote over; of one that was, its numbers are compared with what
 * they would be without the edit. `explain/caption.py` says the same in the terminal.
 */

const NEAR = 2 ** -7; // relative; bfloat16 rounds by less

/** Whether an edit of this run wrote over a node. */
export const isEdited = (trace, node) => trace.edited.includes(node);

const alike = (a, b, unit = Math.abs(b)) => a === b || Math.abs(a - b) <= NEAR * unit + 1e-6;
const differing = (values, other) => values.reduce((count, x, k) => count + (alike(x, other(k)) ? 0 : 1), 0);
const changed = (count, whole) => (count ? `; ${count} of ${whole} numbers changed by an edit` : "");

/** The kind of attention at a site: one whose mask was edited is not taken to be causal. */
export const kindOf = (trace, { site, kind }) => (kind === "causal" && isEdited(trace, `${site}.masked`) ? "self" : kind);

/**
 * By step: {dots, scores, masked, weights}, `scaled`: "÷ √d_k" where that is what was done, and `hidden`: whom the queries do
 * not see.
 * `head`: {Q, K, dots, scores, masked, weights}, each {shape, values}; masked is null where there is no mask.
 */
export function captions({ trace, nodes }, site, { Q, K, dots, scores, masked, weights }) {
  const over = (step) => isEdited(trace, `${site.site}.${step}`);
  const { scale, d_k, said } = nodes.get(`${site.site}.scores`).facts;
  const size = scores.values.length;
  const last = masked ?? scores;
  const found = { dots: "dot products", scores: said, weights: "each row sums to 1", hidden: hiding(nodes, site, last) };
  found.scaled = Math.abs(scale * Math.sqrt(d_k) - 1) < 1e-6 ? "÷ √d_k" : "scores";
  if (over("dots")) found.dots += changed(differing(dots.values, (k) => product(Q, K, k)), size);
  if (over("scores")) {
    const plain = differing(scores.values, (k) => dots.values[k] * scale);
    const off = plain && !differing(scores.values, (k) => dots.values[k]);
    if (off) found.scaled = "scores";
    found.scores = off ? "not divided (an edit switched the scaling off)" : said + changed(plain, size);
  }
  if (masked) {
    const shown = (x, k) => (x === -Infinity ? scores.values[k] : x);
    const moved = over("masked") ? differing(masked.values.map(shown), (k) => scores.values[k]) : 0;
    found.masked = (found.hidden ? "hidden entries become −∞" : "nothing is hidden") + changed(moved, size);
  }
  if (over("weights")) {
    const [N, T] = weights.shape;
    const odd = rows(weights).filter((row) => Math.abs(row.reduce((sum, a) => sum + a, 0) - 1) > NEAR).length;
    const softmax = rows(last).map(shares);
    if (odd) found.weights = `${odd} of ${N} rows do not sum to 1`;
    found.weights += changed(differing(weights.values, (k) => softmax[Math.floor(k / T)][k % T]), size);
  }
  return found;
}

const rows = ({ shape: [N, T], values }) => Array.from({ length: N }, (_, i) => values.subarray(i * T, (i + 1) * T));

function shares(row) {
  const most = row.reduce((a, b) => Math.max(a, b), -Infinity);
  const powers = Float64Array.from(row, (x) => Math.exp(x - most));
  const total = powers.reduce((a, b) => a + b, 0);
  return powers.map((x) => x / total);
}

/** Entry k of Q K^T. */
function product(Q, K, k) {
  const [d, T] = [Q.shape[1], K.shape[0]];
  const [i, j] = [Math.floor(k / T), k % T];
  let sum = 0;
  for (let c = 0; c < d; c++) sum += Q.values[i * d + c] * K.values[j * d + c];
  return sum;
}

/** "later tokens are hidden", "3 of 25 pairs …"; "" where nothing is. */
export function hiding(nodes, { site, kind }, { shape: [N, T], values }) {
  const hidden = (i, j) => values[i * T + j] === -Infinity;
  const { window } = nodes.get(`${site}.masked`)?.facts ?? {};
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
  const far = window < N ? `, and those ${window} or more places back` : "";
  return `later tokens are hidden${far}${more ? `, and ${more} more pair${more > 1 ? "s" : ""}` : ""}`;
}

/** Whether an edit made a number another than the one worked out for it. */
export const isChanged = (trace, node, value, worked, unit) => isEdited(trace, node) && !alike(value, worked, unit);

/** What a head hands on for one query: "" where it is the weighted sum of its values. */
export function handedOn(trace, node, z, weights, { shape: [, d], values }) {
  if (!isEdited(trace, node)) return "";
  const along = (f, of) => weights.reduce((sum, a, t) => sum + of(a * values[t * d + f]), 0);
  if (z.every((x, f) => alike(x, along(f, (x) => x), along(f, Math.abs)))) return "";
  return z.every((x) => x === 0)
    ? "An edit switched this head off: z = 0. It looks as the weights say, and nothing of what it finds is handed on."
    : "An edit changed what this head hands on: z is not the weighted sum of its values.";
}
