/**
 * How pieces of text are shown, and the sentence above the stage.
 *
 * In: pieces as the tokenizer made them. Out: labels in which a space is visible, and a strip of tokens that lights up
 * with whatever the pointer is on. Pieces are only ever text.
 */

import { el } from "regard/dom.js";

/** @type {{ [sign: string]: string }} */
const MARKS = { " ": "·", "\u0120": "·", "\u2581": "·", "\n": "⏎", "\u010a": "⏎", "\t": "⇥" };

/**
 * A piece as a label: leading spaces as a dot, line breaks as ⏎, nothing as ∅.
 * @param {string} piece
 */
export function show(piece) {
  const text = piece.replace(/[ \u0120\u2581\n\u010a\t]/g, (c) => MARKS[c]);
  return text === "" ? "∅" : text;
}

/**
 * A piece as a word of a sentence: without the space before it, unless there is nothing else.
 * @param {string} [piece]
 */
export const wordOf = (piece = "") => show(piece).replace(/^·(?=.)/, "");

/**
 * The pieces a stack works on: in an encoder-decoder, the decoder has the target's.
 * @param {Trace} trace @param {string} stack
 */
export function piecesOf(trace, stack) {
  return trace.target_tokens && stack === "decoder" ? trace.target_tokens : trace.tokens;
}

/**
 * Their labels.
 * @param {Trace} trace @param {string} stack
 */
export const labelsOf = (trace, stack) => piecesOf(trace, stack).map(show);

/**
 * Where an attention site's queries and keys come from: {queries: [label…], keys: [label…], from: [stack, stack]}.
 * @param {Trace} trace @param {Site} site @returns {Sides}
 */
export function sidesOf(trace, site) {
  const source = site.kind === "cross" ? "encoder" : site.stack;
  return { queries: labelsOf(trace, site.stack), keys: labelsOf(trace, source), from: [site.stack, source] };
}

/**
 * Which part of the state holds the token of a stack that is in focus: the queries' is `token`, the other's is `key`.
 * @param {Context} ctx @param {string} stack
 */
export function focusOf({ site, state, trace }, stack) {
  const asks = state.stage === "output" && trace.target_tokens ? "decoder" : (site?.stack ?? stack);
  return stack === asks ? "token" : "key";
}

/** The stages of one stack's blocks: there a word of the other stack leads over to it. */
const OF_BLOCKS = new Set(["mlp", "residual"]);

/**
 * What choosing token i of a stack changes. Where the other stack is not in the picture, it is gone to.
 * @param {Context} ctx @param {string} stack @param {number} i
 */
export function choosing(ctx, stack, i) {
  const [focus, { stage }] = [focusOf(ctx, stack), ctx.state];
  if (stage === "steps") return { [focus]: i, view: stack };
  const both = stage === "tokens" || stage === "output" || (ctx.site?.kind === "cross" && !OF_BLOCKS.has(stage));
  if (focus === "token" || both) return { [focus]: i };
  const there = ctx.trace.sites.filter((one) => one.stack === stack && one.kind !== "cross");
  return { site: (there[ctx.site?.layer ?? 0] ?? there[0]).site, token: i };
}

/**
 * The sentence: one strip per stack, each token a link that focuses it.
 * `sentences(root, ctx)` → {light(stack, i, stack2, j)}; light() without arguments puts it out.
 * @param {HTMLElement} root @param {Context} ctx
 */
export function sentences(root, ctx) {
  const stacks = ctx.trace.target_tokens ? ["encoder", "decoder"] : [ctx.model.stacks[0].name];
  /** @type {Map<StackName, HTMLElement[]>} */
  const words = new Map();
  for (const stack of stacks) {
    const links = piecesOf(ctx.trace, stack).map((piece, i) => token(ctx, stack, piece, i));
    words.set(stack, links);
    const name =
      stacks.length > 1 ? el("span", { class: "sentence-name" }, stack === "encoder" ? "source" : "target") : null;
    root.append(el("div", { class: "tokens", role: "group", "aria-label": `tokens of the ${stack}` }, name, links));
  }
  return {
    light(/** @type {(StackName | number)[]} */ ...pairs) {
      for (const links of words.values()) for (const link of links) delete link.dataset.lit;
      for (let at = 0; at < pairs.length; at += 2) {
        const link = words.get(String(pairs[at]))?.[Number(pairs[at + 1])];
        if (!link) continue;
        link.dataset.lit = at === 0 ? "query" : "key";
        if (at === 0) reveal(link);
      }
    },
  };
}

/**
 * Scroll a long sentence, and nothing else, until the word can be seen.
 * @param {HTMLElement} link
 */
function reveal(link) {
  const box = link.parentElement;
  if (!box) return;
  const top = link.offsetTop - box.offsetTop;
  const seen = top >= box.scrollTop && top + link.offsetHeight <= box.scrollTop + box.clientHeight;
  if (!seen) box.scrollTop = top - box.clientHeight / 2;
}

/** @param {Context} ctx @param {string} stack @param {string} piece @param {number} i */
function token(ctx, stack, piece, i) {
  const change = choosing(ctx, stack, i);
  const here = !("site" in change) && i === ctx.state[focusOf(ctx, stack)];
  return el(
    "a",
    {
      class: "token",
      href: ctx.link(change),
      "aria-current": here ? "true" : null,
      title: `position ${i}`,
      data: { keep: `token:${stack}:${i}` },
    },
    show(piece),
  );
}
