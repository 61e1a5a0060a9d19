/**
 * Paints the lines of the head view.
 *
 * In: a canvas, a view {mean (N·T), N, T, signed, alone, most} and the two columns of tokens. Out: pixels.
 */

import { penOf } from "regard/dom.js";
import { css, palette } from "regard/scale.js";

const LEAST = 0.01;

/**
 * A pen for a canvas of this many pixels of the page.
 * @param {HTMLCanvasElement} canvas @param {number} width @param {number} height
 */
export function prepared(canvas, width, height) {
  const ratio = devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const pen = penOf(canvas);
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  return pen;
}

/**
 * Heights of the middles of tokens, relative to the canvas.
 * @param {Element[]} tokens @param {number} top
 */
const middles = (tokens, top) =>
  tokens.map((token) => {
    const box = token.getBoundingClientRect();
    return box.top + box.height / 2 - top;
  });

/**
 * @param {HTMLCanvasElement} canvas @param {LinesView} linesView
 * @param {{ [side in LinesToken["side"]]: { tokens: Element[] } }} columns
 */
export function strokes(canvas, { mean, N, T, signed, alone, most }, columns) {
  const box = canvas.getBoundingClientRect();
  if (!box.width || !box.height) return;
  const pen = prepared(canvas, box.width, box.height);
  const [from, to] = [middles(columns.query.tokens, box.top), middles(columns.key.tokens, box.top)];
  const ends = palette().diverging;
  const [plus, minus] = signed ? [css(ends[ends.length - 1]), css(ends[0])] : [palette().roles.A, palette().roles.A];
  const [rows, cols] = [range(alone, "query", N), range(alone, "key", T)];
  for (const i of rows) {
    for (const j of cols) {
      const value = mean[i * T + j];
      if (!(Math.abs(value) >= LEAST)) continue;
      const size = Math.min(1, Math.abs(value) / most);
      pen.strokeStyle = value < 0 ? minus : plus;
      pen.globalAlpha = alone ? 0.25 + 0.75 * size : 0.06 + 0.84 * size;
      pen.lineWidth = 0.75 + 2.75 * size;
      pen.beginPath();
      pen.moveTo(0, from[i]);
      pen.bezierCurveTo(box.width * 0.45, from[i], box.width * 0.55, to[j], box.width, to[j]);
      pen.stroke();
    }
  }
  pen.globalAlpha = 1;
}

/** @param {LinesToken | null} alone @param {LinesToken["side"]} side @param {number} count */
const range = (alone, side, count) => (alone?.side === side ? [alone.i] : [...Array(count).keys()]);
