/**
 * The numbers that the scene draws, asked for once per run and word.
 *
 * In: a context. Out: a World: lanes of tokens, blocks in the order of the run with their attention weights, the residual stream's
 * norm after each, the running guess (logit lens) and the answer. What a run does not have is null and not drawn.
 */

import { meaningOf } from "regard/scene/meaning.js";
import { piecesOf } from "regard/tokens.js";

const ALL_WEIGHTS = 1 << 18; // weights of a site up to which all are asked for; beyond, the focused word's row only
const ALL_STREAM = 1 << 21; // numbers of the stream after all blocks
const SHALLOW = 12; // blocks of a network whose MLPs are drawn in the whole model
const FIRST = 16; // numbers of a word's vector that are drawn

/** @type {Map<string, Promise<World>>} */
const known = new Map();

/**
 * @param {Context} ctx
 * @returns {Promise<World>}
 */
export function worldOf(ctx) {
  const key = JSON.stringify([ctx.trace.trace, ctx.base.trace, ctx.state.token, laneOf(ctx)]);
  let world = known.get(key);
  if (!world) {
    if (known.size > 12) known.clear();
    world = build(ctx);
    known.set(key, world);
    world.catch(() => known.delete(key));
  }
  return world;
}

/** The stack whose word is in focus: the last one, which answers, unless an attention of another is looked at. @param {Context} ctx */
const laneOf = ({ model, site, state }) =>
  state.depth > 0 && site ? site.stack : (model.stacks.at(-1)?.name ?? "decoder");

/** @template T @param {Promise<T>} asked @returns {Promise<T | null>} */
const maybe = (asked) => asked.catch(() => null);

/** @param {Context} ctx @returns {Promise<World>} */
async function build(ctx) {
  const { trace, base, model, state } = ctx;
  const data = ctx.data.of(trace);
  const stack = laneOf(ctx);
  const stacks = trace.target_tokens ? ["encoder", "decoder"] : [model.stacks[0].name];
  const lanes = stacks.map((name) => ({ stack: name, pieces: piecesOf(trace, name) }));
  const answers = stack === stacks.at(-1);
  const rows = lanes.find((lane) => lane.stack === stack)?.pieces.length ?? 1;
  const wished = state.token >= 0 ? Math.min(state.token, rows - 1) : -1;
  const told = answers && trace.head !== "none"; // an embedding model says nothing
  const answer = told ? await maybe(data.output(wished < 0 ? {} : { position: wished })) : null;
  const focus = wished >= 0 ? wished : (answer?.position ?? speaker(trace, stack) ?? rows - 1);
  const blocks = blocksOf(trace);
  const [lens, embedded, streams, weights, ghosts, meaning, tags, added] = await Promise.all([
    told ? maybe(data.lens("logit_lens", { token: focus })) : null,
    Promise.all(lanes.map(({ stack: name, pieces }) => embeddingOf(trace, data, name, pieces.length))),
    streamOf(trace, data, blocks, lanes),
    Promise.all(trace.sites.map((site) => weightsOf(trace, data, site, stack, focus))),
    base === trace || !told ? null : maybe(ctx.data.of(base).output(wished < 0 ? {} : { position: wished })),
    trace.head === "none" ? maybe(meaningOf(ctx)) : null,
    trace.head === "tag" ? tagsOf(trace, data) : null,
    addedOf(data, blocks, stack, focus),
  ]);
  return {
    lanes,
    stack,
    focus,
    blocks,
    answer,
    ghosts,
    meaning,
    tags,
    added,
    guesses: new Map((lens?.rows ?? []).map(({ node, top }) => [node, top[0]])),
    embedded: new Map(lanes.map((lane, i) => [lane.stack, embedded[i]])),
    streams,
    weights: new Map(trace.sites.map((site, i) => [site.site, weights[i]])),
  };
}

/** The token that speaks for a text, where one does: a row that a head picks. @param {Trace} trace @param {StackName} stack */
function speaker({ nodes }, stack) {
  const row = nodes.find(({ facts }) => facts.row !== undefined)?.facts.row;
  return stack === "encoder" ? row : undefined;
}

/**
 * The blocks of a run, encoder first; a network without blocks (recurrent) has none.
 * @param {Trace} trace @returns {SceneBlock[]}
 */
export function blocksOf(trace) {
  return trace.wiring.blocks.map((block) => ({
    ...block,
    sites: trace.sites.filter((site) => site.stack === block.stack && site.layer === block.layer),
    mlps: block.sums.flatMap((sum) => sum.branches.flatMap((branch) => branch.mlps)),
  }));
}

/** Every token's likeliest label; none for those that do not begin a word. @param {Trace} trace @param {RunData} data */
async function tagsOf({ labels, deciding, nodes }, data) {
  const last = nodes.find(({ axes, op }) => op === "softmax" && axes.length === 2);
  const found = last && (await maybe(data.slice(last.name)));
  if (!found) return null;
  const C = found.shape[1];
  return Array.from({ length: found.shape[0] }, (_, i) => {
    if (deciding && deciding[i] !== i) return null;
    const row = found.values.subarray(i * C, (i + 1) * C);
    return labels[row.indexOf(Math.max(...row))] ?? null;
  });
}

/**
 * What the MLP of each block adds to the word in focus; of deep networks, when a block is opened.
 * @param {RunData} data @param {SceneBlock[]} blocks @param {StackName} stack @param {number} focus
 * @returns {Promise<Map<string, Float32Array>>}
 */
async function addedOf(data, blocks, stack, focus) {
  const own = blocks.length > SHALLOW ? [] : blocks.filter((block) => block.stack === stack);
  const found = await Promise.all(
    own.flatMap(({ mlps }) => mlps).map(async (node) => ({ node, slice: await maybe(data.slice(node, [focus, ":"])) })),
  );
  return new Map(found.flatMap(({ node, slice }) => (slice ? [[node, slice.values]] : [])));
}

/** @param {Trace} trace @param {RunData} data @param {StackName} stack @param {number} rows */
async function embeddingOf(trace, data, stack, rows) {
  const node = trace.wiring.embeddings[stack]?.at(-1);
  const shape = trace.nodes.find(({ name }) => name === node)?.shape;
  if (!node || !shape || rows * shape[1] > ALL_STREAM) return null;
  const all = await maybe(data.slice(node));
  if (!all) return null;
  const kept = Math.min(FIRST, all.shape[1]);
  const values = new Float32Array(rows * kept);
  for (let r = 0; r < rows; r++) values.set(all.values.subarray(r * all.shape[1], r * all.shape[1] + kept), r * kept);
  return { node, d: all.shape[1], norms: normsOf(all), shape: [rows, kept], values };
}

/** The length of every row. @param {Tensor} slice */
function normsOf({ shape, values }) {
  const [rows, d] = shape;
  const norms = new Float32Array(rows);
  for (let r = 0; r < rows; r++) {
    let sum = 0;
    for (let i = 0; i < d; i++) sum += values[r * d + i] ** 2;
    norms[r] = Math.sqrt(sum);
  }
  return norms;
}

/**
 * After each block, the norm of every token's vector; null where they are too many to ask for.
 * @param {Trace} trace @param {RunData} data @param {SceneBlock[]} blocks @param {World["lanes"]} lanes
 * @returns {Promise<Map<string, Float32Array> | null>}
 */
async function streamOf(trace, data, blocks, lanes) {
  const rows = Math.max(...lanes.map(({ pieces }) => pieces.length));
  const d = trace.nodes.find(({ name }) => name === blocks[0]?.out)?.shape[1] ?? 0;
  if (rows * d * blocks.length > ALL_STREAM) return null;
  const slices = await Promise.all(blocks.map(({ out }) => maybe(data.slice(out))));
  return new Map(slices.flatMap((slice, i) => (slice ? [[blocks[i].out, normsOf(slice)]] : [])));
}

/**
 * @param {Trace} trace @param {RunData} data @param {Site} site @param {StackName} stack @param {number} focus
 * @returns {Promise<SiteWeights | null>}
 */
async function weightsOf(trace, data, site, stack, focus) {
  const [heads, rows, columns] = trace.nodes.find(({ name }) => name === site.weights)?.shape ?? [0, 0, 0];
  if (heads * rows * columns <= ALL_WEIGHTS) {
    const all = await maybe(data.slice(site.weights));
    return all && { whole: true, heads, rows, columns, values: all.values, causal: hidesLater(trace, site) };
  }
  if (site.stack !== stack) return null;
  const row = await maybe(data.slice(site.weights, [":", focus, ":"]));
  return row && { whole: false, heads, rows, columns, values: row.values, causal: hidesLater(trace, site) };
}

/** Whether a site's mask hides what comes later, and no edit has touched it. @param {Trace} trace @param {Site} site */
const hidesLater = ({ edited }, { kind, masked }) => kind === "causal" && masked !== null && !edited.includes(masked);

/**
 * One head's weights as a table, hidden ones NaN; null where only one row is known.
 * @param {SiteWeights | null | undefined} weights @param {number} head @returns {Tensor | null}
 */
export function headOf(weights, head) {
  if (!weights?.whole) return null;
  const size = weights.rows * weights.columns;
  weights.tables ??= new Map();
  const kept = weights.tables;
  if (!kept.has(head)) {
    const values = weights.values.slice(head * size, (head + 1) * size);
    if (weights.causal) hide(values, weights.columns);
    kept.set(head, { shape: [weights.rows, weights.columns], values });
  }
  return kept.get(head) ?? null;
}

/** Hidden is not small: weights of later words are no numbers. @param {Float32Array} values @param {number} columns */
function hide(values, columns) {
  for (let i = 0; i < values.length; i++) if (values[i] === 0 && i % columns > Math.floor(i / columns)) values[i] = NaN;
}

/**
 * What a row looks at: of one head, or the mean of all.
 * @param {SiteWeights} weights @param {number} row @param {number} [head]
 */
export function looking({ whole, heads, rows, columns, values }, row, head = -1) {
  const out = new Float32Array(columns);
  for (let h = head < 0 ? 0 : head; h < (head < 0 ? heads : head + 1); h++) {
    const start = whole ? (h * rows + row) * columns : h * columns;
    for (let j = 0; j < columns; j++) out[j] += values[start + j] / (head < 0 ? heads : 1);
  }
  return out;
}
