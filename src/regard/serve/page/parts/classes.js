/**
 * Answers that are labels: bars of classes for a text, a table of tags for its tokens.
 *
 * In: an answer of /output. Out: elements. Probabilities and logits are links to their derivations.
 */

import { el, formula, number } from "regard/dom.js";
import { matrix } from "regard/matrix.js";
import { bars } from "regard/parts/bars.js";
import { share } from "regard/parts/pieces.js";
import { labelsOf } from "regard/tokens.js";

const place = (ctx, position, id) => (ctx.nodes.get("logits").shape.length > 1 ? [position, id] : [id]);

function labelled(ctx, { answer, before, position }) {
  const past = new Map((before?.rows ?? []).map((row) => [row.id, row.probability]));
  const rows = answer.rows.map((row) => ({
    name: row.piece,
    value: row.probability,
    number: number(ctx, row.probability, "probabilities", place(ctx, position, row.id), { text: share(row.probability) }),
    note: el(
      "span",
      { class: "bars-note hint" },
      "logit ",
      number(ctx, row.logit, "logits", place(ctx, position, row.id), { digits: 2 }),
      past.has(row.id) ? [" · before ", share(past.get(row.id))] : null,
    ),
  }));
  return bars(rows, { bound: 1, label: "probability of each label", kind: "labels" });
}

export function classes(ctx, shown) {
  const [best] = shown.answer.rows;
  return [
    el("p", { class: "verdict" }, best.piece),
    el(
      "p",
      { class: "lead" },
      "The whole text gets one answer, from the state of its first token. ",
      formula("p = e^{logit} / Σ e^{logit}"),
      `, the sum over ${shown.answer.rows.length} classes.`,
    ),
    labelled(ctx, shown),
  ];
}

export async function tags(root, ctx, shown) {
  const stack = ctx.model.stacks[0].name;
  const words = labelsOf(ctx.trace, stack);
  const { shape, values } = await ctx.data.slice("probabilities");
  const [N, C] = shape;
  const best = (i) => [...Array(C).keys()].reduce((top, c) => (values[i * C + c] > values[i * C + top] ? c : top), 0);
  const tagged = (word, i) =>
    el(
      "a",
      {
        class: "tagged",
        href: ctx.link({ token: i, view: i === 0 ? "first" : "" }),
        "aria-current": i === shown.position ? "true" : null,
        data: { keep: `tag:${i}` },
      },
      el("span", { class: "piece" }, word),
      el("span", { class: "tag" }, ctx.trace.labels[best(i)]),
    );
  root.append(el("div", { class: "tagged-row" }, words.slice(0, N).map(tagged)));
  root.append(
    el("h3", {}, "What could ", el("b", {}, words[shown.position]), " be?"),
    labelled(ctx, { ...shown, answer: { ...shown.answer, rows: shown.answer.rows.slice(0, 8) } }),
  );
  const holder = root.appendChild(el("section", {}));
  matrix(holder, {
    values,
    shape,
    rows: words,
    cols: ctx.trace.labels,
    title: "probabilities",
    subtitle: "token × tag",
    axes: ["token", "tag"],
    scale: ctx.mode === "delta" ? "diverging" : "sequential",
    ctx,
    node: "probabilities",
    index: (r, c) => [r, c],
    cursor: [shown.position, best(shown.position)],
    say: "probabilities of tags",
  });
}
