/**
 * A run's metrics as pictures: loss, gradient norm per layer, entropy per head.
 *
 * In: the lines of metrics.jsonl. Out: charts (see chart.js), and a table of entropies that can be set to a step.
 */

import { el, format } from "regard/dom.js";
import { chart } from "regard/parts/chart.js";
import { colours, css, textOn } from "regard/scale.js";

export function losses(lines, marks, pick) {
  const trained = lines.filter((line) => "loss" in line).map(({ step, loss }) => [step, loss]);
  const held = lines.filter((line) => line.eval?.loss !== undefined).map(({ step, eval: { loss } }) => [step, loss]);
  if (!trained.length && !held.length) return null;
  return chart({
    title: "loss",
    series: [{ name: "training", points: trained, tone: "main" }, { name: "held out", points: held, tone: "second", dots: true }],
    marks,
    pick,
  });
}

/** One line per layer, from the first (light) to the last (dark). */
export function gradients(lines, pick) {
  const logged = lines.filter((line) => line.layer_norms);
  const layers = [...new Set(logged.flatMap(({ layer_norms }) => Object.keys(layer_norms)))];
  if (!layers.length) return null;
  const line = (name, i) => ({
    name,
    tone: layers.length > 1 ? i / (layers.length - 1) : 1,
    points: logged.filter(({ layer_norms }) => name in layer_norms).map(({ step, layer_norms }) => [step, layer_norms[name]]),
  });
  return chart({ title: "gradient norm per layer", series: layers.map(line), log: true, pick });
}

/** Sites down, heads across, at a step. → {element, at(step)} */
export function entropies(lines) {
  const looks = lines.filter((line) => line.entropy);
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
      el("tr", {}, el("th", {}, "head"), [...Array(heads).keys()].map((h) => el("th", { scope: "col" }, String(h)))),
    ),
    body,
  );
  const element = el(
    "figure",
    { class: "chart" },
    el("figcaption", {}, "entropy of each head, in bits", caption),
    el("div", { class: "scrolls" }, table),
  );

  function at(step) {
    const nearer = (best, one) => (Math.abs(one.step - step) < Math.abs(best.step - step) ? one : best);
    const look = step === null ? looks.at(-1) : looks.reduce(nearer);
    const colour = colours("sequential", most);
    caption.textContent = `step ${look.step}`;
    const cell = (value) => {
      const back = colour(value * 0.8);
      return el("td", { style: { background: css(back), color: textOn(back) } }, format(value, 2));
    };
    body.replaceChildren(...Object.entries(look.entropy).map(([site, each]) => el(
      "tr",
      {},
      el("th", { scope: "row" }, site),
      each.map(cell),
    )));
  }
  let last = null;
  document.addEventListener("themed", function again() {
    if (!element.isConnected) return document.removeEventListener("themed", again);
    at(last);
  });
  return { element, at: (step) => at((last = step)) };
}
