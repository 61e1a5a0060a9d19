/**
 * The page's tokenizer in Node, without a page: node tokenizer.mjs <folder of the page's modules>.
 *
 * A line in is a job as JSON: {data, encode: [[text, settings], …], decode: [ids, …]}. A line out is {encoded, decoded, pieces,
 * milliseconds}, or {error}; the milliseconds are processor time of encoding. What is refused is {error} among the answers.
 */

import { register } from "node:module";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const [, , page] = process.argv;
const hook = (folder) => `
  export const resolve = (name, context, next) => name.startsWith("regard/")
    ? { url: ${JSON.stringify(folder)} + name.slice(6), format: "module", shortCircuit: true }
    : next(name, context);`;
register(`data:text/javascript,${encodeURIComponent(hook(pathToFileURL(page).href))}`);
const { openTokenizer } = await import("regard/offline/tokenizer/tokenizer.js");

const attempt = (what) => {
  try {
    return what();
  } catch (error) {
    if (error.status !== 400) throw error;
    return { error: error.message };
  }
};

for await (const line of createInterface({ input: process.stdin })) {
  const { data, encode = [], decode = [] } = JSON.parse(line);
  const answer = attempt(() => {
    const tokenizer = openTokenizer(data);
    const begun = process.cpuUsage();
    const encoded = encode.map(([text, settings]) => attempt(() => tokenizer.encode(text, settings)));
    const used = process.cpuUsage(begun);
    const milliseconds = (used.user + used.system) / 1000;
    const decoded = decode.map((ids) =>
      attempt(() => [tokenizer.decode(ids), tokenizer.decode(ids, { skipSpecial: false })]),
    );
    const pieces = decode.map((ids) => attempt(() => tokenizer.pieces(ids)));
    return { encoded, decoded, pieces, after: tokenizer.after, milliseconds };
  });
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
