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
import { queryByKey } from "regard/parts/query-by-key.js";
import { tokenOf } from "regard/parts/run.js";
import { sidesOf } from "regard/tokens.js";

const KINDS = { causal: "causal self-attention", self: "self-attention", cross: "cross attention" };

/** The four pictures: node, title, what happens, scale. */
const STAGES = [
  ["dots", "Q K^T", () => "dot products", "diverging"],
  ["scores", "÷ √d_k", ({ d_k }) => `scores: divided by √${d_k} = ${Number(Math.sqrt(d_k).toFixed(3))}`, "diverging"],
  ["masked", "mask", () => "hidden entries become −∞", "diverging"],
  ["weights", "softmax", () => "weights: each row sums to 1", "sequential"],
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
  const [slices] = await Promise.all([Promise.all(asked), focus.load()]);
  const d_k = ctx.nodes.get(name("Q"))?.shape.at(-1);
  const [, T] = slices.find(Boolean).shape;
  const first = [tokenOf(ctx, site.stack), Math.min(ctx.state.key, T - 1)];

  const title = `${site.stack} · block ${site.layer} · ${KINDS[site.kind] ?? site.kind} · head ${head}`;
  root.append(el(
    "div",
    { class: "stage-head" },
    el("h2", { class: "stage-title" }, title),
    el("div", { class: "controls" }, sitePicker(ctx), headPicker(ctx)),
  ));
  root.append(el("p", { class: "lead" }, LEADS[site.kind] ?? ""));
  const grid = root.appendChild(el("div", { class: "four" }));
  const together = queryByKey(ctx, sides, first, focus.draw);
  const picture = ([what, title, words, scale], i) => together.picture(grid, slices[i], {
    what,
    title,
    words: words({ d_k }),
    scale,
    head,
    axes: ["query", "key"],
    say: `${what}, head ${head}`,
  });
  synchronise(STAGES.map((one, i) => (slices[i] ? picture(one, i) : absent(grid, one))).filter(Boolean));
  root.append(below);
  await together.begin();
}

/** A step that this site does not take. */
function absent(grid, [what, title]) {
  const words = what === "masked"
    ? "No mask here: every query may look at every key, and the scores go straight into the softmax."
    : "This network does not take this step.";
  grid.append(el(
    "figure",
    { class: "matrix absent" },
    el("figcaption", {}, el("span", { class: "matrix-title" }, formula(title))),
    el("p", { class: "hint" }, words),
  ));
  return null;
}

const LEADS = {
  causal: "Every token asks (query) and is looked up (key) in the same sentence; later tokens are hidden.",
  self: "Every token asks (query) and is looked up (key) in the same sentence, before and after it.",
  cross: "Queries come from the target, keys and values from the source.",
};

export default { id: "attention", title: "Attention", render };
