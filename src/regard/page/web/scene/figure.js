/**
 * A step of a lesson in the scene's place: a formula and the matrix that comes out, with the lecture's hand-rounded value beside.
 *
 * In: a figure as /api/tour tells it. Out: an element. Matrices are small here, so they are real tables that a screen reader can
 * walk; long ones with `bars` are drawn as lines.
 */

import { el, format, formula } from "regard/dom.js";
import { chart } from "regard/parts/chart.js";
import { colours, css, textOn } from "regard/scale.js";

/** @param {Figure} step @param {boolean} [told] whether its numbers are shown: they are what is guessed @returns {HTMLElement} */
export function figureOf(step, told = true) {
  const rows = rowsOf(step);
  const names = step.rows.length ? step.rows : null;
  const columns = step.columns.length ? step.columns : null;
  if (!told) return el("div", { class: "lesson-work" }, formulaOf(step), el("span", { class: "lesson-hidden" }, "?"));
  return el(
    "div",
    { class: `lesson-work${step.bars ? " plotted" : ""}` },
    step.bars ? null : formulaOf(step),
    step.bars ? plot(step, rows, names) : bracketed(rows, names, columns),
    step.by_hand ? el("aside", { class: "by-hand-note" }, hand(step.by_hand)) : null,
  );
}

/** @param {Figure} step */
const formulaOf = ({ formula: words }) =>
  words ? el("div", { class: "lesson-formula" }, formula(words), el("span", { "aria-hidden": "true" }, " =")) : null;

/**
 * The value as rows, however it is sent: nested, flat with a shape, one number. null stands for −∞.
 * @param {Figure} figure
 */
function rowsOf({ value, shape }) {
  if (value === null || value === undefined) return [];
  const flat = /** @type {(number | null)[]} */ (/** @type {unknown[]} */ ([value]).flat(Infinity)).map(
    (x) => x ?? -Infinity,
  );
  const wide = shape.at(-1) ?? 1;
  return Array.from({ length: Math.ceil(flat.length / (wide || 1)) }, (_, r) => flat.slice(r * wide, (r + 1) * wide));
}

/**
 * "by hand: 0.42 0.15 / 0.15 0.42": a heading and a line per row.
 * @param {string} words
 */
function hand(words) {
  const [, head, rest] = /^(by hand[^:]*): (.*)$/s.exec(words) ?? [null, "by hand", words];
  return [el("span", { class: "hint" }, head), rest.split(" / ").map((row) => el("span", { class: "hand-row" }, row))];
}

/**
 * Four decimals, six for what would otherwise be 0.0000.
 * @param {number} x
 */
function exact(x) {
  const size = Math.abs(x);
  if (!(size < 1000) || (size > 0 && size < 5e-7)) return format(x, 2);
  return x.toFixed(size > 0 && size < 5e-4 ? 6 : 4).replace("-", "−");
}

/** @param {number} x */
const integer = (x) => (Number.isFinite(x) ? String(x).replace("-", "−") : format(x, 0));

/** @param {number[][]} rows @param {string[] | null} names @param {string[] | null} columns */
function bracketed(rows, names, columns) {
  const end = Math.max(...rows.flat().filter(Number.isFinite).map(Math.abs), 1e-9);
  const colour = colours("diverging", end * 2.2); // pale: the digits are what is read
  const whole = rows.flat().every((x) => !Number.isFinite(x) || Number.isInteger(x));
  /** @param {number} x */
  const cell = (x) => {
    const back = Number.isFinite(x) ? colour(x) : null;
    return el("td", { style: back ? { background: css(back), color: textOn(back) } : {} }, whole ? integer(x) : exact(x));
  };
  const head = columns
    ? el(
        "thead",
        {},
        el(
          "tr",
          {},
          names ? el("td") : null,
          columns.map((word) => el("th", { scope: "col" }, word)),
        ),
      )
    : null;
  return el(
    "div",
    { class: "scrolls" },
    el(
      "table",
      { class: `bracketed${columns ? " named" : ""}` },
      head,
      el(
        "tbody",
        {},
        rows.map((row, r) => el("tr", {}, names ? el("th", { scope: "row" }, names[r]) : null, row.map(cell))),
      ),
    ),
  );
}

const TONES = ["third", "second", "main", "fourth", "fifth"];

/**
 * A line per column over the rows; the numbers themselves folded away below.
 * @param {Figure} step @param {number[][]} rows @param {string[] | null} names
 */
function plot(step, rows, names) {
  const columns = step.columns?.length ? step.columns : rows[0].map((_, c) => String(c + 1));
  /** @type {Series[]} */
  const series = columns.map((name, c) => ({
    name,
    tone: TONES[c % TONES.length],
    dots: true,
    points: rows.map((row, r) => [r, row[c]]),
  }));
  const labels = (names ?? rows.map((_, r) => String(r + 1))).map((name) => name.replace(/^layer /, ""));
  const drawn = chart({
    title: formula(step.formula),
    say: step.formula,
    series,
    log: step.bars === "log",
    height: 260,
    names: labels,
    unit: names?.[0]?.startsWith("layer ") ? "layer" : "",
  });
  return el(
    "div",
    { class: "lesson-plot" },
    drawn.element,
    el("details", {}, el("summary", {}, "the numbers"), bracketed(rows, names, columns)),
  );
}
