/**
 * Reading the run on the screen: which blocks it has, which weight made a node, what its parts are called.
 *
 * In: a context. Out: names, small facts and the sentences that several stages share.
 */

import { el } from "regard/dom.js";
import { kindOf } from "regard/parts/captions.js";
import { piecesOf } from "regard/tokens.js";

/** The weight that a node is made with: the input of it that ends in ".weight" (or ".bias"), or undefined. */
export const parameterOf = (ctx, name, leaf = "weight") => ctx.nodes.get(name)?.inputs.find((input) => input.endsWith(`.${leaf}`));

/** Every block of the run that has an MLP: [{place: "decoder.0", stack, layer}], in order. */
export function blocksOf({ trace }) {
  return trace.nodes
    .map(({ name }) => /^((encoder|decoder)\.(\d+))\.mlp\.out$/.exec(name))
    .filter(Boolean)
    .map(([, place, stack, layer]) => ({ place, stack, layer: Number(layer) }));
}

/** The block the person is in: that of the attention site looked at. */
export function blockOf(ctx) {
  const blocks = blocksOf(ctx);
  return blocks.find(({ place }) => ctx.site?.site.startsWith(`${place}.`)) ?? blocks[0];
}

/** The state's token, within the pieces of a stack; the first when none was chosen. */
export const tokenOf = ({ trace, state }, stack) => Math.min(
  Math.max(0, Math.floor(state.token)),
  piecesOf(trace, stack).length - 1,
);

/**
 * Which token's answer is looked at: the chosen one; when none was, the last of a text to be continued, the first word of one to
 * be tagged, the masked one of a text with a gap.
 */
export function answerOf({ trace, state }) {
  const tokens = trace.target_tokens ?? trace.tokens;
  if (state.token >= 0) return Math.min(state.token, tokens.length - 1);
  if (trace.deciding) return Math.max(0, trace.deciding.findIndex((first) => first !== null));
  if (trace.head === "lm") return tokens.length - 1;
  const gap = tokens.findIndex((piece) => /^[<[]mask[>\]]$/i.test(piece));
  return gap >= 0 ? gap : Math.min(1, tokens.length - 1);
}

/** Whether the way from the states to the answer bends (a pooler, a masked head), so that a logit is no sum of parts. */
export const bends = ({ nodes, trace, model }) => model.recurrent || nodes.has("head.act") || (
  trace.head === "classify" && nodes.has("pooler.out")
);

/** "decoder · block 2", or "block 2" when there is one stack. */
export const blockName = ({ model }, { stack, layer }) => `${model.stacks.length > 1 ? `${stack} · ` : ""}block ${layer}`;

/** "decoder · block 2 · cross". */
export const siteName = (ctx, site) => `${blockName(ctx, site)} · ${kindOf(ctx.trace, site)}`;

const EMBEDDED = { tokens: "embedding", positions: "position", types: "segment" };

/** Where a part of a sum can be looked at: "decoder.1.attention.head.3" → {name: "block 2 · head 3", stage, site, head}. */
export function partOf(ctx, label) {
  const found = /^(encoder|decoder)\.(\d+)\.(?:(attention|cross|mlp)\b\.?)?(?:head\.(\d+))?/.exec(label);
  if (!found) return { name: EMBEDDED[label.split(".").at(-1)] ?? label, change: null };
  const [, stack, layer, kind = "attention", head] = found;
  if (label.endsWith("(edited)")) { // an edit made all of it: no part of the model wrote it
    const what = label.slice(`${stack}.${layer}.`.length);
    return { name: `${blockName(ctx, { stack, layer: Number(layer) })} · ${what}`, change: { stage: "residual", site: `${stack}.${layer}.attention` } };
  }
  const what = kind === "mlp" ? "MLP" : head === undefined ? kind : `${kind === "cross" ? "cross " : ""}head ${head}`;
  const site = `${stack}.${layer}.${kind === "cross" ? "cross" : "attention"}`;
  const change = kind === "mlp" ? { stage: "mlp", site } : {
    stage: "attention",
    site,
    ...(head === undefined ? {} : { head: Number(head) })
  };
  return { name: `${blockName(ctx, { stack, layer: Number(layer) })} · ${what}`, change };
}

/** Whether B is another run than A with edits: another text or model. */
export const isRival = ({ state }) => Boolean(state.against || state.rival);

/** With Δ: which of the two runs is worked out; else null. */
export const workedFor = (ctx) => (ctx.mode === "delta"
  ? el("p", { class: "lead" }, isRival(ctx) ? "Worked out for B." : "Worked out for the run after the edit.")
  : null);

/** ‖x‖ of a vector. */
export const length = (values) => Math.sqrt(values.reduce((sum, x) => sum + x * x, 0));

/** Indices of the `most` largest of `count` by `size(i)`, largest first. */
export function largest(count, most, size) {
  const order = Array.from({ length: count }, (_, i) => i);
  return order.sort((a, b) => size(b) - size(a)).slice(0, most);
}

/** The end of a scale for one vector, at which a few outliers may be clipped: the 98th percentile of |x|. */
export function mostly(values) {
  const sizes = Float32Array.from(values.filter(Number.isFinite), Math.abs).sort();
  return sizes[Math.floor(0.98 * (sizes.length - 1))] || sizes.at(-1) || 1;
}

/** The largest |x|, for the end of a scale. */
export const bound = (values) => values.reduce((most, x) => (Number.isFinite(x) ? Math.max(most, Math.abs(x)) : most), 0) || 1;
