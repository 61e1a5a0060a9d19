/**
 * The backend of a file handed on: the same questions as `server()`, answered from what is embedded in the file.
 *
 * In: the element that holds the JSON of `contents.py`. Out: a backend. It has one text; it honours the edits that it can
 * compute (all switches and heads where the weights are in the file) or that were computed before (each head off), and says
 * of everything else that it takes regard itself.
 */

import { Refused } from "regard/data.js";
import { createPlaces, headOff } from "regard/offline/changes.js";
import { lens } from "regard/offline/lenses.js";
import { createAnswers, output } from "regard/offline/output.js";
import { createRun, graphOf } from "regard/offline/run.js";
import { why } from "regard/offline/why.js";

const ONE_TEXT = "This file holds one run and cannot make another; “regard view” opens the page on any text.";
const ONE_HEAD = "This file keeps runs with one head off at a time; remove one of the edits.";

/** @param {{ textContent: string | null }} element @returns {Backend} */
export function offline(element) {
  /** @type {FileContents} */
  const file = JSON.parse(element.textContent ?? "");
  const graph = graphOf(file);
  const answers = createAnswers(file);
  const places = createPlaces(file, graph);
  const plain = createRun(file, graph, { id: "plain" });
  const runs = new Map([["plain", plain]]);
  /** @param {string} id */
  const find = (id) => runs.get(id) ?? plain;
  notice(file);

  /**
   * What is refused is refused in words.
   * @param {Edits} edits
   */
  function changesFor(edits) {
    const [first] = Object.keys(edits);
    if (file.trace.edited.length) {
      throw new Refused(`This file cannot honour the edit of ${first}: it was run with edits itself.`, 400);
    }
    const changes = places.changesOf(edits);
    if (file.keeps.weights) return changes;
    if (Object.keys(edits).length > 1) throw new Refused(ONE_HEAD, 400);
    const kept = file.without?.ids?.[headOff(edits)?.site ?? ""];
    if (!kept) throw new Refused(`This file cannot honour the edit of ${first}: it takes “regard view”.`, 400);
    return changes;
  }

  /** @param {string} place @param {Verb} what */
  function honours(place, what) {
    try {
      return Boolean(changesFor({ [place]: what }));
    } catch {
      return false;
    }
  }

  /** @param {Edits} edits */
  function fork(edits) {
    const id = JSON.stringify(edits);
    if (!Object.keys(edits).length) return file.trace;
    const run = runs.get(id) ?? createRun(file, graph, { id, edits, base: plain, changes: changesFor(edits) });
    runs.set(id, run);
    return { ...file.trace, trace: id, edits, edited: [...run.changes.keys()] };
  }

  return {
    live: false,
    honours,
    models: async () => [file.card],
    model: async () => file.model,
    trace: async ({ text, target, generate }) => {
      if (text !== file.trace.text || target || generate) throw new Refused(ONE_TEXT, 400);
      return file.trace;
    },
    fork: async (_, edits) => fork(edits),
    slice: async (id, node, at) => slice(await find(id).numbers(node), at),
    why: (id, node, index, most) => why(file, graph, find(id), answers, node, index, most),
    lens: (id, name, parameters) => lens(file, graph, find(id), name, parameters),
    output: (id, parameters) => output(file, find(id), answers, parameters),
    compare: async () => {
      throw new Refused(ONE_TEXT, 400);
    },
    // biome-ignore lint/correctness/useYield: it refuses before the first token
    generate: async function* () {
      throw new Refused(ONE_TEXT, 400);
    },
    runs: async () => [],
    tours: async () => [],
    tour: async () => {
      throw new Refused("Tours and lessons are in “regard view”, not in this file.", 404);
    },
    worksheet: async () => {
      throw new Refused("Worksheets are made by “regard worksheet”, not in this file.", 404);
    },
    file: () => "#",
  };
}

/**
 * A part of a tensor: `at` is [3, ":", "0:4"], the same as a text, or nothing for the whole.
 * @param {FileTensor} fileTensor @param {At | undefined} at
 */
function slice({ shape, values }, at) {
  const entries = at === undefined || at === null || at === "" ? [] : Array.isArray(at) ? at : String(at).split(",");
  const spans = shape.map((n, axis) => span(entries[axis] ?? ":", n));
  const kept = spans.filter(({ whole }) => whole).map(({ from, to }) => to - from);
  const out = new Float32Array(spans.reduce((size, { from, to }) => size * (to - from), 1));
  let next = 0;
  /** @param {number} axis @param {number} offset */
  const walk = (axis, offset) => {
    if (axis === shape.length) {
      out[next++] = values[offset];
      return;
    }
    const { from, to } = spans[axis];
    if (axis === shape.length - 1) {
      out.set(values.subarray(offset * shape[axis] + from, offset * shape[axis] + to), next);
      next += to - from;
      return;
    }
    for (let i = from; i < to; i++) walk(axis + 1, offset * shape[axis] + i);
  };
  walk(0, 0);
  return { shape: kept, values: out };
}

/** @param {string | number} entry @param {number} n */
function span(entry, n) {
  const [first, last] = String(entry).trim().split(":");
  if (last === undefined) return { from: Number(first), to: Number(first) + 1, whole: false };
  return { from: Number(first || 0), to: Math.min(n, Number(last || n)), whole: true };
}

/**
 * What kind of file this is, said once, in the footer.
 * @param {FileContents} fileContents
 */
function notice({ keeps, trace, answers, without, places }) {
  const heads = Object.keys(places.masks).length > 0;
  const switchable = heads && (keeps.weights || without?.ids);
  document.body.dataset.saved = [
    `Saved with regard: ${extent(keeps)}.`,
    answers ? `Each position keeps the ${answers.ids.shape.at(-1)} likeliest of ${answers.vocabulary} tokens by name.` : "",
    trace.edited.length
      ? `It was run with edits: ${Object.keys(trace.edits).join(", ")}.`
      : `${switchable ? "Heads can be switched off here; " : ""}another text takes regard itself.`.replace(/^a/, "A"),
  ]
    .filter(Boolean)
    .join(" ");
}

/** @param {FileContents["keeps"]} given */
function extent({ all, bits, weights }) {
  if (weights) return all ? "every number and every weight of one run, exactly" : "one run and every weight of its model";
  return `one run without its model's weights${bits < 24 ? `, its numbers rounded to ${bits} significant bits` : ""}`;
}
