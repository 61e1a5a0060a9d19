/**
 * The page: state in, four places out.
 *
 * A change of state asks the backend for what is missing (a model, a run, the run with edits), then draws the header,
 * the map, the stage, the drawer and the foot from it. Nothing else holds state. Adding a panel is one line in PANELS.
 */

import { Refused, server, viewOf } from "regard/data.js";
import { announce, button, el, sentence } from "regard/dom.js";
import { drawer } from "regard/drawer.js";
import { edits } from "regard/edits.js";
import { header } from "regard/header.js";
import { keys } from "regard/keys.js";
import { map } from "regard/map.js";
import { presentKeys, showPresent } from "regard/present.js";
import { refused, scene, waiting } from "regard/scene/scene.js";
import { isFresh, placeOf, tourOf } from "regard/scene/tour.js";
import { stage } from "regard/stage.js";
import { createState, isOnScene } from "regard/state.js";
import { followTheme } from "regard/theme.js";
import { timeline } from "regard/timeline.js";
import { FIRST } from "regard/tours/tours.js";

/**
 * id, title; `of`: the kind of network that has it, when not all do.
 * @type {PanelEntry[]}
 */
const PANELS = [
  ["tokens", "Tokens"],
  ["attention", "Attention"],
  ["heads", "Heads", "transformer"],
  ["mlp", "MLP", "transformer"],
  ["residual", "Residual", "transformer"],
  ["steps", "Steps", "recurrent"],
  ["output", "Output"],
  ["training", "Training"],
  ["lessons", "Lessons"],
];

/** @param {string} id */
function place(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`index.html has no place for ${id}`);
  return found;
}
const places = {
  header: place("header"),
  map: place("map"),
  scene: place("scene"),
  stage: place("stage"),
  drawer: place("drawer"),
  footer: place("footer"),
};

const embedded = document.getElementById("regard-data"); // a file handed to a student carries its numbers
const backend = embedded ? (await import("regard/offline.js")).offline(embedded) : server();

const kept = PANELS.filter(([id]) => backend.live || (id !== "training" && id !== "lessons")); // a file holds one run
const panels = () => kept.filter(([, , of]) => !of || of === (held.model?.recurrent ? "recurrent" : "transformer"));
const state = createState((next) => update(next));
/**
 * What was asked for, and the questions as they were asked.
 * @type {{ models: ModelCard[], model: ModelFacts | null, base: Trace | null, other: Trace | null, asked: { [name in Asked]?: string } }}
 */
const held = { models: [], model: null, base: null, other: null, asked: {} };
/** @typedef {"model" | "base" | "other"} Asked */
const COMPARED = /** @type {const} */ (["edits", "against", "rival", "mode"]); // what the second run is made from
const ALONE = { edits: {}, against: "", rival: "" }; // no second run
/** @type {Change | null} */
let last = null; // what COMPARED was when a stage was last drawn
let turn = 0;

/**
 * Ask `make()` only when `question` differs from the last one asked under `name`.
 * @template {Asked} K
 * @param {K} name @param {unknown} question @param {() => Promise<(typeof held)[K]>} make
 */
async function once(name, question, make) {
  const words = JSON.stringify(question);
  if (held.asked[name] === words) return;
  held[name] = await make();
  held.asked[name] = words;
}

/** @param {string} words */
function busy(words) {
  announce(words);
  if (isOnScene(state.now)) return waiting(places.scene, words);
  places.stage.setAttribute("aria-busy", "true");
  if (!held.base) places.stage.replaceChildren(sentence("busy", words));
}

/** @param {State} state */
const request = ({ model, text, target, fresh, seed, temperature, top_k }) => ({
  model,
  text,
  target: target || null,
  generate: fresh ? { max_new_tokens: fresh, seed, temperature, top_k } : null,
  edits: {},
});

/**
 * The runs that the state speaks of: the plain one, and the one it is compared with.
 * @param {State} now
 */
async function runs(now) {
  await once("model", now.model, () => backend.model(now.model));
  const plain = request(now);
  await once("base", plain, () => {
    busy(`Running ${now.model} on “${now.text.slice(0, 60)}”…`);
    return backend.trace(plain);
  });
  const rival =
    now.against || now.rival ? { ...plain, model: now.rival || now.model, text: now.against || now.text } : null;
  const changed = Object.keys(now.edits).length > 0;
  await once("other", { plain, rival, edits: now.edits }, async () => {
    if (!rival && !changed) return null;
    busy(changed ? "Running again with the edits…" : "Running what it is compared with…");
    try {
      const run = rival ? await backend.trace(rival) : held.base;
      return changed && run ? await backend.fork(run.trace, now.edits) : run;
    } catch (error) {
      throw Object.assign(error, { second: true });
    }
  });
}

/**
 * What panels are given, once there is a run. See the comments on each line; everything is read-only.
 * @param {State} now @returns {Context | null}
 */
function contextOf(now) {
  const { model, base, other } = held;
  if (!model || !base) return null;
  /** @type {Runs} */
  const runs = other && now.mode !== "a" ? { mode: now.mode, other } : { mode: "a", other };
  const trace = runs.mode === "a" ? base : runs.other;
  const site = trace.sites.find(({ site }) => site === now.site) ?? likeliest(trace.sites, now.site);
  return {
    backend, // models, runs, lessons: what is not about this run
    model, // /api/model
    trace, // /api/trace of the run on the screen
    base, // the run before
    ...runs, // mode: "a" | "b" | "delta"; other: the run after, or null
    state: now, // frozen
    site, // the attention site looked at: {site, kind, stack, layer, heads}
    head: site ? Math.min(Math.max(now.head, 0), site.heads - 1) : 0,
    nodes: new Map(trace.nodes.map((node) => [node.name, node])), // name → {name, op, shape, axes, inputs}
    data: viewOf(backend, { base, ...runs }),
    go: (change) => state.set(change), // merge, write the address, draw
    note: (change) => state.note(change), // merge and write the address; the screen already shows it
    link: (change) => state.link(change), // the address of that view, for an href
    ask: (node, index) => state.set({ node, index, trail: [] }), // open the drawer
    why: (node, index) => state.link({ node, index, trail: [] }), // the same as an href
    edit: (place, what) =>
      state.set({
        edits: { ...state.now.edits, [place]: what },
        mode: state.now.mode === "a" ? "b" : state.now.mode,
      }),
    can: (place, what) => backend.honours?.(place, what) ?? backend.live, // whether an edit can be made here
    light: () => {}, // (stack, i, stack, j): light words of the sentence; the stage sets it
    models: held.models,
  };
}

/**
 * A site like the one named, when the model has no such site: the same layer and kind, else the first.
 * @param {Site[]} sites @param {string} name
 */
function likeliest(sites, name) {
  const [, layer, part] = name.split(".");
  return (
    sites.find((one) => String(one.layer) === layer && one.site.endsWith(`.${part}`)) ??
    sites.find((one) => one.stack === "decoder") ??
    sites[0] ??
    null
  );
}

/** @param {State} now */
async function update(now) {
  const mine = ++turn;
  document.body.dataset.view = isOnScene(now) ? "scene" : "table";
  header(places.header, { models: held.models, model: held.model, state, backend, trace: held.base });
  try {
    if (await begins(now, mine)) return;
    if (!complete(now)) return;
    await runs(now);
    if (mine !== turn) return;
    draw(state.now);
  } catch (error) {
    if (mine === turn) (error.second && error instanceof Refused ? takeBack : refuse)(error);
  }
}

/**
 * The second run was refused: the stage stays as it was, or is that of the first run, the edit is not on, and a sentence says why.
 * What was wished can be tried again, from the text on, since a server forgets runs.
 * @param {Error} error
 */
async function takeBack({ message }) {
  const wish = Object.fromEntries(COMPARED.map((key) => [key, state.now[key]]));
  const again = button("Try again", () => {
    held.asked = {};
    state.set(wish);
  });
  const mine = turn;
  const past = last;
  const fitting = past && COMPARED.some((key) => past[key] !== wish[key]) ? past : ALONE; // what fitted another text may not this one
  state.note(fitting);
  const alone = () => {
    state.note(ALONE);
    return runs(state.now);
  };
  await runs(state.now)
    .catch(alone)
    .then(() => (mine === turn ? draw(state.now) : undefined), refuse);
  if (mine !== turn) return;
  if (isOnScene(state.now)) return refused(places.scene, message, again);
  if (!places.stage.querySelector(".panel")) return;
  places.stage.prepend(el("div", { class: "refused" }, sentence("error", message), el("p", { class: "row" }, again)));
  places.stage.scrollTop = 0;
}

/**
 * An address that names a tour and nothing else means the view of its step, and an empty one the first tour; true when that changed
 * the state.
 * @param {State} now @param {number} mine
 */
async function begins(now, mine) {
  if (now.model) return false;
  const first = backend.live && held.models.some(({ name }) => name === FIRST.steps[0].view.model);
  const tour = now.tour ? await tourOf(backend, now.tour) : isFresh(now) && first ? FIRST : null;
  if (mine !== turn) return true;
  if (tour) state.set(placeOf(tour, now.page), { replace: true });
  return tour !== null;
}

/**
 * Fill in a model and a text where the address names none; false when that changed the state.
 * @param {State} now
 */
function complete(now) {
  const known = held.models.find(({ name }) => name === now.model);
  if (!known) {
    if (now.model) throw new Refused(`There is no model called “${now.model}” here; choose one from the list above.`);
    if (!held.models.length)
      throw new Refused("There is no model to look at yet; “regard pull smollm2” fetches one, “regard train” makes one.");
    state.set({ model: held.models[0].name, text: now.text || (held.models[0].examples[0] ?? "") }, { replace: true });
    return false;
  }
  if (now.text) return true;
  if (known.examples.length) {
    state.set({ text: known.examples[0] }, { replace: true });
    return false;
  }
  throw new Refused(`Type a text above and press Enter to see what ${now.model} makes of it.`);
}

/** @param {State} now */
function draw(now) {
  const ctx = contextOf(now);
  if (!ctx) return;
  const focused = document.activeElement;
  document.title = `${now.model} · ${panels().find(([id]) => id === now.stage)?.[1] ?? "regard"} · regard`;
  header(places.header, { models: held.models, model: held.model, state, backend, trace: held.base });
  map(places.map, ctx);
  drawer(places.drawer, ctx);
  document.body.dataset.drawer = now.node ? "open" : "closed";
  edits(places.footer, ctx);
  timeline(places.footer, ctx);
  last = Object.fromEntries(COMPARED.map((key) => [key, now[key]]));
  places.stage.querySelector(".refused")?.remove();
  refocus(focused);
  showPresent(now);
  if (isOnScene(now)) {
    places.stage.removeAttribute("aria-busy");
    return scene(places.scene, ctx).then(() => refocus(focused));
  }
  return stage(places.stage, ctx, panels()).then(() => {
    places.stage.removeAttribute("aria-busy");
    refocus(focused);
  });
}

/**
 * After drawing, the keyboard is where it was; who has left a field that is still there is not taken back to it.
 * @param {Element | null} before
 */
function refocus(before) {
  const keep = before instanceof HTMLElement ? before.dataset.keep : "";
  if (!before || !keep || before.isConnected || (document.activeElement && document.activeElement !== document.body))
    return;
  const kept = /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("[data-keep]"));
  const again = [...kept].find((one) => one.dataset.keep === keep && !one.closest("[data-coming]"));
  again?.focus({ preventScroll: true });
}

/** @param {any} error */
function refuse(error) {
  if (!(error instanceof Refused)) console.error(error);
  held.asked = {}; // ask again next time
  places.stage.removeAttribute("aria-busy");
  const words = error instanceof Refused ? error.message : `Something went wrong in the page: ${error.message}.`;
  const again = el("button", { type: "button", on: { click: () => update(state.now) } }, "Try again");
  const plain = Object.keys(state.now.edits).length
    ? el("button", { type: "button", on: { click: () => state.set({ edits: {} }) } }, "Remove the edits")
    : null;
  if (isOnScene(state.now)) return refused(places.scene, words, [again, plain]);
  places.stage.replaceChildren(sentence("error", words), el("p", { class: "row" }, again, plain));
}

/** Links within the page change the state without leaving it, also where there is no address bar. */
document.addEventListener("click", (event) => {
  const link = event.target instanceof Element ? event.target.closest('a[href^="#"]') : null;
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
  event.preventDefault();
  const hash = link.getAttribute("href") ?? "";
  if (hash === "#stage") return places.stage.focus();
  state.follow(hash);
});

followTheme();
presentKeys(state);
keys(
  state,
  () => panels().map(([id]) => id),
  () => contextOf(state.now),
);
try {
  held.models = await backend.models();
  await update(state.now);
} catch (error) {
  refuse(error);
}
