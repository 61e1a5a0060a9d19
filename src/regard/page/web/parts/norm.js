/**
 * A norm, number by number: the values, their mean and variance as written-out sums, normalised, times γ, plus β.
 *
 * In: a norm ({x, mean, spread, normalised, out, gamma, beta}: nodes and weights by the graph's edges) and a token. Out: three
 * lines of arithmetic and a table of features. An RMSNorm takes no mean away. Every number is a link to its derivation.
 */

import { button, el, format, formula, number } from "regard/dom.js";
import { isEdited } from "regard/parts/captions.js";
import { largest } from "regard/parts/run.js";
import { nodeOf } from "regard/parts/wiring.js";

/** @typedef {Awaited<ReturnType<typeof gather>>} Gathered */

const LAYER_NORM =
  "Each token by itself: the mean of its vector is taken away, the rest is divided by its standard deviation";
const RMS_NORM = "Each token by itself: its vector is divided by the root of the mean of its squares";
const SHOWN = 4; // summands written out
const FEATURES = 12; // rows of the table

/** @param {HTMLElement} root @param {Context} ctx @param {Norm} norm @param {number} token @param {string} label */
export async function normWorkedOut(root, ctx, norm, token, label) {
  const run = await gather(ctx, norm, token);
  const { d } = run;
  root.append(
    el(
      "p",
      { class: "lead" },
      run.off ? "In this run the norm is switched off: out = x. What it would have done: " : "",
      run.rms ? RMS_NORM : LAYER_NORM,
      norm.gamma ? ", then each feature is stretched by a learned γ" : "",
      norm.beta ? " and shifted by a learned β." : ".",
    ),
    el("dl", { class: "steps" }, run.rms ? rmsLines(ctx, run, norm, token) : layerLines(ctx, run, norm, token)),
  );
  const order = largest(d, d, (f) => Math.abs(run.x[f] - run.mean));
  const body = el(
    "tbody",
    {},
    order.slice(0, FEATURES).map((f) => feature(ctx, run, norm, token, f)),
  );
  const more = button(`Show all ${d} features`, () => {
    body.append(...order.slice(FEATURES).map((f) => feature(ctx, run, norm, token, f)));
    more.remove();
  });
  const heads = [
    "feature",
    "x",
    ...(run.rms ? ["x²"] : ["x − μ", "(x − μ)²"]),
    "normalised",
    ...(norm.gamma ? ["γ"] : []),
    ...(run.beta ? ["β"] : []),
    "out",
  ];
  root.append(
    el(
      "div",
      { class: "scrolls" },
      el(
        "table",
        { class: "figures" },
        el("caption", {}, `The features of `, el("b", {}, label), ` that stand out most`),
        el(
          "thead",
          {},
          el(
            "tr",
            {},
            heads.map((word) => el("th", { scope: "col" }, word)),
          ),
        ),
        body,
      ),
    ),
    d > FEATURES ? el("p", {}, more) : "",
  );
}

/** @param {Context} ctx @param {Norm} norm @param {number} token */
async function gather(ctx, norm, token) {
  const data = ctx.data.of(ctx.trace); // the arithmetic of one run; with Δ, the run after
  const rms = !norm.mean;
  /** @param {string} name */
  const row = (name) => data.slice(name, [token, ":"]).then(({ values }) => values);
  /** @param {string | null} name */
  const weight = (name) => {
    return name
      ? data.slice(name).then(
          ({ values }) => ({ name, values }),
          () => null,
        )
      : null; // an exported file may not carry it
  };
  const [x, normalised, out, gamma, beta, mean, spread] = await Promise.all([
    row(norm.x),
    row(norm.normalised),
    row(norm.out),
    weight(norm.gamma),
    weight(norm.beta),
    norm.mean ? row(norm.mean) : [0],
    row(norm.spread),
  ]);
  const { eps = 0 } = nodeOf(ctx, norm.normalised).facts;
  const off = isEdited(ctx.trace, norm.out) && out.every((y, f) => y === x[f]);
  return { rms, x, normalised, out, off, gamma, beta, mean: mean[0], spread: spread[0], eps, d: x.length };
}

/**
 * "(a + b + … + z) ÷ 128" with the first few summands and the last.
 * @param {Child[]} terms @param {number} d
 */
function mean(terms, d) {
  const shown = terms.slice(0, SHOWN).flatMap((term, at) => [at ? " + " : "", term]);
  return ["(", shown, d > SHOWN + 1 ? " + … + " : " + ", terms.at(-1), `) ÷ ${d}`];
}

/**
 * A negative number that follows a plus or is squared stands in brackets.
 * @param {number} value @param {Child} link
 */
const signed = (value, link) => (value < 0 ? ["(", link, ")"] : link);

/** @param {Context} ctx @param {Gathered} gathered @param {Norm} norm @param {number} token */
function layerLines(ctx, { x, mean: mu, spread, eps, d }, norm, token) {
  /** @param {number} f */
  const value = (f) => number(ctx, x[f], norm.x, [token, f], { digits: 2 });
  const features = [...Array(Math.min(SHOWN, d)).keys(), d - 1];
  const m = number(ctx, mu, norm.mean, [token, 0]);
  const v = number(ctx, spread, norm.spread, [token, 0]);
  return [
    el("dt", {}, formula("μ")),
    el(
      "dd",
      {},
      mean(
        features.map((f) => signed(x[f], value(f))),
        d,
      ),
      " = ",
      m,
    ),
    el("dt", {}, formula("σ^2")),
    el(
      "dd",
      {},
      mean(
        features.map((f) => ["(", value(f), " − μ)²"]),
        d,
      ),
      " = ",
      v,
    ),
    el("dt", {}, formula("√(σ^2 + ε)")),
    root(spread, eps),
  ];
}

/**
 * √(0.512 + 10⁻⁵) = 0.716
 * @param {number} spread @param {number} eps
 */
const root = (spread, eps) =>
  el("dd", {}, `√(${format(spread)} + ${format(eps)}) = `, el("b", {}, format(Math.sqrt(spread + eps))));

/** @param {Context} ctx @param {Gathered} gathered @param {Norm} norm @param {number} token */
function rmsLines(ctx, { x, spread, eps, d }, norm, token) {
  /** @param {number} f */
  const value = (f) => number(ctx, x[f], norm.x, [token, f], { digits: 2 });
  const features = [...Array(Math.min(SHOWN, d)).keys(), d - 1];
  return [
    el("dt", {}, "mean of x²"),
    el(
      "dd",
      {},
      mean(
        features.map((f) => [signed(x[f], value(f)), "²"]),
        d,
      ),
      " = ",
      number(ctx, spread, norm.spread, [token, 0]),
    ),
    el("dt", {}, formula("√(mean + ε)")),
    root(spread, eps),
  ];
}

/** @param {Context} ctx @param {Gathered} gathered @param {Norm} norm @param {number} token @param {number} f */
function feature(ctx, { x, rms, mean: mu, normalised, gamma, beta, out }, norm, token, f) {
  const away = x[f] - mu;
  /** @param {...Child} inside */
  const cell = (...inside) => el("td", {}, inside);
  return el(
    "tr",
    {},
    el("th", { scope: "row" }, String(f)),
    cell(number(ctx, x[f], norm.x, [token, f])),
    rms ? cell(format(x[f] ** 2)) : [cell(format(away)), cell(format(away ** 2))],
    cell(number(ctx, normalised[f], norm.normalised, [token, f])),
    norm.gamma ? cell(gamma ? number(ctx, gamma.values[f], gamma.name, [f]) : "1") : null,
    beta ? cell(number(ctx, beta.values[f], beta.name, [f])) : null,
    cell(number(ctx, out[f], norm.out, [token, f])),
  );
}
