/**
 * The model view: every head as a small picture of its weights, in its place (block × head) or ranked by a lens.
 *
 * In: the run and the lens's name. Out: pictures that fetch their numbers when they come into view, each a link to its head.
 */

import { choice, el, picker, sentence } from "regard/dom.js";
import { siteName } from "regard/parts/run.js";
import { colours } from "regard/scale.js";
import { labelsOf } from "regard/tokens.js";

const LENSES = {
  entropy: ["entropy", "bits", "How widely a head looks: 0 bits is one key, log₂ of the keys is all of them alike"],
  previous: ["previous token", "", "The weight on the token just before, averaged over queries"],
  induction: ["induction", "", "The weight on what followed the last time this token occurred"],
  first: ["first token", "", "The weight on the first token, averaged over queries"],
  ablation: ["ablation effect", "", "How the log-probability of the likeliest answer changes when the head is switched off"],
};
const KINDS = { cross: "cross attention", causal: "causal self-attention", self: "self-attention" };
const SMALL = 72; // values per side of a picture
const WHOLE = 8 << 20; // bytes of weights that are fetched for all heads of a site at once

export async function grid(root, ctx, [wish, order]) {
  const lens = wish in LENSES ? wish : "entropy";
  const ranked = order === "ranked";
  const view = (name, sorted) => `grid.${name}${sorted ? ".ranked" : ""}`;
  root.append(
    el(
      "div",
      { class: "controls" },
      picker(
        "measure",
        Object.entries(LENSES).map(([key, [name]]) => [key, name]),
        lens,
        (key) => ctx.go({ view: view(key, ranked) }),
        { data: { keep: "heads:lens" } },
      ),
      choice(
        "Order",
        [["place", "by place", "Blocks down, heads across"], ["ranked", "ranked", "Strongest first"]],
        ranked ? "ranked" : "place",
        (key) => ctx.go({ view: view(lens, key === "ranked") }),
      ),
    ),
    el("p", { class: "hint" }, `${LENSES[lens][2]}${lens === "ablation" ? ` (answer after “${answering(ctx)}”)` : ""}.`),
  );
  const watch = watcher(ctx);
  const scores = scored(ctx, lens);
  if (ranked) return root.append(await scores.then(
    (known) => ranking(ctx, lens, known, watch),
    ({ message }) => sentence("error", message),
  ));
  const written = []; // the pictures do not wait for the numbers under them
  root.append(...places(ctx, lens, written, watch));
  scores.then((known) => written.forEach((write) => write(known)), ({ message }) => root.append(sentence("error", message)));
}

function answering(ctx) {
  const labels = labelsOf(ctx.trace, ctx.trace.target_tokens ? "decoder" : ctx.model.stacks[0].name);
  return labels[Math.min(ctx.state.token, labels.length - 1)];
}

/** site → a number per head. */
async function scored(ctx, lens) {
  if (lens === "ablation") return (await ctx.data.lens("ablation", { token: ctx.state.token })).sites;
  const { sites } = await ctx.data.lens("heads");
  return Object.fromEntries(Object.entries(sites).map(([site, each]) => [site, each[lens]]));
}

/** Blocks down, heads across; a table of its own for each stack and kind of attention. */
function places(ctx, lens, written, watch) {
  const groups = new Map();
  for (const site of ctx.trace.sites) {
    const name = `${site.stack} · ${KINDS[site.kind] ?? site.kind}`;
    groups.set(name, [...(groups.get(name) ?? []), site]);
  }
  const row = (site) =>
    el(
      "div",
      { class: "heads-row", role: "group", "aria-label": siteName(ctx, site) },
      el("span", { class: "heads-block" }, `block ${site.layer}`),
      el(
        "div",
        { class: `heads-cells${site.heads <= 6 ? " few" : ""}`, style: { "--heads": site.heads } },
        Array.from(
          { length: site.heads },
          (_, h) => cell(ctx, site, h, lens, watch, (write) => written.push((known) => write(known[site.site]?.[h]))),
        ),
      ),
    );
  return [...groups].map(([name, sites]) => el("section", { class: "heads-group" }, el("h3", {}, name), sites.map(row)));
}

function ranking(ctx, lens, scores, watch) {
  const all = ctx.trace.sites.flatMap((site) => Array.from(
    { length: site.heads },
    (_, h) => ({ site, h, score: scores[site.site]?.[h] ?? 0 }),
  ));
  const size = lens === "ablation" ? (x) => Math.abs(x.score) : lens === "entropy" ? (x) => -x.score : (x) => x.score;
  all.sort((a, b) => size(b) - size(a));
  const ends = lens === "entropy" ? "The most decided heads stand first." : "The strongest stand first.";
  return el(
    "section",
    { class: "heads-group" },
    el("p", { class: "hint" }, ends),
    el(
      "ol",
      { class: "heads-ranked" },
      all.map(({ site, h, score }) => el(
        "li",
        {},
        cell(ctx, site, h, lens, watch, (write) => write(score), siteName(ctx, site)),
      )),
    ),
  );
}

/** So many decimals, and no minus before nothing. */
const fixed = (x, digits) => x.toFixed(digits).replace(/^-(?=[0.]*$)/, "").replace("-", "−");

/** One picture with its caption. `when(write)`: call `write(score)` once the score is known. */
function cell(ctx, site, h, lens, watch, when, where = "") {
  const canvas = el("canvas", { class: "head-picture", "aria-hidden": "true", width: 1, height: 1 });
  watch(canvas, site, h);
  const [name, unit] = LENSES[lens];
  const here = site.site === ctx.site.site && h === ctx.head;
  const figure = el("span", { class: "number plain" });
  const link = el("a", {
      class: "head-cell", href: ctx.link({ site: site.site, head: h, view: "lines" }), "aria-current": here ? "true" : null,
      "aria-label": `${siteName(ctx, site)}, head ${h}`, data: { keep: `grid:${site.site}:${h}` },
    },
    canvas, el(
      "span",
      { class: "head-caption" },
      el("span", {}, where ? `${where} · head ${h}` : site.heads > 6 ? String(h) : `head ${h}`),
      figure,
    ));
  when((score) => {
    figure.textContent = Number.isFinite(score) ? fixed(score, lens === "ablation" ? 3 : 2) : "";
    link.setAttribute("aria-label", `${siteName(ctx, site)}, head ${h}, ${name} ${figure.textContent} ${unit}`);
  });
  return link;
}

/** Fetches the weights of a site (of one head, when they are many) when a picture of it comes near the screen, and paints it. */
function watcher(ctx) {
  const waiting = new Map();
  const fetched = new Map();
  const weights = (site, h) => {
    const [, N, T] = ctx.nodes.get(`${site.site}.weights`).shape;
    const alone = site.heads * N * T * 4 > WHOLE;
    const key = alone ? `${site.site}.${h}` : site.site;
    if (!fetched.has(key)) fetched.set(key, ctx.data.slice(`${site.site}.weights`, alone ? [h, ":", ":"] : undefined));
    return fetched.get(key).then(({ values }) => ({
      N,
      T,
      values: alone ? values : values.subarray(h * N * T, (h + 1) * N * T),
    }));
  };
  const near = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      near.unobserve(target);
      const { site, h } = waiting.get(target);
      weights(site, h).then((A) => paintHead(target, A, ctx.mode === "delta"), () => {}); // what cannot be fetched stays blank
    }
  }, { rootMargin: "300px" });
  return (canvas, site, h) => {
    waiting.set(canvas, { site, h });
    near.observe(canvas);
  };
}

/** A head's (N, T) as a picture of at most SMALL × SMALL, each pixel the largest weight it stands for. */
function paintHead(canvas, { N, T, values }, signed) {
  const [high, wide] = [Math.min(N, SMALL), Math.min(T, SMALL)];
  const most = new Float32Array(high * wide);
  for (let i = 0; i < N; i++) {
    for (let j = 0; j < T; j++) {
      const at = Math.floor((i * high) / N) * wide + Math.floor((j * wide) / T);
      const value = values[i * T + j];
      if (Math.abs(value) > Math.abs(most[at])) most[at] = value;
    }
  }
  const draw = () => {
    const colour = colours(signed ? "diverging" : "sequential", signed ? 0.5 : 1);
    const image = new ImageData(wide, high);
    most.forEach((value, at) => image.data.set([...colour(value), 255], 4 * at));
    [canvas.width, canvas.height] = [wide, high];
    canvas.getContext("2d").putImageData(image, 0, 0);
  };
  draw();
  document.addEventListener("themed", function again() {
    if (!canvas.isConnected) return document.removeEventListener("themed", again);
    draw();
  });
}
