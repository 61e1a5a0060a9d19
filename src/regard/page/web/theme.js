/**
 * Light and dark: the system's wish, unless the person said otherwise with the switch.
 *
 * In: `prefers-color-scheme` and a word kept in this browser. Out: `data-theme` on the root, which style.css reads.
 */

import { themed } from "regard/scale.js";

const dark = matchMedia("(prefers-color-scheme: dark)");

/** @param {string} [value] */
function kept(value) {
  try {
    if (value !== undefined) localStorage.setItem("regard-theme", value);
    return localStorage.getItem("regard-theme");
  } catch {
    return document.documentElement.dataset.theme ?? null; // a frame without storage
  }
}

export const theme = () => document.documentElement.dataset.theme;

/** @param {string} name */
function apply(name) {
  document.documentElement.dataset.theme = name;
  themed();
}

/** Take the system's theme and follow it. */
export function followTheme() {
  apply(kept() ?? (dark.matches ? "dark" : "light"));
  dark.addEventListener("change", () => kept() ?? apply(dark.matches ? "dark" : "light"));
}

/** The other theme, remembered. */
export function switchTheme() {
  const next = theme() === "dark" ? "light" : "dark";
  kept(next);
  apply(next);
}
