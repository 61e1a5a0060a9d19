/**
 * One step of a lesson: a sentence, a formula and the matrix that comes out, with the lecture's hand-rounded value beside.
 *
 * In: a lesson as the API tells it and which step. Out: elements. Matrices are small here, so they are real tables that a screen
 * reader can walk; long ones with `bars` are drawn as lines.
 */

import { el, format, formula } from "regard/dom.js";
import { chart } from "regard/parts/chart.js";
import { placeOf } from "regard/parts/lesson-bar.js";
import { colours, css, textOn } from "regard/scale.js";

/** The steps so far as a row of formulas: where we are. */
export function ladder(ctx, lesson, page) {
  const one = ({ formula: words }, at) =>
    el(
      "li",
      {},
      el(
        "a",
        {
          href: ctx.link({ page: at }),
          class: "ladder-step",
          "aria-current": at === page ? "step" : null,
          data: { keep: `lesson:${at}` },
        },
        formula(words || String(at + 1)),
      ),
    );
  return el("ol", { class: "ladder", "aria-label": "Steps" }, lesson.steps.map(one));
}

export function stepView(ctx, lesson, page) {
  const step = lesson.steps[page];
  const rows = rowsOf(step);
  const names = step.rows?.length ? step.rows : rows.length === lesson.words.length ? lesson.words : null;
  return el(
    "article",
    { class: "lesson" },
    el("p", { class: "lesson-say" }, step.say),
    rows.length ? el(
      "div",
      { class: "lesson-work" },
      step.formula && !step.bars ? el(
        "div",
        { class: "lesson-formula" },
        formula(step.formula),
        el("span", { "aria-hidden": "true" }, " ="),
      ) : null,
      step.bars ? plot(step, rows, names) : bracketed(rows, names, step.columns?.length ? step.columns : null),
      step.by_hand ? el("aside", { class: "by-hand-note" }, hand(step.by_hand)) : null,
    ) : null,
    step.state ? el(
      "p",
      {},
      el("a", { class: "lesson-go", href: ctx.link(placeOf(ctx.state.lesson, lesson.steps, page)) }, "See it in a real model →"),
    ) : null,
  );
}

/** The value as rows, however it is sent: nested, flat with a shape, one number. null stands for −∞. */
function rowsOf({ value, shape }) {
  if (value === null || value === undefined) return [];
  const flat = [value].flat(Infinity).map((x) => (x === null ? -Infinity : x));
  const wide = shape?.length ? shape.at(-1) : 1;
  return Array.from({ length: Math.ceil(flat.length / (wide || 1)) }, (_, r) => flat.slice(r * wide, (r + 1) * wide));
}

/** "by hand: 0.42 0.15 / 0.15 0.42": a heading and a line per row. */
function hand(words) {
  const [, head, rest] = /^(by hand[^:]*): (.*)$/s.exec(words) ?? [null, "by hand", words];
  return [el("span", { class: "hint" }, head), rest.split(" / ").map((row) => el("span", { class: "hand-row" }, row))];
}

/** Four decimals, six for what would otherwise be 0.0000. */
function exact(x) {
  const size = Math.abs(x);
  if (!(size < 1000) || (size > 0 && size < 5e-7)) return format(x, 2);
  return x.toFixed(size > 0 && size < 5e-4 ? 6 : 4).replace("-", "−");
}

function bracketed(rows, names, columns) {
  const end = Math.max(...rows.flat().filter(Number.isFinite).map(Math.abs), 1e-9);
  const colour = colours("diverging", end * 2.2); // pale: the digits are what is read
  const whole = rows.flat().every((x) => !Number.isFinite(x) || Number.isInteger(x));
  const cell = (x) => {
    const back = Number.isFinite(x) ? colour(x) : null;
    return el("td", { style: back ? { background: css(back), color: textOn(back) } : {} }, whole ? format(x, 0) : exact(x));
  };
  const head = columns ? el(
    "thead",
    {},
    el("tr", {}, names ? el("td") : null, columns.map((word) => el("th", { scope: "col" }, word))),
  ) : null;
  return el(
    "div",
    { class: "scrolls" },
    el(
      "table",
      { class: `bracketed${columns ? " named" : ""}` },
      head,
      el("tbody", {}, rows.map((row, r) => el("tr", {}, names ? el("th", { scope: "row" }, names[r]) : null, row.map(cell)))),
    ),
  );
}

const TONES = ["third", "second", "main", "fourth", "fifth"];

/** A line per column over the rows; the numbers themselves folded away below. */
function plot(step, rows, names) {
  const columns = step.columns?.length ? step.columns : rows[0].map((_, c) => String(c + 1));
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
