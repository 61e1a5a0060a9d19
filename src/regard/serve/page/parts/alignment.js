/**
 * The alignment of a recurrent translator: how well each source token fits what is to be written next, and what is read.
 *
 * In: the run of a network with additive attention. Out: two matrices that move together (scores and weights, target by
 * source), and the cell in focus worked out: its softmax as a fraction, and what is read as a weighted sum of the states.
 */

import { el, formula } from "regard/dom.js";
import { matrix, synchronise } from "regard/matrix.js";
import { fraction, mixture, rowOf } from "regard/parts/attention-row.js";
import { tokenOf } from "regard/parts/run.js";
import { sidesOf } from "regard/tokens.js";

const PICTURES = [
  ["scores", "v^T tanh(W_s s + W_h h + b)", "scores: a small network compares the state with each source token", "diverging"],
  ["weights", "softmax", "weights: each row sums to 1", "sequential"],
];

export async function alignment(root, ctx) {
  const { site } = ctx.site;
  const sides = sidesOf(ctx.trace, ctx.site);
  const delta = ctx.mode === "delta";
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
  let cursor = [tokenOf(ctx, "decoder"), Math.min(Math.max(0, ctx.state.key), sides.keys.length - 1)];
  const grid = root.appendChild(el("div", { class: "four" }));
  const below = el("div", { class: "focus" });
  const draw = rowWorkedOut(below, ctx, sides);
  const light = ([r, c]) => ctx.light(sides.from[0], r, sides.from[1], c);
  let soon = 0;
  const moved = (r, c) => {
    cursor = [r, c];
    ctx.note({ token: r, key: c });
    light(cursor);
    cancelAnimationFrame(soon);
    soon = requestAnimationFrame(() => draw(r, c));
  };
  const picture = ([what, title, words, scale], at) => matrix(grid, {
    ...slices[at],
    rows: sides.queries,
    cols: sides.keys,
    title: formula(delta ? `Δ ${title}` : title),
    subtitle: delta ? "after − before" : words,
    axes: ["target", "source"],
    scale: delta ? "diverging" : scale,
    role: what === "weights" ? "A" : undefined,
    node: `${site}.${what}`,
    index: (r, c) => [0, r, c],
    say: what,
    ctx,
    cursor,
    moved,
    hovered: (r, c) => light(r === null ? cursor : [r, c]),
  });
  synchronise(PICTURES.map(picture));
  root.append(below);
  light(cursor);
  await draw(...cursor);
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
    const after = ctx.mode === "delta" ? el("p", { class: "lead" }, "Worked out for the run after the edit.") : null;
    root.replaceChildren(...[after].filter(Boolean));
    fraction(root, ctx, cell, run);
    mixture(root, ctx, cell, run, {
      letter: "h",
      title: "H",
      subtitle: "the states of the source, with their weights",
      node: H,
      index: (t, f) => [t, f],
      sum: "what is read before this word",
    });
  };
}
