/**
 * The steps of a recurrent network: a state that goes from token to token, and the gates that decide what stays of it.
 *
 * In: the run and `state.view` = "encoder" | "decoder". Out: the reset gate, the update gate, the candidate and the state as
 * matrices of tokens by units that move together, and the cell in focus worked out: h = (1 − z) n + z h'.
 */

import { alone, apart } from "regard/delta.js";
import { choice, el, format, formula, number, sentence } from "regard/dom.js";
import { matrix, synchronise } from "regard/matrix.js";
import { stackOf, workedFor } from "regard/parts/run.js";
import { choosing, focusOf, labelsOf } from "regard/tokens.js";

/** @typedef {[key: GatePart, title: string, words: string, scale: Scale]} Picture */
/** @typedef {Lenses["gates"]} Gates */
/** @typedef {{ stack: StackName, node: string, labels: string[], hidden: number }} Place */

/**
 * The states that a stack's GRU made, or those of its two side by side.
 * @param {Context} ctx @param {StackName} stack
 */
function statesOf({ trace }, stack) {
  const axis = stack === "encoder" ? "source" : "target";
  const made = trace.nodes.filter(({ op, axes }) => op === "blend" && axes[0] === axis).map(({ name }) => name);
  const both = trace.nodes.find(
    ({ op, inputs }) => op === "beside" && inputs.length && inputs.every((input) => made.includes(input)),
  );
  return both?.name ?? made[0];
}

const LEADS = {
  encoder:
    "The source is read one token after the other, once forwards and once backwards; at each token a state is carried on, " +
    "partly kept and partly written anew.",
  decoder:
    "The target is written one word after the other. At each, the state takes in the word before and what was read from the " +
    "source.",
};

/**
 * What is drawn: key of the lens, title, words, scale.
 * @type {Picture[]}
 */
const PARTS = [
  ["r", "reset gate r", "how much of the state before the candidate sees: 0 nothing, 1 all", "sequential"],
  ["z", "update gate z", "how much of the state before stays: 0 nothing, 1 all", "sequential"],
  ["n", "candidate n", "what would be written, between −1 and 1", "diverging"],
  ["after", "state h", "(1 − z) n + z times the state before", "diverging"],
];

/** @param {HTMLElement} root @param {Context} ctx */
async function render(root, ctx) {
  const stack = ctx.state.view === "encoder" ? "encoder" : "decoder";
  const node = statesOf(ctx, stack);
  if (!ctx.nodes.has(node))
    return root.append(sentence("empty", "This model takes no steps: it reads all tokens at once."));
  const { hidden = 0 } = stackOf(ctx, stack);
  root.append(
    el("h2", { class: "stage-title" }, `${stack} · the GRU, step by step`),
    el(
      "div",
      { class: "controls" },
      choice(
        "Stack",
        [
          ["encoder", "encoder: reading"],
          ["decoder", "decoder: writing"],
        ],
        stack,
        (view) => ctx.go({ view }),
      ),
    ),
    el("p", { class: "lead" }, LEADS[stack]),
    el("p", { class: "lead" }, formula("h = (1 − z) n + z h'"), el("span", { class: "hint" }, "; h' is the state before")),
  );
  const [shown, run] = await gather(ctx, stack, node);
  const labels = labelsOf(ctx.trace, stack);
  const focus = focusOf(ctx, stack);
  const row = Math.min(Math.max(0, ctx.state[focus]), labels.length - 1);
  const below = el("div", { class: "focus" });
  /** @param {number} i @param {number} c */
  const draw = (i, c) => worked(below, ctx, { stack, node, labels, hidden }, run, i, c);
  /** @param {number} i @param {number} c */
  const moved = (i, c) => {
    ctx.note(choosing(ctx, stack, i));
    ctx.light(stack, i);
    draw(i, c);
  };
  /** @param {Picture} picture */
  const picture = ([key, title, words, scale]) =>
    matrix(root, {
      ...shown[key],
      rows: labels,
      title: ctx.mode === "delta" ? `Δ ${title}` : title,
      subtitle: ctx.mode === "delta" ? "after − before" : words,
      axes: ["token", "unit"],
      scale: ctx.mode === "delta" ? "diverging" : scale,
      say: title,
      fit: true,
      cell: { h: 20, max: 40 },
      height: 260,
      gutter: 96,
      node: key === "after" ? node : undefined,
      index: (i, c) => [i, c],
      ctx,
      cursor: [row, 0],
      moved,
      hovered: (i) => ctx.light(stack, i ?? row),
    });
  synchronise(PARTS.map(picture));
  const ways = `Units 0 to ${hidden - 1} read forwards, ${hidden} to ${2 * hidden - 1} backwards.`;
  if (stack === "encoder") root.append(el("p", { class: "hint" }, ways));
  root.append(below);
  ctx.light(stack, row);
  draw(row, 0);
}

/**
 * What is shown (with Δ the difference), and the run it is worked out for.
 * @param {Context} ctx @param {"encoder" | "decoder"} stack @param {string} node
 * @returns {Promise<[shown: { [part: string]: Slice }, run: Gates]>}
 */
async function gather(ctx, stack, node) {
  /** @param {RunData} data */
  const ask = (data) => data.lens("gates", { node });
  /** @param {Gates} run @param {GatePart} key */
  const tensor = (run, key) => ({ shape: run.shape, values: Float32Array.from(run[key]) });
  /** @param {(key: GatePart) => Slice} of @returns {{ [part: string]: Slice }} */
  const each = (of) => Object.fromEntries(PARTS.map(([key]) => [key, of(key)]));
  if (ctx.mode !== "delta") {
    const run = await ask(ctx.data);
    return [each((key) => tensor(run, key)), run];
  }
  const [[before, after], partners] = await Promise.all([ctx.data.both(ask), ctx.data.partners()]);
  const map = stack === "decoder" ? partners.target : partners.source;
  /** @param {GatePart} key */
  const changed = (key) =>
    before ? apart(tensor(after, key), tensor(before, key), [map, null]) : alone(tensor(after, key));
  return [each(changed), after];
}

/**
 * One unit at one token, with its numbers; the state before is a link where it is a state of this run.
 * @param {HTMLElement} root @param {Context} ctx @param {Place} place @param {Gates} run @param {number} i
 * @param {number} c
 */
function worked(root, ctx, { stack, node, labels, hidden }, run, i, c) {
  const at = i * run.shape[1] + c;
  const [r, z, n, old, now] = [run.r, run.z, run.n, run.before, run.after].map((part) => part[at]);
  const from = i + (stack === "encoder" && c >= hidden ? 1 : -1);
  const known = from >= 0 && from < labels.length;
  const past = known ? number(ctx, old, node, [from, c]) : el("span", { class: "number" }, format(old));
  const first =
    stack === "encoder"
      ? "before the first token it is 0"
      : "before the first word it comes from what was read of the source";
  root.replaceChildren(
    el(
      "section",
      { class: "work" },
      el("h3", {}, `Unit ${c} at “${labels[i]}”`),
      workedFor(ctx),
      el(
        "p",
        { class: "worked" },
        formula("h = (1 − z) n + z h'"),
        ` = (1 − ${format(z)}) · ${n < 0 ? `(${format(n)})` : format(n)} + ${format(z)} · `,
        old < 0 ? ["(", past, ")"] : past,
        " = ",
        number(ctx, now, node, [i, c]),
      ),
      el(
        "p",
        { class: "hint" },
        `r = ${format(r)}: the candidate sees ${Math.round(100 * r)} % of the state before. `,
        `z = ${format(z)}: ${Math.round(100 * z)} % of it stays. `,
        known ? `The state before is that at “${labels[from]}”.` : `There is no token before: ${first}.`,
      ),
    ),
  );
}

export default { id: "steps", title: "Steps", render };
