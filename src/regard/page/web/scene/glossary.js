/**
 * The glossary: a word of the field in two sentences, behind every term of the narration.
 */

import { button, el } from "regard/dom.js";

/** @type {HTMLDialogElement | undefined} */
let dialog;

/** @param {Say} say @param {string} term */
export function openTerm(say, term) {
  dialog?.remove();
  dialog = document.body.appendChild(
    el(
      "dialog",
      {
        class: "glossary",
        "aria-labelledby": "term-title",
        on: { click: (event) => event.target === dialog && dialog?.close() },
      },
      el("h2", { id: "term-title" }, say(`term.${term}`, {})),
      el("p", {}, say(`term.${term}.means`, {})),
      button(say("close", {}), () => dialog?.close()),
    ),
  );
  dialog.showModal();
}
