/**
 * Rows of bars with their numbers: class probabilities, attributions, largest neurons.
 *
 * In: [{name: text or element, value, number: element, press?, note?, faded?, chosen?}] and the end of the scale. Out: a
 * list; bars start at the left for `from: "left"`, at the middle (negative to the left) for `from: "middle"`.
 */

import { el } from "regard/dom.js";

/** @param {number} value @param {number} bound */
const share = (value, bound) => `${Math.min(100, (100 * Math.abs(value)) / (bound || 1)).toFixed(2)}%`;

/**
 * One bar as a span, to be put into any row.
 * @param {number} value @param {number} bound @param {string} [from]
 */
export function bar(value, bound, from = "left") {
  const side = value < 0 ? "minus" : "plus";
  return el(
    "span",
    { class: `bar ${from}`, "aria-hidden": "true" },
    el("span", { class: `bar-fill ${side}`, style: { "--share": share(value, bound) } }),
  );
}

/** @param {BarRow[]} rows @param {{ bound?: number, from?: string, label?: string, kind?: string }} [given] */
export function bars(rows, { bound, from = "left", label = "", kind = "" } = {}) {
  const end = bound ?? rows.reduce((most, { value }) => Math.max(most, Math.abs(value)), 0);
  /** @param {BarRow} barRow */
  const one = ({ name, value, number, press, note, faded, chosen, title }) => {
    const word = press
      ? el(
          "button",
          {
            type: "button",
            class: "bars-name",
            title,
            "aria-pressed": chosen === undefined ? null : String(chosen),
            on: { click: press },
          },
          name,
        )
      : el("span", { class: "bars-name", title }, name);
    return el(
      "li",
      { class: `bars-row${faded ? " faded" : ""}${chosen ? " chosen" : ""}` },
      word,
      bar(value, end, from),
      el("span", { class: "bars-number" }, number),
      note ?? null,
    );
  };
  return el("ol", { class: `bars ${kind}`, "aria-label": label || null }, rows.map(one));
}
