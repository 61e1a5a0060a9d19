/**
 * From values to colours.
 *
 * In: numbers. Out: colours of the two scales of the page, diverging (blue – paper – orange, around zero) and
 * sequential (paper to ink, for probabilities), both colour-blind safe. The stops are custom properties in style.css,
 * so that a theme is written in one place; `themed` says when they changed.
 */

import { el, format } from "regard/dom.js";

const STOPS = { diverging: ["--d1", "--d2", "--d3", "--d4", "--d5"], sequential: ["--s1", "--s2", "--s3", "--s4"] };

/** @type {Palette | null} */
let cache = null;

/**
 * Colours of the present theme for canvases: {diverging, sequential: [[r, g, b], …], ink, paper, faint, roles}.
 * @returns {Palette}
 */
export function palette() {
  if (cache) return cache;
  const style = getComputedStyle(document.documentElement);
  /** @param {string} name */
  const read = (name) => style.getPropertyValue(name).trim();
  cache = {
    diverging: STOPS.diverging.map((name) => rgb(read(name))),
    sequential: STOPS.sequential.map((name) => rgb(read(name))),
    ink: read("--ink"),
    paper: read("--paper"),
    faint: read("--faint"),
    line: read("--line"),
    roles: Object.fromEntries(["Q", "K", "V", "A"].map((role) => [role, read(`--role-${role}`)])),
    figures: read("--figures"),
  };
  return cache;
}

/**
 * The figures' typeface, for canvases.
 * @param {number} size @param {number} [weight]
 */
export const font = (size, weight = 400) => `${weight} ${size}px ${palette().figures}`;

/** Call after the theme changed; everything painted listens to the document's "themed" event. */
export function themed() {
  cache = null;
  document.dispatchEvent(new Event("themed"));
}

/**
 * "#rrggbb" → [r, g, b].
 * @param {string} hex
 */
export function rgb(hex) {
  const n = parseInt(hex.slice(1), 16);
  return [(n >> 16) & 255, (n >> 8) & 255, n & 255];
}

/** @param {number[][]} stops @param {number} t */
function between(stops, t) {
  const x = Math.min(Math.max(t, 0), 1) * (stops.length - 1);
  const i = Math.min(Math.floor(x), stops.length - 2);
  return stops[i].map((c, k) => Math.round(c + (stops[i + 1][k] - c) * (x - i)));
}

/**
 * A function value → [r, g, b]. kind: "diverging" (−bound … bound) or "sequential" (0 … bound).
 * @param {Scale} kind @param {number} bound
 */
export function colours(kind, bound) {
  /** @type {number[][]} */
  const table = [];
  const stops = palette()[kind];
  for (let i = 0; i <= 256; i++) table.push(between(stops, i / 256));
  const unit = bound || 1;
  const [zero, most] = kind === "diverging" ? [128, 128] : [0, 256];
  const place = (/** @type {number} */ v) => zero + (most * v) / unit;
  return (/** @type {number} */ value) => table[Math.round(Math.min(Math.max(place(value), 0), 256)) || 0];
}

/** Relative luminance, as WCAG defines it. @param {number[]} colour */
function luminance(colour) {
  const [r, g, b] = colour.map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

/**
 * Black or white, whichever has more contrast on `colour`.
 * @param {number[]} colour
 */
export function textOn(colour) {
  const light = luminance(colour) + 0.05;
  return light / 0.0591 > 0.962 / light ? "#16181d" : "#f7f5f0"; // 0.05 + the luminance of either
}

/**
 * "#rrggbb" or "rgb(…)" for CSS.
 * @param {number[]} colour
 */
export const css = ([r, g, b]) => `rgb(${r}, ${g}, ${b})`;

/**
 * The end of the scale for `values`: the largest absolute value, or for many values their 99.5th percentile, so that a
 * single outlier does not turn everything else white. → {bound, clipped, flat}, flat when everything is 0
 * @param {Numbers} values
 */
export function boundOf(values) {
  let most = 0;
  const sizes = [];
  const stride = Math.max(1, Math.floor(values.length / 20000));
  for (let i = 0; i < values.length; i++) {
    const size = Math.abs(values[i]);
    if (!(size < Infinity)) continue;
    if (size > most) most = size;
    if (i % stride === 0) sizes.push(size);
  }
  if (!most) return { bound: 1, clipped: false, flat: true };
  if (values.length <= 1024) return { bound: most, clipped: false, flat: false };
  sizes.sort((a, b) => a - b);
  const bound = sizes[Math.floor(sizes.length * 0.995)] || most;
  const clipped = bound * 1.5 < most;
  return { bound: clipped ? bound : most, clipped, flat: false };
}

/**
 * The legend beside a picture: the ramp with its ends written out.
 * @param {Scale} kind @param {number} bound @param {boolean} [clipped]
 */
export function legend(kind, bound, clipped = false) {
  const mark = clipped ? "≥ " : "";
  const ends =
    kind === "diverging"
      ? [`${clipped ? "≤ " : ""}${format(-bound, 2)}`, "0", `${mark}${format(bound, 2)}`]
      : ["0", `${mark}${format(bound, 2)}`];
  const note = kind === "diverging" ? "Blue is negative, orange positive" : "Darker is more";
  return el(
    "span",
    { class: `legend ${kind}`, role: "img", "aria-label": `${note}; from ${ends[0]} to ${ends.at(-1)}`, title: note },
    el("span", { class: "legend-end" }, ends[0]),
    el("span", { class: "legend-ramp" }),
    el("span", { class: "legend-end" }, ends.at(-1)),
  );
}
