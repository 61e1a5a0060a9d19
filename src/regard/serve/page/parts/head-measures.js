/**
 * One number per head: what the model view ranks heads by.
 *
 * In: the run and a measure's name. Out: numbers per head as they become known: at once, or, for the effect of switching a
 * head off, which runs the model again for every site, site by site from the last, until it is stopped or the view is left.
 */

import { minus } from "regard/delta.js";
import { answerOf, bends } from "regard/parts/run.js";
import { labelsOf, show } from "regard/tokens.js";

/** name → {name, unit, words, digits, first: how the ranking is sorted, answer: whether it is about one answer}. */
export const MEASURES = {
  entropy: {
    name: "entropy",
    unit: "bits",
    words: "How widely a head looks: 0 bits is one key, log₂ of the keys is all of them alike",
    first: "least",
  },
  previous: { name: "previous token", words: "The weight on the token just before, averaged over queries", first: "most" },
  induction: {
    name: "induction",
    words: "The weight on what followed the last time this token occurred",
    none: "No token occurs twice here, so no head can show induction; a text with a repetition gives it the occasion.",
    first: "most",
  },
  first: { name: "first token", words: "The weight on the first token, averaged over queries", first: "most" },
  disagreement: {
    name: "weight against contribution",
    words: "How far the weights A are from the shares of ‖A·V·W_o‖, what really arrives: 0 is the same, 1 is all elsewhere",
    first: "most",
  },
  attribution: {
    name: "logit attribution",
    words: "What the head itself, the last norm’s scale held fixed, wrote into the logit ",
    answer: true,
    digits: 3,
    first: "largest",
  },
  ablation: {
    name: "ablation effect",
    words: "How switching the head off changes the log-probability ",
    answer: true,
    digits: 3,
    first: "largest",
  },
};

/** Whether this model can be asked: one without a head has no answer, and not every answer is a sum of parts. */
export const canMeasure = (ctx, key) => !MEASURES[key].answer || (
  ctx.trace.head !== "none" && !(key === "attribution" && bends(ctx))
);

/** The token whose answer is measured: of a tagged text a word's first piece, whatever was chosen. */
function measuredAt(ctx) {
  const { deciding } = ctx.trace;
  const chosen = answerOf(ctx);
  return deciding ? deciding[chosen] ?? Math.max(0, deciding.findIndex((first) => first !== null)) : chosen;
}

/** "of “·cat”, the likeliest after “the”": which answer a measure is about. */
export async function answering(ctx) {
  const after = labelsOf(ctx.trace, ctx.trace.target_tokens ? "decoder" : ctx.model.stacks[0].name)[measuredAt(ctx)];
  const { rows: [best] } = await ctx.data.of(ctx.trace).output({ position: measuredAt(ctx) });
  const where = { lm: ` after “${after}”`, mlm: ` in the place of “${after}”`, tag: ` for “${after}”` }[ctx.trace.head] ?? "";
  return `of “${show(best.piece)}”, the likeliest${where}`;
}

/** site → a number per head (or null), as a difference when the difference is looked at. */
async function compared(ctx, ask) {
  if (ctx.mode !== "delta") return ask(ctx.data);
  const [a, b] = await ctx.data.both(ask);
  const pair = (site) => b[site] && a?.[site] ? b[site].map((x, h) => (x === null || a[site][h] === null ? null : minus(x, a[site][h]))) : null;
  return Object.fromEntries(Object.keys(b).map((site) => [site, pair(site)]));
}

const ASK = {
  disagreement: async (data) => (await data.lens("disagreement")).sites,
  attribution: async (data, ctx) => perSite(await data.lens("attribution", { token: measuredAt(ctx), id: await likeliest(ctx) })),
};

const likeliest = async (ctx) => (await ctx.data.of(ctx.trace).output({ position: measuredAt(ctx) })).rows[0].id;

/** Parts of a logit → by site a number per head; MLPs under "decoder.0.mlp". */
function perSite({ parts }) {
  const found = {};
  for (const { label, value } of parts) {
    const [, block, cross, head] = /^((?:encoder|decoder)\.\d+)(\.cross)?\.head\.(\d+)$/.exec(label) ?? [];
    if (block) (found[`${block}${cross ?? ".attention"}`] ??= [])[Number(head)] = value;
    else if (label.endsWith(".mlp")) found[label] = [value];
  }
  return found;
}

const scores = (kind) => async (data) => {
  const { sites } = await data.lens("heads");
  return Object.fromEntries(Object.entries(sites).map(([site, each]) => [site, each[kind]]));
};

/**
 * `measured(ctx, measure, {found, progress, alive})`: found(site → numbers) as often as something is known, progress(done, of)
 * between, alive() says whether to go on. Resolves to whether everything was measured.
 */
export async function measured(ctx, measure, { found, progress, alive }) {
  if (measure !== "ablation") {
    const ask = ASK[measure] ?? scores(measure);
    found(await compared(ctx, (data) => ask(data, ctx)));
    return true;
  }
  const token = measuredAt(ctx);
  const effect = (site) => async (data) => (await data.lens("ablation", { token, site })).sites;
  const sites = ctx.trace.sites.filter(({ site }) => ctx.nodes.has(`${site}.M`)).reverse(); // what comes late is quick
  for (const [at, { site }] of sites.entries()) {
    if (!alive()) return false;
    progress(at, sites.length);
    found(await compared(ctx, effect(site)));
  }
  return true;
}
