/**
 * Why this answer: its logit split among heads and MLPs (a sum), or among the tokens of the text (gradient × input).
 *
 * In: a position, the answers there and the one asked about. Out: bars, or the sentence shaded. Where the way from the states
 * to the answer bends (a pooler, a masked head) the logit is no sum of parts, and only the tokens are offered.
 */

import { choice, el, format, number, picker, sentence } from "regard/dom.js";
import { bars } from "regard/parts/bars.js";
import { bound, partOf } from "regard/parts/run.js";
import { colours, css, textOn } from "regard/scale.js";
import { show } from "regard/tokens.js";

const FEW = 14;
const SPLITS = [["size", "parts, largest first"], ["run", "parts, in order"], ["tokens", "tokens"]];

const bends = ({ nodes, trace }) => nodes.has("head.act") || (trace.head === "classify" && nodes.has("pooler.out"));

export async function attribution(root, ctx, position, rows, chosen, wish = "size") {
  const split = bends(ctx) ? "tokens" : wish;
  const again = (row, next) => attribution(root, ctx, position, rows, row, next);
  const lens = split === "tokens" ? "gradient" : "attribution";
  const asked = await ctx.data.lens(lens, { token: position, id: chosen.id }).catch((error) => ({ refused: error.message }));
  const first = rows.slice(0, 20);
  const answers = first.some(({ id }) => id === chosen.id) ? first : [chosen, ...first];
  root.replaceChildren(
    el("h2", {}, split === "tokens" ? "Which tokens it rests on" : "Who spoke for it"),
    el(
      "div",
      { class: "controls" },
      picker(
        "the logit of",
        answers.map((row) => [row.id, show(row.piece)]),
        chosen.id,
        (id) => again(answers.find((row) => String(row.id) === id), split),
      ),
      bends(ctx) ? null : choice("Split by", SPLITS, split, (next) => again(chosen, next)),
    ),
    asked.refused ? sentence("empty", asked.refused) : split === "tokens" ? rests(ctx, asked) : summed(
      ctx,
      asked,
      position,
      chosen,
      split,
    ),
  );
}

function summed(ctx, { parts, total, bias }, position, chosen, order) {
  const all = bias ? [...parts, { label: "bias", value: bias }] : parts;
  const sorted = order === "size" ? [...all].sort((a, b) => Math.abs(b.value) - Math.abs(a.value)) : all;
  const few = order === "size" ? sorted.slice(0, FEW) : sorted;
  const rest = sorted.slice(few.length);
  const written = (value) => el("span", { class: "number" }, format(value, 2));
  const row = ({ label, value }) => {
    const { name, change } = partOf(ctx, label);
    return { name, value, number: written(value), press: change ? () => ctx.go(change) : undefined, title: label };
  };
  const shown = few.map(row);
  const left = rest.reduce((sum, { value }) => sum + value, 0);
  if (rest.length) shown.push({ name: `the other ${rest.length}`, value: left, number: written(left), faded: true });
  const at = ctx.nodes.get("logits")?.shape.length > 1 ? [position, chosen.id] : [chosen.id];
  return el(
    "div",
    {},
    el(
      "p",
      { class: "lead" },
      "The last norm's scale held fixed, the logit is a sum of what each part wrote into the stream: together ",
      number(ctx, total, "logits", at, { digits: 2 }),
      ".",
    ),
    bars(shown, { from: "middle", label: `Contributions to the logit of ${chosen.piece}`, kind: "parts" }),
  );
}

/** The sentence, each token shaded by its gradient × input and the number under it. */
function rests(ctx, { values, target_values: written }) {
  const end = Math.max(bound(values), written ? bound(written) : 0);
  const colour = colours("diverging", end);
  const token = (pieces) => (value, i) => {
    const back = colour(value);
    return el(
      "span",
      { class: "rest" },
      el("span", { class: "piece", style: { background: css(back), color: textOn(back) } }, show(pieces[i])),
      el("span", { class: "number" }, format(value, end < 0.1 ? 4 : 2)),
    );
  };
  return el(
    "div",
    {},
    el(
      "p",
      { class: "lead" },
      "Gradient × input: by how much the logit would fall, to first order, if a token's embedding faded. ",
      "Orange speaks for the answer, blue against.",
    ),
    el("div", { class: "rests" }, values.map(token(ctx.trace.tokens))),
    written ? el("div", { class: "rests" }, written.map(token(ctx.trace.target_tokens))) : null,
  );
}
