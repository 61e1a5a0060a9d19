/**
 * The runs of a file: the one it carries, and those that follow from it by an edit.
 *
 * In: what `contents.py` wrote. Out: `numbers(name)` → {name, shape, values}: unpacked if the file has them, computed from
 * their formula if not. An edited run takes over what lies before its edits and computes the rest.
 */

import { Refused } from "regard/data.js";
import { fill } from "regard/offline/compile.js";
import { isAt, isCall, isNumber, isOver, isVariable, namesIn, numberOf, readFrom } from "regard/offline/formula.js";
import { flipped, unpack } from "regard/offline/parcel.js";

/** @typedef {{ node: FileNode, row: number, axis: number, tree: Tree }} Row */

/**
 * name → node, with its formula, the names in it (`uses`) and, where it goes step by step, the nodes it goes along with.
 * @param {FileContents} file
 */
export function graphOf(file) {
  /** @type {FileGraph} */
  const graph = new Map();
  for (const node of file.trace.nodes) {
    const formula = file.formulas[node.name];
    graph.set(node.name, { ...node, formula, uses: namesIn(formula), together: [] });
  }
  for (const circle of circles(graph)) for (const node of circle) node.together = circle;
  return graph;
}

/**
 * A node of the run.
 * @param {FileGraph} graph @param {string} name
 */
export function nodeIn(graph, name) {
  const node = graph.get(name);
  if (!node) throw new Refused(`This run has no node ${name}.`, 404);
  return node;
}

/**
 * Groups of nodes that rest on each other: a state on the gates, the gates on the state before.
 * @param {FileGraph} graph
 */
function circles(graph) {
  /** @type {Map<FileNode, number>} */
  const seen = new Map();
  /** @type {FileNode[]} */
  const path = [];
  /** @type {FileNode[][]} */
  const found = [];
  /** @param {FileNode} node */
  const visit = (node) => {
    const mine = seen.size;
    seen.set(node, mine);
    path.push(node);
    let lowest = mine;
    for (const name of node.uses) {
      const other = graph.get(name);
      if (!other) continue;
      const before = seen.get(other);
      if (before === undefined) lowest = Math.min(lowest, visit(other));
      else if (path.includes(other)) lowest = Math.min(lowest, before);
    }
    if (lowest === mine) {
      const circle = path.splice(path.indexOf(node));
      if (circle.length > 1 || node.uses.has(node.name)) found.push(circle);
    }
    return lowest;
  };
  for (const node of graph.values()) if (!seen.has(node)) visit(node);
  return found;
}

/**
 * `changes`: node → [(values, shape, numbers) → values], applied in order after it was computed.
 * @param {FileContents} file @param {FileGraph} graph
 * @param {{ id: string, edits?: Edits, base?: FileRun | null, changes?: FileRun["changes"] }} given
 */
export function createRun(file, graph, { id, edits = {}, base = null, changes = new Map() }) {
  /** @type {Map<string, Promise<NamedTensor>>} */
  const held = new Map();
  /** @type {Map<string, Promise<Map<string, Tensor>>>} */
  const stepped = new Map();
  /** @type {FileRun["texts"]} */
  const texts = { ids: file.trace.ids, target_ids: file.trace.target_ids };
  const touched = after(graph, changes);
  /** @param {string} name */
  const own = (name) => base !== null && touched.has(name); // not as in the run it was made from
  /** @param {string} name */
  const has = (name) => graph.has(name) || name in file.weights || name in file.constants || name in texts;
  const run = { id, edits, base, changes, texts, numbers, operands, own, has };

  /** @param {string} name @returns {Promise<NamedTensor>} */
  function numbers(name) {
    if (base && !own(name)) return base.numbers(name);
    const known = held.get(name) ?? make(name).then((found) => ({ name, ...found }));
    held.set(name, known);
    return known;
  }

  /**
   * What formulas read: name → numbers, at once when all have come.
   * @param {Iterable<string>} names @returns {Promise<Map<string, NamedTensor>>}
   */
  async function operands(names) {
    const found = await Promise.all([...names].map((name) => numbers(name)));
    return new Map(found.map((one) => [one.name, one]));
  }

  /** @param {string} name @returns {Promise<FileTensor>} */
  async function make(name) {
    const ids = texts[name];
    if (ids) return { shape: [ids.length], values: Int32Array.from(ids) };
    if (name in file.constants) return { ...file.constants[name], values: Float32Array.from(file.constants[name].values) };
    if (name in file.weights) return parameter(name);
    const node = nodeIn(graph, name);
    let values = kept(node) ? /** @type {Float32Array} */ ((await unpack(file.nodes[name])).values) : await compute(node);
    for (const change of changes.get(name) ?? []) values = await change(values, node.shape, numbers);
    return { shape: node.shape, values };
  }

  /** @param {FileNode} fileNode */
  const kept = ({ name }) => !base && name in file.nodes;

  /** @param {FileNode} node @returns {Promise<Float32Array>} */
  async function compute(node) {
    const circle = node.together.filter((other) => !kept(other));
    if (circle.length > 1 || circle[0]?.uses.has(node.name)) return readFrom(await stepwise(circle))(node.name).values;
    if (![...node.uses].every(has)) throw new Refused(missing(node.name, base), 404);
    const operands = await run.operands(node.uses);
    return fill(new Float32Array(sizeOf(node)), node.shape, node.formula, readFrom(operands));
  }

  /**
   * Nodes that rest on each other are computed step by step, all of them when one is asked for.
   * @param {FileNode[]} circle
   */
  function stepwise(circle) {
    const key = circle.map(({ name }) => name).join(" ");
    const known = stepped.get(key) ?? inSteps(circle);
    stepped.set(key, known);
    return known;
  }

  /** @param {FileNode[]} circle */
  async function inSteps(circle) {
    /** @type {Map<string, Tensor>} */
    const made = new Map(circle.map((node) => [node.name, { shape: node.shape, values: new Float32Array(sizeOf(node)) }]));
    const outside = new Set(circle.flatMap(({ uses }) => [...uses]).filter((name) => !made.has(name)));
    const lacking = circle.find(({ uses }) => ![...uses].every(has));
    if (lacking) throw new Refused(missing(lacking.name, base), 404);
    const operands = await run.operands(outside);
    /** @type {Map<string, FileTensor>} */
    const known = new Map(operands);
    for (const [name, tensor] of made) known.set(name, tensor);
    const read = readFrom(known);
    for (const {
      node: { name, shape },
      row,
      axis,
      tree,
    } of inOrder(circle)) {
      const values = made.get(name)?.values;
      if (values) fill(values, shape, tree, read, { [axis]: row });
    }
    return made;
  }

  /** @param {string} name */
  async function parameter(name) {
    const { of, flip, ...own } = file.weights[name];
    const stored = of ? file.weights[of] : own;
    const found = await unpack(stored);
    return flip ? { ...flipped(found), stored: { values: found.values, strides: [1, found.shape[1]] } } : found;
  }

  return run;
}

/** @param {FileNode} fileNode */
const sizeOf = ({ shape }) => shape.reduce((a, b) => a * b, 1);

/** @param {string} name @param {FileRun | null} edited */
function missing(name, edited) {
  return edited
    ? `${name} follows from the edit through weights that are not in this file; what the edited run says is under Output.`
    : `${name} cannot be computed here: the weights are not in this file.`;
}

/**
 * Names of all nodes that follow from the changed ones, and those themselves.
 * @param {FileGraph} graph @param {FileRun["changes"]} changes
 */
function after(graph, changes) {
  const touched = new Set(changes.keys());
  for (let before = 0; before < touched.size; ) {
    before = touched.size;
    for (const { name, uses } of graph.values()) if ([...uses].some((used) => touched.has(used))) touched.add(name);
  }
  return touched;
}

// Step by step.

/**
 * The rows of nodes whose formula is ["step", variable, row, row, …], each after the rows that it reads.
 * @param {FileNode[]} circle
 */
function inOrder(circle) {
  const rows = new Map(circle.map((node) => [node.name, rowsOf(node)]));
  /** @type {Row[]} */
  const order = [];
  const begun = new Set();
  for (const first of [...rows.values()].flat()) {
    /** @type {{ row: Row, needs: Row[] | null }[]} */
    const path = [{ row: first, needs: null }];
    for (let top = path.at(-1); top; top = path.at(-1)) {
      if (top.needs === null && begun.has(top.row)) {
        path.pop();
        continue;
      }
      begun.add(top.row);
      top.needs ??= rowsIn(top.row.tree, rows);
      const next = top.needs.pop();
      if (next) path.push({ row: next, needs: null });
      else {
        order.push(top.row);
        path.pop();
      }
    }
  }
  return order;
}

/** @param {FileNode} node @returns {Row[]} */
function rowsOf(node) {
  if (!isCall(node.formula, "step")) {
    throw new Refused(`${node.name} rests on itself, and not step by step: it takes “regard view”.`, 404);
  }
  const [, variable, ...trees] = node.formula;
  return trees.map((tree, row) => ({ node, row, axis: Number(variable.slice(1)), tree }));
}

/**
 * The rows that a row's tree reads, of those given.
 * @param {Tree} tree @param {Map<string, Row[]>} rows @returns {Row[]}
 */
function rowsIn(tree, rows) {
  if (isVariable(tree) || isNumber(tree)) return [];
  if (isOver(tree)) return rowsIn(tree[3], rows);
  if (!isAt(tree)) return tree.slice(1).flatMap((part) => rowsIn(part, rows));
  const [, name, ...index] = tree;
  const inside = index.flatMap((part) => rowsIn(part, rows));
  const all = rows.get(name) ?? [];
  const entry = all.length ? index[all[0].axis] : "";
  return [...inside, ...(isNumber(entry) ? [all[numberOf(entry)]] : all)];
}
