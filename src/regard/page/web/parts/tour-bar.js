/**
 * The tour while the person is at a table: its name and the way back to the scene.
 *
 * In: a context whose state names a tour. Out: an element, or null when no tour is on.
 */

import { el } from "regard/dom.js";
import { placeOf, titleOf, tourOf } from "regard/scene/tour.js";
import { sayer } from "regard/words/words.js";

/** @param {Context} ctx */
export async function tourBar(ctx) {
  const { tour: name, page, lang, voice } = ctx.state;
  const tour = name ? await tourOf(ctx.backend, name).catch(() => null) : null;
  if (!tour) return null;
  const say = sayer(lang, voice);
  const given = { title: titleOf(tour, ctx.state), step: page + 1, of: tour.steps.length };
  return el(
    "aside",
    { class: "lesson-bar", "aria-label": given.title },
    el("a", { class: "lesson-step", href: ctx.link(placeOf(tour, page)) }, say("tour.return", given)),
    el("a", { class: "quiet", href: ctx.link({ tour: "", page: 0 }) }, say("tour.leave", {})),
  );
}
