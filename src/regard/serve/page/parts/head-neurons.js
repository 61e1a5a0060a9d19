/**
 * The neuron view: one query's q against every key's k, product by product, down to the weight.
 *
 * In: a site, a head and the focused query token. Out: a row per key with k, q × k, their sum, the scaled score and the
 * weight; and for one key the products themselves as a sum. Every number is a link to its derivation.
 */

import { button, choice, el, format, formula, number } from "regard/dom.js";
import { powers } from "regard/parts/attention-row.js";
import { isChanged, isEdited } from "regard/parts/captions.js";
import { bound, largest, tokenOf, workedFor } from "regard/parts/run.js";
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
  const [q, K, dots, plain, scores, weights] = await Promise.all([
    data.slice(Qn, [ctx.head, i, ":"]),
    data.slice(Kn, [g, ":", ":"]),
    row("dots"),
    row("scores"),
    row(last),
    row("weights"),
  ]);
  const [T, d] = K.shape;
  const products = Float32Array.from(K.values, (k, at) => k * q.values[at % d]);
  const scaling = scaled(ctx, dots, plain, d);
  return { ...sides, scaling, plain, i, g, Qn, Kn, q: q.values, K: K.values, T, d, dots, scores, weights, products, last };
}

/** How a dot product becomes a score, as the run did it: "÷ √32", or times whatever it was. */
function scaled({ trace, nodes, site }, dots, scores, d) {
  const node = `${site.site}.scores`;
  const { scale } = nodes.get(node).facts;
  const off = isEdited(trace, node) && scores.every((s, j) => s === dots[j]);
  return scale === 1 || off ? "not scaled" : Math.abs(scale * Math.sqrt(d) - 1) < 1e-6 ? `÷ √${d}` : `× ${format(scale, 4)}`;
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
  const heads = [["key", ""], ["k", "role-K"], ["q × k", ""], ["q·k", ""], [`${run.scaling}${run.last === "masked" ? ", mask" : ""}`, ""], ["softmax", "role-A"]];
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
  const others = [...Array(d).keys()].filter((f) => !top.includes(f)).reduce((total, f) => total + product(f), 0);
  const term = (f) =>
    el(
      "tr",
      {},
      el("td", {}, `${f}`),
      el("td", {}, number(ctx, run.q[f], run.Qn, [ctx.head, run.i, f])),
      el("td", {}, number(ctx, run.K[j * d + f], run.Kn, [run.g, j, f])),
      el("td", {}, format(product(f))),
    );
  const { shift, power, total } = powers(run.scores);
  const node = (what) => `${site}.${what}`;
  const index = [ctx.head, run.i, j];
  const { scale } = ctx.nodes.get(node("scores")).facts;
  const worked = run.scaling === "not scaled" ? run.dots[j] : run.dots[j] * scale;
  const edited = (what, value, made, unit) => (isChanged(ctx.trace, node(what), value, made, unit) ? `${format(made)}; an edit made it ` : "");
  const hidden = run.scores[j] === -Infinity && run.plain[j] !== -Infinity;
  const made = top.reduce((total, f) => total + product(f), 0) + others;
  const less = shift ? ` − ${format(shift, 1)}` : "";
  return el(
    "section",
    {},
    el("h3", {}, run.queries[run.i], " → ", run.keys[j]),
    workedFor(ctx),
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
          el("tr", { class: "faded" }, el("td", { colspan: 3 }, `the other ${d - top.length}`), el("td", {}, format(others))),
          el(
            "tr",
            { class: "total" },
            el("td", { colspan: 3 }, "q·k"),
            el("td", {}, edited("dots", run.dots[j], made, bound(run.products) * d), number(ctx, run.dots[j], node("dots"), index)),
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
          number(ctx, run.dots[j], node("dots"), index),
          `${run.scaling === "not scaled" ? ", not scaled," : ` ${run.scaling}`} = `,
          edited("scores", run.plain[j], worked),
          number(ctx, run.plain[j], node("scores"), index),
          hidden ? ["; hidden by the mask: ", number(ctx, run.scores[j], node(run.last), index)] : null,
          !hidden && run.last === "masked" && run.scores[j] !== run.plain[j]
            ? ["; an edit made it ", number(ctx, run.scores[j], node(run.last), index)]
            : null,
        ),
        el("dt", {}, "weight"),
        el(
          "dd",
          {},
          formula(`e^{${format(run.scores[j], 2)}${less}} ÷ Σ e^{score${less}}`),
          ` = ${format(power(j))} ÷ ${format(total)} = `,
          edited("weights", run.weights[j], power(j) / total, 1),
          number(ctx, run.weights[j], node("weights"), index),
        ),
      ),
    ),
  );
}
