/**
 * Tours and lessons: the list of what can be walked through on the scene.
 *
 * In: the page's own tours, and those that the server has (lessons, a teacher's files). Out: links to their first steps.
 */

import { el, sentence } from "regard/dom.js";
import { beginning, titleOf } from "regard/scene/tour.js";
import { TOURS } from "regard/tours/tours.js";
import { sayer } from "regard/words/words.js";

/** @typedef {{ name: string, title: string, kind: string, href: string }} Entry */

/**
 * All tours there are.
 * @param {Backend} backend @param {State} state @returns {Promise<Entry[]>}
 */
export async function entries(backend, state) {
  const own = TOURS.map((tour) => ({ ...tour, kind: "tours" }));
  const all = [...own, ...(await backend.tours())];
  return all.map(({ name, title, kind }) => ({
    name,
    kind,
    title: titleOf({ name, title, steps: [] }, state),
    href: beginning(state, name),
  }));
}

/** @param {Entry[]} all @param {Say} say */
export function listOf(all, say) {
  return ["file", "tours", "lesson"].flatMap((kind) => {
    const some = all.filter((one) => one.kind === kind);
    return some.length
      ? [el("h3", {}, say(`tour.menu.${kind}`, {})), el("ol", { class: "lesson-list" }, some.map(item))]
      : [];
  });
}

/** @param {Entry} entry @param {number} i */
const item = ({ name, title, href }, i) =>
  el(
    "li",
    {},
    el(
      "a",
      { class: "lesson-link", href, data: { keep: `lesson:${name}` } },
      el("span", { class: "lesson-at" }, String(i + 1)),
      el("span", {}, title),
    ),
  );

/** @param {HTMLElement} root @param {Context} ctx */
async function render(root, ctx) {
  const all = ctx.backend.live ? await entries(ctx.backend, ctx.state) : [];
  if (!all.length) return root.append(sentence("empty", "There are no lessons in this file; “regard view” has them."));
  root.append(
    el(
      "p",
      { class: "lead" },
      "Worked examples, number by number. Every matrix is computed as you look; what a lecture rounded by hand stands beside it.",
    ),
    el("div", { class: "tour-menu" }, listOf(all, sayer(ctx.state.lang, ctx.state.voice))),
  );
}

export default { id: "lessons", title: "Lessons", render };
