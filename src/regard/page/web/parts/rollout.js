/**
 * Rollout: how much of each token of the text is in each token's state after a block, if attention alone mixed them.
 *
 * In: the run and the block looked at (that of the site). Out: a matrix of tokens by tokens, and one of its cells worked
 * out: the sum over the tokens that lie between, with the weights it is made of, each a link to its derivation.
 */

import { alone, apart } from "regard/delta.js";
import { el, format, formula, number, picker, sentence } from "regard/dom.js";
import { matrix } from "regard/matrix.js";
import { blockName, largest, tokenOf, workedFor } from "regard/parts/run.js";
import { labelsOf } from "regard/tokens.js";

/** @typedef {{ i: number, j: number, top: number[], rest: number, value: number, left: number }} Sum */
/** @typedef {{ [part in "mean" | "step" | "past"]: (k: number) => number } & { looks: Tensor }} Factors */

const TERMS = 6; // written out; the rest is summed

/**
 * The sites that rollout goes through: where a stack looks at itself.
 * @param {Trace} trace @param {string} stack
 */
export const pathOf = (trace, stack) => trace.sites.filter((site) => site.stack === stack && site.kind !== "cross");

/**
 * The site to begin with: the last block of the stack looked at.
 * @param {SiteContext} ctx
 */
export const endOf = ({ trace, site }) => pathOf(trace, site.stack).at(-1)?.site ?? site.site;

/** @param {HTMLElement} root @param {SiteContext} ctx */
export async function rollout(root, ctx) {
  const { stack, layer } = ctx.site;
  const path = pathOf(ctx.trace, stack);
  if (!path.length)
    return root.append(sentence("empty", "Rollout follows self-attention through layers, and this model has none."));
  const sites = ctx.trace.sites.filter(({ kind }) => kind !== "cross");
  const here = path[Math.min(layer, path.length - 1)];
  root.append(
    el(
      "div",
      { class: "controls" },
      picker(
        "after",
        sites.map((site) => [site.site, blockName(ctx, site)]),
        here.site,
        (site) => ctx.go({ site }),
        { data: { keep: "rollout:layer" } },
      ),
    ),
    el(
      "p",
      { class: "lead" },
      "Each block mixes the tokens: half of a token stays what it was (the residual), half is what its heads look at, on average. ",
      "Block after block multiplied, this is how much of each token of the text is in each token's state. ",
      "It knows nothing of values and MLPs",
      Object.keys(ctx.trace.edits).length ? ", nor of heads, residuals and norms that an edit of this run changes." : ".",
    ),
    el(
      "p",
      { class: "lead" },
      formula("R[l] = ½ (Ā[l] + I) R[l−1]"),
      el("span", { class: "hint" }, "; Ā is the mean of a block’s heads, R begins as I"),
    ),
  );
  const labels = labelsOf(ctx.trace, stack);
  const picture = await shown(ctx, stack, here.layer);
  /** @type {Cell} */
  const cursor = [tokenOf(ctx, stack), Math.min(ctx.state.key, labels.length - 1)];
  const below = el("div", { class: "focus" });
  const worked = workedOut(below, ctx, here, labels);
  let soon = 0;
  /** @param {number} i @param {number} j */
  const moved = (i, j) => {
    ctx.note({ token: i, key: j });
    ctx.light(stack, i, stack, j);
    cancelAnimationFrame(soon);
    soon = requestAnimationFrame(() => worked(i, j));
  };
  matrix(root, {
    ...picture,
    rows: labels,
    cols: labels,
    title: ctx.mode === "delta" ? "Δ rollout" : "rollout",
    subtitle:
      ctx.mode === "delta" ? "after − before" : `what is in each token after ${blockName(ctx, here)}${sums(picture)}`,
    axes: ["token", "made of"],
    scale: ctx.mode === "delta" ? "diverging" : "sequential",
    say: `rollout after ${blockName(ctx, here)}`,
    cursor,
    moved,
    hovered: (i, j) => ctx.light(stack, i ?? cursor[0], stack, j ?? cursor[1]),
  });
  root.append(below);
  ctx.light(stack, cursor[0], stack, cursor[1]);
  await worked(...cursor);
}

/**
 * Rows of edited weights need not sum to 1.
 * @param {Tensor} tensor
 */
function sums({ shape: [N], values }) {
  const even = Array.from({ length: N }, (_, i) => values.subarray(i * N, (i + 1) * N).reduce((sum, x) => sum + x, 0));
  return even.every((sum) => Math.abs(sum - 1) < 1e-2) ? "; each row sums to 1" : "";
}

/** @param {RunData} data @param {string} stack @param {number} layer */
const ask = (data, stack, layer) =>
  data.lens("rollout", { stack, layer }).then(({ shape, values }) => ({ shape, values: Float32Array.from(values) }));

/** @param {Context} ctx @param {string} stack @param {number} layer */
async function shown(ctx, stack, layer) {
  if (ctx.mode !== "delta") return ask(ctx.data, stack, layer);
  const [[before, after], partners] = await Promise.all([
    ctx.data.both((data) => ask(data, stack, layer)),
    ctx.data.partners(),
  ]);
  const side = ctx.trace.target_tokens && stack === "decoder" ? partners.target : partners.source;
  return before ? apart(after, before, [side, side]) : alone(after);
}

/**
 * → draw(i, j): R[i, j] as a sum over the tokens in between. With Δ, of the run after.
 * @param {HTMLElement} root @param {Context} ctx @param {Site} site @param {string[]} labels
 */
function workedOut(root, ctx, site, labels) {
  const data = ctx.data.of(ctx.trace);
  const N = labels.length;
  let turn = 0;
  return async (/** @type {number} */ i, /** @type {number} */ j) => {
    const mine = ++turn;
    const [looks, before, now] = await Promise.all([
      data.slice(site.weights, [":", i, ":"]),
      site.layer ? ask(data, site.stack, site.layer - 1) : null,
      ask(data, site.stack, site.layer),
    ]);
    if (mine !== turn) return;
    /** @param {number} k */
    const mean = (k) => heads(looks, k).reduce((sum, a) => sum + a, 0) / site.heads;
    /** @param {number} k */
    const step = (k) => (mean(k) + (k === i ? 1 : 0)) / 2;
    /** @param {number} k */
    const past = (k) => (before ? before.values[k * N + j] : k === j ? 1 : 0);
    const order = largest(N, N, (k) => step(k) * past(k));
    const top = order.slice(0, TERMS).filter((k) => step(k) * past(k) > 0);
    const rest = order.filter((k) => !top.includes(k)).reduce((sum, k) => sum + step(k) * past(k), 0);
    const cells = { i, j, top, rest, value: now.values[i * N + j], left: N - top.length };
    root.replaceChildren(...written(ctx, site, labels, cells, { mean, step, past, looks }));
  };
}

/** @param {Tensor} tensor @param {number} k */
const heads = ({ shape: [h, T], values }, k) => Array.from({ length: h }, (_, head) => values[head * T + k]);

/** @param {Context} ctx @param {Site} site @param {string[]} labels @param {Sum} sum @param {Factors} factors */
function written(ctx, site, labels, { i, j, top, rest, value, left }, { mean, step, past, looks }) {
  /** @param {number} a @param {number[]} index */
  const weight = (a, index) => number(ctx, a, site.weights, index, { digits: 2 });
  const others = left === 1 ? "the other one" : `the other ${left}`;
  /** @param {number} k */
  const row = (k) =>
    el(
      "tr",
      {},
      el("th", { scope: "row" }, labels[k], k === i ? el("span", { class: "hint" }, " itself") : null),
      el(
        "td",
        { class: "rollout-heads" },
        heads(looks, k).map((a, h) => weight(a, [h, i, k])),
      ),
      el("td", {}, format(mean(k))),
      el("td", {}, format(step(k))),
      el("td", {}, format(past(k))),
      el("td", {}, format(step(k) * past(k))),
    );
  const before = formula(site.layer ? `R[${site.layer - 1}]` : "I");
  const columns = ["by way of", "weights of the heads", "their mean Ā", formula("½ (Ā + I)"), before, "product"];
  return [
    el(
      "section",
      { class: "work" },
      el("h3", {}, "How much of ", el("b", {}, labels[j]), " is in ", el("b", {}, labels[i])),
      workedFor(ctx),
      el(
        "div",
        { class: "scrolls" },
        el(
          "table",
          { class: "figures rollout" },
          el(
            "thead",
            {},
            el(
              "tr",
              {},
              columns.map((word) => el("th", { scope: "col" }, word)),
            ),
          ),
          el(
            "tbody",
            {},
            top.map(row),
            left ? el("tr", { class: "faded" }, el("td", { colspan: 5 }, others), el("td", {}, format(rest))) : null,
            el("tr", { class: "total" }, el("td", { colspan: 5 }, "together"), el("td", {}, el("b", {}, format(value)))),
          ),
        ),
      ),
    ),
  ];
}
