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
 *     cursor: [r, c], moved: (r, c) => …, hovered: (r, c) | null => …,
 *     fit: true,                                    // squeeze all columns into the width (strips of hundreds of features)
 *     cell: {min: 6, max: 56, h},                   // pixels
 *     gutter: 96,                                   // pixels for row labels, so that several matrices align
 *     height: 440,                                  // the most the viewport may be high
 *     legend: true,
 *   }) → a Matrix: its `element`, and move(r, c), hover(r, c), show(values), zoom(factor), focus()
 */

import { absence } from "regard/delta.js";
import { announce, button, el, format } from "regard/dom.js";
import { clamp, plan } from "regard/layout.js";
import { paint } from "regard/paint.js";
import { boundOf, colours, legend } from "regard/scale.js";

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

export const matrix = (root, options) => new Matrix(root, options);

/** Let matrices of one shape share cursor, hover, scroll and zoom. */
export function synchronise(matrices) {
  for (const one of matrices) one.peers.push(...matrices.filter((other) => other !== one));
}

/** Where the scale ends: as given, 1 for probabilities, else by the values. */
function endsOf({ bound, scale, values }) {
  if (bound) return { bound };
  return scale === "sequential" ? { bound: 1 } : boundOf(values);
}

class Matrix {
  peers = [];
  hovered = null;
  factor = 1;
  room = null; // the layout, once there is a width
  frame = 0;

  constructor(root, options) {
    this.options = { rows: null, cols: null, title: "", axes: ["row", "column"], scale: "diverging", ...options };
    this.options.say ??= this.options.title;
    this.values = options.values;
    [this.R, this.C] = options.shape;
    this.ends = endsOf(this.options);
    this.colour = colours(this.options.scale, this.ends.bound);
    this.cursor = options.cursor && this.R && this.C ? this.within(...options.cursor) : null;
    this.build();
    root.append(this.element);
    this.listen();
    this.say(this.cursor);
    this.drawNow();
  }

  within(r, c) {
    return [clamp(r, 0, this.R - 1), clamp(c, 0, this.C - 1)];
  }

  build() {
    const { title, subtitle, role, say, node, scale } = this.options;
    const { bound, clipped, flat } = this.ends;
    this.canvas = el("canvas", { "aria-hidden": "true" });
    this.spacer = el("div", { class: "matrix-spacer" });
    this.readout = el("span", { class: "matrix-readout" });
    const attributes = {
      class: "matrix-view",
      tabindex: "0",
      role: "application",
      "aria-roledescription": "matrix",
      "aria-label": `${say}, ${this.R} by ${this.C}. Arrow keys move${node ? ", Enter asks why" : ""}.`,
      data: { keep: `matrix:${node?.split(".").at(-1) ?? say}` }, // the same in every layer
    };
    this.view = el("div", attributes, this.canvas, this.spacer);
    const zooms = [["−", 1 / ZOOM, "Smaller"], ["+", ZOOM, "Larger"]].map(([sign, by, word]) =>
      button(
        sign,
        () => this.zoomAll(by),
        { class: "quiet", "aria-label": `${word} cells`, title: `${word} cells (${sign})` },
      ),
    );
    this.zooms = el("span", { class: "zooms", hidden: true }, zooms);
    const heading = title ? el("span", { class: "matrix-title", data: { role } }, title) : null;
    const under = subtitle ? el("span", { class: "matrix-subtitle" }, subtitle) : null;
    const key = this.options.legend === false ? null : flat ? (this.values.every(Number.isFinite) ? "all 0" : "0 where there is a number") : legend(scale, bound, clipped);
    this.element = el(
      "figure",
      { class: "matrix" },
      el("figcaption", {}, heading, under, this.zooms),
      this.view,
      (this.foot = el("div", { class: "matrix-foot" }, this.readout, el("span", { class: "matrix-legend" }, key))),
    );
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

  /** Read a cell out below the matrix, and `aloud` for those who hear it. */
  say(cell, aloud = false) {
    if (!cell) return this.readout.replaceChildren();
    const { rows, cols, axes, say } = this.options;
    const at = cell[0] * this.C + cell[1];
    const value = absence(this.options.absent, at, format(this.values[at]));
    const [row, col] = [rows?.[cell[0]] ?? String(cell[0]), cols?.[cell[1]] ?? String(cell[1])];
    this.readout.replaceChildren(el("b", {}, value), ` ${row}, ${cols ? "" : `${axes[1]} `}${col}`);
    if (aloud) announce(`${say}, ${axes[0]} ${row}, ${axes[1]} ${col}: ${value}`);
  }

  reveal([r, c]) {
    if (!this.room) return;
    const { cell, left, top, width, height } = this.room;
    const { view } = this;
    const [x, y] = [c * cell.w, r * cell.h];
    view.scrollLeft = clamp(view.scrollLeft, x + cell.w - (width - left), x);
    view.scrollTop = clamp(view.scrollTop, y + cell.h - (height - top), y);
  }

  /** Put the cursor; `aloud` for the matrix the person is in, silent for its peers. */
  put(r, c, aloud = false) {
    this.cursor = this.within(r, c);
    this.reveal(this.cursor);
    this.say(this.cursor, aloud);
    this.draw();
  }

  move(r, c) {
    this.put(r, c, true);
    for (const peer of this.peers) peer.put(...this.cursor);
    this.options.moved?.(...this.cursor);
  }

  hover(r, c) {
    this.hovered = r === null || r === undefined ? null : [r, c];
    this.say(this.hovered ?? this.cursor);
    this.draw();
  }

  /** The pointer is on a cell, or on none. */
  point(cell) {
    if (String(cell) === String(this.hovered)) return;
    for (const one of [this, ...this.peers]) one.hover(...(cell ?? [null]));
    this.options.hovered?.(...(cell ?? [null]));
  }

  ask(r, c) {
    const { ctx, node, index } = this.options;
    if (ctx && node && index) ctx.ask(node, index(r, c));
  }

  zoom(by) {
    this.factor = clamp(this.factor * by, 0.1, 16);
    this.again();
  }

  zoomAll(by) {
    for (const one of [this, ...this.peers]) one.zoom(by);
  }

  scrollTo(x, y) {
    if (this.view.scrollLeft !== x) this.view.scrollLeft = x;
    if (this.view.scrollTop !== y) this.view.scrollTop = y;
  }

  focus() {
    this.view.focus({ preventScroll: true });
  }

  /** Other values in the same cells. */
  show(values) {
    this.values = values;
    this.say(this.hovered ?? this.cursor);
    this.draw();
  }

  /** The cell under the pointer. */
  under(event) {
    if (!this.room) return null;
    const { cell, left, top } = this.room;
    const box = this.view.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left - left, event.clientY - box.top - top];
    const r = Math.floor((y + this.view.scrollTop) / cell.h);
    const c = Math.floor((x + this.view.scrollLeft) / cell.w);
    return x >= 0 && y >= 0 && r < this.R && c < this.C ? [r, c] : null;
  }

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
    const on = (name, does) => this.view.addEventListener(name, does);
    on("pointermove", (event) => this.point(this.under(event)));
    on("pointerleave", () => this.point(null));
    on("keydown", (event) => this.press(event));
    on("focus", () => (this.cursor ? this.say(this.cursor, true) : this.R && this.C && this.put(0, 0, true)));
    on("click", (event) => {
      const cell = this.under(event);
      if (cell) this.move(...cell), this.ask(...cell);
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
