/**
 * For an audience: larger type, nothing but the scene and its sentence, a clicker's keys, a blank screen; and the keys of a tour.
 *
 * In: the state (`present`, `tour`) and key presses. Out: `data-present` on the body, which present.css reads, steps of the tour, and
 * what stands on paper below a printed scene. Esc leaves.
 */

import { el } from "regard/dom.js";
import { advance, isAway, reveal } from "regard/scene/tour.js";
import { isOnScene } from "regard/state.js";

const FORWARD = new Set(["ArrowRight", "PageDown", " "]);
const BACK = new Set(["ArrowLeft", "PageUp"]);
const PAPER = { width: 960, height: 500 }; // pixels of a landscape page for the scene; the sentences come below
const BLANK = new Set([".", "b", "B"]);

/** @param {State} now */
export const presents = (now) => now.present === 1 && isOnScene(now);

/** Begin or end it; the whole screen too, where the browser allows. @param {Store} state */
export async function present(state) {
  const begins = !presents(state.now);
  state.set({ present: begins ? 1 : 0, ...(begins && !presents({ ...state.now, present: 1 }) ? { stage: "scene" } : {}) });
  try {
    if (begins) await document.documentElement.requestFullscreen();
    else if (document.fullscreenElement) await document.exitFullscreen();
  } catch {
    // A browser that does not allow it shows the same in its window.
  }
}

const screen = el("div", { class: "blank", hidden: true, "aria-label": "Blank screen" });

/** What the state says, on the body. @param {State} now */
export function showPresent(now) {
  document.body.dataset.present = presents(now) ? "yes" : "no";
  if (!presents(now)) screen.hidden = true;
}

/**
 * Listen, before other keys do.
 * @param {Store} state
 */
export function presentKeys(state) {
  document.body.append(screen);
  const listens = (/** @type {KeyboardEvent} */ event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    const target = event.target instanceof HTMLElement ? event.target : null;
    if (target?.closest("input, textarea, select, dialog, [role='application']")) return;
    if (press(event.key, target, state)) event.preventDefault();
  };
  addEventListener("keydown", listens, { capture: true });
  document.addEventListener("fullscreenchange", () => {
    if (!document.fullscreenElement && state.now.present) state.set({ present: 0 }); // Esc was the browser's
  });
  paper(state);
}

/** Whether the key was one of these. @param {string} key @param {HTMLElement | null} target @param {Store} state */
function press(key, target, state) {
  const audience = presents(state.now);
  const scene = isOnScene(state.now);
  if (!screen.hidden) {
    screen.hidden = true; // any key brings it back
    return true;
  }
  if (audience && BLANK.has(key)) {
    screen.hidden = false;
    return true;
  }
  if ((audience && key === "Escape") || (key === "p" && scene)) {
    present(state);
    return true;
  }
  if (!scene || !state.now.tour || (key === " " && (!audience || target?.closest("a, button")))) return false;
  if (!audience && isAway()) return false; // the arrows move what is looked at
  const keys = audience ? key : key.replace(/^Page.*/, "");
  if (FORWARD.has(keys)) return advance(1);
  if (BACK.has(keys)) return advance(-1);
  return key === "ArrowDown" ? reveal() : false;
}

/**
 * What is printed: the scene as it is on the screen, made to fit the paper, with the model, the text and the date.
 * @param {Store} state
 */
function paper(state) {
  const line = document.body.appendChild(el("p", { class: "on-paper" }));
  addEventListener("beforeprint", () => {
    const box = /** @type {HTMLElement | null} */ (document.querySelector("#scene .scene-box"));
    if (!box) return;
    const { clientWidth: width, clientHeight: height } = box;
    const { style } = document.body;
    style.setProperty("--paper-width", `${width}px`);
    style.setProperty("--paper-height", `${height}px`);
    style.setProperty("--paper-zoom", String(Math.min(PAPER.width / width, PAPER.height / height)));
    const date = new Date().toLocaleDateString(state.now.lang, { dateStyle: "long" });
    const title = document.querySelector("#scene .tour-title")?.textContent;
    const run = state.now.stage === "figure" ? title : `${state.now.model} · “${state.now.text}”`;
    line.textContent = `${run} · ${date}`;
  });
}
