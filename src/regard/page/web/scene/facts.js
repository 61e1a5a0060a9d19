/**
 * Facts: what a tour's sentence may name of the run beside it, as {answer}, {percent} or {guess:decoder.1}.
 *
 * In: a template and a stage. Out: the sentence with this run's words and numbers, edits included; "…" where a number has not
 * arrived yet. teach/tour_file.py checks a teacher's sentences against the same names (FACTS there).
 */

import { format } from "regard/dom.js";
import { percent } from "regard/scene/whole.js";
import { looking } from "regard/scene/world.js";
import { show } from "regard/tokens.js";

const WAITING = "…";

/** A piece of text as a person reads it, without the space before it. @param {string | undefined} piece */
const word = (piece) => (piece === undefined ? null : show(piece).replace(/^·/, ""));

/** Of 100, with the decimal that the answer's bars have. @param {number | undefined} p */
const exactly = (p) => (p === undefined ? null : (100 * p).toFixed(1));

/** @typedef {(stage: Stage, of: string) => string | number | null | undefined} Fact */

/** @type {{ [name: string]: Fact }} */
const FACTS = {
  n: ({ world, lane }) => lane(world.stack).length,
  d: ({ ctx }) => ctx.model.d,
  vocabulary: ({ ctx }) => ctx.model.vocabulary,
  parameters: ({ ctx }) => inWords(ctx.model.parameters),
  blocks: ({ world }) => world.blocks.length,
  heads: ({ ctx }) => ctx.site?.heads,
  kv_heads: ({ ctx }) => ctx.model.stacks.at(-1)?.kv_heads,
  d_k: ({ ctx }) => ctx.nodes.get(ctx.site?.Q)?.shape.at(-1),
  block: ({ ctx }) => ctx.site?.layer,
  head: ({ ctx }) => ctx.head,
  word: ({ world, lane }) => word(lane(world.stack)[world.focus]),
  piece: ({ world, lane }, i) => word(lane(world.stack)[Number(i) - 1]),
  answer: ({ world }, i) => word(world.answer?.rows[Number(i || 1) - 1]?.piece),
  percent: ({ world }, of) =>
    of === "" || Number(of)
      ? exactly(world.answer?.rows[Number(of || 1) - 1]?.probability)
      : rounded(world.guesses.get(`${of}.out`)?.[2]),
  guess: ({ world }, place) => word(world.guesses.get(`${place}.out`)?.[0]),
  looks: (stage) => word(keysOf(stage)[most(stage)?.j ?? -1]),
  share: (stage) => rounded(most(stage)?.weight),
  other: (stage) => word(keysOf(stage)[stage.ctx.state.key]),
  weight: (stage) => rounded(row(stage)?.[stage.ctx.state.key]),
  was: ({ world }) => word(world.ghosts?.rows[0].piece),
  before: ({ world }) => exactly(world.ghosts?.rows[0].probability),
  after: ({ world }) => exactly(after(world)?.probability),
  fate: ({ world }) => fate(world),
  value: ({ ctx }) => numbers.get(asked(ctx)),
};

/** @param {number | undefined} p */
const rounded = (p) => (p === undefined ? null : percent(p));

/** 0.9 M @param {number} n */
const inWords = (n) => (n >= 1e6 ? `${(n / 1e6).toFixed(0)} M` : `${(n / 1e6).toFixed(1)} M`);

/** The words that the site's keys are made of. @param {Stage} stage */
const keysOf = ({ ctx: { site }, world, lane }) => lane(site?.kind === "cross" ? world.lanes[0].stack : world.stack);

/** What the word in focus looks at, in the head that is looked at. @param {Stage} stage */
function row({ ctx: { site, head }, world }) {
  const weights = world.weights.get(site?.site ?? "");
  return weights && site?.stack === world.stack ? looking(weights, world.focus, head) : null;
}

/** @param {Stage} stage */
function most(stage) {
  const weights = row(stage);
  if (!weights) return null;
  const j = weights.reduce((best, a, c) => (a > weights[best] ? c : best), 0);
  return { j, weight: weights[j] };
}

/** What has become of the word that led before an edit. @param {World} world */
const after = ({ answer, ghosts }) => answer?.rows.find(({ id }) => id === ghosts?.rows[0].id);

/** … in a word, to compare a guess with: "other" if it leads no more, else "more", "less" or "same". @param {World} world */
function fate(world) {
  const [was, now] = [world.ghosts?.rows[0], after(world)];
  if (!was || !world.answer) return null;
  if (world.answer.rows[0].id !== was.id) return "other";
  const change = (now?.probability ?? 0) - was.probability;
  return Math.abs(change) < 0.005 ? "same" : change > 0 ? "more" : "less";
}

/** Numbers of runs that a sentence named. @type {Map<string, string>} */
const numbers = new Map();

/** @param {Context} ctx */
const asked = ({ trace, state }) => JSON.stringify([trace.trace, state.node, state.index]);

/** Ask for the number that the state names; `more()` when it has arrived. @param {Context} ctx @param {() => void} more */
function ask(ctx, more) {
  const key = asked(ctx);
  const { node, index } = ctx.state;
  if (!node || numbers.has(key)) return;
  if (numbers.size > 64) numbers.clear();
  numbers.set(key, WAITING);
  ctx.data
    .of(ctx.trace)
    .slice(node, index)
    .then(({ values }) => {
      numbers.set(key, format(values[0], 3));
      more();
    })
    .catch(() => numbers.delete(key));
}

/**
 * Fill in a template.
 * @param {string} template @param {Stage} stage @param {{ guess?: string, more?: () => void }} [given] guess: the person's own
 */
export function fill(template, stage, { guess = "", more = () => {} } = {}) {
  return template.replace(/\{(\w+)(?::([^{}]*))?\}/g, (whole, name, of = "") => {
    if (name === "mine") return guess;
    if (name === "value") ask(stage.ctx, more);
    if (!Object.hasOwn(FACTS, name)) return whole;
    return String(FACTS[name](stage, of) ?? WAITING);
  });
}
