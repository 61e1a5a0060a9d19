/**
 * The attention workbench: from Q and K to Z, at one site and one head.
 *
 * In: a site (self, causal or cross) and a head. Out: four matrices that move together (dots, scaled, masked, softmax),
 * the vectors of the cell in focus, its softmax as a fraction and its weighted sum of values, all with this run's
 * numbers.
 */

import { choice, el, formula, picker, sentence } from "regard/dom.js";
import { synchronise } from "regard/matrix.js";
import { alignment } from "regard/parts/alignment.js";
import { rowInFocus } from "regard/parts/attention-row.js";
import { captions, hiding, kindOf } from "regard/parts/captions.js";
import { queryByKey } from "regard/parts/query-by-key.js";
import { tokenOf } from "regard/parts/run.js";
import { sidesOf } from "regard/tokens.js";

const KINDS = { causal: "causal self-attention", self: "self-attention", cross: "cross attention" };

/** The four pictures: node, title, scale. */
const STAGES = [
  ["dots", "Q K^T", "diverging"],
  ["scores", "scores", "diverging"],
  ["masked", "mask", "diverging"],
  ["weights", "softmax", "sequential"],
];

function sitePicker(ctx) {
  const { sites } = ctx.trace;
  const groups = [...new Set(sites.map((one) => `${one.stack}:${one.kind}`))];
  const here = `${ctx.site.stack}:${ctx.site.kind}`;
  const first = (group) => sites.find(
    (one) => `${one.stack}:${one.kind}` === group && one.layer === ctx.site.layer,
  ) ?? sites.find((one) => `${one.stack}:${one.kind}` === group);
  const kind = groups.length > 1
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

function headPicker(ctx) {
  const heads = [...Array(ctx.site.heads).keys()].map((h) => [h, String(h)]);
  const go = (h) => ctx.go({ head: Number(h) });
  return heads.length <= 16
    ? el("span", { class: "field" }, el("span", { class: "field-name" }, "Head"), choice("Head", heads, ctx.head, go))
    : picker("Head", heads, ctx.head, go, { data: { keep: "head" } });
}

async function render(root, ctx) {
  if (!ctx.site) return root.append(sentence(
    "empty",
    "This model has no attention to look at; choose another one above.",
  ));
  if (ctx.model.recurrent) return alignment(root, ctx);
  const { site, head } = ctx;
  const sides = sidesOf(ctx.trace, site);
  const name = (what) => `${site.site}.${what}`;
  const below = el("div", { class: "focus" });
  const focus = rowInFocus(below, ctx, sides);
  const asked = STAGES.map(([what]) => (
    ctx.nodes.has(name(what)) ? ctx.data.slice(name(what), [head, ":", ":"]) : null
  ));
  const [slices, numbers, past] = await Promise.all([Promise.all(asked), focus.load(), hiddenBefore(ctx)]);
  const said = captions(ctx, site, numbers);
  const [, T] = slices.find(Boolean).shape;
  const first = [tokenOf(ctx, site.stack), Math.min(ctx.state.key, T - 1)];

  const title = `${site.stack} · block ${site.layer} · ${KINDS[kindOf(ctx.trace, site)]} · head ${head}`;
  root.append(el(
    "div",
    { class: "stage-head" },
    el("h2", { class: "stage-title" }, title),
    el("div", { class: "controls" }, sitePicker(ctx), headPicker(ctx)),
  ));
  root.append(el("p", { class: "lead" }, lead(site, said.hidden, past)));
  const grid = root.appendChild(el("div", { class: "four" }));
  const together = queryByKey(ctx, sides, first, focus.draw);
  const picture = ([what, title, scale], i) => together.picture(grid, slices[i], {
    what,
    title: what === "scores" ? said.scaled : title,
    words: `${NAMES[what] ?? ""}${said[what]}`,
    scale,
    head,
    axes: ["query", "key"],
    say: `${what}, head ${head}`,
  });
  synchronise(STAGES.map((one, i) => (slices[i] ? picture(one, i) : absent(grid, one, said.hidden))).filter(Boolean));
  root.append(below);
  await together.begin();
}

/** A step that this site does not take. */
function absent(grid, [what, title], hidden) {
  const words = what !== "masked" ? "This network does not take this step."
    : hidden ? `This network has no mask here; an edit hides among the scores: ${hidden}.`
    : "No mask here: every query may look at every key, and the scores go straight into the softmax."; // prettier-ignore
  grid.append(el(
    "figure",
    { class: "matrix absent" },
    el("figcaption", {}, el("span", { class: "matrix-title" }, formula(title))),
    el("p", { class: "hint" }, words),
  ));
  return null;
}

const NAMES = { scores: "scores: ", weights: "weights: " };

/** Who asks whom, and what is hidden; with Δ also what was, where that differs. */
function lead({ kind }, hidden, past) {
  const who = kind === "cross"
    ? "Queries come from the target, keys and values from the source"
    : "Every token asks (query) and is looked up (key) in the same sentence";
  const now = hidden || "nothing is hidden";
  if (past !== null && past !== hidden) return `${who}. In A ${past || "nothing is hidden"}; in B ${now}.`;
  return hidden ? `${who}; ${hidden}.` : kind === "cross" ? `${who}.` : `${who}, before and after it.`;
}

/** With Δ: what is hidden in the run before; else null. */
async function hiddenBefore({ mode, base, data, site, head }) {
  if (mode !== "delta") return null;
  const nodes = new Map(base.nodes.map((node) => [node.name, node]));
  const last = ["masked", "scores"].map((step) => `${site.site}.${step}`).find((name) => nodes.has(name));
  return last ? hiding(nodes, site, await data.of(base).slice(last, [head, ":", ":"])) : null;
}

export default { id: "attention", title: "Attention", render };
