/**
 * A run's metrics as pictures: loss, gradient norm per layer, entropy per head.
 *
 * In: the lines of metrics.jsonl. Out: charts (see chart.js), and a table of entropies that can be set to a step.
 */

import { el, format } from "regard/dom.js";
import { chart } from "regard/parts/chart.js";
import { colours, css, textOn } from "regard/scale.js";

/**
 * A point for each line that has the number.
 * @param {MetricsLine[]} lines @param {(line: MetricsLine) => number | undefined} of @returns {Series["points"]}
 */
function along(lines, of) {
  return lines.flatMap((line) => {
    const y = of(line);
    return y === undefined ? [] : [[line.step, y]];
  });
}

/** @param {MetricsLine[]} lines @param {number[]} marks @param {(x: number) => void} pick */
export function losses(lines, marks, pick) {
  const trained = along(lines, ({ loss }) => loss);
  const held = along(lines, (line) => line.eval?.loss);
  if (!trained.length && !held.length) return null;
  return chart({
    title: "loss",
    series: [
      { name: "training", points: trained, tone: "main" },
      { name: "held out", points: held, tone: "second", dots: true },
    ],
    marks,
    pick,
  });
}

/**
 * One line per layer, from the first (light) to the last (dark).
 * @param {MetricsLine[]} lines @param {(x: number) => void} pick
 */
export function gradients(lines, pick) {
  const layers = [...new Set(lines.flatMap(({ layer_norms = {} }) => Object.keys(layer_norms)))];
  if (!layers.length) return null;
  /** @param {string} name @param {number} i */
  const line = (name, i) => ({
    name,
    tone: layers.length > 1 ? i / (layers.length - 1) : 1,
    points: along(lines, ({ layer_norms }) => layer_norms?.[name]),
  });
  return chart({ title: "gradient norm per layer", series: layers.map(line), log: true, pick });
}

/**
 * Sites down, heads across, at a step. → {element, at(step)}
 * @param {MetricsLine[]} lines
 */
export function entropies(lines) {
  const looks = lines.flatMap(({ step, entropy }) => (entropy ? [{ step, entropy }] : []));
  if (!looks.length) return null;
  const most = Math.max(...looks.flatMap(({ entropy }) => Object.values(entropy).flat()));
  const caption = el("span", { class: "chart-readout" });
  const body = el("tbody");
  const heads = Math.max(...Object.values(looks[0].entropy).map((each) => each.length));
  const table = el(
    "table",
    { class: "entropy" },
    el(
      "thead",
      {},
      el(
        "tr",
        {},
        el("th", {}, "head"),
        [...Array(heads).keys()].map((h) => el("th", { scope: "col" }, String(h))),
      ),
    ),
    body,
  );
  const element = el(
    "figure",
    { class: "chart" },
    el("figcaption", {}, "entropy of each head, in bits", caption),
    el("div", { class: "scrolls" }, table),
  );

  /** @param {number | null} step */
  function at(step) {
    const goal = step ?? looks[looks.length - 1].step;
    const look = looks.reduce((best, one) => (Math.abs(one.step - goal) < Math.abs(best.step - goal) ? one : best));
    const colour = colours("sequential", most);
    caption.textContent = `step ${look.step}`;
    /** @param {number} value */
    const cell = (value) => {
      const back = colour(value * 0.8);
      return el("td", { style: { background: css(back), color: textOn(back) } }, format(value, 2));
    };
    body.replaceChildren(
      ...Object.entries(look.entropy).map(([site, each]) => el("tr", {}, el("th", { scope: "row" }, site), each.map(cell))),
    );
  }
  /** @type {number | null} */
  let last = null;
  document.addEventListener("themed", function again() {
    if (!element.isConnected) return document.removeEventListener("themed", again);
    at(last);
  });
  const go = (/** @type {number | null} */ step) => {
    last = step;
    at(step);
  };
  return { element, at: go };
}
