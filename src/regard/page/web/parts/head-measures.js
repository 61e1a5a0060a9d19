/**
 * One number per head: what the model view ranks heads by.
 *
 * In: the run and a measure's name. Out: numbers per head as they become known: at once, or, for the effect of switching a
 * head off, which runs the model again for every site, site by site from the last, until it is stopped or the view is left.
 */

import { minus } from "regard/delta.js";
import { answerOf, bends } from "regard/parts/run.js";
import { lastWord } from "regard/parts/wiring.js";
import { labelsOf, show } from "regard/tokens.js";

/** @typedef {{ [site: string]: HeadScores }} Scores */

/**
 * @typedef {object} Measure
 * @property {string} name
 * @property {string} [unit]
 * @property {string} words
 * @property {number} [digits]
 * @property {"least" | "most" | "largest"} first How the ranking is sorted.
 * @property {boolean} [answer] Whether it is about one answer.
 * @property {string} [none] Said where no head has a number.
 */

/** @type {{ [name: string]: Measure }} */
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

/**
 * Whether this model can be asked: one without a head has no answer, and not every answer is a sum of parts.
 * @param {Context} ctx @param {string} key
 */
export const canMeasure = (ctx, key) =>
  !MEASURES[key].answer || (ctx.trace.head !== "none" && !(key === "attribution" && bends(ctx)));

/**
 * The token whose answer is measured: of a tagged text a word's first piece, whatever was chosen.
 * @param {Context} ctx
 */
function measuredAt(ctx) {
  const { deciding } = ctx.trace;
  const chosen = answerOf(ctx);
  return deciding
    ? (deciding[chosen] ??
        Math.max(
          0,
          deciding.findIndex((first) => first !== null),
        ))
    : chosen;
}

/**
 * "of “·cat”, the likeliest after “the”": which answer a measure is about.
 * @param {Context} ctx
 */
export async function answering(ctx) {
  const after = labelsOf(ctx.trace, ctx.trace.target_tokens ? "decoder" : ctx.model.stacks[0].name)[measuredAt(ctx)];
  const {
    rows: [best],
  } = await ctx.data.of(ctx.trace).output({ position: measuredAt(ctx) });
  const places = {
    lm: ` after “${after}”`,
    mlm: ` in the place of “${after}”`,
    tag: ` for “${after}”`,
    classify: "",
    none: "",
  };
  return `of “${show(best.piece)}”, the likeliest${places[ctx.trace.head]}`;
}

/**
 * site → a number per head (or null), as a difference when the difference is looked at.
 * @param {Context} ctx @param {(data: RunData) => Promise<Scores>} ask
 */
async function compared(ctx, ask) {
  if (ctx.mode !== "delta") return ask(ctx.data);
  const [a, b] = await ctx.data.both(ask);
  /** @param {string} site */
  const pair = (site) => {
    const [past, now] = [a?.[site], b[site]];
    if (!past || !now) return null;
    return now.map((x, h) => {
      const before = past[h];
      return x === null || before === null ? null : minus(x, before);
    });
  };
  return Object.fromEntries(Object.keys(b).map((site) => [site, pair(site)]));
}

/** @type {{ [measure: string]: (data: RunData, ctx: Context) => Promise<Scores> }} */
const ASK = {
  disagreement: async (data) => (await data.lens("disagreement")).sites,
  attribution: async (data, ctx) =>
    perSite(ctx, await data.lens("attribution", { token: measuredAt(ctx), id: await likeliest(ctx) })),
};

/** @param {Context} ctx */
const likeliest = async (ctx) => (await ctx.data.of(ctx.trace).output({ position: measuredAt(ctx) })).rows[0].id;

/**
 * Parts of a logit → by site a number per head; those of MLPs by what they hand on.
 * @param {Context} ctx @param {Lenses["attribution"]} given
 */
function perSite({ trace }, { parts }) {
  /** @type {{ [site: string]: number[] }} */
  const found = {};
  for (const { label, node, value } of parts) {
    const site = trace.sites.find(({ Z }) => Z === node)?.site;
    if (site) {
      found[site] ??= [];
      found[site][Number(lastWord(label))] = value;
    } else if (trace.wiring.mlps.some(({ out }) => out === node)) found[node] = [value];
  }
  return found;
}

/** @param {string} kind */
const scores = (kind) => async (/** @type {RunData} */ data) => {
  const { sites } = await data.lens("heads");
  return Object.fromEntries(Object.entries(sites).map(([site, each]) => [site, each[kind]]));
};

/**
 * `measured(ctx, measure, {found, progress, alive})`: found(site → numbers) as often as something is known, progress(done, of)
 * between, alive() says whether to go on. Resolves to whether everything was measured.
 * @param {Context} ctx @param {string} measure
 * @param {{ found: (known: Scores) => void, progress: (done: number, of: number) => void, alive: () => boolean }} given
 */
export async function measured(ctx, measure, { found, progress, alive }) {
  if (measure !== "ablation") {
    const ask = ASK[measure] ?? scores(measure);
    found(await compared(ctx, (data) => ask(data, ctx)));
    return true;
  }
  const token = measuredAt(ctx);
  /** @param {string} site */
  const effect = (site) => async (/** @type {RunData} */ data) => (await data.lens("ablation", { token, site })).sites;
  const sites = ctx.trace.sites.filter(({ M }) => ctx.nodes.has(M)).reverse(); // what comes late is quick
  for (const [at, { site }] of sites.entries()) {
    if (!alive()) return false;
    progress(at, sites.length);
    found(await compared(ctx, effect(site)));
  }
  return true;
}
