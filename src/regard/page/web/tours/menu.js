/** The list of tours as a dialog, from the header. */

import { button, el } from "regard/dom.js";
import { entries, listOf } from "regard/panels/lessons.js";
import { sayer } from "regard/words/words.js";

/** @type {HTMLDialogElement | undefined} */
let dialog;

/** @param {Backend} backend @param {State} state */
export async function openTours(backend, state) {
  const say = sayer(state.lang, state.voice);
  const all = await entries(backend, state);
  dialog?.remove();
  const close = () => dialog?.close();
  dialog = document.body.appendChild(
    el(
      "dialog",
      {
        class: "tour-menu",
        "aria-labelledby": "tours-title",
        on: {
          click: (event) => {
            const inside = event.target instanceof Element ? event.target : null;
            if (inside === dialog || inside?.closest("a")) close();
          },
        },
      },
      el("h2", { id: "tours-title" }, say("tour.menu", {})),
      listOf(all, say),
      button(say("close", {}), close),
    ),
  );
  dialog.showModal();
}
