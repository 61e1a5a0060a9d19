/**
 * Why? in a file: the same answer that the server gives, from the numbers the file has.
 *
 * In: a run, a node and an index. Out: the JSON of `Why`. Where an operand is missing, the formula's kind, the value and a
 * sentence about what is missing.
 */

import { Refused } from "regard/data.js";
import { divisor } from "regard/offline/output.js";
import { STEPWISE } from "regard/offline/recurrent.js";
import { get, ordered, RULES, softmaxed } from "regard/offline/rules.js";
import { at, number, place, quoted, subscript } from "regard/offline/words.js";

const SHOWN = 12;
const EPSILON = 2 ** -23;
const SYMBOLS = {
  linear: "X W + b",
  concat: "Z W_o + b",
  lookup: "a row of a table",
  joined: "(s ⊕ Z ⊕ y) W + b",
  gru: "(1 - z) · n + z · h_before",
  additive: "v^T tanh(W_s s + W_h h + b)",
};

export async function why(file, graph, run, answers, name, index, most = SHOWN) {
  const tokens = (node, axis) => tokensOf(file, graph, node, axis);
  const asked = { index, most, run: file.trace, left: subscript(name, index), tokens };
  if (name in file.weights) return learned(await run.numbers(name), asked);
  const node = graph.get(name);
  if (!node) throw new Refused(`There is no node ${name} in this run, and no weight of that name in this file.`, 404);
  const partial = !(name in file.nodes) && (name === "logits" || name === "probabilities") && file.answers;
  if (partial) return ofLikeliest(file, run, answers, node, asked);
  const value = get(await run.numbers(name), index);
  const words = inWords(file, node, index);
  const apart = file.keeps.weights || (node.op in RULES && node.inputs.every(run.has));
  if (!apart) return unexplained(file, node, index, value, words);
  const reason = node.op in STEPWISE
    ? await STEPWISE[node.op](asked, node, run)
    : RULES[node.op](asked, node, await Promise.all(node.inputs.map(run.numbers)));
  return told(file, run, node, asked, value, words, reason);
}

function told(file, run, node, { index, most }, value, label, reason) {
  const order = ordered(reason.values);
  const terms = order.slice(0, most).map((k) => term(reason.values[k], reason.make(k), reason.signs));
  const rest = order.slice(most);
  const difference = value === reason.recomputed ? 0 : Math.abs(value - reason.recomputed);
  const tolerance = EPSILON * reason.rounding;
  const edited = (run.changes.has(node.name) || file.trace.edited.includes(node.name)) && !(difference <= tolerance);
  const note = edited ? `Edited here: without the edit it would be ${number(reason.recomputed)}.` : reason.note;
  return {
    node: node.name,
    index,
    op: node.op,
    label,
    value,
    recomputed: reason.recomputed,
    difference,
    tolerance,
    agrees: difference <= tolerance,
    edited,
    symbols: `${place(node.name, index)} = ${reason.symbols}`,
    numbers: `${reason.numbers ? `${reason.numbers} = ` : ""}${number(reason.recomputed)}`,
    latex: reason.latex,
    python: reason.python,
    note: [note, precision(file, run, node.name)].filter(Boolean).join(" "),
    terms,
    rest: { count: rest.length, sum: rest.reduce((sum, k) => sum + reason.values[k], 0) },
  };
}

function term(value, factors, signs = []) {
  const between = signs.length ? signs : ["", ...factors.slice(1).map(() => " × "), ""];
  const label = factors.map((factor, k) => factor.label + between[k + 1]).join("");
  return { label: between[0] + label, value, factors, signs };
}

/** What must be said about a number that is not the one the run made. */
function precision(file, run, name) {
  if (run.own(name)) return "Computed in this file, from the numbers it carries.";
  if (file.nodes[name]?.bits < 24) return `Rounded to ${file.nodes[name].bits} significant bits in this file.`;
  if (file.keeps.all || name in file.nodes) return "";
  const to = file.keeps.bits < 24 ? ` to ${file.keeps.bits} significant bits` : "";
  return `Computed in this file from numbers that it keeps${to}.`;
}

function learned(weight, { index }) {
  const value = get(weight, index);
  const symbol = place(weight.name, index);
  const shown = number(value);
  return {
    ...plainly(value),
    node: weight.name,
    index,
    op: "weight",
    label: `${weight.name}[${index.join(", ")}]: a learned weight`,
    symbols: symbol,
    numbers: shown,
    latex: `${subscript(weight.name, index)} = ${shown}`,
    python: at(weight.name, index),
    note: "A learned weight: training set it.",
  };
}

const EXACTLY = { difference: 0, tolerance: 0, agrees: true, edited: false, terms: [], rest: { count: 0, sum: 0 } };
const plainly = (value) => ({ value, recomputed: value, ...EXACTLY });

/** The value and what kind of formula made it, where the weights are not at hand. */
function unexplained(file, node, index, value, label) {
  const shown = number(value);
  const { bits } = file.nodes[node.name] ?? {};
  const rounded = bits < 24 ? ` Rounded to ${bits} significant bits in this file.` : "";
  return {
    ...plainly(value),
    recomputed: null,
    node: node.name,
    index,
    op: node.op,
    label,
    symbols: `${place(node.name, index)} = ${SYMBOLS[node.op] ?? node.op}`,
    numbers: shown,
    latex: `${subscript(node.name, index)} = ${shown}`,
    python: at(node.name, index),
    note: `Its weights are not in this file, so it cannot be taken further apart here.${rounded}`,
  };
}

/** A logit or a probability of a vocabulary of which each position keeps its likeliest. */
async function ofLikeliest(file, run, answers, node, asked) {
  const [row, id] = asked.index;
  const found = await answers.at(run, row);
  const { known, vocabulary } = found;
  const rank = known.findIndex((one) => one.id === id);
  if (rank < 0) throw new Refused(`Token ${id} is not among the ${known.length} likeliest, which this file keeps here.`, 404);
  const label = inWords(file, node, asked.index);
  if (node.name === "logits") return unexplained(file, node, asked.index, known[rank].logit, label);
  const most = known[0].logit;
  const below = divisor(found);
  const values = known.map(({ logit }) => Math.exp(logit - most) / below);
  const make = (k) => {
    const index = [row, known[k].id];
    return [{ node: "logits", index, value: known[k].logit, label: place("logits", index) }];
  };
  const fraction = { s: known[rank].logit, most, below, count: vocabulary, value: values[rank] };
  const reason = softmaxed(asked, "logits", [row], fraction, { values, make });
  reason.note = `The sum below the line is over all ${vocabulary} tokens; the file keeps ${known.length} of them by name.`;
  const why = told(file, run, node, asked, values[rank], label, reason);
  const shown = why.terms.reduce((sum, { value }) => sum + value, 0);
  return { ...why, rest: { count: vocabulary - why.terms.length, sum: 1 - shown } };
}

// Words for a place.

function tokensOf(file, graph, name, axis) {
  const { tokens, target_tokens } = file.trace;
  return graph.get(name).axes[axis] === "target" ? (target_tokens ?? []) : tokens;
}

function inWords(file, { name, axes }, index) {
  const { tokens, target_tokens, labels } = file.trace;
  const many = axes.filter((axis) => axis === "source" || axis === "target").length > 1;
  const said = axes.map((axis, position) => {
    const i = index[position];
    if (axis === "source" || axis === "target") {
      const role = !many ? "token" : position === 1 ? "query" : "key";
      return `${role} ${quoted((axis === "target" ? target_tokens : tokens)[i])}`;
    }
    if (axis === "vocabulary" && file.spelt) return `token ${quoted(file.pieces[i] ?? String(i))}`;
    if (axis === "class") return `class ${labels[i] ?? i}`;
    return axis === "one" ? "" : `${axis.replace("kv_head", "key/value head")} ${i}`;
  });
  return [name, ...said.filter(Boolean)].join(", ");
}
