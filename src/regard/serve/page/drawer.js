/**
 * Why? One number, taken apart.
 *
 * In: the node and index that the state names. Out: the formula in symbols, the same with this run's numbers, the terms
 * largest first, the value as captured and as recomputed, and an edit. Every number in it leads on to its own
 * derivation, and the trail leads back.
 */

import { announce, button, el, format, formula, sentence } from "regard/dom.js";

let turn = 0;

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
    const why = await ctx.data.why(node, index);
    if (mine !== turn) return;
    root.replaceChildren(...derivation(ctx, why));
    if (root.dataset.shown !== key(node, index)) {
      root.scrollTop = 0;
      announce(`${why.label ?? node}: ${format(why.value)}. ${why.symbols}`);
    }
    root.dataset.shown = key(node, index);
  } catch (error) {
    if (mine === turn) root.replaceChildren(top(ctx), trail(ctx), sentence("error", error.message));
  } finally {
    if (mine === turn) delete root.dataset.waiting;
  }
}

const key = (node, index) => `${node}[${index}]`;

/** The address of an operand: deeper by one. */
const deeper = (ctx, node, index) => ctx.link({
  node,
  index,
  trail: [...ctx.state.trail, [ctx.state.node, ctx.state.index]],
});

function onward(ctx, operand, digits = 3) {
  const shown = format(operand.value, digits);
  if (!operand.node) return el("span", { class: "number" }, shown);
  const name = `${operand.node}[${operand.index.join(", ")}]`;
  return el(
    "a",
    {
      class: "number",
      href: deeper(ctx, operand.node, operand.index),
      title: name,
      "aria-label": `${operand.label || name}: ${shown}`,
    },
    shown,
  );
}

function derivation(ctx, why) {
  const words = why.label?.startsWith(`${why.node}, `)
    ? why.label.slice(why.node.length + 2)
    : `[${why.index.join(", ")}]`;
  return [
    top(ctx),
    trail(ctx),
    el("p", { class: "why-name" }, el("code", {}, why.node), el("span", {}, words)),
    el("p", { class: "why-value" }, format(why.value, 4)),
    el("p", { class: "why-symbols" }, formula(why.symbols)),
    why.numbers ? el("p", { class: "why-numbers" }, formula(why.numbers)) : null,
    why.note ? el("p", { class: "why-note" }, why.note) : null,
    terms(ctx, why),
    check(why),
    el(
      "p",
      { class: "row copy" },
      el("span", {}, "Copy as"),
      copy("LaTeX", why.latex),
      copy("Python", why.python),
      copy("question", question(why)),
    ),
    edit(ctx, why),
  ].filter(Boolean);
}

function top(ctx) {
  const close = button(
    "✕",
    () => ctx.go({ node: "", index: [], trail: [] }),
    { class: "quiet", "aria-label": "Close the derivation", title: "Close (Escape)" },
  );
  return el("div", { class: "why-top" }, el("h2", {}, "Why?"), close);
}

const short = (name) => name.split(".").slice(-2).join(".");

function trail(ctx) {
  const { trail: way, node } = ctx.state;
  if (!way.length) return "";
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

function terms(ctx, why) {
  if (!why.terms.length) return null;
  const most = Math.max(...why.terms.map(({ value }) => Math.abs(value)).filter(Number.isFinite), 1e-12);
  const telling = why.terms.filter(({ value }) => value !== 0);
  const rows = (telling.length ? telling : why.terms).map((term) => row(ctx, term, most));
  const nothing = telling.length ? why.terms.length - telling.length + (why.rest?.sum === 0 ? why.rest.count : 0) : 0;
  const rest = nothing ? el("p", { class: "rest" }, nothing === 1 ? "The other one is 0." : `The other ${nothing} are 0.`)
    : why.rest?.count
      ? el(
        "p",
        { class: "rest" },
        why.rest.count === 1 ? "The other one is " : `The other ${why.rest.count} sum to `,
        el("span", { class: "number" }, format(why.rest.sum)),
        ".",
      )
    : null; // prettier-ignore
  return el("div", { class: "terms" }, el("h3", {}, "Terms, largest first"), el("ul", {}, rows), rest);
}

function row(ctx, { label, value, factors }, most) {
  const product = factors.reduce((total, factor) => total * factor.value, 1);
  const between = Math.abs(product - value) <= 1e-4 * Math.abs(value) + 1e-9 ? " × " : ", ";
  const shown = factors.map((factor, at) => [at ? el("span", { class: "times" }, between) : null, onward(ctx, factor)]);
  const alone = factors.length === 1 && Math.abs(factors[0].value - value) <= 1e-6 * Math.max(1, Math.abs(value));
  const width = Number.isFinite(value) ? (100 * Math.abs(value)) / most : 0;
  return el(
    "li",
    {},
    el("span", { class: "term-label" }, formula(label)),
    el("span", { class: "term-factors" }, shown),
    el("span", { class: "term-value" }, alone ? null : format(value)),
    el("span", {
      class: "term-bar",
      data: { sign: value < 0 ? "minus" : "plus" },
      style: { "--part": `${width.toFixed(1)}%` },
    }),
  );
}

function check(why) {
  const agree = why.agrees
    ? el("span", { class: "agrees" }, "✓ equal within float32 rounding")
    : el("span", { class: "differs" }, `✗ differs by ${format(why.difference, 3)}`);
  const line = (name, value) => [el("dt", {}, name), el("dd", {}, exact(value))];
  return el(
    "div",
    { class: "check" },
    el("dl", {}, line("captured", why.value), why.recomputed === null ? null : line("recomputed", why.recomputed)),
    why.recomputed === null ? null : agree,
  );
}

const exact = (value) => (Number.isFinite(value) ? Number(value).toPrecision(9).replace("-", "−") : format(value));

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

/** The same as an exercise: what is given, and what is asked. */
function question(why) {
  const operands = new Map(why.terms.flatMap(({ factors }) => factors).map(({ label, value }) => [label, value]));
  if (!operands.size) return "";
  const given = [...operands].map(([label, value]) => `${label} = ${format(value)}`).join(", ");
  const rest = why.rest?.count ? ` The other ${why.rest.count} terms sum to ${format(why.rest.sum)}.` : "";
  return `Given ${given}.${rest}\nWork out ${why.symbols}.\nAnswer: ${format(why.value)}`;
}

/** "Set this to …": the same run with this one number replaced. */
function edit(ctx, why) {
  const place = `${why.node}[${why.index.join(", ")}]`;
  if (!ctx.nodes.has(why.node) || !ctx.can(place, { set: 0 })) return null;
  const shown = Number.isFinite(why.value) ? String(Number(why.value.toPrecision(4))) : "0";
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
