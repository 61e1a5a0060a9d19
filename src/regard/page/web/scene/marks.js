/**
 * Marks: what the scene consists of, and how one picture becomes the next.
 *
 * In: lists of marks. A mark has a key, numbers `g` (where it is, how large, how opaque) and a way to paint them. Out: the marks of
 * a moment in between: those with the same key move, new ones fade in, others fade out. Whoever makes a picture never thinks of
 * motion.
 */

import { still } from "regard/scene/clock.js";

/** @param {number} a @param {number} b @param {number} t */
const mix = (a, b, t) => a + (b - a) * t;

/**
 * @param {Geometry} a @param {Geometry} b @param {number} t
 * @returns {Geometry}
 */
function moved(a, b, t) {
  /** @type {Geometry} */
  const g = { ...b };
  for (const name in b) if (name in a) g[name] = mix(a[name], b[name], t);
  g.alpha = mix(a.alpha ?? 1, b.alpha ?? 1, t);
  return g;
}

/**
 * The picture at time t on the way from `before` to `after`.
 * @template {Mark | Thing} M
 * @param {Map<string, M>} before @param {M[]} after @param {number} t
 * @returns {M[]}
 */
export function between(before, after, t) {
  if (t >= 1) return after;
  const jump = still();
  /** @type {M[]} */
  const shown = [];
  const coming = new Set(after.map(({ key }) => key));
  for (const mark of before.values()) {
    if (!coming.has(mark.key)) shown.push({ ...mark, g: { ...mark.g, alpha: (mark.g.alpha ?? 1) * (1 - t) }, gone: true });
  }
  for (const mark of after) {
    const old = before.get(mark.key);
    if (old && !jump) shown.push({ ...mark, g: moved(old.g, mark.g, t) });
    else if (old) shown.push(mark);
    else shown.push({ ...mark, g: { ...mark.g, ...entering(mark, t) } });
  }
  return shown;
}

/**
 * A new mark fades in, and grows out of where it comes from, if it says.
 * @param {Mark | Thing} mark @param {number} t
 */
function entering({ g, from }, t) {
  /** @type {Geometry} */
  const start = {};
  if (from && !still()) for (const name in from) start[name] = mix(from[name], g[name], t);
  return { ...start, alpha: (g.alpha ?? 1) * t };
}

/**
 * @template {Mark | Thing} M
 * @param {M[]} marks
 */
export const byKey = (marks) => new Map(marks.map((mark) => [mark.key, mark]));
