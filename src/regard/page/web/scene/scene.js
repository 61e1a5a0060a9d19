/**
 * The scene: one picture of the model, drawn once and then moved.
 *
 * In: a context. Out: a canvas (ribbons, gates, matrices) and over it words and links (things), which a keyboard and a screen reader
 * reach. A depth is a module that adds marks and things to the picture; this one holds the picture, the pointer and the clock.
 */

import { announce, el, formula, penOf } from "regard/dom.js";
import { block } from "regard/scene/block.js";
import { cell } from "regard/scene/cell.js";
import { clock } from "regard/scene/clock.js";
import { frameOf } from "regard/scene/frame.js";
import { head } from "regard/scene/head.js";
import { listen } from "regard/scene/keyboard.js";
import { between, byKey } from "regard/scene/marks.js";
import { meaning } from "regard/scene/meaning.js";
import { narration, notice } from "regard/scene/narration.js";
import { nearOf } from "regard/scene/near.js";
import { number } from "regard/scene/number.js";
import { pulse } from "regard/scene/pulse.js";
import { guide, tourOf } from "regard/scene/tour.js";
import { upright } from "regard/scene/upright.js";
import { answers, arcs, gates, guesses, join, rows, tags } from "regard/scene/whole.js";
import { worldOf } from "regard/scene/world.js";
import { sayer } from "regard/words/words.js";

/** @type {ReturnType<typeof build> | null} */
let held = null;

/**
 * Draw the scene of a context; resolves when its first picture is there.
 * @param {HTMLElement} root @param {Context} ctx
 */
export async function scene(root, ctx) {
  held ??= build();
  if (held.element.parentElement !== root) root.replaceChildren(held.element);
  await held.show(ctx);
}

/**
 * What is being waited for; the picture stays, or is empty at first. Seconds are counted.
 * @param {HTMLElement} root @param {string} words
 */
export function waiting(root, words) {
  held ??= build();
  if (held.element.parentElement !== root) root.replaceChildren(held.element);
  held.wait(words);
}

/**
 * Why something is not there, beside the picture, which stays.
 * @param {HTMLElement} root @param {string} words @param {Child} actions
 */
export function refused(root, words, actions) {
  held ??= build();
  if (held.element.parentElement !== root) root.replaceChildren(held.element);
  held.refuse(words, actions);
}

/** The words flow through the whole model, in three seconds; a second call skips it. */
export async function play() {
  if (held?.playing) return held.skip();
  await held?.play();
}

/** Which block is open, how deep, and which state of the matrix. @param {Context} ctx @param {World} world @returns {SceneView} */
function viewOf({ state, site }, { blocks }) {
  const place = site ? `${site.stack}.${site.layer}` : "";
  const found = blocks.findIndex((one) => one.sites.some((each) => each.site === site?.site) || one.place === place);
  const open = state.depth > 0 ? found : -1;
  return { open, depth: open < 0 ? 0 : state.depth, matrix: state.matrix };
}

function build() {
  const canvas = el("canvas", { "aria-hidden": "true" });
  const over = el("div", { class: "things" });
  const tip = el("div", { class: "scene-tip", hidden: true });
  const figure = el("div", { class: "scene-figure", hidden: true });
  const stageBox = el("div", { class: "scene-box" }, canvas, over, figure, tip);
  const path = el("nav", { class: "path" });
  const told = el("section", { class: "narration" });
  const element = el("div", { class: "scene" }, path, stageBox, told);
  const pen = penOf(canvas);

  /** @type {Picture} */
  let now = { marks: [], things: [] }; // as it stands on the screen
  /** @type {Picture} */
  let goal = now;
  /** @type {{ marks: Map<string, Mark>, things: Map<string, Thing> }} */
  let past = { marks: new Map(), things: new Map() };
  /** @type {Map<string, HTMLElement>} */
  const elements = new Map();
  /** @type {{ ctx: Context, world: World, tour: Tour | null } | null} */
  let shown = null;
  let turn = 0;
  /** @type {Frame} */
  let frame;
  let waited = 0;
  let drawnAt = 0;
  let soon = 0;
  const rest = () => {
    clearInterval(waited);
    clearTimeout(soon);
    element.removeAttribute("aria-busy");
  };

  /** @type {Pulse | null} */
  let flowing = null;
  const ticking = clock((t, time) => {
    now = { marks: between(past.marks, goal.marks, t), things: between(past.things, goal.things, t) };
    const shownNow = flowing ? flowing.seen(now, time) : now;
    paint(pen, canvas, shownNow.marks);
    place(over, elements, shownNow.things);
    if (t >= 1 && !flowing) delete element.dataset.moving;
  });

  /** @param {boolean} moving */
  function compose(moving) {
    if (!shown) return;
    const { ctx, world, tour } = shown;
    const view = viewOf(ctx, world);
    const room = { width: stageBox.clientWidth, height: stageBox.clientHeight };
    if (room.width < 50 || room.height < 50) return;
    const opened = view.open < 0 ? null : world.blocks[view.open];
    const say = sayer(ctx.state.lang, ctx.state.voice);
    frame = frameOf(world, view, room);
    /** @type {Stage} */
    const stage = {
      ctx,
      world,
      view,
      say,
      depth: view.depth,
      frame,
      near: nearOf(ctx, world, opened, () => compose(true)),
      hidden: false,
      surface: getComputedStyle(document.documentElement).getPropertyValue("--surface").trim(),
      lane: (stack) => world.lanes.find((lane) => lane.stack === stack)?.pieces ?? [],
      isOff: (site, h) => switchedOff(ctx.trace.edits, `${site.site}.head.${h}`),
    };
    const guided = guide(stage, tour, { redraw: () => compose(true), play });
    stage.hidden = guided.hidden;
    past = { marks: byKey(now.marks), things: byKey(now.things) };
    goal = guided.figure ? { marks: [], things: [] } : guided.veil(pictureOf(stage));
    figure.hidden = !guided.figure;
    figure.replaceChildren(...(guided.figure ? [guided.figure] : []));
    path.replaceChildren(...(guided.figure ? [] : trail(stage)));
    narration(told, stage, guided.words);
    element.dataset.moving = "";
    ticking.start(moving && past.marks.size > 0);
  }

  new ResizeObserver(() => compose(performance.now() - drawnAt < 500)).observe(stageBox); // a card that opens moves the picture
  document.addEventListener("themed", () => compose(false));

  /** @param {PointerEvent} event */
  const under = (event) => {
    const box = stageBox.getBoundingClientRect();
    const zoom = box.width / stageBox.clientWidth || 1;
    return cellAt(goal.marks, (event.clientX - box.left) / zoom, (event.clientY - box.top) / zoom);
  };
  stageBox.addEventListener("pointermove", (event) => {
    const found = event.target instanceof Element && event.target.closest("a, button") ? null : under(event);
    tip.hidden = !found;
    stageBox.classList.toggle("on-cell", !!found);
    if (!found) return;
    tip.textContent = found.cells.say(found.row, found.column);
    const box = stageBox.getBoundingClientRect();
    tip.style.transform = `translate(${Math.min(event.clientX - box.left + 14, box.width - 220)}px, ${event.clientY - box.top + 16}px)`;
  });
  stageBox.addEventListener("pointerleave", () => {
    tip.hidden = true;
  });
  stageBox.addEventListener("click", (event) => {
    if (event.target instanceof Element && event.target.closest("a, button")) return;
    const found = under(/** @type {PointerEvent} */ (event));
    if (!found || !shown) return;
    const { state } = shown.ctx;
    const again = state.token === found.row && state.key === found.column;
    shown.ctx.go((again ? found.cells.enter : found.cells.choose)(found.row, found.column));
  });

  listen(() => shown);

  return {
    element,
    /** @param {string} words */
    wait(words) {
      clearInterval(waited);
      const begun = performance.now();
      const tell = () => {
        const seconds = Math.round((performance.now() - begun) / 1000);
        notice(told, "busy", seconds ? `${words} ${seconds} s` : words);
      };
      element.setAttribute("aria-busy", "true");
      waited = setInterval(tell, 1000);
      if (!shown) tell();
      else soon = setTimeout(tell, 300); // what comes at once needs no words
    },
    /** @param {string} words @param {Child} actions */
    refuse(words, actions) {
      rest();
      notice(told, "error", words, actions);
    },
    /** The words flow through the model; resolves when they have, or when someone skips it. */
    play() {
      if (!shown) return Promise.resolve();
      return new Promise((done) => {
        flowing = pulse(frame, () => {
          flowing = null;
          compose(false);
          done(undefined);
        });
        ticking.run((time) => flowing?.goesOn(time) ?? false);
      });
    },
    skip: () => flowing?.skip(),
    get playing() {
      return flowing !== null;
    },
    /** @param {Context} ctx */
    async show(ctx) {
      const mine = ++turn;
      tip.hidden = true;
      try {
        const [world, tour] = await Promise.all([worldOf(ctx), tourOf(ctx.backend, ctx.state.tour)]);
        if (mine !== turn) return;
        rest();
        element.dataset.shown = ctx.trace.trace;
        const first = !shown;
        shown = { ctx, world, tour };
        drawnAt = performance.now();
        compose(!first);
        announce(told.textContent ?? "");
      } catch (error) {
        if (mine === turn) this.refuse(error.message, null);
      }
    },
  };
}

/** Whether an edit sets a place to zero; `*` in its name stands for one part. @param {Edits} edits @param {string} place */
const switchedOff = (edits, place) =>
  Object.entries(edits).some(
    ([name, what]) =>
      ["zero", "off"].includes(String(what)) &&
      name.split(".").every((part, i) => part === "*" || part === place.split(".")[i]) &&
      name.split(".").length === place.split(".").length,
  );

/** @param {Stage} stage @returns {Picture} */
function pictureOf(stage) {
  if (stage.frame.upright && !stage.depth) return upright(stage);
  const inside = [[], [block], [head], [head, cell], [head, cell, number]][stage.depth] ?? [];
  return join(
    rows(stage),
    gates(stage),
    arcs(stage),
    ...inside.map((draw) => draw(stage)),
    guesses(stage),
    tags(stage),
    answers(stage),
    meaning(stage),
  );
}

/**
 * The way in: Whole model › block 2 › head 1 › old → king.
 * @param {Stage} stage
 */
function trail({ ctx, view, world, say, lane }) {
  const { state, site } = ctx;
  /** @type {[words: string, change: Change][]} */
  const steps = [[say("path.whole", {}), { depth: 0, node: "", index: [], trail: [] }]];
  const opened = view.open < 0 ? null : world.blocks[view.open];
  if (opened)
    steps.push([
      say("path.block", { block: opened.layer, stack: world.lanes.length > 1 ? opened.stack : "" }),
      { depth: 1 },
    ]);
  if (view.depth > 1) steps.push([say("path.head", { head: ctx.head }), { depth: 2 }]);
  if (view.depth > 2 && site) {
    const keys = site.kind === "cross" ? world.lanes[0].stack : site.stack;
    const word = (/** @type {string | undefined} */ piece) => (piece ?? "").trim();
    steps.push([`${word(lane(site.stack)[world.focus])} → ${word(lane(keys)[state.key])}`, { depth: 3 }]);
  }
  if (view.depth > 3 && state.node) steps.push([say("path.number", {}), {}]);
  return steps.flatMap(([words, change], i) => {
    const last = i === steps.length - 1;
    const closing = { node: "", index: [], trail: [], ...change };
    const link = el(
      "a",
      { href: ctx.link(closing), "aria-current": last ? "location" : null, data: { keep: `path:${i}` } },
      words,
    );
    return i ? [el("span", { class: "path-sign", "aria-hidden": "true" }, " › "), link] : [link];
  });
}

/** @param {Pen} pen @param {HTMLCanvasElement} canvas @param {Mark[]} marks */
function paint(pen, canvas, marks) {
  const { clientWidth: width, clientHeight: height } = canvas;
  const ratio = (devicePixelRatio || 1) * (canvas.getBoundingClientRect().width / width || 1); // also zoomed, it is sharp
  const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== wide || canvas.height !== high) [canvas.width, canvas.height] = [wide, high];
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  for (const { paint: draw, g } of marks) {
    pen.globalAlpha = g.alpha ?? 1;
    if (pen.globalAlpha > 0.004) draw(pen, g);
  }
  pen.globalAlpha = 1;
}

/**
 * Put words and links where they stand; elements are kept by key, so that a focused one stays focused.
 * @param {HTMLElement} over @param {Map<string, HTMLElement>} elements @param {Thing[]} things
 */
function place(over, elements, things) {
  const left = new Set(elements.keys());
  for (const thing of things) {
    const { key, g, align = "start", gone } = thing;
    left.delete(key);
    let element = elements.get(key);
    if (!element || element.dataset.as !== kindOf(thing)) {
      element?.remove();
      element = over.appendChild(
        el(thing.href ? "a" : "span", { data: { as: kindOf(thing), keep: thing.href ? `thing:${key}` : null } }),
      );
      elements.set(key, element);
    }
    if (thing !== told.get(element)) dress(element, thing);
    const anchor = align === "middle" ? "-50%" : align === "end" ? "-100%" : "0";
    const raise = g.w === undefined ? "-50%" : "0";
    element.style.transform = `translate(${g.x.toFixed(1)}px, ${g.y.toFixed(1)}px) translate(${anchor}, ${raise})${g.turn ? ` rotate(${g.turn}deg)` : ""}`;
    element.style.opacity = String(g.alpha ?? 1);
    element.style.pointerEvents = gone ? "none" : "";
    element.style.maxWidth = g.room === undefined ? "" : `${g.room}px`;
    if (g.size !== undefined) element.style.fontSize = `${g.size}px`;
    if (g.w !== undefined) [element.style.width, element.style.height] = [`${g.w}px`, `${g.h}px`];
  }
  for (const key of left) {
    elements.get(key)?.remove();
    elements.delete(key);
  }
}

/** @type {WeakMap<HTMLElement, Thing>} */
const told = new WeakMap();

/** @param {Thing} thing */
const kindOf = ({ href }) => (href ? "link" : "text");

/** @param {HTMLElement} element @param {Thing} thing */
function dress(element, thing) {
  const old = told.get(element);
  told.set(element, thing);
  if (!old || old.text !== thing.text || old.math !== thing.math)
    element.replaceChildren(thing.math === undefined ? thing.text : formula(thing.math));
  element.className = `thing ${thing.class}`;
  if (thing.role) element.dataset.role = thing.role;
  else delete element.dataset.role;
  if (thing.href) element.setAttribute("href", thing.href);
  for (const [name, value] of /** @type {const} */ ([
    ["title", thing.title],
    ["aria-label", thing.label],
    ["aria-current", thing.current ? "true" : undefined],
  ])) {
    if (value) element.setAttribute(name, value);
    else element.removeAttribute(name);
  }
}

/**
 * The cell of a table under a point; the last painted wins.
 * @param {Mark[]} marks @param {number} x @param {number} y
 */
function cellAt(marks, x, y) {
  for (let n = marks.length - 1; n >= 0; n--) {
    const { cells, g } = marks[n];
    if (!cells || x < g.x || y < g.y || x >= g.x + g.w || y >= g.y + g.h) continue;
    const row = Math.floor(((y - g.y) / g.h) * cells.rows);
    return { cells, row, column: Math.floor(((x - g.x) / g.w) * cells.columns) };
  }
  return null;
}
