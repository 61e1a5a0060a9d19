/**
 * Matrices of one attention, queries by keys, that move together: one cursor for all, its two tokens lit in the text, and
 * what stands below drawn again wherever it goes.
 *
 * In: the two sides, where the cursor begins, and draw(i, j) of what stands below. Out: picture(…), which adds a matrix and
 * gives it back to be synchronised with the others, and begin(), which lights and draws for the first time.
 */

import { formula } from "regard/dom.js";
import { matrix } from "regard/matrix.js";

/** @param {SiteContext} ctx @param {Sides} sides @param {Cell} first @param {(i: number, j: number) => unknown} draw */
export function queryByKey(ctx, sides, first, draw) {
  const delta = ctx.mode === "delta";
  /** @param {Cell} cell */
  const light = ([r, c]) => ctx.light(sides.from[0], r, sides.from[1], c);
  let cursor = first;
  let soon = 0;
  /** @param {number} r @param {number} c */
  const moved = (r, c) => {
    cursor = [r, c];
    ctx.note({ token: r, key: c });
    light(cursor);
    cancelAnimationFrame(soon);
    soon = requestAnimationFrame(() => draw(r, c));
  };
  /**
   * @param {HTMLElement} grid @param {Slice} slice
   * @param {{ node: string, title: string, words: string, scale: Scale, head: number, axes: string[], say: string }} given
   */
  const picture = (grid, slice, { node, title, words, scale, head, axes, say }) =>
    matrix(grid, {
      ...slice,
      rows: sides.queries,
      cols: sides.keys,
      title: formula(delta ? `Δ ${title}` : title),
      subtitle: delta ? "after − before" : words,
      axes,
      scale: delta ? "diverging" : scale,
      role: node === ctx.site.weights ? "A" : undefined,
      node,
      index: (r, c) => [head, r, c],
      say,
      ctx,
      cursor,
      moved,
      hovered: (r, c) => light(r === null || c === null ? cursor : [r, c]),
    });
  const begin = () => {
    light(cursor);
    return draw(...cursor);
  };
  return { picture, begin };
}
