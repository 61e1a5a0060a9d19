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
import { sidesOf } from "regard/tokens.js";

const PICTURES = [
  ["scores", "v^T tanh(W_s s + W_h h + b)", "scores: a small network compares the state with each source token", "diverging"],
  ["weights", "softmax", "weights: each row sums to 1", "sequential"],
];

export async function alignment(root, ctx) {
  const { site } = ctx.site;
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
  const slices = await Promise.all(PICTURES.map(([what]) => ctx.data.slice(`${site}.${what}`, [0, ":", ":"])));
  const first = [tokenOf(ctx, "decoder"), Math.min(Math.max(0, ctx.state.key), sides.keys.length - 1)];
  const grid = root.appendChild(el("div", { class: "four" }));
  const below = el("div", { class: "focus" });
  const together = queryByKey(ctx, sides, first, rowWorkedOut(below, ctx, sides));
  const picture = ([what, title, words, scale], i) => together.picture(grid, slices[i], {
    what,
    title,
    words,
    scale,
    head: 0,
    axes: ["target", "source"],
    say: what,
  });
  synchronise(PICTURES.map(picture));
  root.append(below);
  await together.begin();
}

/** → draw(i, j). With Δ, of the run after. */
function rowWorkedOut(root, ctx, sides) {
  const data = ctx.data.of(ctx.trace);
  const { site } = ctx.site;
  const H = ctx.nodes.get(`${site}.Z`).inputs[1];
  let turn = 0;
  return async (i, j) => {
    const mine = ++turn;
    const [scores, weights, z, values] = await Promise.all([
      data.slice(`${site}.scores`, [0, ":", ":"]),
      data.slice(`${site}.weights`, [0, ":", ":"]),
      data.slice(`${site}.Z`, [0, ":", ":"]),
      data.slice(H),
    ]);
    if (mine !== turn) return;
    const cell = { i, j, query: sides.queries[i], key: sides.keys[j], keys: sides.keys };
    const run = {
      name: (what) => `${site}.${what}`,
      before: "scores",
      scores: rowOf(scores, i),
      weights: rowOf(weights, i),
      z: rowOf(z, i),
      values,
    };
    root.replaceChildren(...[workedFor(ctx)].filter(Boolean));
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
