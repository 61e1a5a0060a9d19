/**
 * The attention workbench: from Q and K to Z, at one site and one head.
 *
 * In: a site (self, causal or cross) and a head. Out: a matrix for each step on the way from dot products to weights (scaled,
 * capped, masked, softmax, … whatever this network does), which move together, the vectors of the cell in focus, its softmax as
 * a fraction and its weighted sum of values, all with this run's numbers.
 */

import { choice, el, formula, picker, sentence } from "regard/dom.js";
import { synchronise } from "regard/matrix.js";
import { alignment } from "regard/parts/alignment.js";
import { rowInFocus } from "regard/parts/attention-row.js";
import { captions, hiding, kindOf } from "regard/parts/captions.js";
import { queryByKey } from "regard/parts/query-by-key.js";
import { tokenOf } from "regard/parts/run.js";
import { before, lastWord, nodeOf, stepsOf } from "regard/parts/wiring.js";
import { sidesOf } from "regard/tokens.js";

const KINDS = { causal: "causal self-attention", self: "self-attention", cross: "cross attention" };

/** @param {SiteContext} ctx */
function sitePicker(ctx) {
  const { sites } = ctx.trace;
  const groups = [...new Set(sites.map((one) => `${one.stack}:${one.kind}`))];
  const here = `${ctx.site.stack}:${ctx.site.kind}`;
  /** @param {string} group */
  const first = (group) => {
    const alike = sites.filter((one) => `${one.stack}:${one.kind}` === group);
    return alike.find((one) => one.layer === ctx.site.layer) ?? alike[0];
  };
  const kind =
    groups.length > 1
      ? choice(
          "Site",
          groups.map((group) => [group, `${group.split(":")[0]} ${group.split(":")[1]}`]),
          here,
          (group) => ctx.go({ site: first(group).site }),
        )
      : null;
  const alike = sites.filter((one) => `${one.stack}:${one.kind}` === here);
  return [
    kind,
    picker(
      "Block",
      alike.map((one) => [one.site, String(one.layer)]),
      ctx.site.site,
      (site) => ctx.go({ site }),
      { data: { keep: "layer" } },
    ),
  ];
}

/** @param {SiteContext} ctx */
function headPicker(ctx) {
  /** @type {Options<number>} */
  const heads = [...Array(ctx.site.heads).keys()].map((h) => [h, String(h)]);
  /** @param {string | number} h */
  const go = (h) => ctx.go({ head: Number(h) });
  return heads.length <= 16
    ? el("span", { class: "field" }, el("span", { class: "field-name" }, "Head"), choice("Head", heads, ctx.head, go))
    : picker("Head", heads, ctx.head, go, { data: { keep: "head" } });
}

/** @param {HTMLElement} root @param {Context} ctx */
async function render(root, ctx) {
  if (!ctx.site) return root.append(sentence("empty", "This model has no attention to look at; choose another one above."));
  if (ctx.model.recurrent) return alignment(root, ctx);
  const { site, head } = ctx;
  const sides = sidesOf(ctx.trace, site);
  const steps = stepsOf(ctx, site);
  const below = el("div", { class: "focus" });
  const focus = rowInFocus(below, ctx, sides);
  const asked = steps.map((name) => ctx.data.slice(name, [head, ":", ":"]));
  const [slices, numbers, past] = await Promise.all([Promise.all(asked), focus.load(), hiddenBefore(ctx)]);
  const said = captions(ctx, site, numbers);
  const [, T] = slices[0].shape;
  /** @type {Cell} */
  const first = [tokenOf(ctx, site.stack), Math.min(ctx.state.key, T - 1)];

  const title = `${site.stack} · block ${site.layer} · ${KINDS[kindOf(ctx.trace, site)]} · head ${head}`;
  root.append(
    el(
      "div",
      { class: "stage-head" },
      el("h2", { class: "stage-title" }, title),
      el("div", { class: "controls" }, sitePicker(ctx), headPicker(ctx)),
    ),
  );
  root.append(el("p", { class: "lead" }, lead(site, said.hidden, past)));
  const grid = root.appendChild(el("div", { class: "four" }));
  const together = queryByKey(ctx, sides, first, focus.draw);
  /** @param {string} node @param {number} i */
  const picture = (node, i) => {
    if (node === site.weights && site.kind !== "causal" && !site.masked) unmasked(grid, said.hidden);
    return together.picture(grid, slices[i], {
      node,
      title: said.titles[node],
      words: `${NAMES[nodeOf(ctx, node).op] ?? ""}${said.words[node]}`,
      scale: node === site.weights ? "sequential" : "diverging",
      head,
      axes: ["query", "key"],
      say: `${lastWord(node)}, head ${head}`,
    });
  };
  synchronise(steps.map(picture));
  root.append(below);
  await together.begin();
}

/**
 * In the place of a mask, where there is none.
 * @param {HTMLElement} grid @param {string} hidden
 */
function unmasked(grid, hidden) {
  const words = hidden
    ? `This network has no mask here; an edit hides among the scores: ${hidden}.`
    : "No mask here: every query may look at every key, and the scores go straight into the softmax.";
  grid.append(
    el(
      "figure",
      { class: "matrix absent" },
      el("figcaption", {}, el("span", { class: "matrix-title" }, formula("mask"))),
      el("p", { class: "hint" }, words),
    ),
  );
}

/** @type {{ [op: string]: string }} */
const NAMES = { scale: "scores: ", softmax: "weights: " };

/**
 * Who asks whom, and what is hidden; with Δ also what was, where that differs.
 * @param {Site} site @param {string} hidden @param {string | null} past
 */
function lead({ kind }, hidden, past) {
  const who =
    kind === "cross"
      ? "Queries come from the target, keys and values from the source"
      : "Every token asks (query) and is looked up (key) in the same sentence";
  const now = hidden || "nothing is hidden";
  if (past !== null && past !== hidden) return `${who}. In A ${past || "nothing is hidden"}; in B ${now}.`;
  return hidden ? `${who}; ${hidden}.` : kind === "cross" ? `${who}.` : `${who}, before and after it.`;
}

/**
 * With Δ: what is hidden in the run before; else null.
 * @param {SiteContext} ctx
 */
async function hiddenBefore({ mode, base, data, site, head }) {
  if (mode !== "delta") return null;
  const nodes = new Map(base.nodes.map((node) => [node.name, node]));
  const same = base.sites.find((one) => one.site === site.site); // another model may have none
  const last = same && before(nodes, same, same.weights);
  return same && last ? hiding(nodes, same, await data.of(base).slice(last, [head, ":", ":"])) : null;
}

export default { id: "attention", title: "Attention", render };
