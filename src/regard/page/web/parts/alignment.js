/**
 * The alignment of a recurrent translator: how well each source token fits what is to be written next, and what is read.
 *
 * In: the run of a network with additive attention. Out: two matrices that move together (scores and weights, target by
 * source), and the cell in focus worked out: its softmax as a fraction, and what is read as a weighted sum of the states.
 */

import { el } from "regard/dom.js";
import { synchronise } from "regard/matrix.js";
import { fraction, mixture, rowOf } from "regard/parts/attention-row.js";
import { queryByKey } from "regard/parts/query-by-key.js";
import { tokenOf, workedFor } from "regard/parts/run.js";
import { lastWord, nodeOf } from "regard/parts/wiring.js";
import { sidesOf } from "regard/tokens.js";

/** @typedef {[title: string, words: string, scale: Scale]} Picture */

/** @type {Picture[]} */
const PICTURES = [
  ["v^T tanh(W_s s + W_h h + b)", "scores: a small network compares the state with each source token", "diverging"],
  ["softmax", "weights: each row sums to 1", "sequential"],
];

/** @param {HTMLElement} root @param {SiteContext} ctx */
export async function alignment(root, ctx) {
  const { steps } = ctx.site;
  const sides = sidesOf(ctx.trace, ctx.site);
  root.append(
    el("h2", { class: "stage-title" }, "decoder · additive attention"),
    el(
      "p",
      { class: "lead" },
      "Before each word the decoder's state s is compared with the state h of every source token; what fits is read. ",
      "This is attention as it began, in 2015.",
    ),
  );
  const slices = await Promise.all(steps.map((name) => ctx.data.slice(name, [0, ":", ":"])));
  /** @type {Cell} */
  const first = [tokenOf(ctx, "decoder"), Math.min(Math.max(0, ctx.state.key), sides.keys.length - 1)];
  const grid = root.appendChild(el("div", { class: "four" }));
  const below = el("div", { class: "focus" });
  const together = queryByKey(ctx, sides, first, rowWorkedOut(below, ctx, sides));
  /** @param {Picture} picture @param {number} i */
  const picture = ([title, words, scale], i) =>
    together.picture(grid, slices[i], {
      node: steps[i],
      title,
      words,
      scale,
      head: 0,
      axes: ["target", "source"],
      say: lastWord(steps[i]),
    });
  synchronise(PICTURES.map(picture));
  root.append(below);
  await together.begin();
}

/**
 * → draw(i, j). With Δ, of the run after.
 * @param {HTMLElement} root @param {SiteContext} ctx @param {Sides} sides
 */
function rowWorkedOut(root, ctx, sides) {
  const data = ctx.data.of(ctx.trace);
  const {
    V,
    Z,
    steps: [last, weights],
  } = ctx.site;
  const H = nodeOf(ctx, V).name;
  let turn = 0;
  return async (/** @type {number} */ i, /** @type {number} */ j) => {
    const mine = ++turn;
    const [S, A, z, values] = await Promise.all([
      ...[last, weights, Z].map((name) => data.slice(name, [0, ":", ":"])),
      data.slice(H),
    ]);
    if (mine !== turn) return;
    const cell = { i, j, query: sides.queries[i], key: sides.keys[j], keys: sides.keys };
    const run = { last, scores: rowOf(S, i), weights: rowOf(A, i), z: rowOf(z, i), values };
    root.replaceChildren(workedFor(ctx) ?? "");
    fraction(root, ctx, cell, run);
    mixture(root, ctx, cell, run, {
      letter: "h",
      title: "H",
      subtitle: "the states of the source, with their weights",
      node: H,
      index: (t, f) => [t, f],
      together: "what is read before this word",
    });
  };
}
