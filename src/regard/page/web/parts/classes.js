/**
 * Answers that are labels: bars of classes for a text, a table of tags for its tokens.
 *
 * In: an answer of /output. Out: elements. Probabilities and logits are links to their derivations.
 */

import { el, formula, number, sentence, signed } from "regard/dom.js";
import { matrix } from "regard/matrix.js";
import { bars } from "regard/parts/bars.js";
import { share } from "regard/parts/pieces.js";
import { afterBlocks, nodeOf } from "regard/parts/wiring.js";
import { labelsOf, show } from "regard/tokens.js";

/** @param {Context} ctx @param {number} position @param {number} id */
const place = (ctx, position, id) => (nodeOf(ctx, "logits").shape.length > 1 ? [position, id] : [id]);

/** @param {Context} ctx @param {Shown} shown */
function labelled(ctx, { answer, before, position }) {
  const past = new Map((before?.rows ?? []).map((row) => [row.id, row.probability]));
  if (ctx.mode === "delta" && before) return changed(answer.rows, past);
  const rows = answer.rows.map((row) => ({
    name: row.piece,
    value: row.probability,
    number: number(ctx, row.probability, "probabilities", place(ctx, position, row.id), { text: share(row.probability) }),
    note: el(
      "span",
      { class: "bars-note hint" },
      "logit ",
      number(ctx, row.logit, "logits", place(ctx, position, row.id), { digits: 2 }),
      past.has(row.id) ? [" · before ", share(past.get(row.id) ?? 0)] : null,
    ),
  }));
  return bars(rows, { bound: 1, label: "probability of each label", kind: "labels" });
}

/**
 * With Δ: by how much each label's probability changed.
 * @param {AnswerRow[]} rows @param {Map<number, number>} past
 */
function changed(rows, past) {
  /** @param {AnswerRow} answerRow */
  const one = ({ piece, id, probability }) => {
    const change = probability - (past.get(id) ?? 0);
    const note = el("span", { class: "bars-note hint" }, `${share(past.get(id) ?? 0)} → ${share(probability)}`);
    return { name: piece, value: change, number: el("span", { class: "number" }, signed(change, 4)), note };
  };
  return bars(rows.map(one), { from: "middle", label: "change of each label's probability", kind: "labels changed" });
}

/**
 * Which token answers for the text: BART's is the last of what it wrote.
 * @param {Context} ctx
 */
function answers(ctx) {
  const row = afterBlocks(ctx)
    .map(({ facts }) => facts.row)
    .find((one) => one !== undefined);
  return (row ?? 0) > 0 ? "last" : "first";
}

/** @param {Context} ctx @param {Shown} shown */
export function classes(ctx, shown) {
  const [best] = shown.answer.rows;
  return [
    el("p", { class: "verdict" }, best.piece),
    el(
      "p",
      { class: "lead" },
      `The whole text gets one answer, from the state of its ${answers(ctx)} token. `,
      formula("p = e^{logit} / Σ e^{logit}"),
      `, the sum over ${shown.answer.rows.length} classes.`,
    ),
    labelled(ctx, shown),
  ];
}

/**
 * Why a token has no tag.
 * @param {Context} ctx @param {number} i
 */
export function untagged({ trace }, i) {
  const [word, first] = [show(trace.tokens[i]), trace.deciding?.[i] ?? null];
  return first === null
    ? `“${word}” is not part of a word: it has no tag. Choose a word.`
    : `“${word}” goes on with a word; its first piece, “${show(trace.tokens[first])}”, decides the tag.`;
}

/** @param {HTMLElement} root @param {Context} ctx @param {Shown} shown */
export async function tags(root, ctx, shown) {
  const stack = ctx.model.stacks[0].name;
  const words = labelsOf(ctx.trace, stack);
  const [{ shape, values, absent }, said] = await Promise.all([
    ctx.data.slice("probabilities"),
    ctx.data.of(ctx.trace).slice("probabilities"),
  ]);
  const [N, C] = shape;
  const P = said.values;
  /** @param {number} i */
  const best = (i) => [...Array(C).keys()].reduce((top, c) => (P[i * C + c] > P[i * C + top] ? c : top), 0);
  const deciding = ctx.trace.deciding ?? [];
  /** @param {string} word @param {number} i */
  const tagged = (word, i) =>
    el(
      "a",
      {
        class: "tagged",
        href: ctx.link({ token: i }),
        "aria-current": i === shown.position ? "true" : null,
        data: { keep: `tag:${i}` },
      },
      el("span", { class: "piece" }, word),
      deciding[i] === i ? el("span", { class: "tag" }, ctx.trace.labels[best(i)]) : null,
    );
  root.append(el("div", { class: "tagged-row" }, words.slice(0, N).map(tagged)));
  if (deciding[shown.position] !== shown.position)
    return void root.append(sentence("empty", untagged(ctx, shown.position)));
  root.append(
    el("h3", {}, "What could ", el("b", {}, words[shown.position]), " be?"),
    labelled(ctx, { ...shown, answer: { ...shown.answer, rows: shown.answer.rows.slice(0, 8) } }),
  );
  const holder = root.appendChild(el("section", {}));
  const kept = [...Array(N).keys()].filter((i) => deciding[i] === i); // a word's first piece decides; [CLS] is no word
  /** @param {Float32Array} all */
  const rowsOf = (all) => Float32Array.from(kept.flatMap((i) => [...all.subarray(i * C, (i + 1) * C)]));
  matrix(holder, {
    values: rowsOf(values),
    absent: absent && kept.flatMap((i) => [...absent.subarray(i * C, (i + 1) * C)]),
    shape: [kept.length, C],
    rows: kept.map((i) => words[i]),
    cols: ctx.trace.labels,
    title: "probabilities",
    subtitle: "word (its first piece) × tag",
    axes: ["token", "tag"],
    scale: ctx.mode === "delta" ? "diverging" : "sequential",
    ctx,
    node: "probabilities",
    index: (r, c) => [kept[r], c],
    cursor: [kept.indexOf(shown.position), best(shown.position)],
    say: "probabilities of tags",
  });
}
