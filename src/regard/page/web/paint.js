/**
 * Paints the visible part of a matrix on a canvas.
 *
 * In: a canvas and a view {values, shape, rows, cols, cell: {w, h}, left, top, x, y, width, height, colour, hover,
 * cursor, role}. Out: pixels. The cells are one small image, a pixel per value, drawn enlarged without smoothing, so a
 * picture costs the same whatever the matrix measures; digits, labels and frames are drawn over it.
 */

import { el, format, penOf } from "regard/dom.js";
import { LONGEST, SLANT } from "regard/layout.js";
import { font, palette, rgb, textOn } from "regard/scale.js";

const DIGITS = 26; // pixels of width from which a cell holds digits
const LINE = 10; // pixels a label needs to itself
const LINED = 6; // pixels of width from which an empty cell is crossed out

/**
 * Which rows or columns are on the screen.
 * @param {number} offset @param {number} room @param {number} size @param {number} count @returns {Span}
 */
const span = (offset, room, size, count) => [
  Math.max(0, Math.floor(offset / size)),
  Math.min(count, Math.ceil((offset + room) / size)),
];

/** @param {HTMLCanvasElement} canvas @param {PaintView} view */
export function paint(canvas, view) {
  const ratio = devicePixelRatio || 1;
  const [wide, high] = [Math.round(view.width * ratio), Math.round(view.height * ratio)];
  if (canvas.width !== wide || canvas.height !== high) [canvas.width, canvas.height] = [wide, high];
  const pen = penOf(canvas);
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, view.width, view.height);
  const [R, C] = view.shape;
  const rows = span(view.y, view.height - view.top, view.cell.h, R);
  const cols = span(view.x, view.width - view.left, view.cell.w, C);
  if (rows[1] <= rows[0] || cols[1] <= cols[0]) return;
  /** @type {Seen} */
  const seen = {
    ...view,
    pen,
    rowSpan: rows,
    colSpan: cols,
    atX: (c) => view.left + c * view.cell.w - view.x,
    atY: (r) => view.top + r * view.cell.h - view.y,
  };
  pen.save();
  pen.beginPath();
  pen.rect(view.left, view.top, view.width - view.left, view.height - view.top);
  pen.clip();
  cells(seen);
  if (view.cell.w >= DIGITS && view.cell.h >= 14) digits(seen);
  frames(seen);
  pen.restore();
  if (view.rows) rowLabels(seen, view.rows);
  if (view.cols) colLabels(seen, view.cols);
}

const tile = penOf(el("canvas")); // one pixel per value

/** @param {Seen} seen */
function cells({ pen, values, shape: [, C], colour, rowSpan, colSpan, cell, atX, atY }) {
  const [wide, high] = [colSpan[1] - colSpan[0], rowSpan[1] - rowSpan[0]];
  const image = new ImageData(wide, high);
  /** @type {Cell[]} */
  const empty = [];
  const dot = [...rgb(palette().faint), 90];
  for (let r = 0; r < high; r++) {
    for (let c = 0; c < wide; c++) {
      const value = values[(rowSpan[0] + r) * C + colSpan[0] + c];
      const at = 4 * (r * wide + c);
      if (!Number.isFinite(value)) {
        if (cell.w >= LINED) empty.push([rowSpan[0] + r, colSpan[0] + c]);
        else if ((rowSpan[0] + r + colSpan[0] + c) % 3 === 0) image.data.set(dot, at);
        continue;
      }
      [image.data[at], image.data[at + 1], image.data[at + 2]] = colour(value);
      image.data[at + 3] = 255;
    }
  }
  [tile.canvas.width, tile.canvas.height] = [wide, high];
  tile.putImageData(image, 0, 0);
  pen.imageSmoothingEnabled = cell.w < 1;
  pen.drawImage(tile.canvas, atX(colSpan[0]), atY(rowSpan[0]), wide * cell.w, high * cell.h);
  hatch(pen, empty, cell, atX, atY);
  if (cell.w >= 12 && cell.h >= 10) grid(pen, rowSpan, colSpan, atX, atY);
}

/**
 * Entries without a number (masked: −∞) are hatched, or dotted where they are tiny: they are absent, not small.
 * @param {Pen} pen @param {Cell[]} empty @param {Room["cell"]} cell @param {(c: number) => number} atX
 * @param {(r: number) => number} atY
 */
function hatch(pen, empty, cell, atX, atY) {
  pen.strokeStyle = palette().faint;
  pen.globalAlpha = 0.55;
  pen.lineWidth = 0.75;
  pen.beginPath();
  for (const [r, c] of empty) {
    const [x, y] = [atX(c), atY(r)];
    pen.moveTo(x, y + cell.h);
    pen.lineTo(x + cell.w, y);
  }
  pen.stroke();
  pen.globalAlpha = 1;
}

/**
 * @param {Pen} pen @param {Span} rowSpan @param {Span} colSpan @param {(c: number) => number} atX
 * @param {(r: number) => number} atY
 */
function grid(pen, rowSpan, colSpan, atX, atY) {
  pen.strokeStyle = palette().paper;
  pen.lineWidth = 1;
  pen.beginPath();
  const [top, bottom, left, right] = [atY(rowSpan[0]), atY(rowSpan[1]), atX(colSpan[0]), atX(colSpan[1])];
  for (let c = colSpan[0]; c <= colSpan[1]; c++) {
    pen.moveTo(atX(c), top);
    pen.lineTo(atX(c), bottom);
  }
  for (let r = rowSpan[0]; r <= rowSpan[1]; r++) {
    pen.moveTo(left, atY(r));
    pen.lineTo(right, atY(r));
  }
  pen.stroke();
}

/** @param {Seen} seen */
function digits({ pen, values, shape: [, C], colour, rowSpan, colSpan, cell, atX, atY }) {
  pen.font = font(cell.w >= 36 ? 12 : cell.w >= 30 ? 10.5 : 9.5);
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  const places = cell.w >= 44 ? 3 : 2;
  for (let r = rowSpan[0]; r < rowSpan[1]; r++) {
    for (let c = colSpan[0]; c < colSpan[1]; c++) {
      const value = values[r * C + c];
      if (!Number.isFinite(value)) continue;
      pen.fillStyle = textOn(colour(value));
      pen.fillText(brief(value, places), atX(c) + cell.w / 2, atY(r) + cell.h / 2 + 0.5);
    }
  }
}

/**
 * As many digits as a cell holds.
 * @param {number} value @param {number} places
 */
function brief(value, places) {
  const size = Math.abs(value);
  if (size < 0.5 * 10 ** -places) return "0";
  if (size >= 10000) return format(value, 0);
  return value.toFixed(size >= 100 ? 0 : size >= 10 ? places - 2 : places - 1 + (size < 1 ? 1 : 0)).replace("-", "−");
}

/** @param {Seen} seen */
function frames({ pen, hover, cursor, cell, shape: [R, C], atX, atY }) {
  pen.strokeStyle = palette().ink;
  if (hover) {
    pen.lineWidth = 1;
    pen.globalAlpha = 0.5;
    pen.strokeRect(atX(0) + 0.5, atY(hover[0]) + 0.5, C * cell.w - 1, cell.h - 1);
    pen.strokeRect(atX(hover[1]) + 0.5, atY(0) + 0.5, cell.w - 1, R * cell.h - 1);
    pen.globalAlpha = 1;
  }
  if (cursor) {
    pen.lineWidth = 2;
    const [wide, high] = [Math.max(cell.w, 7), Math.max(cell.h, 7)]; // a frame around a cell too small to hold it
    const x = Math.max(atX(0), atX(cursor[1]) - (wide - cell.w) / 2);
    pen.strokeRect(x + 1, Math.max(atY(0), atY(cursor[0]) - (high - cell.h) / 2) + 1, wide - 2, high - 2);
  }
}

/**
 * Whether label i is written: all when there is room, every k-th otherwise, those in the light always.
 * @param {number} i @param {number} size @param {number[]} lit
 */
const written = (i, size, lit) =>
  lit.includes(i) || (i % Math.ceil(LINE / size) === 0 && !lit.some((l) => Math.abs(l - i) * size < LINE));

/** @param {Pen} pen @param {number[]} lit @param {number} i @param {number} size */
function ink(pen, lit, i, size) {
  pen.fillStyle = lit.includes(i) ? palette().ink : palette().faint;
  pen.font = font(size < 12 ? 10.5 : 12, lit.includes(i) ? 600 : 400);
}

/** @param {Seen} seen @param {string[]} rows */
function rowLabels({ pen, rowSpan, cell, left, top, height, hover, cursor, atY }, rows) {
  const lit = [hover?.[0], cursor?.[0]].filter((i) => i !== undefined);
  pen.save();
  pen.beginPath();
  pen.rect(0, top, left, height - top);
  pen.clip();
  pen.textAlign = "right";
  pen.textBaseline = "middle";
  for (let r = rowSpan[0]; r < rowSpan[1]; r++) {
    if (!written(r, cell.h, lit)) continue;
    ink(pen, lit, r, cell.h);
    pen.fillText(shorten(pen, rows[r], left - 10), left - 7, atY(r) + cell.h / 2 + 0.5);
  }
  pen.restore();
}

/** @param {Seen} seen @param {string[]} cols */
function colLabels({ pen, colSpan, cell, left, top, width, hover, cursor, slanted, atX }, cols) {
  const lit = [hover?.[1], cursor?.[1]].filter((i) => i !== undefined);
  pen.save();
  pen.beginPath();
  pen.rect(left, 0, width - left, top);
  pen.clip();
  pen.textBaseline = "middle";
  pen.textAlign = slanted ? "left" : "center";
  for (let c = colSpan[0]; c < colSpan[1]; c++) {
    if (!written(c, cell.w, lit)) continue;
    ink(pen, lit, c, cell.w);
    pen.save();
    pen.translate(atX(c) + cell.w / 2, top - 8);
    if (slanted) pen.rotate(-SLANT);
    pen.fillText(shorten(pen, cols[c], slanted ? LONGEST : cell.w), 0, 0);
    pen.restore();
  }
  pen.restore();
}

/** @param {Pen} pen @param {string} text @param {number} room */
function shorten(pen, text, room) {
  if (pen.measureText(text).width <= room) return text;
  let end = text.length;
  while (end > 1 && pen.measureText(`${text.slice(0, end)}…`).width > room) end--;
  return `${text.slice(0, end)}…`;
}
