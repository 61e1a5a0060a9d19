/**
 * The head view: queries on the left, keys on the right, a line from each to each as strong as the weight.
 *
 * In: a site, which heads are on, and what a line's strength is: the weight A, the contribution ‖A·V·W_o‖ (as a share of
 * its row, so that both are out of 1), or their difference. Out: two columns of tokens and a canvas between them. Pointing
 * at a token leaves only its lines and writes their numbers; a click holds it.
 */

import { ABSENT } from "regard/delta.js";
import { button, choice, el, format, formula, number, sentence } from "regard/dom.js";
import { disagreements, strengths } from "regard/parts/contribution.js";
import { headColumns } from "regard/parts/head-columns.js";
import { strokes } from "regard/parts/line-paint.js";
import { sidesOf } from "regard/tokens.js";

/** @typedef {LinesToken["side"]} Side */
/** @typedef {{ measure: string, on: number[], sides: Sides, numbers: Map<number, Strength> }} Drawn */

const SIDES = /** @type {const} */ (["query", "key"]);

/** @type {[key: string, word: string | (() => Child), title: string][]} */
const MEASURES = [
  ["weight", "weight A", "How much each query takes of each key's value"],
  ["contribution", () => formula("contribution ‖A·V·W_o‖"), "How long the vector is that arrives, as a share of the row"],
  [
    "difference",
    "where they differ",
    "Contribution minus weight: orange arrives stronger than its weight says, blue weaker",
  ],
];

/** @param {HTMLElement} root @param {SiteContext} ctx @param {string[]} choices */
export async function lines(root, ctx, [wish, chosen]) {
  const measure = measuresOf(ctx).some(([key]) => key === wish) ? wish : "weight";
  const { site } = ctx;
  const on = headsOn(chosen, ctx);
  const sides = sidesOf(ctx.trace, site);
  root.append(controls(ctx, measure, on));
  let numbers;
  try {
    numbers = await strengths(ctx, measure, on, [sides.queries.length, sides.keys.length]);
  } catch (error) {
    return void root.append(sentence("error", error.message)); // the switches stay, so that there is a way back
  }
  root.append(picture(ctx, { measure, on, sides, numbers }));
  if (measure !== "weight" && ctx.mode !== "delta") root.append(disagreements(ctx, on, sides, numbers));
}

/**
 * Of a difference of runs, the difference of two measures would be one too many.
 * @param {Context} ctx
 */
const measuresOf = ({ mode }) => MEASURES.filter(([key]) => mode !== "delta" || key !== "difference");

/** @param {string | undefined} chosen @param {SiteContext} ctx */
function headsOn(chosen, ctx) {
  const given = (chosen ?? "")
    .split("+")
    .filter(Boolean)
    .map(Number)
    .filter((h) => Number.isInteger(h) && h >= 0 && h < ctx.site.heads);
  return given.length ? [...new Set(given)].sort((a, b) => a - b) : [ctx.head];
}

/** @param {SiteContext} ctx @param {string} measure @param {number[]} on */
function controls(ctx, measure, on) {
  const count = ctx.site.heads;
  /** @param {string} name @param {number[]} heads */
  const view = (name, heads) => `lines.${name}${heads.length > 1 ? `.${heads.join("+")}` : ""}`;
  /** @param {number[]} heads */
  const set = (heads) => ctx.go({ view: view(measure, heads), ...(heads.length === 1 ? { head: heads[0] } : {}) });
  /** @param {number} h */
  const flip = (h) => set(on.includes(h) ? (on.length > 1 ? on.filter((other) => other !== h) : on) : [...on, h]);
  /** @param {number} h */
  const one = (h) =>
    button(String(h), () => flip(h), {
      class: "head-switch",
      "aria-pressed": String(on.includes(h)),
      "aria-label": `head ${h}`,
      data: { keep: `heads:${h}` },
    });
  const everything = on.length === count;
  const every = button(everything ? "only one" : "all", () => set(everything ? [on[0]] : [...Array(count).keys()]), {
    class: "quiet",
  });
  /** @type {Options<string>} */
  const named = measuresOf(ctx).map(([key, word, title]) => [key, typeof word === "function" ? word() : word, title]);
  const kinds = choice("Strength of a line", named, measure, (key) => ctx.go({ view: view(key, on) }));
  return el(
    "div",
    { class: "controls" },
    el(
      "div",
      { class: "head-switches", role: "group", "aria-label": "Heads" },
      el("span", { class: "field-name" }, on.length > 1 ? "heads" : "head"),
      [...Array(count).keys()].map(one),
      count > 1 ? every : null,
    ),
    kinds,
  );
}

/** @param {SiteContext} ctx @param {Drawn} drawn */
function picture(ctx, { measure, on, sides, numbers }) {
  const [N, T] = [sides.queries.length, sides.keys.length];
  const mean = new Float32Array(N * T);
  for (const { shown } of numbers.values()) for (const [at, x] of shown.entries()) mean[at] += x / on.length;
  const signed = measure === "difference" || ctx.mode === "delta";
  const most = signed ? mean.reduce((top, x) => (Math.abs(x) > top ? Math.abs(x) : top), 0.02) : 1; // the strongest line
  /** @type {LinesView} */
  const view = { on, numbers, mean, N, T, signed, most, alone: null }; // alone: {side: "query" | "key", i} | null
  /** @type {LinesToken | null} */
  let held = null;

  const canvas = el("canvas", {
    class: "lines-canvas",
    role: "img",
    "aria-label": `Lines from ${N} queries to ${T} keys; point at a token for its numbers`,
  });
  /** @param {number} h @param {number} i @param {number} j */
  const ask = (h, i, j) => ctx.ask(ctx.site.weights, [h, i, j]);
  const perHead = on.length > 1 ? headColumns(view, sides, ask) : null;
  const columns = { query: side("query", sides.queries), key: side("key", sides.keys) };
  const hint = el("p", { class: "hint" }, hintOf(measure, on, signed));

  /** @param {Side} name @param {string[]} labels */
  function side(name, labels) {
    const slots = labels.map(() => el("span", { class: "lines-number" }));
    /** @param {number} i */
    const listeners = (i) => ({
      pointerenter: () => isolate({ side: name, i }),
      pointerleave: () => isolate(held),
      focus: () => reach(name, i),
      click: () => hold({ side: name, i }),
      keydown: (/** @type {KeyboardEvent} */ event) => walk(event, name, i),
    });
    /** @param {string} label @param {number} i */
    const token = (label, i) => {
      const facts = { type: "button", class: "lines-token", "aria-pressed": "false", tabindex: i ? "-1" : "0" };
      return el("button", { ...facts, data: { keep: `lines:${name}:${i}` }, on: listeners(i) }, label);
    };
    const tokens = labels.map(token);
    const rows = tokens.map((token, i) => el("li", {}, name === "query" ? [slots[i], token] : [token, slots[i]]));
    return {
      slots,
      tokens,
      list: el(
        "ol",
        { class: `lines-side ${name}`, "aria-label": name === "query" ? "queries" : "keys" },
        el("li", { class: "lines-head", "aria-hidden": "true" }, name === "query" ? "query" : "key"),
        rows,
      ),
    };
  }
  /**
   * One stop of the Tab key per side; arrows go on from there.
   * @param {Side} name @param {number} i
   */
  function reach(name, i) {
    for (const [at, token] of columns[name].tokens.entries()) token.tabIndex = at === i ? 0 : -1;
    isolate({ side: name, i });
  }
  /** @param {KeyboardEvent} event @param {Side} name @param {number} i */
  function walk(event, name, i) {
    const other = event.key === "ArrowLeft" ? "query" : event.key === "ArrowRight" ? "key" : name;
    const at = i + (event.key === "ArrowUp" ? -1 : event.key === "ArrowDown" ? 1 : 0);
    if (other === name && at === i) return;
    columns[other].tokens[Math.min(Math.max(at, 0), columns[other].tokens.length - 1)].focus();
    event.preventDefault();
  }
  /** @param {LinesToken | null} a @param {LinesToken | null} b */
  const same = (a, b) => a?.side === b?.side && a?.i === b?.i;
  /** @param {LinesToken} what */
  function hold(what) {
    held = same(held, what) ? null : what;
    for (const side of SIDES) {
      for (const [i, token] of columns[side].tokens.entries())
        token.setAttribute("aria-pressed", String(same(held, { side, i })));
    }
    if (held?.side === "query") ctx.note({ token: held.i });
    isolate(held);
  }
  /** @param {LinesToken | null} what */
  function isolate(what) {
    view.alone = what;
    for (const side of SIDES) {
      const { slots, tokens } = columns[side];
      for (const [i, slot] of slots.entries()) slot.replaceChildren(what && what.side !== side ? written(what, i) : "");
      for (const [i, token] of tokens.entries()) token.classList.toggle("lit", same(what, { side, i }));
    }
    ctx.light(...(what ? [sides.from[what.side === "query" ? 0 : 1], what.i] : []));
    draw();
  }
  /** @param {LinesToken} what @param {number} other */
  function written(what, other) {
    const [i, j] = what.side === "query" ? [what.i, other] : [other, what.i];
    const value = mean[i * T + j];
    if (ctx.mode === "delta" && Number.isNaN(value)) return el("span", { class: "number" }, ABSENT[1]);
    if (on.length > 1 || measure !== "weight") return el("span", { class: "number" }, format(value));
    return number(ctx, value, ctx.site.weights, [on[0], i, j]);
  }
  function draw() {
    strokes(canvas, view, columns);
    perHead?.draw();
  }
  const frame = el(
    "div",
    { class: `lines${N > 40 || T > 40 ? " dense" : ""}` },
    columns.query.list,
    el("div", { class: "lines-middle" }, canvas),
    columns.key.list,
    perHead?.element ?? null,
  );
  new ResizeObserver(draw).observe(frame);
  document.addEventListener("themed", function again() {
    if (!frame.isConnected) return document.removeEventListener("themed", again);
    draw();
  });
  return el("div", {}, hint, frame);
}

/** @param {string} measure @param {number[]} on @param {boolean} signed */
function hintOf(measure, on, signed) {
  const what = {
    weight: "the attention weight",
    contribution: ["the share of what arrives, ", formula("‖A·V·W_o‖"), " out of its row"],
    difference: "contribution minus weight",
  }[measure];
  const many = on.length > 1 ? `, the mean of ${on.length} heads` : "";
  return [
    "A line’s strength is ",
    what,
    `${many}${signed ? "; orange is more, blue is less" : ""}. Lines under 1 % are left out. `,
    "Point at a token for its numbers, click to hold it.",
  ];
}
