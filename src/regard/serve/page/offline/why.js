/**
 * Why? in a file: the same answer that the server gives, from the numbers the file has.
 *
 * In: a run, a node and an index. Out: the JSON of `Why`. Where an operand is missing, the formula's kind, the value and a
 * sentence about what is missing.
 */

import { Refused } from "regard/data.js";
import { get, ordered, RULES, softmaxed } from "regard/offline/rules.js";
import { place, quoted, subscript, number } from "regard/offline/words.js";

const SHOWN = 12;
const EPSILON = 2 ** -23;
const SYMBOLS = { linear: "X W + b", concat: "Z W_o + b, the heads side by side", lookup: "a row of a table", joined: "a sum over state, context and word", gru: "(1 - z) · n + z · h_before", additive: "v^T tanh(W_s s + W_h h + b)" };

export async function why(file, graph, run, answers, name, index) {
  const asked = { index, run: file.trace, left: subscript(name, index), tokens: (node, axis) => tokensOf(file, graph, node, axis) };
  if (name in file.weights) return learned(await run.numbers(name), asked);
  const node = graph.get(name);
  if (!node) throw new Refused(`There is no node ${name} in this run, and no weight of that name in this file.`, 404);
  const partial = !(name in file.nodes) && (name === "logits" || name === "probabilities") && file.answers;
  if (partial) return ofLikeliest(file, run, answers, node, asked);
  const value = get(await run.numbers(name), index);
  const words = inWords(file, node, index);
  const missing = node.inputs.find((input) => !run.has(input));
  if (!(node.op in RULES) || missing) return unexplained(file, node, index, value, words, missing);
  const reason = RULES[node.op](asked, node, await Promise.all(node.inputs.map(run.numbers)));
  return told(file, run, node, index, value, words, reason);
}

function told(file, run, node, index, value, label, reason) {
  const order = ordered(reason.values);
  const terms = order.slice(0, SHOWN).map((k) => term(reason.values[k], reason.make(k)));
  const rest = order.slice(SHOWN);
  const difference = value === reason.recomputed ? 0 : Math.abs(value - reason.recomputed);
  const tolerance = EPSILON * reason.rounding;
  const edited = run.changes.has(node.name) && !(difference <= tolerance);
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

const term = (value, factors) => ({ label: factors.map(({ label }) => label).join(" × "), value, factors });

/** What must be said about a number that is not the one the run made. */
function precision(file, run, name) {
  if (run.base) return "Computed in this file, from the numbers it carries.";
  if (file.nodes[name]?.bits < 24) return `Rounded to ${file.nodes[name].bits} significant bits in this file.`;
  if (file.keeps.all || name in file.nodes) return "";
  return file.keeps.bits < 24 ? `Computed in this file from numbers that it keeps to ${file.keeps.bits} significant bits.` : "Computed in this file from the numbers it keeps.";
}

function learned(weight, { index }) {
  const value = get(weight, index);
  const symbol = place(weight.name, index);
  const shown = number(value);
  return {
    ...plainly(value), node: weight.name, index, op: "weight", label: `${weight.name}[${index.join(", ")}]: a learned weight`, symbols: symbol, numbers: shown,
    latex: `${subscript(weight.name, index)} = ${shown}`, python: `trace["${weight.name}"][${index.join(", ") || "..."}].double()`, note: "A learned weight: training set it.",
  }; // prettier-ignore
}

const plainly = (value) => ({ value, recomputed: value, difference: 0, tolerance: 0, agrees: true, edited: false, terms: [], rest: { count: 0, sum: 0 } });

function unexplained(file, node, index, value, label, missing) {
  const why = missing ? "Its weights are not in this file, so it cannot be taken further apart here." : "A recurrent network's gates are taken apart by regard itself, not in this file.";
  const kept = file.nodes[node.name]?.bits < 24 ? ` Rounded to ${file.nodes[node.name].bits} significant bits in this file.` : "";
  const shown = number(value);
  return {
    ...plainly(value), recomputed: null, node: node.name, index, op: node.op, label, symbols: `${place(node.name, index)} = ${SYMBOLS[node.op] ?? node.op}`, numbers: shown,
    latex: `${subscript(node.name, index)} = ${shown}`, python: `trace["${node.name}"][${index.join(", ")}].double()`, note: why + kept,
    terms: node.inputs.filter((input) => file.trace.nodes.some(({ name }) => name === input)).slice(0, 0),
  }; // prettier-ignore
}

/** A logit or a probability of a vocabulary of which each position keeps its likeliest. */
async function ofLikeliest(file, run, answers, node, asked) {
  const [row, id] = asked.index;
  const { known, others, vocabulary } = await answers.at(run, row);
  const at = known.findIndex((one) => one.id === id);
  if (at < 0) throw new Refused(`This file keeps the ${known.length} likeliest tokens of each position, and ${file.pieces[id] ?? id} is not among them here.`, 404);
  const label = inWords(file, node, asked.index);
  if (node.name === "logits") return unexplained(file, node, asked.index, known[at].logit, label, true);
  const most = known[0].logit;
  const powers = known.map(({ logit }) => Math.exp(logit - most));
  const below = powers.reduce((a, b) => a + b, 0) + others.reduce((sum, { count, logit }) => sum + count * Math.exp(logit - most), 0);
  const values = powers.map((power) => power / below);
  const make = (k) => [{ node: "logits", index: [row, known[k].id], value: known[k].logit, label: place("logits", [row, known[k].id]) }];
  const reason = softmaxed(asked, "logits", [row], { s: known[at].logit, most, below, count: vocabulary, value: values[at] }, { values, make });
  const found = told(file, run, node, asked.index, values[at], label, { ...reason, note: `The sum below the line is over all ${vocabulary} tokens; the file keeps the ${known.length} likeliest by name.` });
  const shown = found.terms.reduce((sum, { value }) => sum + value, 0);
  return { ...found, rest: { count: vocabulary - found.terms.length, sum: 1 - shown } };
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
    if (axis === "source" || axis === "target") return `${!many ? "token" : position === 1 ? "query" : "key"} ${quoted((axis === "target" ? target_tokens : tokens)[i])}`;
    if (axis === "vocabulary" && file.spelt) return `token ${quoted(file.pieces[i] ?? String(i))}`;
    if (axis === "class") return `class ${labels[i] ?? i}`;
    return axis === "one" ? "" : `${axis.replace("kv_head", "key/value head")} ${i}`;
  });
  return [name, ...said.filter(Boolean)].join(", ");
}
