/**
 * How large the cells of a matrix are, and how much room its labels take.
 *
 * In: what a matrix was given, the width there is, and how far it is zoomed. Out: numbers in pixels, for matrix.js and
 * paint.js. Nothing is drawn here.
 */

import { el, penOf } from "regard/dom.js";
import { font } from "regard/scale.js";

export const SLANT = Math.PI / 4;
export const LONGEST = 90; // pixels of a label; longer ones are cut
const BAR = 14; // a horizontal scroll bar

/**
 * x, but not below low nor above high; where they cross, high wins.
 * @param {number} x @param {number} low @param {number} high
 */
export const clamp = (x, low, high) => Math.min(Math.max(x, low), high);

/**
 * {cell: {w, h}, left, top, right, slanted, whole: {width, height}, height, wide, tall}: cells as large as fit between their
 * limits; left, top and right are the labels'; height is that of the visible part; wide and tall say that it is not all.
 * @param {MatrixOptions} matrixOptions @param {number} width @param {number} factor
 */
export function plan({ shape: [R, C], rows, cols, cell: limits = {}, fit, gutter, height = 440 }, width, factor) {
  const { min = 6, max = 56, h } = limits;
  let around = { left: 0, top: 0, right: 0, slanted: false };
  const cell = { w: 0, h: 0 };
  for (let pass = 0; pass < 4; pass++) {
    // cells need to know their labels, and labels the cells
    const free = (width - around.left - around.right) / C;
    cell.w = (fit ? Math.min(free, max) : clamp(free, min, max)) * factor;
    cell.h = h ?? (cell.w < 16 ? cell.w : clamp(cell.w * 0.62, 16, 34));
    around = margins(rows, cols, cell, width);
    if (gutter) around.left = gutter;
  }
  const whole = { width: around.left + C * cell.w + around.right, height: around.top + R * cell.h };
  const [wide, tall] = [whole.width > width + 1, whole.height > height];
  return { cell, ...around, whole, height: Math.min(whole.height + 1, height) + (wide ? BAR : 0), wide, tall };
}

/**
 * Room for labels: {left, top, right, slanted}. Column labels lie flat when they fit and slant when not.
 * @param {string[] | null | undefined} rows @param {string[] | null | undefined} cols @param {Room["cell"]} cell
 * @param {number} width
 */
function margins(rows, cols, cell, width) {
  /** @param {string[]} labels */
  const widths = (labels) => labels.map(widthOf);
  const left = rows ? Math.min(Math.max(...widths(sample(rows))) + 18, Math.max(56, width * 0.3)) : 0;
  if (!cols) return { left, top: 0, right: 0, slanted: false };
  const wide = Math.max(...widths(sample(cols)));
  if (wide + 4 <= cell.w) return { left, top: 20, right: 0, slanted: false };
  const past = widths(cols.slice(-12)).map((w, i, { length }) => w * Math.sin(SLANT) + 6 - (length - 0.5 - i) * cell.w);
  return { left, top: wide * Math.sin(SLANT) + 16, right: Math.max(0, ...past), slanted: true };
}

const ruler = penOf(el("canvas"));
/** @type {Map<string, number>} */
const measured = new Map();

/** @param {string} label */
function widthOf(label) {
  const known = measured.get(label);
  if (known !== undefined) return known;
  if (measured.size > 5000) measured.clear();
  ruler.font = font(12);
  const width = Math.min(ruler.measureText(label).width, LONGEST);
  measured.set(label, width);
  return width;
}

/** @param {string[]} labels */
const sample = (labels) => (labels.length <= 600 ? labels : labels.slice(0, 300).concat(labels.slice(-300)));
