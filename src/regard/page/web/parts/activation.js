/**
 * The curve of an activation function, and a token's neurons as points on it.
 *
 * In: the function's name and the values before and after it. Out: a figure. The curve is drawn where the points are, and
 * a point can be pointed at and asked.
 */

import { el, format, penOf } from "regard/dom.js";
import { tip, untip } from "regard/parts/tip.js";
import { palette } from "regard/scale.js";

/** @typedef {(x: number) => number} Bend */
/** @typedef {{ x: Span, y: Span }} Ends */

/**
 * Φ(x) to seven digits (Abramowitz and Stegun 7.1.26 for erf).
 * @param {number} x
 */
function phi(x) {
  const z = Math.abs(x) / Math.SQRT2;
  const t = 1 / (1 + 0.3275911 * z);
  const tail =
    t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429)))) * Math.exp(-z * z);
  return x < 0 ? tail / 2 : 1 - tail / 2;
}

/**
 * The functions and how they are written.
 * @type {{ [name: string]: [f: Bend, words: string] }}
 */
export const ACTIVATIONS = {
  gelu: [(x) => x * phi(x), "gelu(x) = x Φ(x)"],
  gelu_tanh: [
    (x) => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3))),
    "gelu(x) ≈ x (1 + tanh(√(2/π) (x + 0.0447 x^3))) / 2",
  ],
  relu: [(x) => Math.max(0, x), "relu(x) = max(0, x)"],
  silu: [(x) => x / (1 + Math.exp(-x)), "silu(x) = x / (1 + e^{−x})"],
  tanh: [Math.tanh, "tanh(x)"],
};

const [HIGH, EDGE] = [300, 30];

/**
 * `edited`: whether an edit wrote over values after the function, so that a point may stand off the curve.
 * @param {{ name: string, before: Float32Array, after: Float32Array, edited: boolean, label: string, ask: (n: number) => void }} given
 */
export function curve({ name, before, after, edited, label, ask }) {
  const [f] = ACTIVATIONS[name] ?? [null];
  const canvas = el("canvas", {
    class: "curve",
    role: "img",
    "aria-label": `${name} with ${before.length} neurons of ${label} as points on it`,
  });
  const span = ends(before, after, f);
  /** @type {{ X: Bend, Y: Bend } | null} */
  let place = null;

  function draw() {
    const width = canvas.parentElement?.clientWidth ?? 0;
    if (!width) return;
    const ratio = devicePixelRatio || 1;
    [canvas.width, canvas.height] = [width * ratio, HIGH * ratio];
    canvas.style.height = `${HIGH}px`;
    const pen = penOf(canvas);
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    /** @param {number} x */
    const X = (x) => EDGE + ((x - span.x[0]) / (span.x[1] - span.x[0])) * (width - 2 * EDGE);
    /** @param {number} y */
    const Y = (y) => HIGH - EDGE - ((y - span.y[0]) / (span.y[1] - span.y[0])) * (HIGH - 2 * EDGE);
    place = { X, Y };
    crowd(pen, before, X, span);
    axes(pen, X, Y, span, width);
    if (f) line(pen, f, X, Y, span);
    points(pen, before, after, X, Y);
  }

  /** @param {MouseEvent} event */
  function nearest(event) {
    if (!place) return null;
    const { X, Y } = place;
    /** @type {number | null} */
    let best = null;
    let least = 14 ** 2;
    before.forEach((x, n) => {
      const far = (X(x) - event.offsetX) ** 2 + (Y(after[n]) - event.offsetY) ** 2;
      if (far < least) [best, least] = [n, far];
    });
    return best;
  }
  canvas.addEventListener("pointermove", (event) => {
    const n = nearest(event);
    canvas.style.cursor = n === null ? "default" : "pointer";
    if (n === null) return untip();
    const made =
      edited && f && Math.abs(f(before[n]) - after[n]) > 1e-2 * Math.abs(after[n]) + 1e-4 ? f(before[n]) : after[n];
    const instead = made === after[n] ? "" : `; an edit made it ${format(after[n])}`;
    tip(`neuron ${n}: ${name}(${format(before[n])}) = ${format(made)}${instead}`, event.clientX, event.clientY - 8);
  });
  canvas.addEventListener("pointerleave", untip);
  canvas.addEventListener("click", (event) => {
    const n = nearest(event);
    if (n !== null) ask(n);
  });
  document.addEventListener("themed", function again() {
    if (!canvas.isConnected) return document.removeEventListener("themed", again);
    draw();
  });
  const frame = el("div", { class: "curve-frame" }, canvas);
  new ResizeObserver(draw).observe(frame);
  return frame;
}

/** @param {Float32Array} before @param {Float32Array} after @param {Bend | null} f @returns {Ends} */
function ends(before, after, f) {
  /** @param {Iterable<number>} values @param {Span} least @returns {Span} */
  const of = (values, least) => {
    let [low, high] = least;
    for (const v of values) if (Number.isFinite(v)) [low, high] = [Math.min(low, v), Math.max(high, v)];
    return [low, high];
  };
  const x = of(before, [-3, 2]);
  return { x, y: of(f ? [...after, f(x[0]), f(x[1])] : after, [-0.4, 1]) };
}

/**
 * How many neurons stand where, as a low hill along the bottom.
 * @param {Pen} pen @param {Float32Array} before @param {(x: number) => number} X @param {Ends} ends
 */
function crowd(pen, before, X, { x: [low, high] }) {
  const bins = new Array(48).fill(0);
  for (const x of before) bins[Math.min(bins.length - 1, Math.floor(((x - low) / (high - low)) * bins.length))]++;
  const most = Math.max(...bins);
  pen.fillStyle = palette().line;
  bins.forEach((count, i) => {
    const [from, to] = [X(low + ((high - low) * i) / bins.length), X(low + ((high - low) * (i + 1)) / bins.length)];
    const tall = (count / most) * 56;
    pen.fillRect(from, HIGH - tall, to - from - 1, tall);
  });
}

/**
 * @param {Pen} pen @param {(x: number) => number} X @param {(y: number) => number} Y @param {Ends} span
 * @param {number} width
 */
function axes(pen, X, Y, span, width) {
  pen.strokeStyle = palette().line;
  pen.fillStyle = palette().faint;
  pen.lineWidth = 1;
  pen.font = `11px ${palette().figures}`;
  pen.beginPath();
  pen.moveTo(EDGE, Y(0));
  pen.lineTo(width - EDGE, Y(0));
  pen.moveTo(X(0), EDGE);
  pen.lineTo(X(0), HIGH - EDGE);
  pen.stroke();
  pen.textAlign = "center";
  for (const x of [span.x[0], span.x[1]]) pen.fillText(format(x, 1), X(x), Y(0) + 15);
  pen.textAlign = "left";
  pen.fillText(format(span.y[1], 1), X(0) + 5, EDGE + 4);
}

/** @param {Pen} pen @param {Bend} f @param {(x: number) => number} X @param {(y: number) => number} Y @param {Ends} ends */
function line(pen, f, X, Y, { x: [low, high] }) {
  pen.strokeStyle = palette().faint;
  pen.lineWidth = 1.5;
  pen.beginPath();
  for (let i = 0; i <= 200; i++) {
    const x = low + ((high - low) * i) / 200;
    pen.lineTo(X(x), Y(f(x)));
  }
  pen.stroke();
}

/**
 * @param {Pen} pen @param {Float32Array} before @param {Float32Array} after @param {(x: number) => number} X
 * @param {(y: number) => number} Y
 */
function points(pen, before, after, X, Y) {
  pen.fillStyle = palette().ink;
  pen.globalAlpha = before.length > 1000 ? 0.25 : 0.45;
  before.forEach((x, n) => {
    pen.beginPath();
    pen.arc(X(x), Y(after[n]), 2.4, 0, 7);
    pen.fill();
  });
  pen.globalAlpha = 1;
}
