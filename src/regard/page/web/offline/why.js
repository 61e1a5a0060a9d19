/**
 * Why? in a file: the same answer that the server gives, from the numbers the file has.
 *
 * In: a run, a node and an index. Out: the JSON of `Why`. Where an operand is missing, the formula, the value and a sentence
 * about what is missing.
 */

import { Refused } from "regard/data.js";
import { get, isCall, isNumber, readFrom, settled } from "regard/offline/formula.js";
import { divisor } from "regard/offline/output.js";
import { inWriting, ordered, reason, termOf } from "regard/offline/reason.js";
import { createWriter, joined, number, pieces, python, quoted } from "regard/offline/render.js";

/** @typedef {ReturnType<typeof createWriter>} Writer */
/** @typedef {{ index: number[], most: number, writer: Writer, left: string, symbol: string }} Asked */
/**
 * What a formula says of a number.
 * @typedef {Omit<ReturnType<typeof reason>, "term"> & { term: (k: number) => Term, note: string }} Found
 */

const SHOWN = 12;
const EPSILON = 2 ** -23; // of float32

/**
 * @param {FileContents} file @param {FileGraph} graph @param {FileRun} run @param {Answers} answers @param {string} name
 * @param {number[]} index @param {number} [most]
 */
export async function why(file, graph, run, answers, name, index, most = SHOWN) {
  const writer = createWriter(file.letters);
  const asked = { index, most, writer, left: writer.subscript(name, index), symbol: writer.place(name, index) };
  if (name in file.weights || name in file.constants) return given(file, await run.numbers(name), asked);
  const node = graph.get(name);
  if (!node) throw new Refused(`There is no node ${name} in this run, and no weight of that name in this file.`, 404);
  const partial = !(name in file.nodes) && (name === "logits" || name === "probabilities") && file.answers;
  if (partial) return ofLikeliest(file, run, answers, node, asked);
  const value = get(await run.numbers(name), index);
  const operands = await run.operands([...node.uses].filter(run.has));
  const e = treeOf(node, index, run);
  if (operands.size < node.uses.size) return unexplained(file, node, asked, e, value);
  /** @param {string} name @param {number} axis */
  const tokens = (name, axis) => tokensOf(file, graph, name, axis);
  const found = reason(e, { ...asked, read: readFrom(operands), tokens });
  return told(file, run, node, asked, value, { ...found, note: noteOf(file, node, index, e, operands) });
}

/** @param {FileNode} fileNode @param {number[]} index @param {FileRun} fileRun */
const treeOf = ({ formula }, index, { texts }) =>
  settled(formula, Object.fromEntries(index.map((i, axis) => [`i${axis}`, i])), texts);

/**
 * A sentence about the operation, and about this number where there is more to say.
 * @param {FileContents} file @param {FileNode} fileNode @param {number[]} index @param {Tree} e
 * @param {Map<string, NamedTensor>} operands
 */
function noteOf(file, { name, op, inputs, facts: { window } }, index, e, operands) {
  if (op === "mask") {
    const [i, j] = index.slice(-2);
    const far = `it is ${i - j} back, and the last ${window} are seen, itself included`;
    const cause = j > i ? "it comes later" : far;
    return isNumber(e) ? `Token ${i} may not look at token ${j}: ${cause}. e^-∞ is 0, so its weight will be 0.` : "";
  }
  if (op === "softmax") {
    const x = readFrom(operands)(inputs[0]);
    const hidden = Array.from({ length: x.shape[x.shape.length - 1] }, (_, k) =>
      get(x, [...index.slice(0, -1), k]),
    ).includes(-Infinity);
    return `The terms are the shares of the sum below the line${hidden ? "; hidden keys have a share of 0" : ""}.`;
  }
  return file.notes[name];
}

/**
 * @param {FileContents} file @param {FileRun} run @param {FileNode} node @param {Asked} asked @param {number} value
 * @param {Found} found
 */
function told(file, run, node, { index, most, symbol }, value, found) {
  const { recomputed, values, order, term } = found;
  const rest = order.slice(most);
  const difference = value === recomputed ? 0 : Math.abs(value - recomputed);
  const tolerance = EPSILON * found.rounding;
  const edited = (run.changes.has(node.name) || file.trace.edited.includes(node.name)) && !(difference <= tolerance);
  const note = edited ? `Edited here: without the edit it would be ${number(recomputed)}.` : found.note;
  return {
    node: node.name,
    index,
    op: node.op,
    label: inWords(file, node, index),
    value,
    recomputed,
    difference,
    tolerance,
    agrees: difference <= tolerance,
    edited,
    symbols: `${symbol} = ${found.symbols}`,
    numbers: `${found.numbers ? `${found.numbers} = ` : ""}${number(recomputed)}`,
    latex: found.latex,
    python: found.python,
    note: [note, precision(file, run, node.name)].filter(Boolean).join(" "),
    terms: order.slice(0, most).map(term),
    rest: { count: rest.length, sum: rest.reduce((sum, k) => sum + values[k], 0) },
  };
}

/**
 * What must be said about a number that is not the one the run made.
 * @param {FileContents} file @param {FileRun} run @param {string} name
 */
function precision(file, run, name) {
  if (run.own(name)) return "Computed in this file, from the numbers it carries.";
  const { bits = 24 } = file.nodes[name] ?? {};
  if (bits < 24) return `Rounded to ${bits} significant bits in this file.`;
  if (file.keeps.all || name in file.nodes) return "";
  const to = file.keeps.bits < 24 ? ` to ${file.keeps.bits} significant bits` : "";
  return `Computed in this file from numbers that it keeps${to}.`;
}

const EXACTLY = { difference: 0, tolerance: 0, agrees: true, edited: false, terms: [], rest: { count: 0, sum: 0 } };
/** @param {number} value */
const plainly = (value) => ({ value, recomputed: value, ...EXACTLY });

/**
 * What is not computed in a run: a weight, or a constant.
 * @param {FileContents} file @param {NamedTensor} x @param {Asked} asked
 */
function given(file, x, { index, left, symbol }) {
  const value = get(x, index);
  const learned = x.name in file.weights;
  return {
    ...plainly(value),
    node: x.name,
    index,
    op: learned ? "weight" : "constant",
    label: `${x.name}[${index.join(", ")}]: a ${learned ? "learned weight" : "constant"}`,
    symbols: symbol,
    numbers: number(value),
    latex: `${left} = ${number(value)}`,
    python: python(["at", x.name, ...index]),
    note: learned ? "A learned weight: training set it." : "A constant of the model: it was not learned.",
  };
}

/**
 * The value and the formula that made it, where the weights are not at hand.
 * @param {FileContents} file @param {FileNode} node @param {Asked} asked @param {Tree} e @param {number} value
 */
function unexplained(file, node, { index, left, symbol, writer }, e, value) {
  const { symbols, ...written } = inWriting(e, value, left, writer);
  const { bits = 24 } = file.nodes[node.name] ?? {};
  const rounded = bits < 24 ? ` Rounded to ${bits} significant bits in this file.` : "";
  return {
    ...plainly(value),
    recomputed: null,
    node: node.name,
    index,
    op: node.op,
    label: inWords(file, node, index),
    symbols: `${symbol} = ${symbols}`,
    numbers: number(value),
    ...written,
    note: `Its weights are not in this file, so it cannot be taken further apart here.${rounded}`,
  };
}

/**
 * A logit or a probability of a vocabulary of which each position keeps its likeliest.
 * @param {FileContents} file @param {FileRun} run @param {Answers} answers @param {FileNode} node @param {Asked} asked
 */
async function ofLikeliest(file, run, answers, node, asked) {
  const { index, left, writer } = asked;
  const [row, id] = index;
  const found = await answers.at(run, row);
  const { known, vocabulary } = found;
  const rank = known.findIndex((one) => one.id === id);
  if (rank < 0)
    throw new Refused(`Token ${id} is not among the ${known.length} likeliest, which this file keeps here.`, 404);
  const e = treeOf(node, index, run);
  if (node.name === "logits") return unexplained(file, node, asked, e, known[rank].logit);
  const below = divisor(found);
  const above = known.map(({ logit }) => Math.exp(logit - known[0].logit));
  const values = above.map((x) => x / below);
  /** @param {number} k */
  const factor = (k) => {
    const index = [row, known[k].id];
    return { node: "logits", index, value: known[k].logit, label: writer.place("logits", index) };
  };
  const why = told(file, run, node, asked, values[rank], {
    ...inWriting(e, values[rank], left, writer),
    recomputed: values[rank],
    rounding: 0,
    values,
    order: ordered(values),
    term: (k) => termOf(values[k], [factor(k)], ["e^", " / Σ"]),
    numbers: `${joined(pieces(isCall(e) ? e[1] : e), () => number(known[rank].logit))} / Σ = ${number(above[rank])} / ${number(below)}`,
    note: `The sum below the line is over all ${vocabulary} tokens; the file keeps ${known.length} of them by name.`,
  });
  const shown = why.terms.reduce((sum, { value }) => sum + value, 0);
  return { ...why, rest: { count: vocabulary - why.terms.length, sum: 1 - shown } };
}

// Words for a place.

/** @param {string | undefined} axis */
const isText = (axis) => axis === "source" || axis === "target";

/** @param {FileContents} fileContents @param {FileGraph} graph @param {string} name @param {number} axis */
function tokensOf({ trace }, graph, name, axis) {
  const kind = graph.get(name)?.axes[axis];
  return isText(kind) ? (kind === "target" ? trace.target_tokens : trace.tokens) : undefined;
}

/** @param {FileContents} file @param {FileNode} fileNode @param {number[]} index */
function inWords(file, { name, axes }, index) {
  const { tokens, target_tokens, labels } = file.trace;
  const many = axes.filter(isText).length > 1;
  const said = axes.map((axis, position) => {
    const i = index[position];
    if (isText(axis)) {
      const role = !many ? "token" : position === 1 ? "query" : "key";
      return `${role} ${quoted(((axis === "target" ? target_tokens : null) ?? tokens)[i])}`;
    }
    if (axis === "vocabulary" && file.spelt) return `token ${quoted(file.pieces[i] ?? String(i))}`;
    if (axis === "class") return `class ${labels[i] ?? i}`;
    return axis === "one" ? "" : `${axis.replace("kv_head", "key/value head")} ${i}`;
  });
  return [name, ...said.filter(Boolean)].join(", ");
}
