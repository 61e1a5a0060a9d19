/**
 * How marks are painted on the canvas. Each function takes what does not move and returns `paint(pen, g)` for the numbers that do.
 */

import { el, penOf } from "regard/dom.js";
import { colours, font, palette, rgb, textOn } from "regard/scale.js";

/** A rounded rectangle. @param {{ fill?: string, stroke?: string, line?: number, radius?: number, dash?: number[] }} how @returns {Paint} */
export function box({ fill = "", stroke = "", line = 1, radius = 10, dash = [] }) {
  return (pen, { x, y, w, h }) => {
    pen.beginPath();
    pen.roundRect(x, y, w, h, Math.min(radius, w / 2, h / 2));
    if (fill) {
      pen.fillStyle = fill;
      pen.fill();
    }
    if (stroke) {
      pen.strokeStyle = stroke;
      pen.lineWidth = line;
      pen.setLineDash(dash);
      pen.stroke();
      pen.setLineDash([]);
    }
  };
}

/** A horizontal band whose thickness goes from `a` to `b`. @param {string} fill @returns {Paint} */
export const band =
  (fill) =>
  (pen, { x, y, w, a, b }) => {
    pen.fillStyle = fill;
    pen.beginPath();
    pen.moveTo(x, y - a / 2);
    pen.lineTo(x + w, y - b / 2);
    pen.lineTo(x + w, y + b / 2);
    pen.lineTo(x, y + a / 2);
    pen.fill();
  };

/** A curve from (x, y) to (u, v), `thick` wide, that leaves and arrives level. @param {string} stroke @returns {Paint} */
export const curve =
  (stroke) =>
  (pen, { x, y, u, v, thick }) => {
    pen.strokeStyle = stroke;
    pen.lineWidth = Math.max(0.5, thick);
    pen.lineCap = "round";
    pen.beginPath();
    pen.moveTo(x, y);
    const middle = (x + u) / 2;
    pen.bezierCurveTo(middle, y, middle, v, u, v);
    pen.stroke();
  };

/** A straight line from (x, y) to (u, v). @param {string} stroke @param {number[]} [dash] @returns {Paint} */
export const line =
  (stroke, dash = []) =>
  (pen, { x, y, u, v, thick }) => {
    pen.strokeStyle = stroke;
    pen.lineWidth = thick;
    pen.setLineDash(dash);
    pen.beginPath();
    pen.moveTo(x, y);
    pen.lineTo(u, v);
    pen.stroke();
    pen.setLineDash([]);
  };

/**
 * A table of numbers, a cell each: at most one image, whatever its size. Entries that are not numbers are hatched: hidden, not small.
 * `digits`: from this width of a cell on, its number is written; `cursor`: [row, column] framed; `row`: one row framed.
 * @param {Tensor} numbers @param {{ scale: Scale, bound: number, digits?: number, cursor?: [number, number] | null, row?: number, edge?: string }} how
 * @returns {Paint}
 */
export function table({ shape, values }, { scale, bound, digits = Infinity, cursor = null, row = -1, edge = "" }) {
  const [R, C] = shape;
  const { image, hidden, colour } = picture(values, R, C, scale, bound);
  return (pen, { x, y, w, h }) => {
    const [cw, ch] = [w / C, h / R];
    pen.imageSmoothingEnabled = cw < 1;
    pen.drawImage(image, x, y, w, h);
    if (hidden.length && cw > 3) hatch(pen, hidden, C, { x, y, cw, ch });
    if (cw >= 9 && ch >= 9) grid(pen, R, C, { x, y, cw, ch });
    if (cw >= digits && ch >= 13) figures(pen, { values, R, C, colour }, { x, y, cw, ch });
    if (edge) {
      pen.strokeStyle = edge;
      pen.lineWidth = 1;
      pen.strokeRect(x - 0.5, y - 0.5, w + 1, h + 1);
    }
    if (row >= 0) {
      pen.strokeStyle = palette().roles.A;
      pen.lineWidth = 1.5;
      pen.strokeRect(x - 1, y + row * ch, w + 2, ch);
    }
    if (cursor) {
      pen.strokeStyle = css(palette().diverging[4]);
      pen.lineWidth = 2.5;
      pen.strokeRect(x + cursor[1] * cw, y + cursor[0] * ch, cw, ch);
    }
  };
}

/** @param {number[]} colour */
const css = ([r, g, b]) => `rgb(${r} ${g} ${b})`;

/** @type {WeakMap<Numbers, Map<string, { image: HTMLCanvasElement, hidden: number[], colour: (v: number) => number[] }>>} */
let pictures = new WeakMap();
document.addEventListener("themed", () => {
  pictures = new WeakMap();
});

/**
 * A pixel per value, made once per array, scale and theme.
 * @param {Numbers} values @param {number} R @param {number} C @param {Scale} scale @param {number} bound
 */
function picture(values, R, C, scale, bound) {
  const of = pictures.get(values) ?? pictures.set(values, new Map()).get(values);
  const key = `${R},${C},${scale},${bound}`;
  const known = of?.get(key);
  if (known) return known;
  const colour = colours(scale, bound);
  const pixels = new ImageData(C, R);
  /** @type {number[]} */
  const hidden = [];
  for (let i = 0; i < R * C; i++) {
    if (!Number.isFinite(values[i])) {
      hidden.push(i);
      continue;
    }
    const [r, g, b] = colour(values[i]);
    pixels.data.set([r, g, b, 255], 4 * i);
  }
  const image = el("canvas", { width: C, height: R });
  penOf(image).putImageData(pixels, 0, 0);
  const made = { image, hidden, colour };
  of?.set(key, made);
  return made;
}

/** @typedef {{ x: number, y: number, cw: number, ch: number }} Grid */

/** @param {Pen} pen @param {number[]} hidden @param {number} C @param {Grid} grid */
function hatch(pen, hidden, C, { x, y, cw, ch }) {
  pen.strokeStyle = palette().line;
  pen.lineWidth = 0.75;
  pen.beginPath();
  for (const i of hidden) {
    const [left, top] = [x + (i % C) * cw, y + Math.floor(i / C) * ch];
    pen.moveTo(left, top + ch);
    pen.lineTo(left + cw, top);
  }
  pen.stroke();
}

/** @param {Pen} pen @param {number} R @param {number} C @param {Grid} grid */
function grid(pen, R, C, { x, y, cw, ch }) {
  pen.strokeStyle = palette().paper;
  pen.lineWidth = cw > 20 ? 1.5 : 0.75;
  pen.beginPath();
  for (let c = 1; c < C; c++) {
    pen.moveTo(x + c * cw, y);
    pen.lineTo(x + c * cw, y + R * ch);
  }
  for (let r = 1; r < R; r++) {
    pen.moveTo(x, y + r * ch);
    pen.lineTo(x + C * cw, y + r * ch);
  }
  pen.stroke();
}

/**
 * @param {Pen} pen @param {{ values: Numbers, R: number, C: number, colour: (v: number) => number[] }} numbers
 * @param {Grid} grid
 */
function figures(pen, { values, R, C, colour }, { x, y, cw, ch }) {
  pen.font = font(Math.min(14, Math.max(9.5, cw * 0.34)));
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  for (let r = 0; r < R; r++) {
    for (let c = 0; c < C; c++) {
      const value = values[r * C + c];
      if (!Number.isFinite(value)) continue;
      pen.fillStyle = textOn(colour(value));
      pen.fillText(brief(value, cw), x + (c + 0.5) * cw, y + (r + 0.5) * ch + 0.5);
    }
  }
}

/**
 * As many digits as fit: .64, −1.2, 12.
 * @param {number} value @param {number} room
 */
export function brief(value, room = 30) {
  const size = Math.abs(value);
  const places = size >= 100 ? 0 : size >= 10 ? (room > 40 ? 1 : 0) : room > 44 ? 2 : size < 1 ? 2 : 1;
  const text = value.toFixed(places);
  if (Number(text) === 0) return "0";
  return text.replace(/^(-?)0\./, "$1.").replace("-", "−");
}

/** A vertical glow at x: what is being computed. @returns {Paint} */
export const glow = () => {
  const [r, g, b] = rgb(palette().roles.A);
  return (pen, { x, y, w, h }) => {
    const shade = pen.createLinearGradient(x - w, 0, x + w / 4, 0);
    shade.addColorStop(0, `rgb(${r} ${g} ${b} / 0)`);
    shade.addColorStop(0.8, `rgb(${r} ${g} ${b} / .22)`);
    shade.addColorStop(1, `rgb(${r} ${g} ${b} / 0)`);
    pen.fillStyle = shade;
    pen.fillRect(x - w, y, w * 1.25, h);
  };
};

/** Text on the canvas, where no one needs to click or read it aloud. @param {string} words @param {{ size?: number, weight?: number, fill?: string, align?: CanvasTextAlign, italic?: boolean }} [how] @returns {Paint} */
export const text =
  (words, { size = 12, weight = 400, fill = "", align = "center", italic = false } = {}) =>
  (pen, { x, y }) => {
    pen.font = `${italic ? "italic " : ""}${font(size, weight)}`;
    pen.textAlign = align;
    pen.textBaseline = "middle";
    pen.fillStyle = fill || palette().faint;
    pen.fillText(words, x, y);
  };
