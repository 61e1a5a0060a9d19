/**
 * Paints the lines of the head view, and the small columns of heads beside the keys.
 *
 * In: a canvas and a view {mean (N·T), N, T, signed, alone, on, numbers}. Out: pixels.
 */

import { colours, css, palette } from "regard/scale.js";

const LEAST = 0.01;

function prepared(canvas, width, height) {
  const ratio = devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  return pen;
}

/** Heights of the middles of tokens, relative to the canvas. */
const middles = (tokens, top) => tokens.map((token) => {
  const box = token.getBoundingClientRect();
  return box.top + box.height / 2 - top;
});

export function strokes(canvas, { mean, N, T, signed, alone, most }, columns) {
  const box = canvas.getBoundingClientRect();
  if (!box.width || !box.height) return;
  const pen = prepared(canvas, box.width, box.height);
  const [from, to] = [middles(columns.query.tokens, box.top), middles(columns.key.tokens, box.top)];
  const ends = palette().diverging;
  const [plus, minus] = signed ? [css(ends.at(-1)), css(ends[0])] : [palette().roles.A, palette().roles.A];
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

const range = (alone, side, count) => (alone?.side === side ? [alone.i] : [...Array(count).keys()]);

const WIDE = 16;

/** A column per head, a cell per token: of the token that is alone towards the other side, or on average. */
export function headColumns(canvas, { on, numbers, N, T, signed, alone, most }) {
  const height = canvas.parentElement?.clientHeight ?? 0;
  canvas.style.width = `${on.length * WIDE}px`;
  if (!height) return;
  const pen = prepared(canvas, on.length * WIDE, height);
  const [top, row] = geometry(canvas);
  const colour = colours(signed ? "diverging" : "sequential", most);
  pen.font = `11px ${palette().figures}`;
  pen.textAlign = "center";
  pen.fillStyle = palette().faint;
  on.forEach((h, at) => pen.fillText(String(h), at * WIDE + WIDE / 2, top - 8));
  on.forEach((h, at) => {
    for (let k = 0; k < (alone?.side === "key" ? N : T); k++) {
      const value = valueAt(numbers.get(h).shown, alone, k, N, T);
      pen.fillStyle = css(colour(value));
      pen.fillRect(at * WIDE + 1, top + k * row + 3, WIDE - 2, row - 6);
    }
  });
}

/** What stands in row k of a head's column: of the token that is alone, or of all queries on average. */
export function valueAt(shown, alone, k, N, T) {
  if (alone) return shown[alone.side === "query" ? alone.i * T + k : k * T + alone.i];
  let sum = 0;
  for (let i = 0; i < N; i++) sum += shown[i * T + k];
  return sum / N;
}

/** Where the first token's row begins and how high a row is. */
function geometry(canvas) {
  const items = canvas.parentElement.querySelectorAll(".lines-side.key > li:not(.lines-head)");
  const box = canvas.parentElement.getBoundingClientRect();
  const first = items[0].getBoundingClientRect();
  return [first.top - box.top, first.height];
}

/** The cell under the pointer: {h, k} or null. */
headColumns.under = (canvas, { on, N, T, alone }, event) => {
  const [top, row] = geometry(canvas);
  const [h, k] = [on[Math.floor(event.offsetX / WIDE)], Math.floor((event.offsetY - top) / row)];
  return h === undefined || k < 0 || k >= (alone?.side === "key" ? N : T) ? null : { h, k };
};
