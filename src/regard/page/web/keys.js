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
  ["Escape", "close the derivation, or go one step out of the scene"],
  ["[  ]", "previous, next head"],
  ["{  }", "previous, next layer"],
  ["0", "to the scene"],
  ["1 … 8", "to a table"],
  ["a  b  d", "before, after, difference of an edit"],
  ["←  →", "of a tour: step back, step on (the answer first)"],
  ["p", "present: for an audience; there ← → Space PageUp PageDown step, . or b blanks, Esc leaves"],
  ["m", "into the first matrix of the stage"],
  ["w", "into the Why? drawer"],
  ["/", "to the text"],
  ["t", "light or dark"],
  ["?", "these keys"],
];

/** @type {{ [key: string]: Mode }} */
const MODES = { a: "a", b: "b", d: "delta" };

/** @typedef {(ctx: Context | null, state: Store) => void} Press */

/** @type {Press} */
function up(_, state) {
  const trail = [...state.now.trail];
  const last = trail.pop();
  if (last) state.set({ node: last[0], index: last[1], trail });
}

/** @type {Press} */
function close(_, state) {
  const { node, depth, stage } = state.now;
  const shut = { node: "", index: [], trail: [] };
  if (node) state.set({ ...shut, depth: Math.min(depth, 3) });
  else if (stage === "scene" && depth > 0) state.set({ depth: depth - 1 });
}

/** @param {string} selector */
const focus = (selector) => /** @type {HTMLElement | null} */ (document.querySelector(selector))?.focus();

function matrix() {
  focus("#stage .matrix-view");
}

function why() {
  focus("#drawer a, #drawer button");
}

function text() {
  const field = /** @type {HTMLInputElement | null} */ (document.getElementById("text"));
  field?.focus();
  field?.select();
}

/** @param {Context | null} ctx @param {Store} state @param {number} by */
function otherHead(ctx, state, by) {
  if (ctx?.site) state.set({ head: (ctx.head + by + ctx.site.heads) % ctx.site.heads });
}

/** @param {Context | null} ctx @param {Store} state @param {number} by */
function otherLayer(ctx, state, by) {
  if (!ctx?.site) return;
  const { kind, stack, site } = ctx.site;
  const alike = ctx.trace.sites.filter((one) => one.kind === kind && one.stack === stack);
  const next = alike[alike.findIndex((one) => one.site === site) + by];
  if (next) state.set({ site: next.site });
}

/** @type {{ [key: string]: Press }} */
const DO = {
  Backspace: up,
  Escape: close,
  0: (_, state) => state.set({ stage: "scene" }),
  m: matrix,
  w: why,
  "/": text,
  t: switchTheme,
  "?": openKeys,
  "[": (ctx, state) => otherHead(ctx, state, -1),
  "]": (ctx, state) => otherHead(ctx, state, 1),
  "{": (ctx, state) => otherLayer(ctx, state, -1),
  "}": (ctx, state) => otherLayer(ctx, state, 1),
};

/**
 * Listen. `stages()`: their names, in order. `context()` is the present context, or null before the first run.
 * @param {Store} state @param {() => string[]} stages @param {() => Context | null} context
 */
export function keys(state, stages, context) {
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    const target = event.target instanceof HTMLElement ? event.target : null;
    if (target?.closest("input, textarea, select, dialog")) {
      if (event.key === "Escape" && !target.closest("dialog")) target.blur();
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

/** @type {HTMLDialogElement | undefined} */
let dialog;

/** The keys, as a dialog. */
export function openKeys() {
  dialog ??= document.body.appendChild(
    el(
      "dialog",
      {
        class: "keys",
        "aria-labelledby": "keys-title",
        on: { click: (event) => event.target === dialog && dialog?.close() },
      },
      el("h2", { id: "keys-title" }, "Keys"),
      el(
        "dl",
        {},
        TABLE.map(([key, does]) => [el("dt", {}, el("kbd", {}, key)), el("dd", {}, does)]),
      ),
      button("Close", () => dialog?.close()),
    ),
  );
  dialog.showModal();
}
