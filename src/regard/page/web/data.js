/**
 * Where numbers come from: the server's /api, and the view of it that panels are given.
 *
 * `server()` is a backend: everything the page can ask, by trace id. `viewOf(backend, traces)` is `ctx.data`: the same
 * questions about "the run on the screen", which with edits is before (a), after (b) or the difference (delta).
 * A file handed to a student has another backend with the same methods (`offline.js`, from what is embedded in it).
 */

import { difference, indexBefore, partnersOf } from "regard/delta.js";

const KEEP = 64 << 20; // bytes of slices held

/** A refusal with its sentence. */
export class Refused extends Error {
  /** @param {string} sentence @param {number} [status] */
  constructor(sentence, status = 0) {
    super(sentence);
    this.status = status;
  }
}

/** @param {string} url @param {unknown} [body] */
async function ask(url, body) {
  const options =
    body === undefined
      ? {}
      : { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  let answer;
  try {
    answer = await fetch(url, options);
  } catch {
    throw new Refused("The server does not answer; start it again with “regard view” and press Enter in the text field.");
  }
  if (answer.ok) return answer;
  const words = await answer.json().catch(() => ({}));
  const sentence = typeof words.error === "string" ? words.error : `The server answered ${answer.status} to ${url}.`;
  throw new Refused(sentence, answer.status);
}

/** @param {object} parameters */
const query = (parameters) => {
  const given = Object.entries(parameters).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return given.length ? `?${new URLSearchParams(given)}` : "";
};

/** @param {string} url */
const floats = async (url) => tensorOf(await ask(url));

/** @param {Response} answer @returns {Promise<Tensor>} */
async function tensorOf(answer) {
  const shape = (answer.headers.get("X-Shape") ?? "").split(",").filter(Boolean).map(Number);
  return {
    shape,
    values: new Float32Array(await answer.arrayBuffer()),
  }; // little-endian on every machine with a browser
}

/**
 * Remember answers by address, oldest dropped first; two equal questions at once are asked once.
 * @param {(answer: any) => number} size
 * @returns {<T>(key: string, make: () => Promise<T>) => Promise<T>}
 */
function remembering(size) {
  /** @type {Map<string, { promise: Promise<any>, size: number }>} */
  const held = new Map();
  let total = 0;
  return (key, make) => {
    const known = held.get(key);
    if (known) {
      held.delete(key);
      held.set(key, known);
      return known.promise;
    }
    const entry = { promise: make(), size: 0 };
    held.set(key, entry);
    entry.promise.then(
      (answer) => {
        total += entry.size = size(answer);
        for (const [old, { size: bytes }] of held) {
          if (total <= KEEP || old === key) break;
          held.delete(old);
          total -= bytes;
        }
      },
      () => held.delete(key),
    );
    return entry.promise;
  };
}

/** @param {Response} answer */
async function* events(answer) {
  if (!answer.body) return;
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const lines = (rest + value).split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) if (line.startsWith("data:")) yield JSON.parse(line.slice(5));
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/** @type {{ [word: string]: number }} */
const WORDS = { "-∞": -Infinity, "∞": Infinity, "not a number": NaN };

/**
 * JSON has no infinities, so they come as words; here they are numbers again.
 * @param {any} value @returns {any}
 */
function numeric(value) {
  if (typeof value === "string") return value in WORDS ? WORDS[value] : value;
  if (Array.isArray(value)) return value.map(numeric);
  if (value && typeof value === "object")
    return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, numeric(one)]));
  return value;
}

/** @param {At | number[] | undefined} at */
const path = (at) => (Array.isArray(at) ? at.join(",") : at);

/**
 * The backend that asks the server. Every method returns a promise, except `generate` (async iterator) and `file`.
 * @param {string} [root]
 * @returns {Backend}
 */
export function server(root = "/api") {
  const once = remembering((answer) => answer.values?.byteLength ?? 2048);
  /** @param {string} route @param {object} [parameters] */
  const get = (route, parameters = {}) => ask(`${root}/${route}${query(parameters)}`).then((answer) => answer.json());
  /** @param {string} route @param {object} [parameters] */
  const held = (route, parameters = {}) => once(`${route}${query(parameters)}`, () => get(route, parameters));
  /** @param {string} route @param {object} parameters */
  const slices = (route, parameters) =>
    once(`${route}${query(parameters)}`, () => floats(`${root}/${route}${query(parameters)}`));
  return {
    live: true, // any text, any edit
    models: () => get("models").then(({ models }) => models),
    model: (name) => held("model", { name }),
    trace: (request) => ask(`${root}/trace`, request).then((answer) => answer.json()),
    fork: (id, edits) => ask(`${root}/trace/${id}/fork`, { edits }).then((answer) => answer.json()),
    slice: (id, node, at) => slices(`trace/${id}/slice`, { node, at: path(at) }),
    why: (id, node, index, most) => held(`trace/${id}/why`, { node, index: path(index), most }).then(numeric),
    lens: (id, name, parameters = {}) => held(`trace/${id}/lens`, { name, ...parameters }),
    output: (id, parameters = {}) => held(`trace/${id}/output`, parameters),
    compare: (a, b) => held("compare", { a, b }),
    embed: (model, texts) =>
      once(`embed ${JSON.stringify([model, texts])}`, async () => tensorOf(await ask(`${root}/embed`, { model, texts }))),
    generate: async function* (request) {
      yield* events(await ask(`${root}/generate`, request));
    },
    runs: () => get("runs").then(({ runs }) => runs),
    run: (name) => get("run", { name }),
    frame: (run, step, probe, node) => slices("frame", { run, step, probe, node }),
    tours: () => held("tours").then(({ tours }) => tours),
    tour: (name) => held("tour", { name }),
    worksheet: (trace, seed, level) => ask(`${root}/worksheet`, { trace, seed, level }).then((answer) => answer.json()),
    file: (id) => `${root}/trace/${id}/export`,
  };
}

/**
 * What panels ask: `ctx.data`.
 * traces: {base, other, mode}; mode "a" reads base, "b" other, "delta" other − base (for slices).
 *   slice(node, at) → {shape, values}   at: [3, ":", ":"] or "3,:,:" or nothing for the whole
 *   why(node, index) · lens(name, parameters) · output(parameters) → as the API says
 *   of(trace) → the same four questions about one trace, whatever the mode
 *   both(ask) → [before, after]: `ask(of(trace))` for each run; null where the run before refuses
 *   partners() → who stands for whom, see delta.js;  before(node, index) → where that number is in the run before
 * @param {Backend} backend @param {{ base: Trace } & Runs} runs
 * @returns {ViewData}
 */
export function viewOf(backend, { base, other: second, mode }) {
  const other = second ?? base; // without a second run nobody asks about two
  /** @type {(trace: Trace) => RunData} */
  const of = (trace) => ({
    slice: (node, at) => backend.slice(trace.trace, node, at),
    why: (node, index, most) => backend.why(trace.trace, node, index, most),
    lens: (name, parameters) => backend.lens(trace.trace, name, parameters),
    output: (parameters) => backend.output(trace.trace, parameters),
  });
  const shown = of(mode === "a" ? base : other);
  /** @param {string} node @param {At} [at] */
  const delta = (node, at) => difference(backend, base, other, node, at);
  return {
    ...shown,
    slice: mode === "delta" ? delta : shown.slice,
    of,
    both: (ask) => Promise.all([Promise.resolve(ask(of(base))).catch(() => null), ask(of(other))]),
    partners: () => partnersOf(backend, base, other),
    before: (node, index) => indexBefore(backend, base, other, node, index),
  };
}
