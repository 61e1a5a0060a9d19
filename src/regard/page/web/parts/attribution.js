/**
 * Why this answer: its logit split among heads and MLPs (a sum), or among the tokens of the text (gradient × input).
 *
 * In: a position, the answers there and the one asked about. Out: bars, or the sentence shaded. Where the way from the states
 * to the answer bends (a pooler, a masked head) the logit is no sum of parts, and only the tokens are offered.
 */

import { ABSENT } from "regard/delta.js";
import { choice, el, format, number, picker, sentence, signed } from "regard/dom.js";
import { bars } from "regard/parts/bars.js";
import { bends, bound, partOf } from "regard/parts/run.js";
import { nodeOf } from "regard/parts/wiring.js";
import { colours, css, textOn } from "regard/scale.js";
import { show } from "regard/tokens.js";

/** @typedef {{ position: number, there: number | null, rows: AnswerRow[] }} Place */
/**
 * A logit as a sum; with Δ, its changes, and `was`: what it was.
 * @typedef {Pick<Lenses["attribution"], "parts" | "bias" | "total"> & { was?: number }} Spoken
 */
/** @typedef {{ values: number[], target_values: number[] | null, changed?: boolean }} Rested */

const FEW = 14;
/** @type {Options<string>} */
const SPLITS = [
  ["size", "parts, largest first"],
  ["run", "parts, in order"],
  ["tokens", "tokens"],
];

/**
 * `at`: {position, there: the same place in the run before, rows: the answers}.
 * @param {HTMLElement} root @param {Context} ctx @param {Place} at @param {AnswerRow | Drawn} chosen @param {string} [wish]
 */
export async function attribution(root, ctx, at, chosen, wish = "size") {
  const { position, rows } = at;
  const split = bends(ctx) ? "tokens" : wish;
  /** @param {AnswerRow | Drawn} row @param {string} next */
  const again = (row, next) => attribution(root, ctx, at, row, next);
  const reasons =
    split === "tokens"
      ? rested(ctx, at, chosen.id).then((found) => rests(ctx, found))
      : spoken(ctx, at, chosen.id).then((found) => summed(ctx, found, position, chosen, split));
  const shown = await reasons.catch((error) => sentence("empty", error.message));
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
        (id) => again(answers.find((row) => String(row.id) === id) ?? chosen, split),
      ),
      bends(ctx) ? null : choice("Split by", SPLITS, split, (next) => again(chosen, next)),
    ),
    shown,
  );
}

/**
 * A lens about one answer, in the run on the screen or, with Δ, in both: [before or null, after].
 * @template {"attribution" | "gradient"} K
 * @param {Context} ctx @param {K} name @param {Place} place @param {number} id
 * @returns {Promise<[before: Lenses[K] | null, after: Lenses[K]]>}
 */
function lens(ctx, name, { position, there }, id) {
  /** @param {RunData} data @param {number} token */
  const ask = (data, token) => data.lens(name, { token, id });
  if (ctx.mode !== "delta" || there === null) return Promise.all([null, ask(ctx.data, position)]);
  return Promise.all([ask(ctx.data.of(ctx.base), there).catch(() => null), ask(ctx.data.of(ctx.other), position)]);
}

/** @param {Context} ctx @param {Place} at @param {number} id @returns {Promise<Spoken>} */
async function spoken(ctx, at, id) {
  const [before, now] = await lens(ctx, "attribution", at, id);
  if (!before) return now;
  const past = new Map(before.parts.map(({ label, value }) => [label, value]));
  const labels = new Set(now.parts.map(({ label }) => label));
  const gone = before.parts.filter(({ label }) => !labels.has(label)).map((part) => ({ ...part, value: -part.value }));
  const parts = now.parts.map((part) => ({ ...part, value: part.value - (past.get(part.label) ?? 0) }));
  return { parts: [...parts, ...gone], bias: now.bias - before.bias, total: now.total, was: before.total };
}

/** @param {Context} ctx @param {Place} at @param {number} id @returns {Promise<Rested>} */
async function rested(ctx, at, id) {
  const [before, now] = await lens(ctx, "gradient", at, id);
  if (!before) return now;
  const partners = await ctx.data.partners();
  /** @param {number[]} b @param {number[]} a @param {Partner} map */
  const less = (b, a, map) => b.map((x, j) => x - a[map.get(j) ?? -1]); // not a number where there is no partner
  return {
    values: less(now.values, before.values, partners.source),
    target_values: now.target_values && less(now.target_values, before.target_values ?? [], partners.target),
    changed: true,
  };
}

/**
 * @param {Context} ctx @param {Spoken} spoken @param {number} position @param {AnswerRow | Drawn} chosen
 * @param {string} order
 */
function summed(ctx, { parts, total, bias, was }, position, chosen, order) {
  const all = bias ? [...parts, { label: "bias", value: bias }] : parts;
  const sorted = order === "size" ? [...all].sort((a, b) => Math.abs(b.value) - Math.abs(a.value)) : all;
  const few = order === "size" ? sorted.slice(0, FEW) : sorted;
  const rest = sorted.slice(few.length);
  /** @param {number} value */
  const written = (value) => el("span", { class: "number" }, (was === undefined ? format : signed)(value, 2));
  /** @param {{ label: string, node?: string, value: number }} given */
  const row = ({ label, node = "", value }) => {
    const { name, change } = partOf(ctx, { label, node });
    return { name, value, number: written(value), press: change ? () => ctx.go(change) : undefined, title: label };
  };
  /** @type {BarRow[]} */
  const shown = few.map(row);
  const left = rest.reduce((sum, { value }) => sum + value, 0);
  if (rest.length) shown.push({ name: `the other ${rest.length}`, value: left, number: written(left), faded: true });
  const at = nodeOf(ctx, "logits").shape.length > 1 ? [position, chosen.id] : [chosen.id];
  return el(
    "div",
    {},
    el(
      "p",
      { class: "lead" },
      "The last norm's scale held fixed, the logit is a sum of what each part wrote into the stream: ",
      was === undefined
        ? "together "
        : `it was ${format(was, 2)}, and these changes together (${signed(total - was, 2)}) make it `,
      number(ctx, total, "logits", at, { digits: 2 }),
      ".",
    ),
    bars(shown, { from: "middle", label: `Contributions to the logit of ${chosen.piece}`, kind: "parts" }),
  );
}

/**
 * The sentence, each token shaded by its gradient × input and the number under it.
 * @param {Context} ctx @param {Rested} rested
 */
function rests(ctx, { values, target_values: written, changed }) {
  const end = Math.max(bound(values), written ? bound(written) : 0);
  const colour = colours("diverging", end);
  /** @param {number} value */
  const figure = (value) =>
    changed && Number.isNaN(value) ? ABSENT[1] : Math.abs(value) < end / 500 ? "0" : format(value, end < 0.1 ? 4 : 2);
  /** @param {string[]} pieces */
  const token = (pieces) => (/** @type {number} */ value, /** @type {number} */ i) => {
    const back = colour(value);
    return el(
      "span",
      { class: "rest" },
      el("span", { class: "piece", style: { background: css(back), color: textOn(back) } }, show(pieces[i])),
      el("span", { class: "number" }, figure(value)),
    );
  };
  return el(
    "div",
    {},
    el(
      "p",
      { class: "lead" },
      changed ? "After − before. " : "",
      "Gradient × input: by how much the logit would fall, to first order, if a token's embedding faded. ",
      "Orange speaks for the answer, blue against.",
    ),
    el("div", { class: "rests" }, values.map(token(ctx.trace.tokens))),
    written ? el("div", { class: "rests" }, written.map(token(ctx.trace.target_tokens ?? []))) : null,
  );
}
