/**
 * Why? One number, taken apart.
 *
 * In: the node and index that the state names. Out: the formula in symbols, the same with this run's numbers, the terms
 * largest first, the value as captured and as recomputed, and an edit. Every number in it leads on to its own
 * derivation, and the trail leads back.
 */

import { changeOf } from "regard/delta.js";
import { announce, button, el, format, formula, sentence, signed } from "regard/dom.js";
import { changes, MOST, terms } from "regard/parts/why-terms.js";

let turn = 0;
let whole = ""; // the number whose terms are all shown

/** @param {HTMLElement} root @param {Context} ctx */
export async function drawer(root, ctx) {
  const { node, index } = ctx.state;
  const mine = ++turn;
  if (!node) {
    root.replaceChildren(
      el("h2", {}, "Why?"),
      sentence(
        "empty",
        "Click any number, or move to it with the arrow keys and press Enter: it is taken apart, down to the weights.",
      ),
    );
    return;
  }
  if (root.dataset.shown !== key(node, index)) root.dataset.waiting = "";
  try {
    const [why, before] = await asked(ctx, node, index);
    if (mine !== turn) return;
    const expand = () => {
      whole = whole === key(node, index) ? "" : key(node, index);
      const again = () => /** @type {HTMLElement | null} */ (root.querySelector(".rest button"));
      drawer(root, ctx).then(() => again()?.focus({ preventScroll: true }));
    };
    root.replaceChildren(...(before ? changed(ctx, before, why) : derivation(ctx, why, expand)));
    if (root.dataset.shown !== key(node, index)) {
      root.scrollTop = 0;
      announce(`${why.label ?? node}: ${format(why.value)}. ${why.edited ? why.note : why.symbols}`);
    }
    root.dataset.shown = key(node, index);
  } catch (error) {
    if (mine === turn) root.replaceChildren(top(ctx), trail(ctx), sentence("error", error.message));
  } finally {
    if (mine === turn) delete root.dataset.waiting;
  }
}

/** @param {string} node @param {number[]} index */
const key = (node, index) => `${node}[${index}]`;

/**
 * The derivation, and with Δ also that of the same number before; where that has none, only the first.
 * @param {Context} ctx @param {string} node @param {number[]} index
 * @returns {Promise<[why: Why, before: Why | null]>}
 */
async function asked(ctx, node, index) {
  if (ctx.mode !== "delta") return [await ctx.data.why(node, index, whole === key(node, index) ? MOST : undefined), null];
  const there = await ctx.data.before(node, index).catch(() => null);
  const [before, after] = await ctx.data.both((data) => data.why(node, index, MOST));
  if (!there)
    return [{ ...after, note: `Only in the run after: this token has no counterpart before. ${after.note}` }, null];
  return [
    after,
    String(there) === String(index)
      ? before
      : await ctx.data
          .of(ctx.base)
          .why(node, there, MOST)
          .catch(() => null),
  ];
}

/** @param {Why} why */
function named(why) {
  const words = why.label?.startsWith(`${why.node}, `) ? why.label.slice(why.node.length + 2) : `[${why.index.join(", ")}]`;
  return el("p", { class: "why-name" }, el("code", {}, why.node), el("span", {}, words));
}

/** @param {Context} ctx @param {Why} why @param {() => void} expand */
function derivation(ctx, why, expand) {
  return [
    top(ctx),
    trail(ctx),
    named(why),
    el("p", { class: "why-value" }, format(why.value, 4)),
    why.edited ? el("p", { class: "why-note" }, why.note) : null,
    el("p", { class: "why-symbols" }, unedited(why), formula(why.symbols)),
    why.numbers ? el("p", { class: "why-numbers" }, formula(why.numbers)) : null,
    why.note && !why.edited ? el("p", { class: "why-note" }, why.note) : null,
    terms(ctx, why, expand),
    check(why),
    copies(why),
    edit(ctx, why),
  ].filter((part) => part !== null);
}

/**
 * An edited number does not follow from its formula.
 * @param {Why} why
 */
const unedited = ({ edited }) => (edited ? el("i", {}, "without the edit: ") : null);

/**
 * With Δ: what it was, what it is, and which of its terms made the difference.
 * @param {Context} ctx @param {Why} before @param {Why} why
 */
function changed(ctx, before, why) {
  const alike = why.note === before.note;
  /** @param {string} name @param {Why} one */
  const run = (name, one) => [
    one.numbers
      ? el(
          "p",
          { class: "why-numbers" },
          el("i", {}, `${name}${one.edited ? ", without the edit" : ""}: `),
          formula(one.numbers),
        )
      : null,
    one.note && !alike ? el("p", { class: "why-note" }, el("i", {}, `${name}: `), one.note) : null,
  ];
  return [
    top(ctx),
    trail(ctx),
    named(why),
    el(
      "p",
      { class: "why-value" },
      changeOf(why.value, before.value, (change) => signed(change, 4)),
    ),
    el("p", { class: "why-change" }, `${format(before.value, 4)} before → ${format(why.value, 4)} after`),
    el("p", { class: "why-symbols" }, unedited(why), formula(why.symbols)),
    ...run("before", before),
    ...run("after", why),
    alike && why.note ? el("p", { class: "why-note" }, why.note) : null,
    changes(ctx, before, why),
    check(before, "before"),
    check(why, "after"),
    copies(why),
    edit(ctx, why),
  ].filter((part) => part !== null);
}

/** @param {Why} why */
const copies = (why) =>
  el(
    "p",
    { class: "row copy" },
    el("span", {}, "Copy as"),
    copy("LaTeX", why.latex),
    copy("Python", why.python),
    copy("question", question(why)),
  );

/** @param {Context} ctx */
function top(ctx) {
  const close = button("✕", () => ctx.go({ node: "", index: [], trail: [] }), {
    class: "quiet",
    "aria-label": "Close the derivation",
    title: "Close (Escape)",
  });
  return el("div", { class: "why-top" }, el("h2", {}, "Why?"), close);
}

/** @param {string} name */
const short = (name) => name.split(".").slice(-2).join(".");

/** @param {Context} ctx */
function trail(ctx) {
  const { trail: way, node } = ctx.state;
  if (!way.length) return "";
  /** @param {State["trail"][number]} given @param {number} at */
  const step = ([name, index], at) => [
    el(
      "a",
      { href: ctx.link({ node: name, index, trail: way.slice(0, at) }), title: `${name}[${index.join(", ")}]` },
      short(name),
    ),
    el("span", { "aria-hidden": "true" }, " ⟵ "),
  ];
  return el(
    "nav",
    { class: "trail", "aria-label": "How you got here" },
    way.map(step),
    el("span", { "aria-current": "true" }, short(node)),
  );
}

/** @param {Why} why @param {string} [run] */
function check(why, run = "") {
  const agree = why.edited
    ? el("span", {}, "set by an edit")
    : why.agrees
      ? el("span", { class: "agrees" }, "✓ equal within float32 rounding")
      : el("span", { class: "differs" }, `✗ differs by ${format(why.difference, 3)}`);
  /** @param {string} name @param {number} value */
  const line = (name, value) => [el("dt", {}, name), el("dd", {}, exact(value))];
  return el(
    "div",
    { class: "check" },
    run ? el("h3", {}, run) : null,
    el(
      "dl",
      {},
      line("captured", why.value),
      why.recomputed === null ? null : line(why.edited ? "without the edit" : "recomputed", why.recomputed),
    ),
    why.recomputed === null ? null : agree,
  );
}

/** @param {number} value */
const exact = (value) => (Number.isFinite(value) ? Number(value).toPrecision(9).replace("-", "−") : format(value));

/** @param {string} name @param {string} text */
function copy(name, text) {
  if (!text) return null;
  const press = async () => {
    try {
      await navigator.clipboard.writeText(text);
      one.textContent = "Copied";
      announce(`Copied as ${name}`);
    } catch {
      one.after(el("textarea", { class: "by-hand", rows: "4", "aria-label": `${name}, to copy by hand`, value: text }));
    }
    setTimeout(() => (one.textContent = name), 1500);
  };
  const one = button(name, press, { title: `Copy as ${name}` });
  return one;
}

/**
 * The same as an exercise: what is given, and what is asked.
 * @param {Why} why
 */
function question(why) {
  const operands = new Map(why.terms.flatMap(({ factors }) => factors).map(({ label, value }) => [label, value]));
  if (!operands.size || why.edited) return "";
  const given = [...operands].map(([label, value]) => `${label} = ${format(value)}`).join(", ");
  const rest = why.rest?.count ? ` The other ${why.rest.count} terms sum to ${format(why.rest.sum)}.` : "";
  return `Given ${given}.${rest}\nWork out ${why.symbols}.\nAnswer: ${format(why.value)}`;
}

/**
 * "Set this to …": the same run with this one number replaced.
 * @param {Context} ctx @param {Why} why
 */
function edit(ctx, why) {
  const place = `${why.node}[${why.index.join(", ")}]`;
  if (!ctx.nodes.has(why.node) || !ctx.can(place, { set: 0 })) return null;
  const shown = Number.isFinite(why.value) ? String(Number(why.value.toPrecision(4))) : "0";
  /** @param {KeyboardEvent} event */
  const enter = (event) => event.key === "Enter" && set();
  const value = el("input", {
    type: "number",
    step: "any",
    value: shown,
    "aria-label": "New value",
    on: { keydown: enter },
  });
  const set = () => value.value !== "" && ctx.edit(place, { set: Number(value.value) });
  return el("p", { class: "row set" }, el("label", {}, "Set this to ", value), button("Set and run", set));
}
