/**
 * Tokens and embedding: from text to the first matrix of numbers.
 *
 * In: pieces and ids, and the nodes of the embedding. Out: a table of pieces, then the matrices that are added (token
 * rows, positions, kinds) and their sum, and the sum worked out for the feature in focus.
 */

import { absence } from "regard/delta.js";
import { el, format, number, sentence } from "regard/dom.js";
import { matrix, synchronise } from "regard/matrix.js";
import { isChanged, isEdited } from "regard/parts/captions.js";
import { nodeOf, wayTo } from "regard/parts/wiring.js";
import { choosing, focusOf, labelsOf, piecesOf, show } from "regard/tokens.js";

/** @typedef {{ [stack: StackName]: number }} Lit */
/** @typedef {{ stack: StackName, parts: GraphNode[], slices: Slice[] }} Part */
/** @typedef {keyof typeof TITLES} PartRole */

const TITLES = { token: "Token embeddings", position: "Positions", segment: "Segments", sum: "Sum", out: "Embedding" };

/** @param {HTMLElement} root @param {Context} ctx */
async function render(root, ctx) {
  const stacks = ctx.trace.target_tokens ? ["encoder", "decoder"] : [ctx.model.stacks[0].name];
  const lit = Object.fromEntries(stacks.map((stack) => [stack, rowOf(ctx, stack)]));
  for (const stack of stacks) await one(root, ctx, { stack, lit });
  light(ctx, lit);
}

/** @param {HTMLElement} root @param {Context} ctx @param {{ stack: StackName, lit: Lit }} given */
async function one(root, ctx, { stack, lit }) {
  root.append(
    el(
      "h2",
      { class: "stage-title" },
      ctx.trace.target_tokens ? `${stack} · tokens and embedding` : "Tokens and embedding",
    ),
  );
  root.append(
    el(
      "p",
      { class: "lead" },
      "The tokenizer cuts the text into pieces; each piece has an id, and the id picks a row of the embedding matrix.",
    ),
  );
  root.append(pieces(ctx, stack));
  const made = ctx.trace.wiring.embeddings[stack].flatMap((name) => ctx.nodes.get(name) ?? []);
  const parts = made.filter((node) => node === made.at(-1) || (node.op !== "normalise" && node.op !== "affine"));
  if (!parts.length) {
    root.append(sentence("empty", "This run kept no embedding; run it again with all of its sites."));
    return;
  }
  const slices = await Promise.all(parts.map(({ name }) => ctx.data.slice(name)));
  const focus = focusOf(ctx, stack);
  const row = rowOf(ctx, stack);
  const worked = el("div", { class: "focus" });
  /** @param {number} r @param {number} f */
  const moved = (r, f) => {
    ctx.note({ [focus]: r });
    lit[stack] = r;
    light(ctx, lit);
    sum(worked, ctx, { stack, parts, slices }, r, f);
  };
  const pictures = parts.map((node, i) => {
    const { name } = node;
    const role = roleOf(ctx, node, parts);
    return matrix(root, {
      ...slices[i],
      rows: labelsOf(ctx.trace, stack),
      title: TITLES[role],
      subtitle: wordsOf(ctx, node, role),
      axes: ["token", "feature"],
      say: name.split(".").at(-1),
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
  if (!parts.some(({ facts }) => facts.role === "position")) root.append(el("p", { class: "lead" }, elsewhere(ctx, stack)));
}

/**
 * What a node of the embedding is: a row of a table, their sum, or what goes into the first block.
 * @param {Context} ctx @param {GraphNode} node @param {GraphNode[]} parts @returns {PartRole}
 */
function roleOf({ nodes }, node, parts) {
  if (node === parts.at(-1)) return "out";
  return node.facts.role ?? (node.inputs.some((input) => nodes.has(input)) ? "sum" : "segment");
}

/**
 * Where positions come in, if they are not added here.
 * @param {Context} ctx @param {string} stack
 */
function elsewhere({ model, trace, nodes }, stack) {
  if (model.recurrent) return "No positions are added here: the network reads one token after the other.";
  const sites = trace.sites.filter((site) => site.stack === stack);
  const compared = sites.flatMap(({ Q, K }) => [Q, K]).flatMap((name) => nodes.get(name) ?? []);
  const turned = compared
    .flatMap(({ name }) => wayTo(nodes, name))
    .map((name) => nodeOf({ nodes }, name))
    .filter(({ op }) => op === "rotate");
  if (!turned.length) return "No positions are added here, and Q and K are not turned by them.";
  const off = turned.filter(({ name }) => isEdited(trace, name));
  const where = "No positions are added here: they enter each attention as a rotation of Q and K";
  return off.length === 0
    ? `${where}.`
    : off.length === turned.length
      ? "No positions are added here, and an edit switched off the rotation of Q and K by them."
      : `${where}, which an edit changes at ${off.map(({ name }) => name).join(", ")}.`;
}

/**
 * What a matrix is, and whether an edit wrote over it.
 * @param {Context} ctx @param {GraphNode} node @param {PartRole} role
 */
function wordsOf({ trace }, { name, op, facts: { by = 1 } }, role) {
  const words = op === "sinusoid" ? WORDS.sinusoid : (WORDS[role] ?? WORDS[op] ?? "");
  const times = role === "token" && by !== 1 ? `, times ${format(by)}` : "";
  return `${words}${times}${isEdited(trace, name) ? "; an edit changes it in this run" : ""}`;
}

/**
 * The row in focus: each stack has its own.
 * @param {Context} ctx @param {string} stack
 */
const rowOf = (ctx, stack) => Math.min(Math.max(0, ctx.state[focusOf(ctx, stack)]), piecesOf(ctx.trace, stack).length - 1);

/**
 * Light the word of each stack; the queries' is the strong one.
 * @param {Context} ctx @param {Lit} lit
 */
function light(ctx, lit) {
  const order = Object.entries(lit).sort(([a], [b]) =>
    focusOf(ctx, a) === "token" ? -1 : focusOf(ctx, b) === "token" ? 1 : 0,
  );
  ctx.light(...order.flat());
}

/** @type {{ [name: string]: string }} */
const WORDS = {
  token: "one row per id",
  position: "one row per position",
  segment: "one row per kind of segment",
  sinusoid: "sines and cosines of the position",
  add: "added up",
  copy: "as it goes into the first block",
};

/** @param {Context} ctx @param {string} stack */
function pieces(ctx, stack) {
  const ids = (stack === "decoder" ? ctx.trace.target_ids : null) ?? ctx.trace.ids;
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

/**
 * out[i, f] = tokens[i, f] + positions[i, f] + …, where the graph says it is a sum.
 * @param {HTMLElement} root @param {Context} ctx @param {Part} part @param {number} r @param {number} f
 */
function sum(root, ctx, { stack, parts, slices }, r, f) {
  const found = new Map(parts.map(({ name }, i) => [name, slices[i]]));
  const [width, { absent }] = [slices[0].shape[1], slices[0]];
  /** @param {string} name */
  const of = (name) => {
    const slice = found.get(name);
    return slice ? slice.values[r * slice.shape[1] + f] : NaN;
  };
  /** @param {string} name */
  const value = (name) => number(ctx, of(name), name, [r, f]);
  const added = parts.filter(({ op }) => op === "add");
  /** @param {GraphNode} graphNode */
  const line = ({ name, inputs }) => {
    const known = inputs.filter((input) => found.has(input));
    const terms = known.map((input, i) => [
      i ? " + " : null,
      value(input),
      el("span", { class: "from" }, ` ${input.split(".").at(-1)}`),
    ]);
    const sum = known.reduce((total, input) => total + of(input), 0);
    const edited = isChanged(ctx.trace, name, of(name), sum) ? [format(sum), "; an edit made it "] : null;
    return el("p", { class: "worked" }, el("code", {}, `${name}[${r}, ${f}]`), " = ", terms, " = ", edited, value(name));
  };
  root.replaceChildren(
    el(
      "section",
      { class: "work" },
      el("h3", {}, `Feature ${f} of “${labelsOf(ctx.trace, stack)[r]}”`),
      absent?.[r * width + f]
        ? el("p", { class: "worked" }, `${absence(absent, r * width + f, "")}: there is no difference to work out.`)
        : added.length
          ? added.map(line)
          : el(
              "p",
              { class: "worked" },
              parts.map(({ name }) => [el("code", {}, `${name}[${r}, ${f}]`), " = ", value(name), " "]),
            ),
    ),
  );
}

export default { id: "tokens", title: "Tokens", render };
