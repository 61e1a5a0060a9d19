/**
 * What the narration says: which sentence is true of the run on the screen, and the words and numbers it is given.
 *
 * In: a stage. Out: a bold sentence and a plain one, in the voice and language of its `say`. A sentence that explains a number by
 * its operation ("q fits k best") is only said where no edit and no other step stands between; else one that says what does.
 */

import { format } from "regard/dom.js";
import { isEdited } from "regard/parts/captions.js";
import { nodeOf } from "regard/parts/wiring.js";
import { percent } from "regard/scene/whole.js";
import { wordOf } from "regard/tokens.js";

/**
 * Of what the bold sentence speaks and of what the plain one, where that is something else.
 * @typedef {[kind: string, given: { [name: string]: string | number }, plain?: string]} Told
 */

const MANY = 5; // guesses that are all told; of more, the first and the last two
const PLAIN = new Set(["dot", "scale", "mask", "softmax", "cap"]); // operations after which the best fit still has the largest weight

/** @param {Stage} stage */
export function sentences(stage) {
  const { say, depth } = stage;
  const [kind, given, plain = kind] = [whole, block, head, cell, number][depth](stage);
  return { bold: say(`${kind}.bold`, given), plain: say(`${plain}.plain`, given) };
}

/** @param {Stage} stage @returns {Told} */
function whole(stage) {
  const { model } = stage.ctx;
  const { world, lane, say } = stage;
  const kind = model.recurrent
    ? "recurrent"
    : model.kind === "encoder-decoder"
      ? "translate"
      : (world.answer?.kind ?? "vector");
  const first = world.answer?.rows[0];
  const given = {
    n: lane(world.stack).length,
    m: world.lanes[0].pieces.length,
    blocks: world.blocks.length,
    heads: model.stacks.at(-1)?.heads ?? 0,
    d: model.d,
    word: wordOf(lane(world.stack)[world.focus]),
    guesses: guesses(stage),
    answer: wordOf(first?.piece),
    percent: percent(first?.probability ?? 0),
    row: say("whole.row", { position: world.focus }),
  };
  return [`whole.${kind}`, given];
}

/** How the guess changes from block to block, or that it does not; "" where nothing is guessed. @param {Stage} stage */
function guesses({ world, say }) {
  const said = [...world.guesses.values()].map(([piece]) => wordOf(piece));
  const changing = said.filter((one, i) => one !== said[i - 1]);
  const told = changing.length > MANY ? [...changing.slice(0, 2), "…", ...changing.slice(-2)] : changing;
  if (!told.length) return "";
  return told.length > 1 ? say("whole.changing", { guesses: told.join(", ") }) : say("whole.same", { guess: told[0] });
}

/** @param {Stage} stage @returns {Told} */
function block({ ctx, world, view, near }) {
  const { layer, place, sites, sums, mlps } = world.blocks[view.open];
  const first = world.answer?.rows[0];
  const parts = sums.flatMap(({ branches }) => branches).map(({ node }) => near?.added.get(node)?.norm ?? 0);
  const given = {
    block: layer,
    heads: sites.reduce((sum, site) => sum + site.heads, 0),
    answer: wordOf(first?.piece),
    percent: percent(first?.probability ?? 0),
    parts: parts.map((x) => format(x, 1)).join(" + "),
  };
  if (ctx.trace.edited.some((node) => node.startsWith(`${place}.`))) return ["block.edited", given];
  const beside = sums.some(({ branches }) => branches.length > 1 && branches.some((branch) => branch.mlps.length));
  const kind = !mlps.length ? "block.alone" : beside ? "block.beside" : "block";
  return [kind, given, near?.effects.size ? "block" : "block.waiting"];
}

/** The words of the open head, as far as they are known. @param {Stage} stage */
function seen({ ctx, world, lane, near }) {
  const site = /** @type {Site} */ (ctx.site);
  const keys = lane(site.kind === "cross" ? world.lanes[0].stack : site.stack);
  const weights = near?.head?.steps.get(site.weights);
  const C = weights?.shape[1] ?? 1;
  const row = weights?.values.subarray(world.focus * C, (world.focus + 1) * C) ?? new Float32Array(1);
  /** @param {number} j */
  const given = (j) => ({
    head: ctx.head,
    block: site.layer,
    d_k: ctx.nodes.get(site.Q)?.shape.at(-1) ?? 0,
    word: wordOf(lane(site.stack)[world.focus]),
    other: wordOf(keys[j]),
    weight: format(row[j], 3),
    percent: percent(row[j]),
    steps: stepsInWords(near),
    edited: editedInWords(ctx, near),
  });
  return { site, row, given };
}

/** The steps from dot products to weights, as the buttons beside the matrix name them. @param {Near | null} near */
const stepsInWords = (near) =>
  Object.values(near?.head?.titles ?? {})
    .map(written)
    .join(", ");

/** A title without the signs that set it as a formula. @param {string} title */
const written = (title) => title.replace("^T", "ᵀ").replace("_k", "ₖ");

/** The steps of the open head that an edit wrote over, with what goes in and comes out; "" where none was. @param {Context} ctx @param {Near | null} near */
function editedInWords({ trace, site }, near) {
  if (!site) return "";
  const titles = near?.head?.titles ?? {};
  const names = [site.Q, site.K, ...site.steps, site.Z].flatMap((name) => (name && isEdited(trace, name) ? [name] : []));
  return names.map((name) => (titles[name] ? written(titles[name]) : name.slice(name.lastIndexOf(".") + 1))).join(", ");
}

/** Whether another operation than those of plain attention stands on the way to the weights. @param {Context} ctx @param {Site} site */
const otherSteps = (ctx, { steps }) =>
  steps.some((name) => ctx.nodes.has(name) && (!PLAIN.has(nodeOf(ctx, name).op) || nodeOf(ctx, name).facts.several));

/** @param {Stage} stage @returns {Told} */
function head(stage) {
  const { ctx, world, near } = stage;
  const { site, row, given } = seen(stage);
  const j = row.reduce((best, a, c) => (a > row[best] ? c : best), 0); // the key that the row looks at most
  const told = given(j);
  if (stage.isOff(site, ctx.head)) return ["head.switched", told];
  if (!near?.head || world.stack !== site.stack) return ["head.waiting", told];
  if (told.edited) return ["head.edited", told];
  if (otherSteps(ctx, site)) return ["head.steps", told];
  return [j === world.focus && site.kind !== "cross" ? "head.itself" : "head", told];
}

/** @param {Stage} stage @returns {Told} */
function cell(stage) {
  const { ctx, world, near } = stage;
  const { site, row, given } = seen(stage);
  const j = Math.min(ctx.state.key, row.length - 1);
  const told = given(j);
  if (!near?.head) return ["cell.waiting", told];
  if (Number.isNaN(near.head.shares?.values[world.focus * row.length + j])) return ["cell.hidden", told];
  if (told.edited) return ["cell.edited", told];
  return [otherSteps(ctx, site) ? "cell.steps" : "cell", told];
}

/** @param {Stage} stage @returns {Told} */
function number({ ctx }) {
  const { node, index } = ctx.state;
  return [isEdited(ctx.trace, node) ? "number.edited" : "number", { node, index: index.join(", ") }];
}
