/**
 * A vector as one line of thin cells: one thin cell per feature, read under the pointer or the cursor, asked with a click or Enter.
 *
 * In: values and what cell f is called. Out: a canvas element (role application, like a matrix of one row). Much lighter
 * than a matrix, so that a page can hold hundreds of them.
 *
 *   vector({values, bound, scale, label: "K of Area", read: (f) => "k[5] = 0.31", ask: (f) => …, height: 18, cell: 4})
 *
 * `cell`: pixels per feature; without it the line fills its container and keeps its cells whatever their size.
 */

import { announce, el, penOf } from "regard/dom.js";
import { tip, untip } from "regard/parts/tip.js";
import { colours } from "regard/scale.js";

/** @param {number} x @param {number} most */
const clamp = (x, most) => Math.min(Math.max(x, 0), most);

/**
 * @param {object} options
 * @param {Float32Array} options.values @param {number} options.bound @param {Scale} [options.scale] @param {string} options.label
 * @param {(f: number) => string} options.read @param {((f: number) => void) | null} [options.ask]
 * @param {number} [options.height] @param {number | null} [options.cell]
 */
export function vector({ values, bound, scale = "diverging", label, read, ask = null, height = 18, cell = null }) {
  const count = values.length;
  const canvas = el("canvas", {
    class: cell ? "cells" : "cells wide",
    tabindex: "0",
    role: "application",
    "aria-roledescription": "vector",
    "aria-label": `${label}, ${count} numbers. Left and right move${ask ? ", Enter asks why" : ""}.`,
    style: { height: `${height}px`, ...(cell ? { width: `${cell * count}px` } : {}) },
  });
  canvas.width = count;
  canvas.height = 1;
  /** @type {number | null} */
  let cursor = null;

  function draw() {
    const image = new ImageData(count, 1);
    const colour = colours(scale, bound);
    for (let f = 0; f < count; f++) image.data.set([...colour(values[f]), Number.isFinite(values[f]) ? 255 : 0], 4 * f);
    penOf(canvas).putImageData(image, 0, 0);
  }
  /** @param {MouseEvent} event */
  const at = (event) => clamp(Math.floor((event.offsetX / canvas.clientWidth) * count), count - 1);
  /** @param {number} f @returns {[x: number, y: number]} */
  const place = (f) => {
    const box = canvas.getBoundingClientRect();
    return [box.left + ((f + 0.5) / count) * box.width, box.top];
  };
  canvas.addEventListener("pointermove", (event) =>
    tip(read(at(event)), event.clientX, canvas.getBoundingClientRect().top),
  );
  canvas.addEventListener("pointerleave", untip);
  canvas.addEventListener("blur", untip);
  if (ask) canvas.addEventListener("click", (event) => ask(at(event)));
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -count, End: count }[event.key];
    if (step) {
      cursor = clamp((cursor ?? (step > 0 ? -1 : 0)) + step, count - 1);
      tip(read(cursor), ...place(cursor));
      announce(read(cursor));
    } else if (event.key === "Enter" && ask) ask(cursor ?? 0);
    else return;
    event.preventDefault();
  });
  document.addEventListener("themed", function again() {
    if (!canvas.isConnected) return document.removeEventListener("themed", again);
    draw();
  });
  draw();
  return canvas;
}
