/**
 * The neuron view: one query's q against every key's k, product by product, down to the weight.
 *
 * In: a site, a head and the focused query token. Out: a row per key with k, q × k, their sum and every step from there to the
 * weight; and for one key the products themselves as a sum. Every number is a link to its derivation.
 */

import { button, choice, el, format, formula, number, sentence } from "regard/dom.js";
import { powers } from "regard/parts/attention-row.js";
import { isChanged, isEdited } from "regard/parts/captions.js";
import { bound, largest, tokenOf, workedFor } from "regard/parts/run.js";
import { vector } from "regard/parts/vector.js";
import { before, headOf, nodeOf, stepsOf, titleOf } from "regard/parts/wiring.js";
import { sidesOf } from "regard/tokens.js";

/** @typedef {Awaited<ReturnType<typeof gather>>} Gathered */

const MOST = 48; // keys shown at first
const TERMS = 8;

/** @param {HTMLElement} root @param {SiteContext} ctx @param {string[]} choices */
export async function neurons(root, ctx, [order, everything]) {
  if (!ctx.nodes.has(ctx.site.Q) || !ctx.nodes.has(ctx.site.K))
    return root.append(sentence("empty", "What is compared here has no numbers of its own to show."));
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
        [
          ["position", "keys in order"],
          ["weight", "by weight"],
        ],
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
    rows.length > shown.length
      ? el(
          "p",
          {},
          button(`Show all ${rows.length} keys`, () => ctx.go({ view: `neurons.${sorted ? "weight" : "position"}.all` })),
        )
      : "",
    await sum(ctx, run),
  );
}

/**
 * The head's numbers for the focused query: q (d_k), K (T·d_k), and a row of each step, by node.
 * @param {SiteContext} ctx
 */
async function gather(ctx) {
  const data = ctx.data.of(ctx.trace); // products of differences would mean nothing: with Δ, the run after
  const { site, head } = ctx;
  const sides = sidesOf(ctx.trace, site);
  const i = tokenOf(ctx, site.stack);
  const [Qn, Kn] = [site.Q, site.K].map((name) => nodeOf(ctx, name).name);
  const g = headOf(ctx, Kn); // the key head that serves this query head
  const names = stepsOf(ctx, site);
  const [q, K, ...rows] = await Promise.all([
    data.slice(Qn, [head, i, ":"]),
    data.slice(Kn, [g, ":", ":"]),
    ...names.map((name) => data.slice(name, [head, i, ":"])),
  ]);
  const [T, d] = K.shape;
  const steps = new Map(names.map((name, at) => [name, rows[at].values]));
  const products = Float32Array.from(K.values, (k, at) => k * q.values[at % d]);
  /** @param {string} name */
  const row = (name) => {
    const found = steps.get(name);
    if (!found) throw new Error(`this run has no step ${name}`);
    return found;
  };
  const weights = row(site.weights);
  const last = before(ctx.nodes, site, site.weights);
  const scores = last ? row(last) : weights;
  return { ...sides, i, g, Qn, Kn, row, q: q.values, K: K.values, T, d, steps, scores, weights, products };
}

/**
 * A step in a word or two, as the run took it: "÷ √32", or times whatever it was.
 * @param {SiteContext} ctx @param {Gathered} run @param {string} name
 */
function wordOf({ trace, nodes, site }, run, name) {
  const {
    op,
    facts: { several, by = 1 },
  } = nodeOf({ nodes }, name);
  if (several || op !== "scale") return op === "dot" && !several ? "q·k" : titleOf(nodes, name);
  const last = before(nodes, site, name);
  const from = last && run.steps.get(last);
  const off = isEdited(trace, name) && from && run.row(name).every((s, j) => s === from[j]);
  if (by === 1 || off) return "not scaled";
  return Math.abs(by * Math.sqrt(run.d) - 1) < 1e-6 ? `÷ √${run.d}` : `× ${format(by, 4)}`;
}

/**
 * The step that is the dot product and nothing else, if one is.
 * @param {SiteContext} ctx @param {Gathered} run
 */
const dotOf = (ctx, run) => [...run.steps.keys()].find((name) => wordOf(ctx, run, name) === "q·k");

/**
 * Pixels per feature.
 * @param {number} d
 */
const thin = (d) => Math.max(innerWidth < 760 ? 1 : 2, Math.min(6, Math.floor((innerWidth < 760 ? 80 : 200) / d)));

/** @param {SiteContext} ctx @param {Gathered} gathered */
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

/** @param {SiteContext} ctx @param {Gathered} run @param {number[]} shown */
function table(ctx, run, shown) {
  const { site } = ctx;
  const dot = dotOf(ctx, run);
  const ends = { K: Math.max(bound(run.q), bound(run.K)), p: bound(run.products) };
  const d_k = run.d;
  /** @param {number} j */
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
        button(run.keys[j], () => ctx.go({ key: j }), {
          class: "quiet token-button",
          title: "Show its products",
          "aria-pressed": String(j === ctx.state.key),
          data: { keep: `neurons:${j}` },
        }),
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
          ask: () => dot && ctx.ask(dot, [ctx.head, run.i, j]),
        }),
      ),
      [...run.steps]
        .slice(0, -1)
        .map(([name, row]) =>
          el("td", { class: "figure" }, number(ctx, row[j], name, [ctx.head, run.i, j], { digits: 2 })),
        ),
      el(
        "td",
        { class: "figure weight", style: { "--share": `${(100 * run.weights[j]).toFixed(2)}%` } },
        number(ctx, run.weights[j], site.weights, [ctx.head, run.i, j], { digits: 4 }),
      ),
    );
  };
  const taken = [...run.steps.keys()].map((name) => [wordOf(ctx, run, name), name === site.weights ? "role-A" : ""]);
  const heads = [["key", ""], ["k", "role-K"], ["q × k", ""], ...taken];
  return el(
    "div",
    { class: "scrolls" },
    el(
      "table",
      { class: "neurons" },
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          heads.map(([word, role]) => el("th", { scope: "col" }, el("span", { class: role }, word))),
        ),
      ),
      el("tbody", {}, shown.map(line)),
    ),
  );
}

/**
 * q·k of one key written out: its largest products, the rest together, then each step to the weight.
 * @param {SiteContext} ctx @param {Gathered} run
 */
async function sum(ctx, run) {
  const j = Math.min(ctx.state.key, run.T - 1);
  const { d } = run;
  /** @param {number} f */
  const product = (f) => run.products[j * d + f];
  const top = largest(d, TERMS, (f) => Math.abs(product(f)));
  const others = [...Array(d).keys()].filter((f) => !top.includes(f)).reduce((total, f) => total + product(f), 0);
  /** @param {number} f */
  const term = (f) =>
    el(
      "tr",
      {},
      el("td", {}, `${f}`),
      el("td", {}, number(ctx, run.q[f], run.Qn, [ctx.head, run.i, f])),
      el("td", {}, number(ctx, run.K[j * d + f], run.Kn, [run.g, j, f])),
      el("td", {}, format(product(f))),
    );
  const made = top.reduce((total, f) => total + product(f), 0) + others;
  const dot = dotOf(ctx, run);
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
        el(
          "thead",
          {},
          el(
            "tr",
            {},
            ["feature", "q", "k", "q × k"].map((word) => el("th", { scope: "col" }, word)),
          ),
        ),
        el(
          "tbody",
          {},
          top.map(term),
          el(
            "tr",
            { class: "faded" },
            el("td", { colspan: 3 }, `the other ${d - top.length}`),
            el("td", {}, format(others)),
          ),
          el(
            "tr",
            { class: "total" },
            el("td", { colspan: 3 }, "q·k"),
            el(
              "td",
              {},
              dot ? [edited(ctx, run, dot, j, made, bound(run.products) * d), figure(ctx, run, dot, j)] : format(made),
            ),
          ),
        ),
      ),
      el(
        "dl",
        { class: "steps" },
        [...run.steps.keys()].filter((name) => name !== dot).map((name) => taken(ctx, run, name, j)),
      ),
    ),
  );
}

/** @param {SiteContext} ctx @param {Gathered} run @param {string} name @param {number} j */
const figure = (ctx, run, name, j) => number(ctx, run.row(name)[j], name, [ctx.head, run.i, j]);

/**
 * "0.3; an edit made it ", where one did.
 * @param {SiteContext} ctx @param {Gathered} run @param {string} name @param {number} j @param {number} made @param {number} [unit]
 */
const edited = ({ trace }, run, name, j, made, unit) =>
  isChanged(trace, name, run.row(name)[j], made, unit) ? `${format(made)}; an edit made it ` : "";

/**
 * One step of one key: what it is made of, how, and what came out.
 * @param {SiteContext} ctx @param {Gathered} run @param {string} name @param {number} j
 */
function taken(ctx, run, name, j) {
  const { op, facts } = nodeOf(ctx, name);
  const { by = 1, most = 1 } = facts;
  const from = before(ctx.nodes, ctx.site, name);
  /** @param {...Child} inside */
  const line = (...inside) => [el("dt", {}, wordOf(ctx, run, name)), el("dd", {}, inside)];
  const value = () => figure(ctx, run, name, j);
  if (facts.several || !from) return line(value(), el("span", { class: "hint" }, `: ${facts.said}`));
  const [was, row] = [run.row(from), run.row(name)];
  const [x, y] = [was[j], row[j]];
  const off = isEdited(ctx.trace, name) && row.every((s, at) => s === was[at]);
  if (op === "softmax") {
    const { shift, power, total } = powers(run.scores);
    const less = shift ? ` − ${format(shift, 1)}` : "";
    return line(
      formula(`e^{${format(x, 2)}${less}} ÷ Σ e^{score${less}}`),
      ` = ${format(power(j))} ÷ ${format(total)} = `,
      edited(ctx, run, name, j, power(j) / total, 1),
      value(),
    );
  }
  if (op === "mask") {
    if (y === -Infinity && x !== -Infinity) return line("hidden by the mask: ", value());
    return line(x === y ? "seen: " : "an edit made it ", value());
  }
  const start = figure(ctx, run, from, j);
  if (op === "scale") {
    const word = wordOf(ctx, run, name);
    return line(
      start,
      `${word === "not scaled" ? ", not scaled," : ` ${word}`} = `,
      edited(ctx, run, name, j, off ? x : x * by),
      value(),
    );
  }
  if (off) return line(start, ", switched off by an edit: ", value());
  if (op === "cap") {
    return line(`${most} · tanh(`, start, ` ÷ ${most}) = `, edited(ctx, run, name, j, most * Math.tanh(x / most)), value());
  }
  return line(
    value(),
    el("span", { class: "hint" }, `: ${facts.said}${isEdited(ctx.trace, name) ? "; an edit changes it" : ""}`),
  );
}
