/**
 * A file's backend in Node, without a page: node offline.mjs <folder of the page's modules> <file with the JSON of a run>.
 *
 * A line in is [method, [arguments], …] as JSON, a line out the list of answers. Beside the backend's own methods there is
 * `formula`, a node computed from its operands by its formula, and `written`, numbers and a token as texts show them.
 */

import { readFileSync } from "node:fs";
import { register } from "node:module";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const [, , page, data] = process.argv;
const hook = (folder) => `
  export const resolve = (name, context, next) => name.startsWith("regard/")
    ? { url: ${JSON.stringify(folder)} + name.slice(6), format: "module", shortCircuit: true }
    : next(name, context);`;
register(`data:text/javascript,${encodeURIComponent(hook(pathToFileURL(page).href))}`);

globalThis.document = { body: { dataset: {} } };
const { offline } = await import("regard/offline.js");
const { createRun, graphOf } = await import("regard/offline/run.js");
const { fill } = await import("regard/offline/compile.js");
const { number, python, quoted } = await import("regard/offline/render.js");

const textContent = readFileSync(data, "utf8");
const backend = offline({ textContent });
const file = JSON.parse(textContent);
const graph = graphOf(file);
const plain = createRun(file, graph, { id: "plain" });

const own = {
  formula: async (name) => {
    const { shape, uses, formula } = graph.get(name);
    const operands = await plain.operands(uses);
    const size = shape.reduce((a, b) => a * b, 1);
    return { shape, values: fill(new Float32Array(size), shape, formula, (used) => operands.get(used)) };
  },
  written: async (x, text) => [number(x), number(x, 9), python(x), quoted(text)],
  honours: async (...given) => backend.honours(...given),
};

const spelt = (_, x) => (typeof x !== "number" || Number.isFinite(x) ? x : Number.isNaN(x) ? "nan" : x < 0 ? "-∞" : "∞");
const refused = (error) => ({ error: error.message });

for await (const line of createInterface({ input: process.stdin })) {
  const [method, ...questions] = JSON.parse(line);
  const ask = own[method] ?? backend[method];
  const answers = await Promise.all(questions.map((given) => ask(...given).catch(refused)));
  for (const one of answers) if (ArrayBuffer.isView(one.values)) one.values = [...one.values];
  process.stdout.write(`${JSON.stringify(answers, spelt)}\n`);
}
