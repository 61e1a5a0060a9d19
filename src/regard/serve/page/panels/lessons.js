/**
 * Lessons: the lectures' worked examples, one step at a time.
 *
 * In: `state.lesson` and `state.page` (which step). Out: the list, or a step with its sentence, its formula, its matrix and
 * what the lecture wrote by hand. A step that has a place on the page links there; `lessonBar` is the way back.
 */

import { el, sentence } from "regard/dom.js";
import { ladder, stepView } from "regard/parts/lesson-step.js";

const PATIENCE = 300; // milliseconds; a lesson that trains or translates takes longer

async function render(root, ctx) {
  const lessons = ctx.backend.lessons ? await ctx.backend.lessons() : [];
  if (!lessons.length) return root.append(sentence("empty", "There are no lessons in this file; “regard view” has them."));
  if (!lessons.some(({ name }) => name === ctx.state.lesson)) return list(root, ctx, lessons);
  const asked = ctx.backend.lesson(ctx.state.lesson);
  const early = await Promise.race([asked, new Promise((go) => setTimeout(go, PATIENCE))]);
  if (early) return write(root, ctx, early);
  root.append(sentence("busy", "Computing the lesson’s numbers…"));
  asked.then(
    (lesson) => root.isConnected && (root.replaceChildren(), write(root, ctx, lesson)),
    (error) => root.replaceChildren(sentence("error", error.message)),
  );
}

function write(root, ctx, lesson) {
  const page = Math.min(Math.max(0, ctx.state.page), lesson.steps.length - 1);
  root.append(
    el(
      "p",
      { class: "lesson-up" },
      el("a", { class: "quiet", href: ctx.link({ lesson: "", page: 0 }), data: { keep: "lesson:up" } }, "← all lessons"),
    ),
    el("h2", { class: "stage-title" }, lesson.title),
    ladder(ctx, lesson, page),
    stepView(ctx, lesson, page),
    steps(ctx, lesson, page),
  );
}

function list(root, ctx, lessons) {
  const one = ({ name, title }, i) =>
    el(
      "li",
      {},
      el(
        "a",
        { class: "lesson-link", href: ctx.link({ lesson: name, page: 0 }), data: { keep: `lesson:${name}` } },
        el("span", { class: "lesson-at" }, String(i + 1)),
        el("span", {}, title),
      ),
    );
  root.append(
    el(
      "p",
      { class: "lead" },
      "Worked examples, number by number. Every matrix is computed as you look; what a lecture rounded by hand stands beside it.",
    ),
    el("ol", { class: "lesson-list" }, lessons.map(one)),
  );
}

/** Previous and next. */
function steps(ctx, lesson, page) {
  const to = (at, words, keep) =>
    at >= 0 && at < lesson.steps.length
      ? el("a", { class: "lesson-step", href: ctx.link({ page: at }), data: { keep } }, words)
      : el("span", { class: "lesson-step", "aria-disabled": "true" }, words);
  return el(
    "nav",
    { class: "lesson-steps", "aria-label": "Steps" },
    to(page - 1, "← previous", "lesson:back"),
    el("span", { class: "hint" }, `${page + 1} of ${lesson.steps.length}`),
    to(page + 1, "next →", "lesson:next"),
  );
}

export default { id: "lessons", title: "Lessons", render };
