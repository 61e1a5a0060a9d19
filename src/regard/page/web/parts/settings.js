/**
 * What is set once and then left alone: how words are drawn, the language, light or dark. A popover below ⚙, and beside the tables
 * the draws in the header.
 */

import { button, el, picker } from "regard/dom.js";
import { switchTheme, theme } from "regard/theme.js";
import { LANGUAGES, NAMES } from "regard/words/words.js";

const DRAWS = /** @type {const} */ (["seed", "temperature", "top_k"]);

/** @type {{ [key in (typeof DRAWS)[number]]: object }} */
const LIMITS = {
  seed: { min: 0, step: 1 },
  temperature: { min: 0, max: 5, step: 0.1 },
  top_k: { min: 0, step: 1 },
};

/** @param {Say} say @param {Store} state */
export function settings(say, state) {
  const fields = DRAWS.map((key) => setting(key, say, state));
  const switcher = button(
    "",
    () => {
      switchTheme();
      switcher.textContent = sun();
    },
    { class: "quiet", "aria-label": say("set.theme", {}), title: say("set.theme", {}) },
  );
  switcher.textContent = sun();
  const draws = el(
    "span",
    { class: "draws" },
    fields.map(({ element }) => element),
  );
  const languages = Object.keys(LANGUAGES).map((key) => /** @type {[string, string]} */ ([key, NAMES[key]]));
  const language = picker(say("set.language", {}), languages, state.now.lang, (lang) => state.set({ lang }), {
    data: { keep: "lang" },
  });
  const element = el(
    "details",
    { class: "settings", data: { keep: "settings" } },
    el("summary", { class: "quiet", "aria-label": say("set", {}), title: say("set", {}) }, "⚙"),
    el("div", { class: "popover" }, draws, language, switcher),
  );
  document.addEventListener("pointerdown", (event) => {
    if (event.target instanceof Node && !element.contains(event.target)) element.open = false;
  });
  element.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !element.open) return;
    element.open = false;
    element.querySelector("summary")?.focus();
    event.stopPropagation();
  });
  return {
    element,
    /** @param {State} now @param {boolean} drawing whether this model draws words at all */
    tell(now, drawing) {
      draws.hidden = !drawing;
      for (const one of fields) one.tell(now);
    },
  };
}

const sun = () => (theme() === "dark" ? "☀" : "☾");

/** @param {(typeof DRAWS)[number]} key @param {Say} say @param {Store} state */
function setting(key, say, state) {
  /** @type {HTMLInputElement} */
  const input = el("input", {
    type: "number",
    ...LIMITS[key],
    title: say(`set.${key}.means`, {}),
    data: { keep: key },
    on: { change: () => state.set({ [key]: Math.max(0, Number(input.value) || 0) }) },
  });
  return {
    element: el("label", { class: "field" }, el("span", { class: "field-name" }, say(`set.${key}`, {})), input),
    tell: (/** @type {State} */ now) => {
      if (document.activeElement !== input) input.value = String(now[key]);
    },
  };
}
