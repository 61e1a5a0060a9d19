/**
 * A matrix of numbers one can read, walk through and ask.
 *
 * In: values and what they mean. Out: a figure with a title, a canvas that paints only what is visible, a legend and a
 * line that reads out the cell under the pointer or the cursor. Arrow keys move, Enter and click ask why, + and − zoom.
 *
 *   matrix(root, {
 *     values: Float32Array, shape: [R, C],          // row-major
 *     absent,                                       // of a difference: why entries have none, see delta.js
 *     rows: [label…] | null, cols: [label…] | null, // null: no labels drawn, numbers read out
 *     title: "weights", subtitle: "softmax of each row", // text or an element; with an element also give `say`
 *     axes: ["query", "key"],                       // words for reading a cell aloud
 *     scale: "diverging" | "sequential", bound,     // bound: end of the scale; by default from the values
 *     role: "Q" | "K" | "V" | "A",                  // colours the title's mark
 *     node, index: (r, c) => [head, r, c],          // what a cell is called; with `ctx` clicking asks why
 *     ctx,
 *     say: "weights, head 3",                       // what the screen reader says before the cell
 *     cursor: [r, c], moved: (r, c) => …, hovered: (r, c) => …, // hovered: null, null where the pointer is on no cell
 *     fit: true,                                    // squeeze all columns into the width (strips of hundreds of features)
 *     cell: {min: 6, max: 56, h},                   // pixels
 *     gutter: 96,                                   // pixels for row labels, so that several matrices align
 *     height: 440,                                  // the most the viewport may be high
 *     legend: true,
 *   }) → a Matrix: its `element`, and move(r, c), hover([r, c]), show(values), zoom(factor), focus()
 */

import { absence } from "regard/delta.js";
import { announce, button, el, format } from "regard/dom.js";
import { clamp, plan } from "regard/layout.js";
import { paint } from "regard/paint.js";
import { boundOf, colours, legend } from "regard/scale.js";

/** @type {{ [key: string]: Cell }} */
const STEPS = {
  ArrowUp: [-1, 0],
  ArrowDown: [1, 0],
  ArrowLeft: [0, -1],
  ArrowRight: [0, 1],
  PageUp: [-10, 0],
  PageDown: [10, 0],
  Home: [0, -Infinity],
  End: [0, Infinity],
};
const ZOOM = 1.4;
const LEGIBLE = 300; // pixels that the readout and the legend need

/** @param {HTMLElement} root @param {MatrixOptions} options */
export const matrix = (root, options) => new Matrix(root, options);

/**
 * Let matrices of one shape share cursor, hover, scroll and zoom.
 * @param {Matrix[]} matrices
 */
export function synchronise(matrices) {
  for (const one of matrices) one.peers.push(...matrices.filter((other) => other !== one));
}

/**
 * Where the scale ends: as given, 1 for probabilities, else by the values.
 * @param {MatrixOptions} matrixOptions
 */
function endsOf({ bound, scale, values }) {
  if (!bound && scale !== "sequential") return boundOf(values);
  return { bound: bound || 1, clipped: false, flat: false };
}

class Matrix {
  /** @type {Matrix[]} */
  peers = [];
  /** @type {Cell | null} */
  hovered = null;
  factor = 1;
  /** @type {(Room & { width: number }) | null} */
  room = null; // the layout, once there is a width
  frame = 0;
  canvas = el("canvas", { "aria-hidden": "true" });
  spacer = el("div", { class: "matrix-spacer" });
  readout = el("span", { class: "matrix-readout" });

  /** @param {HTMLElement} root @param {MatrixOptions} options */
  constructor(root, options) {
    const { title = "", subtitle, role, say = typeof title === "string" ? title : "", scale = "diverging" } = options;
    this.options = { rows: null, cols: null, axes: ["row", "column"], ...options, say, scale };
    this.values = options.values;
    this.R = options.shape[0];
    this.C = options.shape[1];
    this.ends = endsOf(this.options);
    this.colour = colours(scale, this.ends.bound);
    this.cursor = options.cursor && this.R && this.C ? this.within(...options.cursor) : null;
    this.view = this.viewport();
    this.zooms = el(
      "span",
      { class: "zooms", hidden: true },
      this.zoomButton("−", 1 / ZOOM, "Smaller"),
      this.zoomButton("+", ZOOM, "Larger"),
    );
    this.foot = el("div", { class: "matrix-foot" }, this.readout, el("span", { class: "matrix-legend" }, this.key()));
    const heading = title ? el("span", { class: "matrix-title", data: { role } }, title) : null;
    const under = subtitle ? el("span", { class: "matrix-subtitle" }, subtitle) : null;
    this.element = el(
      "figure",
      { class: "matrix" },
      el("figcaption", {}, heading, under, this.zooms),
      this.view,
      this.foot,
    );
    root.append(this.element);
    this.listen();
    this.say(this.cursor);
    this.drawNow();
  }

  /** @param {number} r @param {number} c @returns {Cell} */
  within(r, c) {
    return [clamp(r, 0, this.R - 1), clamp(c, 0, this.C - 1)];
  }

  viewport() {
    const { say, node } = this.options;
    const attributes = {
      class: "matrix-view",
      tabindex: "0",
      role: "application",
      "aria-roledescription": "matrix",
      "aria-label": `${say}, ${this.R} by ${this.C}. Arrow keys move${node ? ", Enter asks why" : ""}.`,
      data: { keep: `matrix:${node?.split(".").at(-1) ?? say}` }, // the same in every layer
    };
    return el("div", attributes, this.canvas, this.spacer);
  }

  /** @param {string} sign @param {number} by @param {string} word */
  zoomButton(sign, by, word) {
    const attributes = { class: "quiet", "aria-label": `${word} cells`, title: `${word} cells (${sign})` };
    return button(sign, () => this.zoomAll(by), attributes);
  }

  /** The legend, or what takes its place. */
  key() {
    const { bound, clipped, flat } = this.ends;
    if (this.options.legend === false) return null;
    if (!flat) return legend(this.options.scale, bound, clipped);
    return this.values.every(Number.isFinite) ? "all 0" : "0 where there is a number";
  }

  layout() {
    const { view, canvas, spacer } = this;
    if (!view.offsetWidth || !this.R || !this.C) return;
    let room = plan(this.options, view.offsetWidth, this.factor);
    view.style.overflowY = room.tall ? "scroll" : "hidden"; // a fraction of a pixel too much is no reason for scroll bars
    if (room.tall) room = plan(this.options, view.clientWidth, this.factor); // beside the bar, where it takes room
    view.style.overflowX = room.wide ? "scroll" : "hidden";
    this.zooms.hidden = !room.wide && !room.tall && this.factor === 1;
    spacer.style.width = `${room.whole.width}px`;
    spacer.style.height = `${room.whole.height}px`;
    view.style.height = `${room.height}px`;
    this.foot.style.maxWidth = `${Math.max(room.whole.width, LEGIBLE)}px`; // the legend stands below its picture
    this.room = { ...room, width: view.clientWidth, height: view.clientHeight }; // without scroll bars
    canvas.style.width = `${this.room.width}px`;
    canvas.style.height = `${this.room.height}px`;
  }

  draw() {
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => this.drawNow());
  }

  drawNow() {
    if (!this.room) this.layout();
    if (!this.room) return;
    const { values, colour, hovered: hover, cursor, view, room } = this;
    const { shape, rows, cols } = this.options;
    const at = { x: view.scrollLeft, y: view.scrollTop };
    paint(this.canvas, { values, shape, rows, cols, colour, hover, cursor, ...at, ...room });
  }

  again() {
    this.room = null;
    this.draw();
  }

  /**
   * Read a cell out below the matrix, and `aloud` for those who hear it.
   * @param {Cell | null} cell @param {boolean} [aloud]
   */
  say(cell, aloud = false) {
    if (!cell) return this.readout.replaceChildren();
    const { rows, cols, axes, say } = this.options;
    const at = cell[0] * this.C + cell[1];
    const value = absence(this.options.absent, at, format(this.values[at]));
    const [row, col] = [rows?.[cell[0]] ?? String(cell[0]), cols?.[cell[1]] ?? String(cell[1])];
    this.readout.replaceChildren(el("b", {}, value), ` ${row}, ${cols ? "" : `${axes[1]} `}${col}`);
    if (aloud) announce(`${say}, ${axes[0]} ${row}, ${axes[1]} ${col}: ${value}`);
  }

  /** @param {Cell} cell */
  reveal([r, c]) {
    if (!this.room) return;
    const { cell, left, top, width, height } = this.room;
    const { view } = this;
    const [x, y] = [c * cell.w, r * cell.h];
    view.scrollLeft = clamp(view.scrollLeft, x + cell.w - (width - left), x);
    view.scrollTop = clamp(view.scrollTop, y + cell.h - (height - top), y);
  }

  /**
   * Put the cursor; `aloud` for the matrix the person is in, silent for its peers.
   * @param {number} r @param {number} c @param {boolean} [aloud]
   */
  put(r, c, aloud = false) {
    this.cursor = this.within(r, c);
    this.reveal(this.cursor);
    this.say(this.cursor, aloud);
    this.draw();
  }

  /** @param {number} r @param {number} c */
  move(r, c) {
    this.put(r, c, true);
    const cell = this.within(r, c);
    for (const peer of this.peers) peer.put(...cell);
    this.options.moved?.(...cell);
  }

  /** @param {Cell | null} cell */
  hover(cell) {
    this.hovered = cell;
    this.say(this.hovered ?? this.cursor);
    this.draw();
  }

  /**
   * The pointer is on a cell, or on none.
   * @param {Cell | null} cell
   */
  point(cell) {
    if (String(cell) === String(this.hovered)) return;
    for (const one of [this, ...this.peers]) one.hover(cell);
    this.options.hovered?.(cell?.[0] ?? null, cell?.[1] ?? null);
  }

  /** @param {number} r @param {number} c */
  ask(r, c) {
    const { ctx, node, index } = this.options;
    if (ctx && node && index) ctx.ask(node, index(r, c));
  }

  /** @param {number} by */
  zoom(by) {
    this.factor = clamp(this.factor * by, 0.1, 16);
    this.again();
  }

  /** @param {number} by */
  zoomAll(by) {
    for (const one of [this, ...this.peers]) one.zoom(by);
  }

  /** @param {number} x @param {number} y */
  scrollTo(x, y) {
    if (this.view.scrollLeft !== x) this.view.scrollLeft = x;
    if (this.view.scrollTop !== y) this.view.scrollTop = y;
  }

  focus() {
    this.view.focus({ preventScroll: true });
  }

  /**
   * Other values in the same cells.
   * @param {Float32Array} values
   */
  show(values) {
    this.values = values;
    this.say(this.hovered ?? this.cursor);
    this.draw();
  }

  /**
   * The cell under the pointer.
   * @param {MouseEvent} event @returns {Cell | null}
   */
  under(event) {
    if (!this.room) return null;
    const { cell, left, top } = this.room;
    const box = this.view.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left - left, event.clientY - box.top - top];
    const r = Math.floor((y + this.view.scrollTop) / cell.h);
    const c = Math.floor((x + this.view.scrollLeft) / cell.w);
    return x >= 0 && y >= 0 && r < this.R && c < this.C ? [r, c] : null;
  }

  /** @param {KeyboardEvent} event */
  press(event) {
    if (event.altKey || event.metaKey || event.ctrlKey || !this.R || !this.C) return;
    if (event.key in STEPS) {
      const [r, c] = this.cursor ?? [0, 0];
      this.move(r + STEPS[event.key][0], c + STEPS[event.key][1]);
    } else if (event.key === "Enter" && this.cursor) this.ask(...this.cursor);
    else if (event.key === "+" || event.key === "=") this.zoomAll(ZOOM);
    else if (event.key === "-") this.zoomAll(1 / ZOOM);
    else return;
    event.preventDefault();
  }

  listen() {
    /**
     * @template {keyof HTMLElementEventMap} K
     * @param {K} name @param {(event: HTMLElementEventMap[K]) => unknown} does
     */
    const on = (name, does) => this.view.addEventListener(name, does);
    on("pointermove", (event) => this.point(this.under(event)));
    on("pointerleave", () => this.point(null));
    on("keydown", (event) => this.press(event));
    on("focus", () => (this.cursor ? this.say(this.cursor, true) : this.R && this.C && this.put(0, 0, true)));
    on("click", (event) => {
      const cell = this.under(event);
      if (!cell) return;
      this.move(...cell);
      this.ask(...cell);
    });
    on("scroll", () => {
      this.draw();
      for (const peer of this.peers) peer.scrollTo(this.view.scrollLeft, this.view.scrollTop);
    });
    new ResizeObserver(() => this.again()).observe(this.element);
    const themed = () => {
      if (!this.element.isConnected) return document.removeEventListener("themed", themed);
      this.colour = colours(this.options.scale, this.ends.bound);
      this.draw();
    };
    document.addEventListener("themed", themed);
  }
}
