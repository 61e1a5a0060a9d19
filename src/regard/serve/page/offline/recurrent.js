/**
 * The recurrent network of 2015 in a file: its gates, its additive score, and why they are what they are.
 *
 * In: a run with all of its weights. Out: the gates of one GRU for every token (the JSON of /api/lens), and the rules of why for
 * the operations that go from step to step. Float64, from the numbers the run made.
 */

import { Refused } from "regard/data.js";
import { constant, factor, sumOf } from "regard/offline/rules.js";
import { at, number } from "regard/offline/words.js";

const sigmoid = (x) => 1 / (1 + Math.exp(-x));
const row = ({ shape, values }, i) => values.subarray(i * shape.at(-1), (i + 1) * shape.at(-1));

/** rows of W · x + b, in the orientation of PyTorch's GRU: a row per unit and part. */
const affine = (W, b, x) => Float64Array.from(b.values, (sum, r) => {
  for (let k = 0; k < x.length; k++) sum += W.values[r * x.length + k] * x[k];
  return sum;
});

/** x W + b for a linear map kept as (in, out); b may be absent. */
function mapped(x, W, b) {
  const [d, columns] = W.shape;
  const out = b ? Float64Array.from(b.values) : new Float64Array(columns);
  for (let k = 0; k < d; k++) for (let c = 0; c < columns; c++) out[c] += x[k] * W.values[k * columns + c];
  return out;
}

const all = (run, ...names) => Promise.all(names.map(run.numbers));

/** A GRU's weights. */
const cell = (run, place, way) => all(run, ...["weight_ih", "weight_hh", "bias_ih", "bias_hh"].map((name) => `${place}${name}${way}`));

/** One step: r, z and n of every unit. */
function step([W, U, b, e], x, before) {
  const h = before.length;
  const [a, u] = [affine(W, b, x), affine(U, e, before)];
  const r = before.map((_, c) => sigmoid(a[c] + u[c]));
  const z = before.map((_, c) => sigmoid(a[h + c] + u[h + c]));
  const n = before.map((_, c) => Math.tanh(a[2 * h + c] + r[c] * u[2 * h + c]));
  return { r, z, n, before };
}

/** Before its first word the decoder's state comes from the first source token, read backwards. */
async function firstState(run) {
  const [H, W, b] = await all(run, "encoder.reader.H", "decoder.first.weight", "decoder.first.bias");
  const d = H.shape[1];
  return mapped(H.values.subarray(d / 2, d), W, b).map(Math.tanh);
}

/** i → {r, z, n, before} of all units at token i; the encoder's forwards, then backwards. */
async function steps(run, node) {
  if (!run.has("decoder.cell.weight_ih")) throw new Refused("The gates are computed from weights, and they are not in this file.", 404);
  const states = await run.numbers(node);
  if (node === "decoder.states") {
    const [Y, Z] = await all(run, "decoder.embed.out", "decoder.cross.Z");
    const [weights, first] = [await cell(run, "decoder.cell.", ""), await firstState(run)];
    return (i) => step(weights, [...row(Y, i), ...row(Z, i)], i ? Float64Array.from(row(states, i - 1)) : first);
  }
  const X = await run.numbers("encoder.embed.out");
  const [there, back] = [await cell(run, "encoder.reader.gru.", "_l0"), await cell(run, "encoder.reader.gru.", "_l0_reverse")];
  const [N, h] = [states.shape[0], states.shape[1] / 2];
  const half = (i, from) => (i < 0 || i >= N ? new Float64Array(h) : Float64Array.from(row(states, i).subarray(from, from + h)));
  return (i) => {
    const ways = [step(there, row(X, i), half(i - 1, 0)), step(back, row(X, i), half(i + 1, h))];
    return Object.fromEntries(["r", "z", "n", "before"].map((key) => [key, [...ways[0][key], ...ways[1][key]]]));
  };
}

/** The lens: every gate of every token, flat. */
export async function gates(run, node = "decoder.states") {
  const [{ shape, values }, at] = [await run.numbers(node), await steps(run, node)];
  const each = Array.from({ length: shape[0] }, (_, i) => at(i));
  const flat = (key) => each.flatMap((one) => [...one[key]]);
  return { shape, r: flat("r"), z: flat("z"), n: flat("n"), before: flat("before"), after: [...values] };
}

/** Rules of why that need more of the run than a node's inputs: (asked, node, run) → reason. */
export const STEPWISE = {
  /** h = (1 - z) n + z h_before. */
  async gru(asked, { name }, run) {
    const [i, c] = asked.index;
    const [found, states] = [(await steps(run, name))(i), await run.numbers(name)];
    const [r, z, n, old] = ["r", "z", "n", "before"].map((key) => found[key][c]);
    const from = i + (name !== "decoder.states" && c >= states.shape[1] / 2 ? 1 : -1);
    const known = from >= 0 && from < states.shape[0];
    const last = known ? factor(states, [from, c]) : constant(old, "the state before the first token");
    const parts = [[constant(1 - z, "1 - z"), constant(n, "candidate n")], [constant(z, "update gate z"), last]];
    const python = `regard.explain.recurrent.gates(trace, "${name}", ${i}, ${c}).value`;
    const note = `Gates: r = ${number(r)} (how much of the past the candidate sees), z = ${number(z)} (how much stays).`;
    const latex = `${asked.left} = (1 - z) n + z h'`;
    const sum = sumOf([(1 - z) * n, z * old], (k) => parts[k], "(1 - z) · n + z · h_before", latex, python, note);
    return { ...sum, rounding: 64 };
  },

  /** vᵀ tanh(W_s s + W_h h_j + b). */
  async additive(asked, node, run) {
    const [, t, j] = asked.index;
    const names = ["decoder.states", "encoder.reader.H", "decoder.cross.W_s.weight", "decoder.cross.W_h.weight"];
    const [states, H, W_s, W_h] = await all(run, ...names);
    const [b, v] = await all(run, "decoder.cross.W_h.bias", "decoder.cross.v.weight");
    const s = t ? row(states, t - 1) : await firstState(run);
    const [left, right] = [mapped(s, W_s), mapped(row(H, j), W_h, b)];
    const hidden = left.map((x, k) => Math.tanh(x + right[k]));
    const make = (k) => [factor(v, [k, 0]), constant(hidden[k], `tanh(W_s s + W_h h_${j} + b)[${k}]`)];
    const values = [...hidden].map((x, k) => x * v.values[k]);
    const symbols = `Σ_k v[k] · tanh(W_s s_${t - 1} + W_h h_${j} + b)[k]`;
    const latex = `${asked.left} = v^\\top \\tanh(W_s s_{${t - 1}} + W_h h_{${j}} + b)`;
    const python = `(regard.explain.recurrent.additive_hidden(trace, ${t}, ${j}) @ ${at("decoder.cross.v.weight", [":", 0])})`;
    const sum = sumOf(values, make, symbols, latex, python, "The score of 2015: a small network instead of a dot product.");
    return { ...sum, rounding: 8 * sum.rounding };
  },
};
