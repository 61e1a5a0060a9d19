/**
 * A norm, number by number: the values, their mean and variance as written-out sums, normalised, times γ, plus β.
 *
 * In: the norm's place ("decoder.0.norm_1") and a token. Out: three lines of arithmetic and a table of features. LayerNorm and
 * RMSNorm are told apart by the nodes there are. Every number is a link to its derivation.
 */

import { button, el, format, formula, number, sentence } from "regard/dom.js";
import { isEdited } from "regard/parts/captions.js";
import { largest, parameterOf } from "regard/parts/run.js";

const LAYER_NORM =
  "Each token by itself: the mean of its vector is taken away, the rest is divided by its standard deviation, then each feature " +
  "is stretched by a learned γ";
const RMS_NORM =
  "Each token by itself: its vector is divided by the root of the mean of its squares, then each feature is stretched by a learned γ.";
const SHOWN = 4; // summands written out
const FEATURES = 12; // rows of the table

export async function normWorkedOut(root, ctx, place, token, label) {
  if (!ctx.nodes.has(`${place}.normalised`)) return root.append(sentence(
    "empty",
    `${place} is switched off in this run: what comes in goes out.`,
  ));
  const run = await gather(ctx, place, token);
  const { d } = run;
  root.append(
    el(
      "p",
      { class: "lead" },
      run.off ? "In this run the norm is switched off: out = x. What it would have done: " : "",
      run.rms ? RMS_NORM : run.beta ? `${LAYER_NORM} and shifted by a learned β.` : `${LAYER_NORM}.`,
    ),
    el("dl", { class: "steps" }, run.rms ? rmsLines(ctx, run, place, token) : layerLines(ctx, run, place, token)),
  );
  const order = largest(d, d, (f) => Math.abs(run.x[f] - run.mean));
  const body = el("tbody", {}, order.slice(0, FEATURES).map((f) => feature(ctx, run, place, token, f)));
  const more = button(`Show all ${d} features`, () => {
    body.append(...order.slice(FEATURES).map((f) => feature(ctx, run, place, token, f)));
    more.remove();
  });
  const heads = [
    "feature",
    "x",
    ...(run.rms ? ["x²"] : ["x − μ", "(x − μ)²"]),
    "normalised",
    "γ",
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
        el("thead", {}, el("tr", {}, heads.map((word) => el("th", { scope: "col" }, word)))),
        body,
      ),
    ),
    d > FEATURES ? el("p", {}, more) : "",
  );
}

async function gather(ctx, place, token) {
  const data = ctx.data.of(ctx.trace); // the arithmetic of one run; with Δ, the run after
  const rms = !ctx.nodes.has(`${place}.mean`);
  const from = ctx.nodes.get(`${place}.${rms ? "mean_square" : "mean"}`).inputs[0];
  const row = (name) => data.slice(name, [token, ":"]).then(({ values }) => values);
  const weight = (leaf) => {
    const name = parameterOf(ctx, `${place}.out`, leaf);
    return name ? data.slice(name).then(
      ({ values }) => ({ name, values }),
      () => null,
    ) : null; // an exported file may not carry it
  };
  const [
    x,
    normalised,
    out,
    gamma,
    beta,
    mean,
    spread,
  ] = await Promise.all([
    row(from),
    row(`${place}.normalised`),
    row(`${place}.out`),
    weight("weight"),
    weight("bias"),
    rms ? [0] : row(`${place}.mean`),
    row(`${place}.${rms ? "mean_square" : "variance"}`),
  ]);
  const { eps } = ctx.nodes.get(`${place}.normalised`).facts;
  const off = isEdited(ctx.trace, `${place}.out`) && out.every((y, f) => y === x[f]);
  return { rms, from, x, normalised, out, off, gamma, beta, mean: mean[0], spread: spread[0], eps, d: x.length };
}

/** "(a + b + … + z) ÷ 128" with the first few summands and the last. */
function mean(terms, d) {
  const shown = terms.slice(0, SHOWN).flatMap((term, at) => [at ? " + " : "", term]);
  return ["(", shown, d > SHOWN + 1 ? " + … + " : " + ", terms.at(-1), `) ÷ ${d}`];
}

/** A negative number that follows a plus or is squared stands in brackets. */
const signed = (value, link) => (value < 0 ? ["(", link, ")"] : link);

function layerLines(ctx, { x, from, mean: mu, spread, eps, d }, place, token) {
  const value = (f) => number(ctx, x[f], from, [token, f], { digits: 2 });
  const features = [...Array(Math.min(SHOWN, d)).keys(), d - 1];
  const m = number(ctx, mu, `${place}.mean`, [token, 0]);
  const v = number(ctx, spread, `${place}.variance`, [token, 0]);
  return [
    el("dt", {}, formula("μ")),
    el("dd", {}, mean(features.map((f) => signed(x[f], value(f))), d), " = ", m),
    el("dt", {}, formula("σ^2")),
    el("dd", {}, mean(features.map((f) => ["(", value(f), " − μ)²"]), d), " = ", v),
    el("dt", {}, formula("√(σ^2 + ε)")),
    root(spread, eps),
  ];
}

/** √(0.512 + 10⁻⁵) = 0.716 */
const root = (spread, eps) => el("dd", {}, `√(${format(spread)} + ${format(eps)}) = `, el("b", {}, format(Math.sqrt(spread + eps))));

function rmsLines(ctx, { x, from, spread, eps, d }, place, token) {
  const value = (f) => number(ctx, x[f], from, [token, f], { digits: 2 });
  const features = [...Array(Math.min(SHOWN, d)).keys(), d - 1];
  return [
    el("dt", {}, "mean of x²"),
    el(
      "dd",
      {},
      mean(features.map((f) => [signed(x[f], value(f)), "²"]), d),
      " = ",
      number(ctx, spread, `${place}.mean_square`, [token, 0]),
    ),
    el("dt", {}, formula("√(mean + ε)")),
    root(spread, eps),
  ];
}

function feature(ctx, { x, from, rms, mean: mu, normalised, gamma, beta, out }, place, token, f) {
  const away = x[f] - mu;
  const cell = (...inside) => el("td", {}, inside);
  return el(
    "tr",
    {},
    el("th", { scope: "row" }, String(f)),
    cell(number(ctx, x[f], from, [token, f])),
    rms ? cell(format(x[f] ** 2)) : [cell(format(away)), cell(format(away ** 2))],
    cell(number(ctx, normalised[f], `${place}.normalised`, [token, f])),
    cell(gamma ? number(ctx, gamma.values[f], gamma.name, [f]) : "1"),
    beta ? cell(number(ctx, beta.values[f], beta.name, [f])) : null,
    cell(number(ctx, out[f], `${place}.out`, [token, f])),
  );
}
