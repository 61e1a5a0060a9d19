/**
 * One small label that follows the pointer or the cursor. In: words and a place on the screen. Out: nothing; `untip` hides it.
 */

import { el } from "regard/dom.js";

/** @type {HTMLElement | undefined} */
let label;

/** @param {string} words @param {number} x @param {number} y */
export function tip(words, x, y) {
  label ??= el("div", { class: "tip", "aria-hidden": "true" });
  if (!label.isConnected) document.body.append(label);
  label.textContent = words;
  label.hidden = false;
  const half = label.offsetWidth / 2 + 6;
  label.style.left = `${Math.min(Math.max(x, half), innerWidth - half)}px`;
  label.style.top = `${Math.max(y, label.offsetHeight + 8)}px`;
}

export function untip() {
  if (label) label.hidden = true;
}

addEventListener("scroll", untip, { capture: true, passive: true });
addEventListener("hashchange", untip);
