/**
 * The rules of why for the recurrent network of 2015: its additive score and its gates.
 *
 * In: what was asked and `numbers(name)`. Out: a reason, as the rules of `rules.js` give it. These need more operands than
 * the node's own inputs: the state before, and weights that no other rule uses.
 */

import { constant, factor, get, sumOf } from "regard/offline/rules.js";
import { at, number } from "regard/offline/words.js";

const sigmoid = (x) => 1 / (1 + Math.exp(-x));
const row = ({ shape, values }, ...index) => {
  const width = shape.at(-1);
  const from = index.reduce((offset, i, axis) => offset * shape[axis] + i, 0) * width;
  return values.subarray(from, from + width);
};

/** x W + b with W (in, out). */
function times(x, W, b) {
  const columns = W.shape[1];
  const column = (c) => x.reduce((sum, v, k) => sum + v * W.values[k * columns + c], b ? b.values[c] : 0);
  return Float64Array.from({ length: columns }, (_, c) => column(c));
}

/** The decoder's state before word t; before its first, it comes from the first source token, read backwards. */
async function stateBefore(numbers, t) {
  if (t) return row(await numbers("decoder.states"), t - 1);
  const [H, W, b] = await Promise.all(["encoder.reader.H", "decoder.first.weight", "decoder.first.bias"].map(numbers));
  const first = row(H, 0);
  return times(first.subarray(first.length / 2), W, b).map(Math.tanh);
}

async function additive(asked, node, numbers) {
  const [, t, j] = asked.index;
  const names = ["v.weight", "W_s.weight", "W_h.weight", "W_h.bias"].map((name) => `decoder.cross.${name}`);
  const [v, W_s, W_h, b] = await Promise.all(names.map(numbers));
  const read = times(row(await numbers("encoder.reader.H"), j), W_h, b);
  const hidden = times(await stateBefore(numbers, t), W_s).map((x, k) => Math.tanh(x + read[k]));
  const values = [...hidden].map((x, k) => x * get(v, [k, 0]));
  const make = (k) => [factor(v, [k, 0]), constant(hidden[k], `tanh(W_s s + W_h h_${j} + b)[${k}]`)];
  const symbols = `Σ_k v[k] · tanh(W_s s_${t - 1} + W_h h_${j} + b)[k]`;
  const latex = `${asked.left} = v^\\top \\tanh(W_s s_{${t - 1}} + W_h h_{${j}} + b)`;
  const python = `(regard.explain.recurrent.additive_hidden(trace, ${t}, ${j}) @ ${at(v.name, [":", 0])})`;
  const note = "The score of 2015: a small network instead of a dot product.";
  const found = sumOf(values, make, symbols, latex, python, note);
  return { ...found, rounding: 8 * found.rounding };
}

/** What a unit of a GRU reads at token i: {x, before, unit, prefix, suffix, last}; last: where the old state is found. */
async function readBy(name, i, c, numbers) {
  if (name === "decoder.states") {
    const [Y, Z] = [row(await numbers("decoder.embed.out"), i), row(await numbers("decoder.cross.Z"), 0, i)];
    const before = await stateBefore(numbers, i);
    return { x: [...Y, ...Z], before, unit: c, prefix: "decoder.cell.", suffix: "", last: i ? [i - 1, c] : null };
  }
  const H = await numbers(name);
  const hidden = H.shape[1] / 2;
  const back = c >= hidden;
  const previous = back ? i + 1 : i - 1;
  const inside = previous >= 0 && previous < H.shape[0];
  const half = (whole) => (back ? whole.subarray(hidden) : whole.subarray(0, hidden));
  const before = inside ? half(row(H, previous)) : new Float64Array(hidden);
  const x = [...row(await numbers("encoder.embed.out"), i)];
  const names = { prefix: "encoder.reader.gru.", suffix: back ? "_l0_reverse" : "_l0" };
  return { x, before, unit: c % hidden, ...names, last: inside ? [previous, c] : null };
}

async function gru(asked, node, numbers) {
  const [i, c] = asked.index;
  const { x, before, unit, prefix, suffix, last } = await readBy(node.name, i, c, numbers);
  const kinds = ["weight_ih", "weight_hh", "bias_ih", "bias_hh"].map((kind) => numbers(`${prefix}${kind}${suffix}`));
  const [W, U, b, e] = await Promise.all(kinds);
  const gate = (k) => unit + k * before.length;
  const read = (M, bias, of, k) => row(M, gate(k)).reduce((sum, w, f) => sum + w * of[f], bias.values[gate(k)]);
  const [a, u] = [[0, 1, 2].map((k) => read(W, b, x, k)), [0, 1, 2].map((k) => read(U, e, before, k))];
  const [r, z] = [sigmoid(a[0] + u[0]), sigmoid(a[1] + u[1])];
  const n = Math.tanh(a[2] + r * u[2]);
  const old = before[unit];
  const state = last ? factor(await numbers(node.name), last) : constant(old, "the state before the first token");
  const parts = [[constant(1 - z, "1 - z"), constant(n, "candidate n")], [constant(z, "update gate z"), state]];
  const note = `Gates: r = ${number(r)} (how much of the past the candidate sees), z = ${number(z)} (how much stays).`;
  const python = `regard.explain.recurrent.gates(trace, "${node.name}", ${i}, ${c}).value`;
  const latex = `${asked.left} = (1 - z) n + z h'`;
  const found = sumOf([(1 - z) * n, z * old], (k) => parts[k], "(1 - z) · n + z · h_before", latex, python, note);
  return { ...found, rounding: 64 };
}

export const RECURRENT = { additive, gru };
