/**
 * The model view: every head as a small picture of its weights, in its place (block × head) or ranked by a measure.
 *
 * In: the run and the measure's name. Out: pictures that fetch their numbers when they come into view, each a link to its head;
 * what is measured is written under them as it becomes known.
 */

import { announce, button, choice, el, format, penOf, picker, sentence } from "regard/dom.js";
import { kindOf } from "regard/parts/captions.js";
import { answering, canMeasure, MEASURES, measured } from "regard/parts/head-measures.js";
import { siteName } from "regard/parts/run.js";
import { blockAround, mlpOf, nodeOf } from "regard/parts/wiring.js";
import { colours } from "regard/scale.js";

/** @typedef {{ [site: string]: HeadScores }} Scores */
/** @typedef {Map<string, { element: HTMLElement, write: (score?: number | null) => void }>} Cells */
/** @typedef {(canvas: HTMLCanvasElement, site: Site, h: number) => void} Watch */

const KINDS = { cross: "cross attention", causal: "causal self-attention", self: "self-attention" };
const SMALL = 72; // values per side of a picture
const WHOLE = 8 << 20; // bytes of weights that are fetched for all heads of a site at once

/** @param {HTMLElement} root @param {SiteContext} ctx @param {string[]} choices */
export async function grid(root, ctx, [wish, order]) {
  /** @type {Options<string>} */
  const offered = Object.entries(MEASURES)
    .filter(([key]) => canMeasure(ctx, key))
    .map(([key, { name }]) => [key, name]);
  const measure = offered.some(([key]) => key === wish) ? wish : "entropy";
  const ranked = order === "ranked";
  /** @param {string} name @param {boolean} sorted */
  const view = (name, sorted) => `grid.${name}${sorted ? ".ranked" : ""}`;
  const about = MEASURES[measure].answer ? answering(ctx).catch(() => "of the likeliest answer") : "";
  const hint = el("p", { class: "hint" }, `${ctx.mode === "delta" ? "After − before. " : ""}${MEASURES[measure].words}`);
  root.append(
    el(
      "div",
      { class: "controls" },
      picker("measure", offered, measure, (key) => ctx.go({ view: view(key, ranked) }), { data: { keep: "heads:lens" } }),
      choice(
        "Order",
        [
          ["place", "by place", "Blocks down, heads across"],
          ["ranked", "ranked", "Strongest first"],
        ],
        ranked ? "ranked" : "place",
        (key) => ctx.go({ view: view(measure, key === "ranked") }),
      ),
    ),
    hint,
  );
  hint.append(`${await about}.`);
  const cells = new Map(); // "site.h" → {element, write(score)}
  const watch = watcher(ctx);
  for (const site of ctx.trace.sites) {
    for (let h = 0; h < site.heads; h++) cells.set(`${site.site}.${h}`, cell(ctx, site, h, measure, watch, ranked));
  }
  const place = ranked ? ranking(ctx, measure, cells) : places(ctx, cells);
  root.append(...place.elements);
  await fill(
    root,
    ctx,
    measure,
    (known) => {
      for (const [site, scores] of Object.entries(known)) {
        for (const [h, x] of scores?.entries() ?? []) cells.get(`${site}.${h}`)?.write(x);
      }
      place.found(known);
    },
    hint,
  );
}

/**
 * Ask for the numbers. What takes long has a bar and can be stopped; the pictures do not wait for it.
 * @param {HTMLElement} root @param {SiteContext} ctx @param {string} measure @param {(known: Scores) => void} write
 * @param {HTMLElement} hint
 */
async function fill(root, ctx, measure, write, hint) {
  const bar = el("progress", { max: 1, value: 0, "aria-label": MEASURES[measure].name });
  const word = el("span", { class: "hint" });
  let stopped = false;
  const press = () => {
    stopped = !stopped;
    stop.textContent = stopped ? "Go on" : "Stop";
    if (!stopped) go();
  };
  const stop = button("Stop", press, { data: { keep: "heads:stop" } });
  const line = el("p", { class: "row measuring", hidden: true }, bar, word, stop);
  hint.after(line);
  const none = new Map(ctx.trace.sites.map(({ site }) => [site, true]));
  async function go() {
    try {
      const whole = await measured(ctx, measure, {
        found: (known) => {
          for (const [site, scores] of Object.entries(known)) if (scores) none.delete(site);
          write(known);
        },
        progress: (done, of) => {
          line.hidden = false;
          bar.value = done / of;
          word.textContent = `${done} of ${of} sites: the model is run again without each head`;
        },
        alive: () => !stopped && root.isConnected,
      });
      if (!whole) return;
      if (!line.hidden) announce(`${MEASURES[measure].name}: all heads measured`);
      line.remove();
      if (none.size === ctx.trace.sites.length && MEASURES[measure].none)
        hint.after(sentence("empty", MEASURES[measure].none));
    } catch ({ message }) {
      line.replaceWith(sentence(ctx.backend.live ? "error" : "empty", message));
    }
  }
  const first = go();
  if (measure !== "ablation") await first;
}

/**
 * Blocks down, heads across; a table of its own for each stack and kind of attention.
 * @param {SiteContext} ctx @param {Cells} cells
 */
function places(ctx, cells) {
  const groups = new Map();
  for (const site of ctx.trace.sites) {
    const name = `${site.stack} · ${KINDS[kindOf(ctx.trace, site)]}`;
    groups.set(name, [...(groups.get(name) ?? []), site]);
  }
  const mlps = new Map();
  /** @param {Site} site */
  const row = (site) => {
    const mlp = el("a", { class: "heads-mlp", href: ctx.link({ stage: "mlp", site: site.site, view: "" }), hidden: true });
    const block = blockAround(ctx, site);
    const made = block && mlpOf(ctx, block);
    if (site.kind !== "cross" && made) mlps.set(made.out, mlp);
    const inside = Array.from({ length: site.heads }, (_, h) => cells.get(`${site.site}.${h}`)?.element);
    return el(
      "div",
      { class: "heads-row", role: "group", "aria-label": siteName(ctx, site) },
      el("span", { class: "heads-block" }, `block ${site.layer}`, mlp),
      el("div", { class: `heads-cells${site.heads <= 6 ? " few" : ""}`, style: { "--heads": site.heads } }, inside),
    );
  };
  const elements = [...groups].map(([name, sites]) =>
    el("section", { class: "heads-group" }, el("h3", {}, name), sites.map(row)),
  );
  /** @param {Scores} known */
  const found = (known) => {
    for (const [place, mlp] of mlps) {
      if (!(place in known)) continue;
      mlp.hidden = false;
      mlp.replaceChildren("MLP ", el("span", { class: "number" }, fixed(known[place]?.[0] ?? 0, 3)));
    }
  };
  return { elements, found };
}

/** @type {{ [first: string]: (x: number) => number }} */
const SORTED = { least: (x) => -x, most: (x) => x, largest: Math.abs };

/** @param {SiteContext} ctx @param {string} measure @param {Cells} cells */
function ranking(ctx, measure, cells) {
  const size = ctx.mode === "delta" ? Math.abs : SORTED[MEASURES[measure].first];
  const ends =
    ctx.mode === "delta"
      ? "Those that changed most stand first."
      : MEASURES[measure].first === "least"
        ? "The most decided heads stand first."
        : "The strongest stand first.";
  const list = el("ol", { class: "heads-ranked" });
  /** @type {[score: number, item: HTMLElement][]} */
  const scored = [];
  /** @param {Scores} known */
  const found = (known) => {
    for (const [site, scores] of Object.entries(known)) {
      for (const [h, x] of scores?.entries() ?? []) {
        const cell = cells.get(`${site}.${h}`);
        if (x !== null && cell) scored.push([x, el("li", {}, cell.element)]);
      }
    }
    scored.sort(([a], [b]) => size(b) - size(a));
    list.append(...scored.map(([, item]) => item));
  };
  return { elements: [el("section", { class: "heads-group" }, el("p", { class: "hint" }, ends), list)], found };
}

/**
 * So many decimals, and no minus before nothing.
 * @param {number} x @param {number} digits
 */
const fixed = (x, digits) =>
  Number.isFinite(x)
    ? x
        .toFixed(digits)
        .replace(/^-(?=[0.]*$)/, "")
        .replace("-", "−")
    : format(x);

/**
 * One picture with its caption: {element, write(score)}.
 * @param {SiteContext} ctx @param {Site} site @param {number} h @param {string} measure @param {Watch} watch
 * @param {boolean} ranked
 */
function cell(ctx, site, h, measure, watch, ranked) {
  const canvas = el("canvas", { class: "head-picture", "aria-hidden": "true", width: 1, height: 1 });
  watch(canvas, site, h);
  const { name, unit = "", digits = ctx.mode === "delta" ? 3 : 2 } = MEASURES[measure];
  const here = site.site === ctx.site.site && h === ctx.head;
  const figure = el("span", { class: "number plain" });
  const head = ranked ? `${siteName(ctx, site)} · head ${h}` : site.heads > 6 ? String(h) : `head ${h}`;
  const element = el(
    "a",
    {
      class: "head-cell",
      href: ctx.link({ site: site.site, head: h, view: "lines" }),
      "aria-current": here ? "true" : null,
      "aria-label": `${siteName(ctx, site)}, head ${h}`,
      data: { keep: `grid:${site.site}:${h}` },
    },
    canvas,
    el("span", { class: "head-caption" }, el("span", {}, head), figure),
  );
  /** @param {number | null | undefined} score */
  const write = (score) => {
    figure.textContent = score === null || score === undefined ? "" : fixed(score, digits);
    element.setAttribute("aria-label", `${siteName(ctx, site)}, head ${h}, ${name} ${figure.textContent} ${unit}`);
  };
  return { element, write };
}

/**
 * Fetches the weights of a site (of one head, when they are many) when a picture of it comes near the screen, and paints it.
 * @param {SiteContext} ctx
 */
function watcher(ctx) {
  /** @type {Map<Element, () => void>} */
  const waiting = new Map();
  /** @type {Map<string, Promise<Slice>>} */
  const fetched = new Map();
  /** @param {Site} site @param {number} h */
  const weights = (site, h) => {
    const [, N, T] = nodeOf(ctx, site.weights).shape;
    const alone = site.heads * N * T * 4 > WHOLE;
    const key = alone ? `${site.site}.${h}` : site.site;
    const asked = fetched.get(key) ?? ctx.data.slice(site.weights, alone ? [h, ":", ":"] : undefined);
    fetched.set(key, asked);
    return asked.then(({ values }) => ({ N, T, values: alone ? values : values.subarray(h * N * T, (h + 1) * N * T) }));
  };
  const near = new IntersectionObserver(
    (entries) => {
      for (const { isIntersecting, target } of entries) {
        if (!isIntersecting) continue;
        near.unobserve(target);
        waiting.get(target)?.();
      }
    },
    { rootMargin: "300px" },
  );
  /** @type {Watch} */
  return (canvas, site, h) => {
    const paint = () =>
      weights(site, h).then(
        (A) => paintHead(canvas, A, ctx.mode === "delta"),
        () => {},
      );
    waiting.set(canvas, paint); // what cannot be fetched stays blank
    near.observe(canvas);
  };
}

/**
 * A head's (N, T) as a picture of at most SMALL × SMALL, each pixel the largest weight it stands for.
 * @param {HTMLCanvasElement} canvas @param {{ N: number, T: number, values: Float32Array }} given @param {boolean} signed
 */
function paintHead(canvas, { N, T, values }, signed) {
  const [high, wide] = [Math.min(N, SMALL), Math.min(T, SMALL)];
  const most = new Float32Array(high * wide).fill(NaN); // stays so where a difference has no counterpart
  for (let i = 0; i < N; i++) {
    for (let j = 0; j < T; j++) {
      const at = Math.floor((i * high) / N) * wide + Math.floor((j * wide) / T);
      const value = values[i * T + j];
      if (!(Math.abs(value) <= Math.abs(most[at])) && !Number.isNaN(value)) most[at] = value;
    }
  }
  const draw = () => {
    const colour = colours(signed ? "diverging" : "sequential", signed ? 0.5 : 1);
    const image = new ImageData(wide, high);
    for (const [at, value] of most.entries()) image.data.set([...colour(value), Number.isNaN(value) ? 0 : 255], 4 * at);
    [canvas.width, canvas.height] = [wide, high];
    penOf(canvas).putImageData(image, 0, 0);
  };
  draw();
  document.addEventListener("themed", function again() {
    if (!canvas.isConnected) return document.removeEventListener("themed", again);
    draw();
  });
}
