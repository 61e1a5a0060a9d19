/**
 * What the lines of the head view are as strong as: the weight, what really arrives, or the difference of the two.
 *
 * In: a site and the heads that are on. Out: numbers per head, and a table of where weight and contribution disagree most.
 */

import { alone, apart } from "regard/delta.js";
import { el, format, formula, number, sentence } from "regard/dom.js";
import { sidesOf } from "regard/tokens.js";

/** @typedef {{ h: number, i: number, j: number, weight: number, share: number }} Gap */

const NONE = new Float32Array();
const WHOLE = 8 << 20; // bytes of weights that are fetched for all heads at once

/**
 * What the lines show, per head that is on: Map h → {weight, contribution?, shown: Float32Array (N·T)}.
 * @param {SiteContext} ctx @param {string} measure @param {number[]} on @param {number[]} shape
 */
export async function strengths(ctx, measure, on, [N, T]) {
  const node = ctx.site.weights;
  const whole = ctx.site.heads * N * T * 4 <= WHOLE ? await ctx.data.slice(node) : null;
  /** @param {number} h @returns {Promise<[head: number, strength: Strength]>} */
  const one = async (h) => {
    const weight = whole
      ? whole.values.subarray(h * N * T, (h + 1) * N * T)
      : (await ctx.data.slice(node, [h, ":", ":"])).values;
    if (measure === "weight") return [h, { weight, shown: weight }];
    const contribution = await arrives(ctx, h);
    return [
      h,
      {
        weight,
        contribution,
        shown: measure === "contribution" ? contribution : contribution.map((x, i) => x - weight[i]),
      },
    ];
  };
  return new Map(await Promise.all(on.map(one)));
}

/**
 * The shares of what arrives, in one head; with Δ, how they changed.
 * @param {SiteContext} ctx @param {number} head
 */
async function arrives(ctx, head) {
  /** @param {RunData} data */
  const ask = async (data) => {
    const { norms } = await data.lens("contribution", { site: ctx.site.site, head });
    return { shape: [norms.length, norms[0].length], values: shares(norms, norms.length, norms[0].length) };
  };
  if (ctx.mode !== "delta") return (await ask(ctx.data)).values;
  const [[before, after], partners] = await Promise.all([ctx.data.both(ask), ctx.data.partners()]);
  /** @param {string} stack */
  const side = (stack) => (ctx.trace.target_tokens && stack === "decoder" ? partners.target : partners.source);
  const { from } = sidesOf(ctx.trace, ctx.site);
  return before ? apart(after, before, from.map(side)).values : alone(after).values;
}

/**
 * Rows of lengths (nested or flat) → each as a share of its row's sum.
 * @param {number[][]} norms @param {number} N @param {number} T
 */
function shares(norms, N, T) {
  const flat = Float32Array.from(norms.flat());
  for (let i = 0; i < N; i++) {
    const row = flat.subarray(i * T, (i + 1) * T);
    const sum = row.reduce((a, b) => a + b, 0) || 1;
    for (const [j, x] of row.entries()) row[j] = x / sum;
  }
  return flat;
}

/**
 * Where weight and contribution differ most, in words with numbers.
 * @param {SiteContext} ctx @param {number[]} on @param {Sides} sides @param {Map<number, Strength>} numbers
 */
export function disagreements(ctx, on, sides, numbers) {
  const [N, T] = [sides.queries.length, sides.keys.length];
  /** @param {number} h */
  const strength = (h) => {
    const { weight = NONE, contribution = NONE } = numbers.get(h) ?? {};
    return { weight, contribution };
  };
  if (on.every((h) => strength(h).contribution.every((x) => x === 0)))
    return sentence(
      "empty",
      `An edit switched ${on.length > 1 ? "these heads" : "this head"} off: nothing of what is looked at arrives.`,
    );
  const found = on.flatMap((h) => {
    const { weight, contribution } = strength(h);
    return [...contribution.keys()].map((at) => ({
      h,
      i: Math.floor(at / T),
      j: at % T,
      weight: weight[at],
      share: contribution[at],
      gap: Math.abs(contribution[at] - weight[at]),
    }));
  });
  const most = found.sort((a, b) => b.gap - a.gap).slice(0, 6);
  if (!N || !most.length || most[0].gap < 0.005)
    return sentence("empty", "In this head weight and contribution agree to within half a percent.");
  /** @param {Gap} gap */
  const row = ({ h, i, j, weight, share }) =>
    el(
      "tr",
      {},
      on.length > 1 ? el("td", {}, `head ${h}`) : null,
      el("td", { class: "words-cell" }, sides.queries[i], " → ", sides.keys[j]),
      el("td", {}, number(ctx, weight, ctx.site.weights, [h, i, j])),
      el("td", {}, format(share)),
      el("td", {}, format(share - weight)),
    );
  return el(
    "section",
    {},
    el("h3", {}, "Weight is not contribution"),
    el("p", { class: "hint" }, "A large weight on a short value vector moves little. These pairs differ most."),
    el(
      "table",
      { class: "figures" },
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          on.length > 1 ? el("td", {}) : null,
          ["query → key", "weight A", "share of ‖A·V·W_o‖", "difference"].map((word, at) =>
            el("th", { scope: "col", class: at ? null : "words-cell" }, at === 2 ? formula(word) : word),
          ),
        ),
      ),
      el("tbody", {}, most.map(row)),
    ),
  );
}
