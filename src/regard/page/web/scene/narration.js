/**
 * The narration: what is seen here, in one bold sentence and one plain one, and what can be done.
 *
 * In: a stage. Out: the band below the scene. Sentences are made from the run on the screen, edits included; the three voices say the
 * same of it without symbols (story), with its numbers, or in mathematics.
 */

import { button, choice, el } from "regard/dom.js";
import { inWords, offers } from "regard/edits.js";
import { openTerm } from "regard/scene/glossary.js";
import { sentences } from "regard/scene/sentences.js";
import { wordOf } from "regard/tokens.js";

export const VOICES = ["story", "numbers", "mathematics"];

/** @param {HTMLElement} root @param {Stage} stage @param {{ bold?: string, plain?: string, actions?: Child, foot?: Child }} [tour] */
export function narration(root, stage, tour = {}) {
  const { bold, plain } = tour.bold === undefined ? sentences(stage) : { bold: tour.bold, plain: tour.plain ?? "" };
  root.replaceChildren(
    el("p", { class: "bold" }, worded(stage, bold)),
    el("p", { class: "plain" }, worded(stage, plain)),
    el("div", { class: "actions" }, tour.actions ?? switches(stage), effect(stage)),
    el("div", { class: "narration-foot" }, tour.foot, voices(stage)),
  );
}

/**
 * Instead of a narration: what is being waited for, or why something is not there, and what can be done.
 * @param {HTMLElement} root @param {"busy" | "error"} kind @param {string} words @param {Child} [actions]
 */
export function notice(root, kind, words, actions = null) {
  const said = el("p", { class: `bold ${kind}`, role: kind === "error" ? "alert" : "status" }, words);
  root.replaceChildren(said, el("div", { class: "actions" }, actions));
}

/**
 * `[[term]]` becomes a word that opens the glossary.
 * @param {Stage} stage @param {string} text
 */
export function worded({ say }, text) {
  return text.split(/\[\[(.+?)\]\]/).map((part, i) => {
    if (i % 2 === 0) return part;
    const [term, shown = term] = part.split("|");
    return button(shown, () => openTerm(say, term), { class: "term", "aria-haspopup": "dialog" });
  });
}

/** What can be off at this depth, as switches on the thing itself. @param {Stage} stage */
function switches(stage) {
  const { ctx, depth, say } = stage;
  const site = ctx.site?.site ?? "";
  const place = site.slice(0, site.lastIndexOf("."));
  /** @param {string} one */
  const depthOf = (one) => (one.startsWith(`${site}.`) ? 2 : one.startsWith(`${place}.`) ? 1 : 0);
  const focused = { ...ctx, state: { ...ctx.state, token: stage.world.focus } };
  const here = offers(focused).filter(([, one]) => depthOf(one) === Math.min(depth, 2));
  const chips = here.flatMap(([label, place, what]) => {
    const on = place in ctx.state.edits;
    if (!on && !ctx.can(place, what)) return [];
    const press = () => {
      if (!on) return ctx.edit(place, what);
      const { [place]: _, ...rest } = ctx.state.edits;
      ctx.go({ edits: rest });
    };
    return [button(label, press, { class: "switch", "aria-pressed": String(on), data: { keep: `switch:${place}` } })];
  });
  const others = Object.keys(ctx.state.edits).filter((place) => !here.some(([, one]) => one === place));
  const undo = others.map((place) =>
    button(
      `${inWords(place, ctx.state.edits[place])} ×`,
      () => {
        const { [place]: _, ...rest } = ctx.state.edits;
        ctx.go({ edits: rest });
      },
      { class: "switch", "aria-pressed": "true", title: say("edit.undo", {}) },
    ),
  );
  return [...chips, ...undo];
}

/** What the edits do to the answer, in one line; held down, B shows the run before. @param {Stage} stage */
function effect({ ctx, world, say }) {
  if (!Object.keys(ctx.state.edits).length || !world.ghosts || !world.answer) return null;
  const was = world.ghosts.rows[0];
  const now = world.answer.rows.find(({ id }) => id === was.id);
  const leader = world.answer.rows[0];
  const words = say(leader.id === was.id ? "edit.effect" : "edit.effect.other", {
    piece: wordOf(was.piece),
    before: (100 * was.probability).toFixed(1),
    after: (100 * (now?.probability ?? 0)).toFixed(1),
    other: wordOf(leader.piece),
    percent: (100 * leader.probability).toFixed(1),
  });
  return [
    el("span", { class: "effect-line", role: "status" }, words),
    button(say("edit.compare", {}), () => ctx.go({ mode: ctx.state.mode === "a" ? "b" : "a" }), { class: "quiet" }),
  ];
}

/** @param {Stage} stage */
function voices({ ctx, say }) {
  const options = VOICES.map((voice) => /** @type {[string, string]} */ ([voice, say(`voice.${voice}`, {})]));
  return choice(say("voice", {}), options, ctx.state.voice, (voice) => ctx.go({ voice }));
}
