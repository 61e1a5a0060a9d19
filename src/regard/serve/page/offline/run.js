/**
 * The runs of a file: the one it carries, and those that follow from it by an edit.
 *
 * In: what `contents.py` wrote. Out: `numbers(name)` → {name, shape, values}: unpacked if the file has them, computed from
 * other nodes if not. An edited run takes over what lies before its edits and computes the rest.
 */

import { Refused } from "regard/data.js";
import { OPERATIONS } from "regard/offline/compute.js";
import { flipped, unpack } from "regard/offline/parcel.js";

export function graphOf(file) {
  return new Map(file.trace.nodes.map((node) => [node.name, { ...node, facts: file.facts[node.name] ?? {} }]));
}

/** `changes`: node → [(values, shape, numbers) → values], applied in order after it was computed. */
export function createRun(file, graph, { id, edits = {}, base = null, changes = new Map() }) {
  const held = new Map();
  const touched = after(graph, changes);
  const own = (name) => base !== null && touched.has(name); // not as in the run it was made from
  const run = { id, edits, base, changes, numbers, own, has: (name) => graph.has(name) || name in file.weights };

  function numbers(name) {
    if (base && !own(name)) return base.numbers(name);
    if (!held.has(name)) held.set(name, make(name).then((found) => ({ name, ...found })));
    return held.get(name);
  }

  async function make(name) {
    if (name in file.weights) return parameter(name);
    const node = graph.get(name);
    if (!node) throw new Refused(`This run has no node ${name}.`, 404);
    let values = !base && name in file.nodes ? (await unpack(file.nodes[name])).values : await compute(node);
    for (const change of changes.get(name) ?? []) values = await change(values, node.shape, numbers);
    return { shape: node.shape, values };
  }

  async function compute(node) {
    const possible = node.op in OPERATIONS && node.inputs.every(run.has);
    if (!possible) throw new Refused(missing(node.name, base), 404);
    const operands = await Promise.all(node.inputs.map(numbers));
    return OPERATIONS[node.op](node, operands, file.trace);
  }

  async function parameter(name) {
    const { of, flip, ...own } = file.weights[name];
    const stored = of ? file.weights[of] : own;
    const found = await unpack(stored);
    return flip ? flipped(found) : found;
  }

  return run;
}

function missing(name, edited) {
  return edited
    ? `${name} follows from the edit through weights that are not in this file; what the edited run says is under Output.`
    : `${name} cannot be computed here: the weights are not in this file.`;
}

/** Names of all nodes that follow from the changed ones, and those themselves. */
function after(graph, changes) {
  const touched = new Set(changes.keys());
  for (const { name, inputs } of graph.values()) if (inputs.some((input) => touched.has(input))) touched.add(name);
  return touched;
}

// Edits.

const instead = (other) => async (values, shape, numbers) => (await numbers(other)).values.slice();
const zeros = (values) => new Float32Array(values.length);

/** Write `value` where the index begins with or, at one axis, equals the given entries (null: any). */
function writing(entries, value) {
  return (values, shape) => {
    const out = values.slice();
    for (let k = 0; k < out.length; k++) {
      let rest = k;
      let here = true;
      for (let axis = shape.length - 1; axis >= 0; axis--) {
        const i = rest % shape[axis];
        rest = (rest - i) / shape[axis];
        if (entries[axis] !== undefined && entries[axis] !== null && entries[axis] !== i) here = false;
      }
      if (here) out[k] = value;
    }
    return out;
  };
}

const RESIDUALS = { 1: ["H"], cross: ["C"], 2: ["H_2", "out"] };

/** One edit as [[node, change], …]; nothing where the file cannot honour it. */
export function changeOf(graph, place, what) {
  const off = what === "off" || what === "zero";
  const cell = /^(.+)\[([\d\s,]+)\]$/.exec(place);
  if (cell) {
    const [index, value] = [cell[2].split(",").map(Number), typeof what === "object" ? Number(what?.set) : NaN];
    const fits = graph.get(cell[1])?.shape.length === index.length && Number.isFinite(value);
    return fits ? [[cell[1], writing(index, value)]] : [];
  }
  if (!off) return [];
  const [, owner, kind] = /^(?:(.*)\.)?([^.]+?)$/.exec(place);
  const counted = /^(.*?)\.?(head|neuron|token)\.(\d+)$/.exec(place);
  if (counted) return countedOff(graph, counted[1], counted[2], Number(counted[3]));
  if (place === "positions") return [...graph.values()].flatMap(positionOff);
  if (kind === "scaling" && graph.has(`${owner}.dots`) && graph.get(`${owner}.scores`).facts.scale !== 1) return [[`${owner}.scores`, instead(`${owner}.dots`)]];
  if (kind === "mask" && graph.has(`${owner}.masked`)) return [[`${owner}.masked`, instead(`${owner}.scores`)]];
  const residual = /^residual_(\w+)$/.exec(kind)?.[1];
  const sum = RESIDUALS[residual]?.map((name) => graph.get(`${owner}.${name}`)).find((node) => node?.op === "add");
  if (sum) return [[sum.name, instead(sum.inputs[1])]];
  if (graph.get(`${place}.out`)?.op !== "affine") return [];
  return [[`${place}.out`, instead(graph.get(`${place}.normalised`).inputs[0])]]; // a norm
}

function countedOff(graph, owner, kind, i) {
  const inside = (name, axis) => (i < (graph.get(name)?.shape[axis] ?? 0) ? name : null);
  if (kind === "head") return inside(`${owner}.Z`, 0) ? [[`${owner}.Z`, writing([i], 0)]] : [];
  if (kind === "neuron") {
    const name = inside(`${owner}.gated`, 1) ?? inside(`${owner}.act`, 1);
    return name ? [[name, writing([null, i], 0)]] : [];
  }
  const name = inside(`${owner ? `${owner}.` : ""}embed.tokens`, 0);
  return name ? [[name, writing([i], 0)]] : [];
}

function positionOff({ name, op, inputs }) {
  if (op === "rotate") return [[name, instead(inputs[0])]];
  return name.endsWith(".positions") ? [[name, zeros]] : [];
}

/** All edits together: node → changes, in their order. */
export function changesOf(graph, edits) {
  const changes = new Map();
  for (const [place, what] of Object.entries(edits)) {
    for (const [node, change] of changeOf(graph, place, what)) changes.set(node, [...(changes.get(node) ?? []), change]);
  }
  return changes;
}

/** The only edit if it takes a head away: {site, head}; else null. */
export function headOff(edits) {
  const [[place, what] = ["", ""], ...more] = Object.entries(edits);
  const found = !more.length && (what === "zero" || what === "off") && /^(.+)\.head\.(\d+)$/.exec(place);
  return found ? { site: found[1], head: Number(found[2]) } : null;
}
