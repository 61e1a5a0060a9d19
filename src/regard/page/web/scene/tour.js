/**
 * A tour on the scene: views one after another, a sentence to each, and questions to be guessed before the answer is shown.
 *
 * In: a stage and the tour that the state names. Out: what the narration says instead of its own sentences, what is veiled until
 * the person has guessed, and a figure for a step without a model. Whoever does something else keeps what is seen, and a link
 * leads back. A tour is data: tours/*.js, a lesson or a teacher's file (both served as /api/tour).
 */

import { button, el } from "regard/dom.js";
import { fill } from "regard/scene/facts.js";
import { figureOf } from "regard/scene/figure.js";
import { DEFAULTS, KEYS, same, write } from "regard/state.js";
import { bundled } from "regard/tours/tours.js";
import { sentenceOf } from "regard/words/words.js";

/** Keys that a step of a tour leaves as they are. @type {Set<keyof State>} */
const OWN = new Set(["tour", "page", "present", "voice", "lang"]);
const VIEW = KEYS.filter((key) => !OWN.has(key));

/** @type {Map<string, Promise<Tour | null>>} */
const known = new Map();

/** The tour with this name; null if there is none. @param {Backend} backend @param {string} name */
export function tourOf(backend, name) {
  let tour = known.get(name);
  if (!tour) {
    tour = name ? found(backend, name) : Promise.resolve(null);
    known.set(name, tour);
    tour.catch(() => known.delete(name));
  }
  return tour;
}

/** @param {Backend} backend @param {string} name */
async function found(backend, name) {
  const own = bundled(name);
  if (own) return own;
  const served = await backend.tours();
  return served.some((one) => one.name === name) ? backend.tour(name) : null;
}

/** @param {Tour} tour @param {State} state */
export const titleOf = ({ name, title }, { lang, voice }) => sentenceOf(lang, voice, `tour.${name}.title`) ?? title ?? name;

/** The address of a tour's beginning: its first step says what is seen. @param {State} state @param {string} name */
export function beginning(state, name) {
  const own = Object.fromEntries([...OWN].map((key) => [key, state[key]]));
  return write({ ...DEFAULTS, ...own, tour: name, page: 0 });
}

/** Whether nobody has said what to see. @param {State} state */
export const isFresh = (state) => !state.tour && same(state, DEFAULTS, VIEW);

/** Which step the state is at. @param {Tour} tour @param {number} page */
const at = (tour, page) => Math.min(Math.max(0, page), tour.steps.length - 1);

/**
 * The change of state that leads to a step, as it is before or after its answer is shown.
 * @param {Tour} tour @param {number} page @param {boolean} [revealed] @returns {Change}
 */
export function placeOf(tour, page, revealed = false) {
  const step = tour.steps[at(tour, page)];
  const view = { ...step.view, ...(step.figure ? { stage: "figure" } : {}), ...(revealed ? step.reveal : {}) };
  const rest = Object.fromEntries(VIEW.map((key) => [key, view[key] ?? DEFAULTS[key]]));
  return { ...rest, ...(view.voice ? { voice: view.voice } : {}), tour: tour.name, page: at(tour, page) };
}

/** Whether the state is what a step says. @param {State} state @param {Change} place */
const isAt = (state, place) => same(state, { ...DEFAULTS, ...place }, VIEW);

/** What was guessed, by tour and step; "" if someone only looked. @type {Map<string, string>} */
const guessed = new Map();

/** @typedef {{ away: boolean, revealed: boolean }} Now */
/** @typedef {{ stage: Stage, tour: Tour, page: number, now: Now, play: () => unknown, redraw: () => void }} Here */

/** The step on the screen. @type {Here | null} */
let here = null;

/** @param {Stage} stage @param {Tour} tour @param {number} page @returns {Now} */
function nowOf({ ctx: { state } }, tour, page) {
  const step = tour.steps[page];
  const after = step.reveal ? isAt(state, placeOf(tour, page, true)) : false;
  const away = !after && !isAt(state, placeOf(tour, page));
  const told = step.reveal ? after : guessed.has(`${tour.name}/${page}`);
  return { away, revealed: !asks(step) || told };
}

/** @param {TourStep} step */
const asks = ({ choices, question, reveal: change }) => Boolean(choices?.length || question || change);

/**
 * @param {Stage} stage @param {Tour | null} tour @param {{ redraw: () => void, play: () => unknown }} does
 * @returns {Guide}
 */
export function guide(stage, tour, { redraw, play }) {
  if (!tour) {
    here = null;
    return { hidden: false, figure: null, words: {}, veil: (picture) => picture };
  }
  const page = at(tour, stage.ctx.state.page);
  const now = nowOf(stage, tour, page);
  here = { stage, tour, page, now, redraw, play };
  const step = tour.steps[page];
  if (now.away) return { hidden: false, figure: null, words: { foot: wayBack(here) }, veil: (picture) => picture };
  const hides = now.revealed ? [] : (step.hides ?? ["answer", "guesses"]);
  return {
    hidden: hides.includes("answer"),
    figure: step.figure ? figureOf(step.figure, now.revealed) : null,
    words: { ...sentences(here), foot: [dots(here), steps(here)] },
    veil: (picture) => veiled(picture, hides, step.spot ?? []),
  };
}

/**
 * Show the answer; `guess` is what the person said. False if there is nothing to show.
 * @param {string} [guess]
 */
export function reveal(guess = "") {
  if (!here || here.now.away || here.now.revealed) return false;
  const { tour, page, stage, redraw, play } = here;
  const step = tour.steps[page];
  guessed.set(`${tour.name}/${page}`, guess);
  if (step.reveal) stage.ctx.go(placeOf(tour, page, true));
  else redraw();
  if (step.flow) play();
  return true;
}

/** Whether something else than the tour's step is looked at. */
export const isAway = () => here?.now.away ?? true;

/** To the next step, its answer first; or to the one before. False if no tour is on. @param {number} by */
export function advance(by) {
  if (!here) return false;
  if (by > 0 && reveal()) return true;
  const page = here.page + by;
  if (page >= 0 && page < here.tour.steps.length) here.stage.ctx.go(placeOf(here.tour, page));
  return true;
}

/**
 * A sentence of a step: the table of the language first, then what the tour itself says.
 * @param {Here} at @param {string} part @param {string} [own]
 */
function sentence({ stage, tour, page, redraw }, part, own = "") {
  const { lang, voice } = stage.ctx.state;
  const template = sentenceOf(lang, voice, `tour.${tour.name}.${page + 1}.${part}`) ?? own;
  return fill(template, stage, { guess: guessed.get(`${tour.name}/${page}`), more: redraw });
}

/** @param {Here} at */
function sentences(at) {
  const { tour, page, now, stage } = at;
  const step = tour.steps[page];
  const answer = asks(step) && now.revealed ? sentence(at, "answer", step.answer) : "";
  return {
    bold: sentence(at, "bold", step.bold),
    plain: answer || sentence(at, "plain", step.plain),
    actions: [
      asks(step) ? chips(at) : null,
      step.flow && now.revealed
        ? button(stage.say("tour.again", {}), at.play, { class: "switch", data: { keep: "tour:again" } })
        : null,
      step.real && stage.ctx.models.some(({ name }) => name === step.real?.model)
        ? el(
            "a",
            { class: "tour-real", href: stage.ctx.link(realOf(at)), data: { keep: "tour:real" } },
            stage.say("tour.real", {}),
          )
        : null,
    ],
  };
}

/** The same in a model, away from the tour. @param {Here} at */
function realOf({ tour, page }) {
  const rest = Object.fromEntries(VIEW.map((key) => [key, DEFAULTS[key]]));
  return { ...rest, ...tour.steps[page].real, tour: tour.name, page };
}

/**
 * What can be guessed. Afterwards the guess is marked, and what is right if the tour says so.
 * @param {Here} at
 */
function chips(at) {
  const { tour, page, now, stage } = at;
  const step = tour.steps[page];
  const guess = guessed.get(`${tour.name}/${page}`);
  const right = now.revealed && step.right ? fill(step.right, stage) : null;
  const all = (step.choices ?? []).map(({ is, say }, i) => {
    const words = sentence(at, `choice.${is}`, say ?? is);
    const chosen = guess === is;
    return button([words, right === is ? el("span", { class: "tour-right" }, " ✓") : null], () => reveal(is), {
      class: `chip-guess${chosen ? " chosen" : ""}${right === is ? " right" : ""}`,
      disabled: now.revealed,
      "aria-pressed": String(chosen),
      data: { keep: `tour:choice:${i}` },
    });
  });
  const open = button(stage.say("tour.reveal", {}), () => reveal(), { class: "quiet", data: { keep: "tour:reveal" } });
  const question = sentence(at, "question", step.question) || stage.say("tour.guess", {});
  return [all, now.revealed ? null : [el("span", { class: "tour-question" }, question), open]];
}

/** @param {Here} at */
function dots({ tour, page, stage: { ctx, say } }) {
  const dot = (/** @type {unknown} */ _, /** @type {number} */ i) =>
    el(
      "li",
      {},
      el("a", {
        class: "dot",
        href: ctx.link(placeOf(tour, i)),
        "aria-label": say("tour.step", { step: i + 1, of: tour.steps.length }),
        "aria-current": i === page ? "step" : null,
        data: { keep: `tour:dot:${i}` },
      }),
    );
  return el("ol", { class: "dots" }, tour.steps.map(dot));
}

/** @param {Here} at */
function steps({ tour, page, stage: { ctx, say } }) {
  /** @param {number} to @param {string} sign @param {string} label */
  const way = (to, sign, label) =>
    tour.steps[to]
      ? el(
          "a",
          { class: "tour-way", href: ctx.link(placeOf(tour, to)), "aria-label": say(label, {}), data: { keep: label } },
          sign,
        )
      : el("span", { class: "tour-way", "aria-hidden": "true" }, sign);
  const title = titleOf(tour, ctx.state);
  return el(
    "span",
    { class: "tour-steps" },
    way(page - 1, "←", "tour.back"),
    way(page + 1, "→", "tour.next"),
    el("span", { class: "tour-at" }, say("tour.at", { step: page + 1, of: tour.steps.length })),
    el("span", { class: "tour-title" }, title),
    el(
      "a",
      {
        class: "tour-way",
        href: ctx.link(leave(ctx.state)),
        "aria-label": say("tour.leave", {}),
        title: say("tour.leave", {}),
      },
      "×",
    ),
  );
}

/** @param {State} state */
const leave = ({ stage }) => ({ tour: "", page: 0, ...(stage === "figure" ? { stage: "scene" } : {}) });

/** The way back to the tour, once something else was done. @param {Here} at */
function wayBack({ tour, page, stage: { ctx, say } }) {
  const title = titleOf(tour, ctx.state);
  return el(
    "span",
    { class: "tour-steps" },
    el(
      "a",
      { class: "tour-return", href: ctx.link(placeOf(tour, page)), data: { keep: "tour:return" } },
      say("tour.return", { title, step: page + 1, of: tour.steps.length }),
    ),
    el(
      "a",
      {
        class: "tour-way",
        href: ctx.link(leave(ctx.state)),
        "aria-label": say("tour.leave", {}),
        title: say("tour.leave", {}),
      },
      "×",
    ),
  );
}

/** What the scene's parts are called in a tour, by the keys of their marks and things. @type {{ [part: string]: RegExp }} */
const PARTS = {
  answer: /^(answer|bar|percent|ghost):/,
  guesses: /^guess:/,
  arcs: /^arc:/,
  words: /^(word|column):/,
  vectors: /^vector:/,
  streams: /^stream:/,
  effects: /^effect:/,
  matrix: /^(head:|ribbon:|share|strip|value|sum$)/,
};

/**
 * A picture without what is hidden, and with what is not spoken of in the background.
 * @param {Picture} picture @param {string[]} hides @param {string[]} spot @returns {Picture}
 */
function veiled({ marks, things }, hides, spot) {
  const gone = hides.filter((part) => part !== "answer"); // the answer is drawn with question marks
  /** @param {string} key @param {string[]} parts */
  const among = (key, parts) => parts.some((part) => PARTS[part]?.test(key));
  /** @template {Mark | Thing} M @param {M[]} all @returns {M[]} */
  const seen = (all) =>
    all
      .filter(({ key }) => !among(key, gone))
      .map((one) =>
        spot.length && !among(one.key, spot) ? { ...one, g: { ...one.g, alpha: (one.g.alpha ?? 1) * 0.3 } } : one,
      );
  const silent = hides.includes("answer") ? { title: undefined } : {}; // nor does a title tell
  return {
    marks: seen(marks),
    things: seen(things).map((one) => (PARTS.answer.test(one.key) ? { ...one, ...silent } : one)),
  };
}
