/**
 * Reading the run on the screen: which token is looked at, what its blocks and parts are called.
 *
 * In: a context. Out: names, small facts and the sentences that several stages share.
 */

import { el } from "regard/dom.js";
import { kindOf } from "regard/parts/captions.js";
import { afterBlocks, blocksOf, branchesOf, lastWord, nodeOf, siteIn } from "regard/parts/wiring.js";
import { piecesOf } from "regard/tokens.js";

/**
 * What the spec says of a stack.
 * @param {Context} ctx @param {StackName} stack
 */
export const stackOf = ({ model }, stack) => model.stacks.find(({ name }) => name === stack) ?? model.stacks[0];

/**
 * The state's token, within the pieces of a stack; the first when none was chosen.
 * @param {Context} ctx @param {string} stack
 */
export const tokenOf = ({ trace, state }, stack) =>
  Math.min(Math.max(0, Math.floor(state.token)), piecesOf(trace, stack).length - 1);

/**
 * Which token's answer is looked at: the chosen one; when none was, the last of a text to be continued, the first word of one to
 * be tagged, the masked one of a text with a gap.
 * @param {Context} ctx
 */
export function answerOf({ trace, state }) {
  const tokens = trace.target_tokens ?? trace.tokens;
  if (state.token >= 0) return Math.min(state.token, tokens.length - 1);
  if (trace.deciding)
    return Math.max(
      0,
      trace.deciding.findIndex((first) => first !== null),
    );
  if (trace.head === "lm") return tokens.length - 1;
  const gap = tokens.findIndex((piece) => /^[<[]mask[>\]]$/i.test(piece));
  return gap >= 0 ? gap : Math.min(1, tokens.length - 1);
}

/**
 * Whether the way from the states to the answer bends (a pooler, a masked head), so that a logit is no sum of parts.
 * @param {Context} ctx
 */
export const bends = (ctx) => afterBlocks(ctx).some(({ op }) => op === "activation" || op === "blend");

/**
 * "decoder · block 2", or "block 2" when there is one stack.
 * @param {Context} ctx @param {{ stack: StackName, layer: number }} given
 */
export const blockName = ({ model }, { stack, layer }) => `${model.stacks.length > 1 ? `${stack} · ` : ""}block ${layer}`;

/**
 * "decoder · block 2 · cross".
 * @param {Context} ctx @param {Site} site
 */
export const siteName = (ctx, site) => `${blockName(ctx, site)} · ${kindOf(ctx.trace, site)}`;

const EMBEDDED = { token: "embedding", position: "position" };

/**
 * What an embedding's node is, in a word: of neither a token nor a position, a segment.
 * @param {GraphNode} node
 */
export const embedded = ({ facts }) => (facts.role ? EMBEDDED[facts.role] : "segment");

/**
 * Where a part of a sum can be looked at: {label: "decoder.1.head.3", node} → {name: "block 1 · head 3", change}.
 * @param {Context} ctx @param {{ label: string, node: string }} part @returns {{ name: string, change: Change | null }}
 */
export function partOf(ctx, { label, node }) {
  const site = ctx.trace.sites.find(({ Z }) => Z === node);
  /** @param {Branch} branch */
  const wrote = (branch) =>
    branch.node === node || branch.mlps.includes(node) || (site !== undefined && branch.sites.includes(site.site));
  /** @param {Block} block */
  const made = ({ sums, out }) => out === node || sums.some((sum) => sum.node === node || sum.branches.some(wrote));
  const block = blocksOf(ctx).find(made);
  const edited = label.endsWith("(edited)"); // an edit made all of it: no part of the model wrote it
  if (!block) return { name: ctx.nodes.has(node) && !edited ? embedded(nodeOf(ctx, node)) : label, change: null };
  /** @param {string} what */
  const name = (what) => `${blockName(ctx, block)} · ${what}`;
  /** @param {string} stage */
  const there = (stage) => ({ stage, site: siteIn(block) });
  if (edited) return { name: name(`${lastWord(node)} (edited)`), change: there("residual") };
  if (!site) {
    const branch = branchesOf(block).find(wrote);
    return { name: name(branch?.kind ?? lastWord(node)), change: there(branch?.mlps.length ? "mlp" : "residual") };
  }
  const head = Number(label.split(".").at(-1));
  return {
    name: name(`${site.kind === "cross" ? "cross " : ""}head ${head}`),
    change: { stage: "attention", site: site.site, head },
  };
}

/**
 * Whether B is another run than A with edits: another text or model.
 * @param {Context} ctx
 */
export const isRival = ({ state }) => Boolean(state.against || state.rival);

/**
 * With Δ: which of the two runs is worked out; else null.
 * @param {Context} ctx
 */
export const workedFor = (ctx) =>
  ctx.mode === "delta"
    ? el("p", { class: "lead" }, isRival(ctx) ? "Worked out for B." : "Worked out for the run after the edit.")
    : null;

/**
 * ‖x‖ of a vector.
 * @param {number[] | Float32Array} values
 */
export const length = (values) => Math.sqrt([...values].reduce((sum, x) => sum + x * x, 0));

/**
 * Indices of the `most` largest of `count` by `size(i)`, largest first.
 * @param {number} count @param {number} most @param {(i: number) => number} size
 */
export function largest(count, most, size) {
  const order = Array.from({ length: count }, (_, i) => i);
  return order.sort((a, b) => size(b) - size(a)).slice(0, most);
}

/**
 * The end of a scale for one vector, at which a few outliers may be clipped: the 98th percentile of |x|.
 * @param {Float32Array} values
 */
export function mostly(values) {
  const sizes = Float32Array.from(values.filter(Number.isFinite), Math.abs).sort();
  return sizes[Math.floor(0.98 * (sizes.length - 1))] || sizes.at(-1) || 1;
}

/**
 * The largest |x|, for the end of a scale.
 * @param {Numbers} values
 */
export const bound = (values) =>
  [...values].reduce((most, x) => (Number.isFinite(x) ? Math.max(most, Math.abs(x)) : most), 0) || 1;
