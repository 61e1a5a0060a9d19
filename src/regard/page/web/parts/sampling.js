/**
 * From logits to one token: the settings of sampling and what each does to the vocabulary.
 *
 * In: the state's temperature, top_k, top_p, min_p, seed and the answer. Out: controls, the chain in words with numbers, and
 * the interval from 0 to 1 divided among the tokens that are left, with the one that was drawn.
 */

import { button, el, format, formula } from "regard/dom.js";
import { tip, untip } from "regard/parts/tip.js";
import { colours, css, textOn } from "regard/scale.js";
import { show } from "regard/tokens.js";

/** @typedef {[key: "temperature" | "top_k" | "top_p" | "min_p" | "seed", name: string, limits: object, title: string]} Setting */

/** @param {State} state */
export const settingsOf = ({ temperature, top_k, top_p, min_p, seed }) => ({ temperature, top_k, top_p, min_p, seed });

/** @type {Setting[]} */
const SETTINGS = [
  [
    "temperature",
    "temperature",
    { min: 0, max: 3, step: 0.05 },
    "Logits are divided by it: below 1 sharper, above 1 flatter, 0 takes the likeliest",
  ],
  ["top_k", "top-k", { min: 0, max: 1000, step: 1 }, "Only the k likeliest stay; 0 keeps all"],
  ["top_p", "top-p", { min: 0.01, max: 1, step: 0.01 }, "Only the likeliest that together reach p stay; 1 keeps all"],
  [
    "min_p",
    "min-p",
    { min: 0, max: 1, step: 0.01 },
    "Only those at least this likely relative to the likeliest stay; 0 keeps all",
  ],
  ["seed", "seed", { min: 0, max: 99999, step: 1 }, "The same seed draws the same token"],
];

/** @param {Context} ctx @param {Shown} shown */
export function sampling(ctx, { answer, before }) {
  const { state } = ctx;
  /** @param {Setting} setting */
  const field = ([key, name, limits, title]) => {
    /** @type {HTMLInputElement} */
    const input = el("input", {
      type: "number",
      ...limits,
      value: state[key],
      title,
      data: { keep: `sampling:${key}` },
      on: { change: () => input.value !== "" && input.checkValidity() && ctx.go({ [key]: Number(input.value) }) },
    });
    return el("label", { class: "field" }, el("span", { class: "field-name" }, name), input);
  };
  return el(
    "div",
    {},
    el(
      "div",
      { class: "controls sampling" },
      SETTINGS.map(field),
      button("draw again", () => ctx.go({ seed: state.seed + 1 }), { title: "The next seed" }),
    ),
    chain(state, answer, before),
    answer.drawn ? interval(answer, answer.drawn, state) : null,
  );
}

/**
 * The way in one line: 800 logits → ÷ 0.8 → 40 of 800 kept → softmax → one drawn.
 * @param {State} state @param {Answer} answer @param {Answer | null} before
 */
function chain({ temperature, seed }, { vocabulary, kept, sum, highest, drawn }, before) {
  const past = before?.drawn
    ? `, ${before.drawn.id === drawn?.id ? "as before" : `before ${show(before.drawn.piece)}`}`
    : "";
  const steps = [
    [`${vocabulary} logits`, "one per token"],
    [temperature > 0 ? `÷ ${format(temperature, 2)}` : "T = 0", temperature > 0 ? "temperature" : "the likeliest is taken"],
    [`softmax over all ${vocabulary}`, formula(`Σ e^{x − ${format(highest ?? 0, 2)}} = ${format(sum, 2)}`)],
    [`${kept} kept`, "scaled to sum to 1"],
    drawn ? [show(drawn.piece), `${temperature > 0 ? `drawn with seed ${seed}` : "the likeliest"}${past}`] : null,
  ];
  return el(
    "ol",
    { class: "chain" },
    steps
      .filter((step) => step !== null)
      .map(([what, how]) => el("li", {}, el("b", {}, what), el("span", { class: "hint" }, how))),
  );
}

/**
 * The unit interval, a piece per token as long as its probability.
 * @param {Answer} answer @param {Drawn} drawn @param {State} state
 */
function interval({ rows }, drawn, { seed }) {
  const left = rows.filter(({ final }) => final > 0);
  const share = rows.find(({ id }) => id === drawn.id)?.final ?? 0;
  const { u } = drawn;
  const random = u !== null;
  const colour = colours("sequential", 1);
  /** @param {AnswerRow} row */
  const piece = (row) => {
    const back = colour(0.1 + 0.65 * Math.min(1, row.final));
    const here = row.id === drawn.id;
    const words = `${show(row.piece)}: ${format(100 * row.final, 2)} %`;
    const style = { "flex-grow": String(row.final), background: css(back), color: textOn(back) };
    const on = {
      pointerenter: (/** @type {PointerEvent} */ event) => tip(words, event.clientX, one.getBoundingClientRect().top),
      pointerleave: untip,
    };
    /** @type {HTMLElement} */
    const one = el(
      "span",
      { class: `interval-piece${here ? " drawn" : ""}`, style, on },
      row.final > 0.05 ? show(row.piece) : "",
    );
    return one;
  };
  const rest = 1 - left.reduce((sum, { final }) => sum + final, 0);
  const unseen =
    rest > 1e-3
      ? el("span", {
          class: "interval-piece",
          style: { "flex-grow": String(rest) },
          title: `all others: ${format(100 * rest, 1)} %`,
        })
      : null;
  const falls = random
    ? [`seed ${seed} gives ${format(u, 4)}, which falls on `, el("b", {}, show(drawn.piece))]
    : ["the likeliest is taken: ", el("b", {}, show(drawn.piece))];
  const taken = random ? `${format(u, 4)} falls on` : "taken is";
  const label = `The numbers from 0 to 1 divided among ${left.length} tokens; ${taken} ${drawn.piece}`;
  return el(
    "figure",
    { class: "interval", role: "img", "aria-label": label },
    el(
      "div",
      { class: "interval-line" },
      left.map(piece),
      unseen,
      random ? el("span", { class: "interval-mark", style: { left: `${100 * u}%` } }) : null,
    ),
    el(
      "div",
      { class: "interval-ends", "aria-hidden": "true" },
      el("span", {}, "0"),
      el("span", {}, falls, `, ${format(100 * share, 1)} % of the line`),
      el("span", {}, "1"),
    ),
  );
}
