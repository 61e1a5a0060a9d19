/**
 * The lesson while the person is elsewhere on the page: its sentence, and the way to the step before, the next, and back.
 *
 * In: a context whose state names a lesson. Out: an element, or null when no lesson is on or its own panel shows it. A step
 * without a place of its own on the page leads back to the lesson.
 */

import { el } from "regard/dom.js";

const CLEAR = { edits: {}, node: "", index: [], trail: [] };

/** Where a step of a lesson is: its own state on the page, or the lesson's panel. */
export const placeOf = (name, steps, page) => ({
  ...(steps[page].state ? { stage: "attention", ...CLEAR, ...steps[page].state } : { stage: "lessons" }),
  lesson: name,
  page,
});

export async function lessonBar(ctx) {
  const { lesson: name, page, stage } = ctx.state;
  if (!name || stage === "lessons" || !ctx.backend.lesson) return null;
  const lesson = await ctx.backend.lesson(name).catch(() => null);
  const step = lesson?.steps[page];
  if (!step) return null;
  const to = (at, words) => (lesson.steps[at] ? el(
    "a",
    { class: "lesson-step", href: ctx.link(placeOf(name, lesson.steps, at)) },
    words,
  ) : null);
  return el(
    "aside",
    { class: "lesson-bar", "aria-label": "Lesson" },
    el("a", { class: "lesson-step", href: ctx.link({ stage: "lessons" }) }, el("i", {}, lesson.title)),
    el("span", { class: "lesson-bar-say" }, "In the lesson: ", step.say),
    el(
      "span",
      { class: "row" },
      to(page - 1, "← previous"),
      el("span", { class: "hint" }, `${page + 1} of ${lesson.steps.length}`),
      to(page + 1, "next →"),
      el("a", { class: "quiet", href: ctx.link({ lesson: "", page: 0 }) }, "leave"),
    ),
  );
}
