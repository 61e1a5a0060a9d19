/**
 * What the gates of a recurrent network did, read off the formula of its states: h = (1 - z) · n + z · before.
 *
 * In: a run and the node of the states. Out: the JSON of /api/lens: for every token and unit r, z, n, the state before and after.
 */

import { Refused } from "regard/data.js";
import { evaluate } from "regard/offline/compile.js";
import { isAt, isCall, readFrom, settled } from "regard/offline/formula.js";
import { nodeIn } from "regard/offline/run.js";

/** @param {FileGraph} graph @param {FileRun} run @param {string} node */
export async function gates(graph, run, node) {
  const { shape, uses } = nodeIn(graph, node);
  const [N, units] = shape;
  const found = Array.from({ length: N * units }, (_, k) => parts(graph, run, node, [Math.floor(k / units), k % units]));
  const each = found.filter((one) => one !== null);
  if (each.length < found.length)
    throw new Refused("Gates are a recurrent network's: this node holds no states of one.", 400);
  const names = new Set([node, ...uses, ...[...uses].flatMap((name) => [...(graph.get(name)?.uses ?? [])])]);
  const operands = await run.operands([...names].filter(run.has));
  /** @param {Tree} e */
  const value = (e) => evaluate(e, readFrom(operands));
  /** @param {"r" | "z" | "n" | "before"} key */
  const all = (key) => each.map((one) => value(one[key]));
  return {
    shape,
    r: all("r"),
    z: all("z"),
    n: all("n"),
    before: all("before"),
    after: [...(await run.numbers(node)).values],
  };
}

/** @param {FileGraph} graph @param {FileRun} run @param {AtTree} atTree */
const treeAt = (graph, run, [, name, ...index]) =>
  settled(nodeIn(graph, name).formula, Object.fromEntries(index.map((i, axis) => [`i${axis}`, i])), run.texts);

/**
 * The trees of r, z, n and the state before; null where the formula is another one.
 * @param {FileGraph} graph @param {FileRun} run @param {string} node @param {number[]} index
 */
function parts(graph, run, node, index) {
  let e = treeAt(graph, run, ["at", node, ...index]);
  while (isAt(e) && graph.has(e[1])) e = treeAt(graph, run, e); // two directions side by side
  const [, fresh, past] = isCall(e, "+") ? e : ["", "", ""];
  if (!isCall(fresh, "·") || !isCall(past, "·") || !isAt(fresh[2])) return null;
  const [, z, before] = past;
  const n = fresh[2];
  const candidate = treeAt(graph, run, n);
  const seen = isCall(candidate) ? candidate[1] : ""; // n = tanh(what the token says + r · what the state says)
  return isCall(seen, "+") && isCall(seen[2], "·") ? { r: seen[2][1], z, n, before } : null;
}
