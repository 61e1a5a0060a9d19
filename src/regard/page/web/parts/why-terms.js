/**
 * The terms of a derivation, largest first; and of two runs, the terms that made the difference.
 *
 * In: what /why answered. Out: a list in which every factor leads on to its own derivation.
 */

import { minus } from "regard/delta.js";
import { button, el, format, formula, signed } from "regard/dom.js";

export const MOST = 100; // terms that can be asked for
const FEW = 12; // changed terms that are listed

/**
 * The address of an operand: deeper by one.
 * @param {Context} ctx @param {string} node @param {number[]} index
 */
const deeper = (ctx, node, index) =>
  ctx.link({
    node,
    index,
    trail: [...ctx.state.trail, [ctx.state.node, ctx.state.index]],
  });

/** @param {Context} ctx @param {Operand} operand @param {number} [digits] */
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

/**
 * `expand()` shows all terms, or fewer again.
 * @param {Context} ctx @param {Why} why @param {() => void} expand
 */
export function terms(ctx, why, expand) {
  if (!why.terms.length) return null;
  const most = Math.max(...why.terms.map(({ value }) => Math.abs(value)).filter(Number.isFinite), 1e-12);
  const telling = why.terms.filter(({ value }) => value !== 0);
  const rows = (telling.length ? telling : why.terms).map((term) => row(ctx, term, most, written(term)));
  return el(
    "div",
    { class: "terms" },
    el("h3", {}, "Terms, largest first"),
    el("ul", {}, rows),
    rest(why, telling.length, expand),
  );
}

/**
 * What is not listed, in one sentence, and a button that lists it.
 * @param {Why} why @param {number} telling @param {() => void} expand
 */
function rest({ terms: listed, rest: left }, telling, expand) {
  const nothing = telling ? listed.length - telling + (left?.sum === 0 ? left.count : 0) : 0;
  if (nothing) return el("p", { class: "rest" }, nothing === 1 ? "The other one is 0." : `The other ${nothing} are 0.`);
  const longer = Math.min(MOST - listed.length, left?.count ?? 0);
  const open = listed.length > FEW;
  const some = longer < left?.count ? `${longer} of them` : longer === 1 ? "it" : `all ${longer}`;
  const facts = { class: "quiet", "aria-expanded": String(open), data: { keep: "why:rest" } };
  const more = longer > 0 || open ? button(longer > 0 ? `Show ${some}` : "Show fewer", expand, facts) : null;
  if (!left?.count) return more ? el("p", { class: "rest" }, more) : null;
  return el(
    "p",
    { class: "rest" },
    left.count === 1 ? "The other one is " : `The other ${left.count} sum to `,
    el("span", { class: "number" }, format(left.sum)),
    ". ",
    more,
  );
}

/**
 * What stands at the right of a term: nothing when its only factor already says it.
 * @param {Term} term
 */
function written({ value, factors }) {
  const alone = factors.length === 1 && Math.abs(factors[0].value - value) <= 1e-6 * Math.max(1, Math.abs(value));
  return alone ? null : format(value);
}

/**
 * The factors of a term, each shown by `one`, with what stands before, between and after them: a product where nothing is said.
 * @param {Term} term @param {(factor: Operand) => Child} one
 */
function factored({ factors, signs }, one) {
  const between = signs.length ? signs : ["", ...factors.slice(1).map(() => " × "), ""];
  /** @param {string} words */
  const sign = (words) => (words ? el("span", { class: "times" }, words.replace("-", "−")) : null);
  return [sign(between[0]), factors.map((factor, at) => [one(factor), sign(between[at + 1])])];
}

/** @param {Context} ctx @param {Term} term @param {number} most @param {Child} figure */
const row = (ctx, term, most, figure) =>
  line(
    term.label,
    factored(term, (factor) => onward(ctx, factor)),
    figure,
    term.value,
    most,
  );

/** @param {string} label @param {Child} factors @param {Child} figure @param {number} value @param {number} most */
function line(label, factors, figure, value, most) {
  const width = Number.isFinite(value) ? (100 * Math.abs(value)) / most : 0;
  return el(
    "li",
    {},
    el("span", { class: "term-label" }, formula(label)),
    el("span", { class: "term-factors" }, factors),
    el("span", { class: "term-value" }, figure),
    el("span", {
      class: "term-bar",
      data: { sign: value < 0 ? "minus" : "plus" },
      style: { "--part": `${width.toFixed(1)}%` },
    }),
  );
}

/**
 * The terms that changed most between two derivations of one number.
 * @param {Context} ctx @param {Why} before @param {Why} after
 */
export function changes(ctx, before, after) {
  const past = new Map(before.terms.map((term) => [term.label, term]));
  const shared = after.terms.filter(({ label }) => past.has(label)).length;
  if (!after.terms.length || !shared) return terms(ctx, after, () => {});
  const now = new Map(after.terms.map((term) => [term.label, term]));
  const all = [...new Set([...now.keys(), ...past.keys()])].map((label) => {
    const [a, b] = [past.get(label), now.get(label)];
    return { label, a, b, change: minus(b?.value ?? 0, a?.value ?? 0) };
  });
  const moved = all.filter(({ change }) => change !== 0).sort((x, y) => Math.abs(y.change) - Math.abs(x.change));
  if (!moved.length) return el("p", { class: "rest" }, "No term changed.");
  const most = Math.abs(moved[0].change) || 1;
  // Not among those that were asked for, or, where all were, not a term of this run at all.
  /** @param {Why} why */
  const under = (why) => (why.rest?.count ? `< ${format(Math.abs(why.terms.at(-1)?.value ?? 0))}` : "no such term");
  /** @param {{ label: string, a?: Term, b?: Term, change: number }} given */
  const one = ({ label, a, b, change }) =>
    line(
      label,
      [
        a ? factored(a, (factor) => format(factor.value)) : under(before),
        el("span", { class: "times" }, " → "),
        b ? factored(b, (factor) => onward(ctx, factor)) : under(after),
      ],
      signed(change),
      change,
      most,
    );
  const shown = moved.slice(0, FEW);
  return el(
    "div",
    { class: "terms" },
    el("h3", {}, "Terms that changed most"),
    el("ul", {}, shown.map(one)),
    moved.length > shown.length ? el("p", { class: "rest" }, `${moved.length - shown.length} more changed by less.`) : null,
  );
}
