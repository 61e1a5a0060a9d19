/** Share: the address of this view, as a link and as a QR code for a class, and the run as one file. */

import { button, el, penOf } from "regard/dom.js";
import { qrCode } from "regard/parts/qr.js";

const MODULE = 4; // pixels of a module
const QUIET = 4; // modules around the code, as readers need them

/** @type {HTMLDialogElement | undefined} */
let dialog;

/** @param {Say} say @param {string} file where the run can be fetched as a file; "" if nowhere */
export function openShare(say, file) {
  dialog?.remove();
  const address = location.href;
  const field = el("input", { type: "text", readonly: "", value: address, "aria-label": say("share.link", {}) });
  const copied = el("span", { role: "status", class: "copied" });
  const copy = async () => {
    field.select();
    const done = await navigator.clipboard?.writeText(address).then(
      () => true,
      () => false,
    );
    copied.textContent = say(done ? "share.copied" : "share.selected", {});
  };
  dialog = document.body.appendChild(
    el(
      "dialog",
      {
        class: "share",
        "aria-labelledby": "share-title",
        on: { click: (event) => event.target === dialog && dialog?.close() },
      },
      el("h2", { id: "share-title" }, say("share", {})),
      el("p", { class: "row" }, field, button(say("share.copy", {}), copy), copied),
      codeOf(address, say),
      el("p", {}, say(isLocal() ? "share.local" : "share.view", {})),
      file ? el("p", {}, el("a", { href: file, download: "", class: "file" }, say("share.file", {}))) : null,
      button(say("close", {}), () => dialog?.close()),
    ),
  );
  dialog.showModal();
}

/** Whether the address only means something on this machine. */
const isLocal = () => location.protocol === "file:" || ["127.0.0.1", "localhost", "[::1]"].includes(location.hostname);

/** @param {string} address @param {Say} say */
function codeOf(address, say) {
  const rows = qrCode(address);
  if (!rows) return null;
  const size = (rows.length + 2 * QUIET) * MODULE;
  const canvas = el("canvas", { class: "qr", width: size, height: size, role: "img", "aria-label": say("share.qr", {}) });
  const pen = penOf(canvas);
  pen.fillStyle = "white"; // a code is black on white, whatever the theme
  pen.fillRect(0, 0, size, size);
  pen.fillStyle = "black";
  rows.forEach((row, r) => {
    row.forEach((dark, c) => {
      if (dark) pen.fillRect((c + QUIET) * MODULE, (r + QUIET) * MODULE, MODULE, MODULE);
    });
  });
  return canvas;
}
