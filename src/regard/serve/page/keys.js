/**
 * The keyboard, in one table.
 *
 * In: key presses outside of text fields (matrices handle arrows and Enter themselves). Out: changes of state; `?`
 * shows the table itself.
 */

import { button, el } from "regard/dom.js";
import { switchTheme } from "regard/theme.js";

const TABLE = [
  ["← ↑ → ↓", "move within a matrix"],
  ["Enter", "ask why: the derivation of the number under the cursor"],
  ["+  −", "zoom a matrix"],
  ["Backspace", "back up the derivation"],
  ["Escape", "close the derivation"],
  ["[  ]", "previous, next head"],
  ["{  }", "previous, next layer"],
  ["1 … 8", "go to a stage"],
  ["a  b  d", "before, after, difference of an edit"],
  ["m", "into the first matrix of the stage"],
  ["w", "into the Why? drawer"],
  ["/", "to the text"],
  ["t", "light or dark"],
  ["?", "these keys"],
];

const MODES = { a: "a", b: "b", d: "delta" };

function up(ctx, state) {
  const trail = [...state.now.trail];
  const last = trail.pop();
  if (last) state.set({ node: last[0], index: last[1], trail });
}

function close(ctx, state) {
  if (state.now.node) state.set({ node: "", index: [], trail: [] });
}

const focus = (selector) => document.querySelector(selector)?.focus();

function matrix() {
  focus("#stage .matrix-view");
}

function why() {
  focus("#drawer a, #drawer button");
}

function text() {
  const field = document.getElementById("text");
  field?.focus();
  field?.select();
}

function otherHead(ctx, state, by) {
  if (ctx?.site) state.set({ head: (ctx.head + by + ctx.site.heads) % ctx.site.heads });
}

function otherLayer(ctx, state, by) {
  const alike = ctx?.trace.sites.filter((one) => one.kind === ctx.site.kind && one.stack === ctx.site.stack) ?? [];
  const next = alike[alike.findIndex((one) => one.site === ctx.site.site) + by];
  if (next) state.set({ site: next.site });
}

const DO = {
  Backspace: up, Escape: close, m: matrix, w: why, "/": text, t: switchTheme, "?": openKeys,
  "[": (ctx, state) => otherHead(ctx, state, -1), "]": (ctx, state) => otherHead(ctx, state, 1),
  "{": (ctx, state) => otherLayer(ctx, state, -1), "}": (ctx, state) => otherLayer(ctx, state, 1),
}; // prettier-ignore

/** Listen. `stages()`: their names, in order. `context()` is the present context, or null before the first run. */
export function keys(state, stages, context) {
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    const typing = event.target.closest?.("input, textarea, select, dialog");
    if (typing) {
      if (event.key === "Escape" && !event.target.closest("dialog")) event.target.blur();
      return;
    }
    const number = Number(event.key);
    if (number >= 1 && number <= stages().length) state.set({ stage: stages()[number - 1] });
    else if (event.key in MODES && context()?.other) state.set({ mode: MODES[event.key] });
    else if (event.key in DO) DO[event.key](context(), state);
    else return;
    event.preventDefault();
  });
}

let dialog = null;

/** The keys, as a dialog. */
export function openKeys() {
  dialog ??= document.body.appendChild(
    el(
      "dialog",
      {
        class: "keys",
        "aria-labelledby": "keys-title",
        on: { click: (event) => event.target === dialog && dialog.close() },
      },
      el("h2", { id: "keys-title" }, "Keys"),
      el("dl", {}, TABLE.map(([key, does]) => [el("dt", {}, el("kbd", {}, key)), el("dd", {}, does)])),
      button("Close", () => dialog.close()),
    ),
  );
  dialog.showModal();
}
