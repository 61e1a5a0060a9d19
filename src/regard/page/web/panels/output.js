/**
 * The output: what the model says, by the head it has.
 *
 * In: the run and the focused position. Out: for language models logits → temperature → top-k, top-p → softmax over the whole
 * vocabulary → a seeded draw; for masked models the likeliest fillings; bars of classes; tags of every token. Below, which
 * heads and MLPs spoke for the answer.
 */

import { el, formula, picker, sentence } from "regard/dom.js";
import { attribution } from "regard/parts/attribution.js";
import { classes, tags } from "regard/parts/classes.js";
import { changedPieces, pieces } from "regard/parts/pieces.js";
import { answerOf } from "regard/parts/run.js";
import { sampling, settingsOf } from "regard/parts/sampling.js";
import { labelsOf } from "regard/tokens.js";

/** @param {HTMLElement} root @param {Context} ctx */
async function render(root, ctx) {
  if (ctx.trace.head === "none")
    return root.append(
      sentence("empty", "This model has no head: it ends in states, one vector per token. The residual stream shows them."),
    );
  const position = answerOf(ctx);
  const settings = ctx.trace.head === "lm" ? settingsOf(ctx.state) : {};
  const ask = { position, ...settings };
  const answer = await ctx.data.output(ask);
  const there = ctx.other && ctx.mode !== "a" ? await positionBefore(ctx, position) : null;
  const before =
    there === null
      ? null
      : await ctx.data
          .of(ctx.base)
          .output({ ...ask, position: there })
          .catch(() => null);
  if (ctx.mode === "delta" && !before)
    root.append(el("p", { class: "lead" }, "This place has no counterpart in A: what B says here."));
  await KINDS[answer.kind](root, ctx, { answer, before, position, there });
}

/**
 * The same place in the run before: the token's counterpart; where a text is continued, the ends stand for each other.
 * @param {Context & { other: Trace }} ctx @param {number} position
 */
async function positionBefore(ctx, position) {
  const [now, past] = [ctx.other, ctx.base].map((run) => (run.target_tokens ?? run.tokens).length - 1);
  if (ctx.trace.head === "classify" || (ctx.trace.head === "lm" && position === now)) return Math.min(position, past);
  const partners = await ctx.data.partners().catch(() => null);
  return (ctx.trace.target_tokens ? partners?.target : partners?.source)?.get(position) ?? null;
}

/**
 * After which token, or in whose place? The sentence above is lit there.
 * @param {Context} ctx @param {number} position @param {string} words
 */
function places(ctx, position, words) {
  const stack = ctx.trace.target_tokens ? "decoder" : ctx.model.stacks[0].name;
  ctx.light(stack, position);
  /** @type {Options} */
  const options = labelsOf(ctx.trace, stack).map((label, i) => [i, `${label}  (${i})`]);
  return el(
    "div",
    { class: "controls" },
    picker(words, options, position, (i) => ctx.go({ token: Number(i) }), { data: { keep: "output:place" } }),
  );
}

/**
 * The likeliest; with Δ, those whose probability changed most.
 * @param {Context} ctx @param {Shown} shown
 */
const likeliest = (ctx, shown) => {
  const { before, there } = shown;
  const both = ctx.mode === "delta" && before && there !== null;
  return both ? changedPieces(ctx, { ...shown, before, there }) : pieces(ctx, shown);
};

/** @param {HTMLElement} root @param {Context} ctx @param {Shown} shown */
async function next(root, ctx, shown) {
  root.append(
    places(ctx, shown.position, ctx.trace.target_tokens ? "the next word of the target, after" : "the next token, after"),
    sampling(ctx, shown),
    await likeliest(ctx, shown),
  );
  spoke(root, ctx, shown, shown.answer.drawn ?? shown.answer.rows[0]);
}

/** @param {HTMLElement} root @param {Context} ctx @param {Shown} shown */
async function mask(root, ctx, shown) {
  root.append(
    places(ctx, shown.position, "in the place of"),
    el(
      "p",
      { class: "lead" },
      formula(`p(token) = e^{logit} / Σ e^{logit}`),
      `, the sum over all ${shown.answer.vocabulary} tokens of the vocabulary.`,
    ),
    await likeliest(ctx, shown),
  );
  spoke(root, ctx, shown, shown.answer.rows[0]);
}

/** @param {HTMLElement} root @param {Context} ctx @param {Shown} shown */
function ofClass(root, ctx, shown) {
  root.append(...classes(ctx, shown));
  spoke(root, ctx, { ...shown, position: 0, there: 0 }, shown.answer.rows[0]);
}

/** @param {HTMLElement} root @param {Context} ctx @param {Shown} shown */
async function ofTags(root, ctx, shown) {
  await tags(root, ctx, shown);
  if (ctx.trace.deciding?.[shown.position] !== shown.position) return;
  spoke(root, ctx, shown, shown.answer.rows[0]);
}

/**
 * Not waited for: the answer stands while its reasons are worked out.
 * @param {HTMLElement} root @param {Context} ctx @param {Shown} shown @param {AnswerRow | Drawn} row
 */
function spoke(root, ctx, { position, there, answer }, row) {
  const section = root.appendChild(
    el("section", { class: "spoke" }, sentence("busy", "Splitting the answer into its parts…")),
  );
  attribution(section, ctx, { position, there, rows: answer.rows }, row);
}

const KINDS = { next, mask, class: ofClass, tags: ofTags };

export default { id: "output", title: "Output", render };
