/**
 * Tokens and embedding: from text to the first matrix of numbers.
 *
 * In: pieces and ids, and the nodes of the embedding. Out: a table of pieces, then the matrices that are added (token
 * rows, positions, kinds) and their sum, and the sum worked out for the feature in focus.
 */

import { el, format, number, sentence } from "regard/dom.js";
import { absence } from "regard/delta.js";
import { matrix, synchronise } from "regard/matrix.js";
import { isChanged, isEdited } from "regard/parts/captions.js";
import { choosing, focusOf, labelsOf, piecesOf, show } from "regard/tokens.js";

const TITLES = {
  tokens: "Token embeddings",
  positions: "Positions",
  types: "Segments",
  sum: "Sum",
  scaled: "Token embeddings × √d",
  out: "Embedding",
};

async function render(root, ctx) {
  const stacks = ctx.trace.target_tokens ? ["encoder", "decoder"] : [ctx.model.stacks[0].name];
  const lit = Object.fromEntries(stacks.map((stack) => [stack, rowOf(ctx, stack)]));
  for (const stack of stacks) {
    const prefix = ctx.trace.target_tokens ? `${stack}.embed` : "embed";
    await one(root, ctx, { stack, prefix, lit });
  }
  light(ctx, lit);
}

async function one(root, ctx, { stack, prefix, lit }) {
  root.append(el("h2", { class: "stage-title" }, ctx.trace.target_tokens ? `${stack} · tokens and embedding` : "Tokens and embedding"));
  root.append(el(
    "p",
    { class: "lead" },
    "The tokenizer cuts the text into pieces; each piece has an id, and the id picks a row of the embedding matrix.",
  ));
  root.append(pieces(ctx, stack));
  const parts = [...ctx.nodes.values()].filter(
    ({ name }) => name.startsWith(`${prefix}.`) && !name.slice(prefix.length + 1).includes("."),
  );
  if (!parts.length) {
    root.append(sentence("empty", "This run kept no embedding; run it again with all of its sites."));
    return;
  }
  const slices = await Promise.all(parts.map(({ name }) => ctx.data.slice(name)));
  const focus = focusOf(ctx, stack);
  const row = rowOf(ctx, stack);
  const worked = el("div", { class: "focus" });
  const moved = (r, f) => {
    ctx.note({ [focus]: r });
    lit[stack] = r;
    light(ctx, lit);
    sum(worked, ctx, { stack, parts, slices }, r, f);
  };
  const pictures = parts.map(({ name, op }, i) => {
    const local = name.slice(prefix.length + 1);
    return matrix(root, {
      ...slices[i],
      rows: labelsOf(ctx.trace, stack),
      title: TITLES[local] ?? local,
      subtitle: wordsOf(ctx, { name, op, local }),
      axes: ["token", "feature"],
      say: local,
      fit: true,
      cell: { h: 20, max: 40 },
      height: 300,
      node: name,
      index: (r, f) => [r, f],
      ctx,
      cursor: [row, 0],
      moved,
      hovered: (r) => light(ctx, { ...lit, [stack]: r ?? lit[stack] }),
    });
  });
  synchronise(pictures);
  root.append(worked);
  sum(worked, ctx, { stack, parts, slices }, row, 0);
  if (!parts.some(({ name }) => name.endsWith(".positions"))) root.append(el("p", { class: "lead" }, elsewhere(ctx, stack)));
}

/** Where positions come in, if they are not added here. */
function elsewhere({ model, trace }, stack) {
  if (model.recurrent) return "No positions are added here: the network reads one token after the other.";
  const turned = trace.nodes.filter(({ name, op }) => op === "rotate" && name.startsWith(`${stack}.`));
  const off = turned.filter(({ name }) => isEdited(trace, name));
  const where = "No positions are added here: they enter each attention as a rotation of Q and K";
  return off.length === 0 ? `${where}.`
    : off.length === turned.length ? "No positions are added here, and an edit switched off the rotation of Q and K by them."
    : `${where}, which an edit changes at ${off.map(({ name }) => name).join(", ")}.`; // prettier-ignore
}

/** What a matrix is, and whether an edit wrote over it. */
function wordsOf({ trace, nodes }, { name, op, local }) {
  const { scale = 1 } = nodes.get(name).facts;
  const words = op === "sine" ? WORDS.sine : WORDS[local] ?? WORDS[op] ?? "";
  const times = local === "tokens" && scale !== 1 ? `, times ${format(scale)}` : "";
  return `${words}${times}${isEdited(trace, name) ? "; an edit changes it in this run" : ""}`;
}

/** The row in focus: each stack has its own. */
const rowOf = (ctx, stack) => Math.min(Math.max(0, ctx.state[focusOf(ctx, stack)]), piecesOf(ctx.trace, stack).length - 1);

/** Light the word of each stack; the queries' is the strong one. */
function light(ctx, lit) {
  const order = Object.entries(lit).sort(([a], [b]) => (focusOf(ctx, a) === "token" ? -1 : focusOf(ctx, b) === "token" ? 1 : 0));
  ctx.light(...order.flat());
}

const WORDS = {
  tokens: "one row per id",
  positions: "one row per position",
  types: "one row per kind of segment",
  sine: "sines and cosines of the position",
  add: "added up",
  copy: "as it goes into the first block",
};

function pieces(ctx, stack) {
  const ids = ctx.trace.target_tokens && stack === "decoder" ? ctx.trace.target_ids : ctx.trace.ids;
  const cards = piecesOf(ctx.trace, stack).map((piece, i) =>
    el(
      "a",
      {
        class: "card",
        href: ctx.link(choosing(ctx, stack, i)),
        "aria-current": i === rowOf(ctx, stack) ? "true" : null,
        data: { keep: `card:${stack}:${i}` },
      },
      el("span", { class: "card-piece" }, show(piece)),
      el("span", { class: "card-id" }, String(ids[i])),
      el("span", { class: "card-at" }, `position ${i}`),
    ),
  );
  return el("div", { class: "cards", role: "group", "aria-label": "Pieces with their ids" }, cards);
}

/** out[i, f] = tokens[i, f] + positions[i, f] + …, where the graph says it is a sum. */
function sum(root, ctx, { stack, parts, slices }, r, f) {
  const at = new Map(parts.map(({ name }, i) => [name, i]));
  const [width, { absent }] = [slices[0].shape[1], slices[0]];
  const value = (name) => number(ctx, slices[at.get(name)].values[r * slices[at.get(name)].shape[1] + f], name, [r, f]);
  const added = parts.filter(({ op }) => op === "add");
  const line = ({ name, inputs }) => {
    const known = inputs.filter((input) => at.has(input));
    const terms = known.map((input, i) => [
      i ? " + " : null,
      value(input),
      el("span", { class: "from" }, ` ${input.split(".").at(-1)}`),
    ]);
    const of = (input) => slices[at.get(input)].values[r * width + f];
    const sum = known.reduce((total, input) => total + of(input), 0);
    const edited = isChanged(ctx.trace, name, of(name), sum) ? [format(sum), "; an edit made it "] : null;
    return el("p", { class: "worked" }, el("code", {}, `${name}[${r}, ${f}]`), " = ", terms, " = ", edited, value(name));
  };
  root.replaceChildren(el(
    "section",
    { class: "work" },
    el("h3", {}, `Feature ${f} of “${labelsOf(ctx.trace, stack)[r]}”`),
    absent?.[r * width + f] ? el("p", { class: "worked" }, `${absence(absent, r * width + f)}: there is no difference to work out.`)
      : added.length
      ? added.map(line)
      : el(
        "p",
        { class: "worked" },
        parts.map(({ name }) => [el("code", {}, `${name}[${r}, ${f}]`), " = ", value(name), " "]),
      ),
  ));
}

export default { id: "tokens", title: "Tokens", render };
