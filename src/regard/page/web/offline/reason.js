/**
 * Why a number is what it is, from its formula: recomputed, taken apart into terms, and written out, as explain/reason.py does.
 *
 * In: a tree with its index filled in, and what it reads. Out: {recomputed, rounding, values, order, term(k), symbols, numbers,
 * latex, python}; `values` are the terms and `order` says which is the largest.
 */

import { compile, evaluate } from "regard/offline/compile.js";
import { get, isAt, isCall, isNumber, isOver, labelOf, numberOf, rounding, settled } from "regard/offline/formula.js";
import { grouped, joined, number, pieces, python, quoted } from "regard/offline/render.js";

/** @typedef {{ body: Tree, over: OverTree | null }} Addend */
/** @typedef {ReturnType<typeof import("regard/offline/render.js").createWriter>} Writer */
/**
 * What is asked of a tree: what stands left of the equals sign, how names are read and written, and the tokens an axis counts.
 * @typedef {{ left: string, read: Read, writer: Writer, tokens: (name: string, axis: number) => string[] | null | undefined }} Asked
 */

const SHOWN = 3; // terms in a line of numbers

/**
 * A formula's summands, each {body, over}. A fraction of a sum is a sum of fractions; of a quotient by a sum, the shares.
 * @param {Tree} e @returns {Addend[]}
 */
function addends(e) {
  if (isCall(e, "+")) return [...addends(e[1]), ...addends(e[2])];
  if (isCall(e, "-")) return [...addends(e[1]), ...addends(e[2]).map(negated)];
  if (isOver(e) && e[0] === "Σ") return [{ body: e[3], over: e }];
  if (isCall(e, "/")) {
    if (e[1][0] === "Σ" && isNumber(e[2])) return [{ body: ["/", e[1][3], e[2]], over: e[1] }];
    if (e[2][0] === "Σ") return [{ body: ["/", e[2][3], e[2]], over: e[2] }];
  }
  return [{ body: e, over: null }];
}

/** @param {Addend} addend @returns {Addend} */
const negated = ({ body, over }) => ({ body: ["neg", body], over });

/**
 * Indices of the terms, largest first.
 * @param {number[]} values
 */
export const ordered = (values) => [...values.keys()].sort((a, b) => size(values[b]) - size(values[a]) || a - b);
/** @param {number} x */
const size = (x) => (Number.isNaN(x) ? -1 : Math.abs(x));

/**
 * A term as JSON carries it: `signs` stand before, between and after its factors.
 * @param {number} value @param {Operand[]} factors @param {string[]} signs
 */
export function termOf(value, factors, signs) {
  return {
    label: written(
      signs,
      factors.map(({ label }) => label),
    ),
    value,
    factors,
    signs,
  };
}

/** @param {string[]} signs @param {string[]} words */
const written = (signs, words) => signs[0] + words.map((word, k) => word + signs[k + 1]).join("");

/**
 * The reads in a tree, but for those inside sums.
 * @param {Tree} e @returns {AtTree[]}
 */
const readsOf = (e) => (isAt(e) ? [e] : isCall(e) ? e.slice(1).flatMap(readsOf) : []);

/**
 * writer: of the file's letters. tokens(node, axis): the tokens that the axis counts, if it does.
 * @param {Tree} e @param {Asked} asked
 */
export function reason(e, { left, read, writer, tokens }) {
  const [recomputed, off] = rounding(e, read);
  const shares = isCall(e, "/") && isOver(e[2]);
  const parts = isNumber(e) ? [] : addends(e); // a number is hidden by a mask
  const own = parts.flatMap((part) => Array.from({ length: part.over ? part.over[2] : 1 }, (_, k) => ({ part, k })));
  const values = own.length ? parts.flatMap((part) => numbersOf(part, read)) : [];
  const order = ordered(values);
  /** @param {number} k */
  const term = (k) => termFor(values[k], own[k].part, own[k].k);

  /** @param {number} value @param {Addend} addend @param {number} k */
  function termFor(value, { body, over }, k) {
    /** @param {AtTree} atTree @returns {[name: string, axis: number][]} */
    const moving = ([, name, ...index]) => index.flatMap((i, axis) => (i === over?.[1] ? [[name, axis]] : []));
    const along = readsOf(body).flatMap(moving);
    const one = over ? settled(body, { [over[1]]: k }) : body;
    const listed = shares && isCall(one) ? [...pieces(one[1], " × "), " / Σ"] : pieces(condensed(one), " × ");
    /** @type {Operand[]} */
    const factors = [];
    const signs = [""];
    for (const piece of listed) {
      if (typeof piece === "string") signs[signs.length - 1] += piece;
      else {
        factors.push(
          isAt(piece) ? operand(piece, along) : { node: "", index: [], value: named(piece), label: labelOf(piece) },
        );
        signs.push("");
      }
    }
    return termOf(value, factors, signs);
  }

  /**
   * The token whose number it is is named where terms differ in it.
   * @param {AtTree} atTree @param {[name: string, axis: number][]} along
   */
  function operand([, name, ...entries], along) {
    const index = entries.map(named);
    const axes = [...new Set(along.filter(([other]) => other === name).map(([, axis]) => axis))].sort();
    const words = axes.map((axis) => tokens(name, axis)?.[index[axis]]).filter((token) => token !== undefined);
    const label = [writer.place(name, index), ...words.map(quoted)].join(" ");
    return { node: name, index, value: get(read(name), index), label };
  }

  /**
   * With each sum inside as one number, called by its formula.
   * @param {Tree} x @returns {Tree}
   */
  function condensed(x) {
    if (isOver(x)) return ["num", evaluate(x, read), writer.symbols(x)];
    if (isCall(x, "shift")) return condensed(x[1]);
    if (!isCall(x)) return x;
    const [f, ...args] = x;
    return [f, ...args.map(condensed)];
  }

  /** @param {Tree} x */
  const figure = (x) => (isAt(x) ? number(evaluate(x, read)) : labelOf(x).includes("Σ") ? number(named(x)) : labelOf(x));

  /** The right side with this run's numbers: the largest summands, and what the others come to. */
  function inNumbers() {
    if (isNumber(e)) return "";
    if (shares && isCall(e))
      return `${joined(pieces(e[1]), figure)} / Σ = ${number(evaluate(e[1], read))} / ${number(evaluate(e[2], read))}`;
    if (values.length === 1) return joined(pieces(condensed(e)), figure);
    /** @param {Term} term */
    const worked = ({ factors, signs }) =>
      written(
        signs,
        factors.map((factor) => number(factor.value)),
      );
    const shown = order.slice(0, SHOWN).map((k) => worked(term(k)));
    const rest = order.slice(SHOWN);
    if (rest.length) shown.push(`… (${grouped(rest.length)} more: ${number(total(rest.map((k) => values[k])))})`);
    return shown.join(" + ");
  }

  return {
    recomputed,
    rounding: off,
    values,
    order,
    term,
    numbers: inNumbers(),
    ...inWriting(e, recomputed, left, writer),
  };
}

/**
 * The number that a constant, or a settled index, stands for.
 * @param {Tree} e
 */
const named = (e) => (isNumber(e) ? numberOf(e) : NaN);

/** @param {number[]} values */
const total = (values) => values.reduce((a, b) => a + b, 0);

/**
 * What can be written without any of the operands' numbers.
 * @param {Tree} e @param {number} value @param {string} left @param {Writer} writer
 */
export function inWriting(e, value, left, writer) {
  const latex = `${left} = ${writer.latex(e)} = ${number(value)}`.replaceAll("∞", "\\infty");
  return { symbols: writer.symbols(e), latex, python: python(e) };
}

/** @param {Addend} addend @param {Read} read */
function numbersOf({ body, over }, read) {
  if (!over) return [evaluate(body, read)];
  const [, name, n] = over;
  const v = [0];
  const make = compile(body, read, { v, names: [name] });
  return Array.from({ length: n }, (_, k) => {
    v[0] = k;
    return make();
  });
}
