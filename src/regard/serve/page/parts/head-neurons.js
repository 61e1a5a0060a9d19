/**
 * The neuron view: one query's q against every key's k, product by product, down to the weight.
 *
 * In: a site, a head and the focused query token. Out: a row per key with k, q × k, their sum, the scaled score and the
 * weight; and for one key the products themselves as a sum. Every number is a link to its derivation.
 */

import { button, choice, el, format, formula, number } from "regard/dom.js";
import { bound, largest, tokenOf } from "regard/parts/run.js";
import { vector } from "regard/parts/vector.js";
import { sidesOf } from "regard/tokens.js";

const MOST = 48; // keys shown at first
const TERMS = 8;

export async function neurons(root, ctx, [order, everything]) {
  const run = await gather(ctx);
  const sorted = order === "weight";
  const rows = sorted ? largest(run.T, run.T, (j) => run.weights[j]) : [...Array(run.T).keys()];
  const shown = everything ? rows : rows.slice(0, MOST);
  root.append(
    el(
      "div",
      { class: "controls" },
      choice(
        "Keys",
        [["position", "keys in order"], ["weight", "by weight"]],
        sorted ? "weight" : "position",
        (key) => ctx.go({ view: `neurons.${key}` }),
      ),
      choice(
        "Head",
        [...Array(ctx.site.heads).keys()].map((h) => [h, String(h), `head ${h}`]),
        ctx.head,
        (h) => ctx.go({ head: Number(h) }),
      ),
    ),
    query(ctx, run),
    table(ctx, run, shown),
    rows.length > shown.length ? el(
      "p",
      {},
      button(`Show all ${rows.length} keys`, () => ctx.go({ view: `neurons.${sorted ? "weight" : "position"}.all` })),
    ) : "",
    await sum(ctx, run),
  );
}

/** The head's numbers for the focused query: q (d_k), K (T·d_k), and a row each of dots, scores, weights. */
async function gather(ctx) {
  const data = ctx.data.of(ctx.trace); // products of differences would mean nothing: with Δ, the run after
  const { site } = ctx.site;
  const sides = sidesOf(ctx.trace, ctx.site);
  const i = tokenOf(ctx, ctx.site.stack);
  const [Qn, Kn] = ["Q", "K"].map((x) => (ctx.nodes.has(`${site}.${x}_rotated`) ? `${site}.${x}_rotated` : `${site}.${x}`));
  const groups = ctx.nodes.get(Kn).shape[0];
  const g = Math.floor((ctx.head * groups) / ctx.site.heads); // the key head that serves this query head
  const row = (name) => data.slice(`${site}.${name}`, [ctx.head, i, ":"]).then(({ values }) => values);
  const last = ctx.nodes.has(`${site}.masked`) ? "masked" : "scores";
  const [q, K, dots, scores, weights] = await Promise.all([
    data.slice(Qn, [ctx.head, i, ":"]),
    data.slice(Kn, [g, ":", ":"]),
    row("dots"),
    row(last),
    row("weights"),
  ]);
  const [T, d] = K.shape;
  const products = Float32Array.from(K.values, (k, at) => k * q.values[at % d]);
  const scaling = scaled(dots, scores, d);
  return { ...sides, scaling, i, g, Qn, Kn, q: q.values, K: K.values, T, d, dots, scores, weights, products, last };
}

/** How a dot product becomes a score, as the run did it: "÷ √32", or times whatever it was. */
function scaled(dots, scores, d) {
  const j = scores.findIndex((s, at) => Number.isFinite(s) && Math.abs(dots[at]) > 1e-3);
  const ratio = j < 0 ? 1 / Math.sqrt(d) : scores[j] / dots[j];
  return Math.abs(ratio * Math.sqrt(d) - 1) < 1e-3 ? `÷ √${d}` : Math.abs(ratio - 1) < 1e-3 ? "not scaled" : `× ${format(ratio)}`;
}

/** Pixels per feature. */
const thin = (d) => Math.max(innerWidth < 760 ? 1 : 2, Math.min(6, Math.floor((innerWidth < 760 ? 80 : 200) / d)));

function query(ctx, { q, Qn, i, queries, d, K }) {
  const end = Math.max(bound(q), bound(K));
  return el(
    "div",
    { class: "neurons-query" },
    el("span", { class: "role-Q" }, "q"),
    el("span", {}, "of ", el("b", {}, queries[i])),
    vector({
      values: q,
      bound: end,
      cell: thin(d),
      height: 24,
      label: `q of ${queries[i]}`,
      read: (f) => `q[${f}] = ${format(q[f])}`,
      ask: (f) => ctx.ask(Qn, [ctx.head, i, f]),
    }),
  );
}

function table(ctx, run, shown) {
  const { site } = ctx.site;
  const ends = { K: Math.max(bound(run.q), bound(run.K)), p: bound(run.products) };
  const d_k = run.d;
  const line = (j) => {
    const k = run.K.subarray(j * d_k, (j + 1) * d_k);
    const p = run.products.subarray(j * d_k, (j + 1) * d_k);
    const seen = Number.isFinite(run.scores[j]);
    return el(
      "tr",
      { class: `${seen ? "" : "faded"}${j === ctx.state.key ? " chosen" : ""}` },
      el(
        "th",
        { scope: "row" },
        button(
          run.keys[j],
          () => ctx.go({ key: j }),
          {
            class: "quiet token-button",
            title: "Show its products",
            "aria-pressed": String(j === ctx.state.key),
            data: { keep: `neurons:${j}` },
          },
        ),
      ),
      el(
        "td",
        {},
        vector({
          values: k,
          bound: ends.K,
          cell: thin(d_k),
          label: `k of ${run.keys[j]}`,
          read: (f) => `k[${f}] = ${format(k[f])}`,
          ask: (f) => ctx.ask(run.Kn, [run.g, j, f]),
        }),
      ),
      el(
        "td",
        {},
        vector({
          values: p,
          bound: ends.p,
          cell: thin(d_k),
          label: `q times k of ${run.keys[j]}`,
          read: (f) => `${format(run.q[f])} × ${format(k[f])} = ${format(p[f])}`,
          ask: () => ctx.ask(`${site}.dots`, [ctx.head, run.i, j]),
        }),
      ),
      el("td", { class: "figure" }, number(ctx, run.dots[j], `${site}.dots`, [ctx.head, run.i, j], { digits: 2 })),
      el("td", { class: "figure" }, number(ctx, run.scores[j], `${site}.${run.last}`, [ctx.head, run.i, j], { digits: 2 })),
      el(
        "td",
        { class: "figure weight", style: { "--share": `${(100 * run.weights[j]).toFixed(2)}%` } },
        number(ctx, run.weights[j], `${site}.weights`, [ctx.head, run.i, j], { digits: 4 }),
      ),
    );
  };
  const heads = [["key", ""], ["k", "role-K"], ["q × k", ""], ["q·k", ""], [run.scaling, ""], ["softmax", "role-A"]];
  return el(
    "div",
    { class: "scrolls" },
    el(
      "table",
      { class: "neurons" },
      el("thead", {}, el("tr", {}, heads.map(([word, role]) => el("th", { scope: "col" }, el("span", { class: role }, word))))),
      el("tbody", {}, shown.map(line)),
    ),
  );
}

/** q·k of one key written out: its largest products, the rest together, then ÷ √d_k, then the softmax. */
async function sum(ctx, run) {
  const j = Math.min(ctx.state.key, run.T - 1);
  const { site } = ctx.site;
  const { d } = run;
  const product = (f) => run.products[j * d + f];
  const top = largest(d, TERMS, (f) => Math.abs(product(f)));
  const rest = run.dots[j] - top.reduce((total, f) => total + product(f), 0);
  const term = (f) =>
    el(
      "tr",
      {},
      el("td", {}, `${f}`),
      el("td", {}, number(ctx, run.q[f], run.Qn, [ctx.head, run.i, f])),
      el("td", {}, number(ctx, run.K[j * d + f], run.Kn, [run.g, j, f])),
      el("td", {}, format(product(f))),
    );
  const total = run.scores.reduce((all, s) => all + Math.exp(s), 0);
  const scaled = `${site}.scores`;
  return el(
    "section",
    {},
    el("h3", {}, run.queries[run.i], " → ", run.keys[j]),
    el(
      "div",
      { class: "beside" },
      el(
        "table",
        { class: "figures" },
        el("thead", {}, el("tr", {}, ["feature", "q", "k", "q × k"].map((word) => el("th", { scope: "col" }, word)))),
        el(
          "tbody",
          {},
          top.map(term),
          el("tr", { class: "faded" }, el("td", { colspan: 3 }, `the other ${d - top.length}`), el("td", {}, format(rest))),
          el(
            "tr",
            { class: "total" },
            el("td", { colspan: 3 }, "q·k"),
            el("td", {}, number(ctx, run.dots[j], `${site}.dots`, [ctx.head, run.i, j])),
          ),
        ),
      ),
      el(
        "dl",
        { class: "steps" },
        el("dt", {}, "score"),
        el(
          "dd",
          {},
          number(ctx, run.dots[j], `${site}.dots`, [ctx.head, run.i, j]),
          ` ${run.scaling} = `,
          number(ctx, run.scores[j], Number.isFinite(run.scores[j]) ? scaled : `${site}.${run.last}`, [ctx.head, run.i, j]),
        ),
        el("dt", {}, "weight"),
        el(
          "dd",
          {},
          formula(`e^{${format(run.scores[j], 2)}} ÷ Σ e^{score}`),
          ` = ${format(Math.exp(run.scores[j]))} ÷ ${format(total)} = `,
          number(ctx, run.weights[j], `${site}.weights`, [ctx.head, run.i, j]),
        ),
      ),
    ),
  );
}
