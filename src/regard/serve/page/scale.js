/**
 * From values to colours.
 *
 * In: numbers. Out: colours of the two scales of the page, diverging (blue – paper – orange, around zero) and
 * sequential (paper to ink, for probabilities), both colour-blind safe. The stops are custom properties in style.css,
 * so that a theme is written in one place; `themed` says when they changed.
 */

import { el, format } from "regard/dom.js";

const STOPS = { diverging: ["--d1", "--d2", "--d3", "--d4", "--d5"], sequential: ["--s1", "--s2", "--s3", "--s4"] };

let cache = null;

/** Colours of the present theme for canvases: {diverging, sequential: [[r, g, b], …], ink, paper, faint, roles}. */
export function palette() {
  if (cache) return cache;
  const style = getComputedStyle(document.documentElement);
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

/** The figures' typeface, for canvases. */
export const font = (size, weight = 400) => `${weight} ${size}px ${palette().figures}`;

/** Call after the theme changed; everything painted listens to the document's "themed" event. */
export function themed() {
  cache = null;
  document.dispatchEvent(new Event("themed"));
}

/** "#rrggbb" → [r, g, b]. */
export function rgb(hex) {
  const n = parseInt(hex.slice(1), 16);
  return [(n >> 16) & 255, (n >> 8) & 255, n & 255];
}

function between(stops, t) {
  const x = Math.min(Math.max(t, 0), 1) * (stops.length - 1);
  const i = Math.min(Math.floor(x), stops.length - 2);
  return stops[i].map((c, k) => Math.round(c + (stops[i + 1][k] - c) * (x - i)));
}

/** A function value → [r, g, b]. kind: "diverging" (−bound … bound) or "sequential" (0 … bound). */
export function colours(kind, bound) {
  const table = [];
  const stops = palette()[kind];
  for (let i = 0; i <= 256; i++) table.push(between(stops, i / 256));
  const unit = bound || 1;
  const place = kind === "diverging" ? (v) => 128 + (128 * v) / unit : (v) => (256 * v) / unit;
  return (value) => table[Math.round(Math.min(Math.max(place(value), 0), 256)) || 0];
}

/** Black or white, whichever is read better on `colour`. */
export function textOn([r, g, b]) {
  return 0.299 * r + 0.587 * g + 0.114 * b > 140 ? "#16181d" : "#f7f5f0";
}

/** "#rrggbb" or "rgb(…)" for CSS. */
export const css = ([r, g, b]) => `rgb(${r}, ${g}, ${b})`;

/**
 * The end of the scale for `values`: the largest absolute value, or for many values their 99.5th percentile, so that a
 * single outlier does not turn everything else white. → {bound, clipped, flat}, flat when everything is 0
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
  if (!most) return { bound: 1, flat: true };
  if (values.length <= 1024) return { bound: most, clipped: false };
  sizes.sort((a, b) => a - b);
  const bound = sizes[Math.floor(sizes.length * 0.995)] || most;
  return bound * 1.5 < most ? { bound, clipped: true } : { bound: most, clipped: false };
}

/** The legend beside a picture: the ramp with its ends written out. */
export function legend(kind, bound, clipped = false) {
  const mark = clipped ? "≥ " : "";
  const ends = kind === "diverging"
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
