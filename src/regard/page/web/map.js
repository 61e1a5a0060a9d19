/**
 * The map: what the spec says the model is, one column per stack, in the direction the numbers flow.
 *
 * In: /api/model, the wiring of the run and where the person is. Out: links to every part. Identical blocks are folded into one
 * with "×12"; the fold opens on click. Cross edges run from the encoder's end to each cross attention that is drawn.
 */

import { button, el, svg } from "regard/dom.js";
import { blocksOf, branchesOf, normsAlong, siteIn } from "regard/parts/wiring.js";

/** @type {{ [head in ModelFacts["head"]]: string }} */
const OUTPUTS = { lm: "next token", mlm: "mask filling", classify: "classes", tag: "tags", none: "states" };

/** @type {Set<StackName>} */
const open = new Set(); // stacks whose blocks are unfolded

/** @param {HTMLElement} root @param {Context} ctx */
export function map(root, ctx) {
  const columns = ctx.model.stacks.map((stack) => column(root, ctx, stack));
  const edges = svg("svg", { class: "edges", "aria-hidden": "true" });
  const body = el("div", { class: "columns", data: { stacks: columns.length } }, columns, edges);
  const size = `${count(ctx.model.parameters)} parameters`;
  const facts = el("p", { class: "map-facts" }, ctx.model.family, " · ", size, " · ", `d = ${ctx.model.d}`);
  root.replaceChildren(
    el(
      "details",
      { class: "map", open: root.querySelector("details")?.open ?? innerWidth > 760 },
      el("summary", {}, "Map"),
      el("h2", { class: "map-title" }, ctx.model.name),
      facts,
      body,
    ),
  );
  if (columns.length > 1) requestAnimationFrame(() => connect(body, edges));
}

/** @param {number} n */
const count = (n) =>
  n >= 1e9
    ? `${(n / 1e9).toFixed(1)} billion`
    : n >= 1e6
      ? `${(n / 1e6).toFixed(1)} million`
      : `${Math.round(n / 1e3)} thousand`;

/**
 * What is particular about a stack, as small words.
 * @param {Stack} stack
 */
function badges(stack) {
  const recurs = [stack.directions > 1 ? "forwards and backwards" : "one word after the other", `state of ${stack.hidden}`];
  const list = stack.hidden
    ? recurs
    : [
        `${stack.wiring}-norm`,
        stack.norm === "rms" ? "RMSNorm" : "LayerNorm",
        {
          learned: "learned positions",
          sinusoidal: "sinusoidal positions",
          rotary: "RoPE",
        }[stack.positions] ?? stack.positions,
        stack.kv_heads < stack.heads ? `GQA ${stack.heads}:${stack.kv_heads}` : `${stack.heads} heads`,
        stack.mask === "causal" ? "causal mask" : "no mask",
        stack.window ? `window ${stack.window}` : null,
        stack.gated ? `gated ${stack.activation}` : stack.activation,
      ];
  return el(
    "ul",
    { class: "badges" },
    list.filter(Boolean).map((word) => el("li", {}, word)),
  );
}

/**
 * A recurrent stack: a state that goes from token to token, and in the decoder a look at the source before each word.
 * @param {Context} ctx @param {Stack} stack
 */
function recurrent(ctx, stack) {
  const { stage, view } = ctx.state;
  /** @param {string} name */
  const here = (name) => stage === "steps" && (view === "encoder" ? "encoder" : "decoder") === name;
  const gru = part(
    ctx,
    stack.directions > 1 ? "GRU → and ←" : "GRU",
    { stage: "steps", view: stack.name },
    here(stack.name),
  );
  const looks = stack.cross
    ? part(ctx, "additive attention", { stage: "attention" }, stage === "attention", "crossing")
    : null;
  return el(
    "section",
    { class: "column", "aria-label": stack.name, data: { stack: stack.name } },
    el("h3", {}, stack.name),
    part(ctx, "embedding", { stage: "tokens" }, stage === "tokens"),
    el("div", { class: "blocks" }, el("div", { class: "block" }, looks, gru)),
    stack.cross
      ? part(ctx, output(ctx), { stage: "output" }, stage === "output")
      : el("span", { class: "part end" }, "states"),
    badges(stack),
  );
}

/** @param {HTMLElement} root @param {Context} ctx @param {Stack} stack */
function column(root, ctx, stack) {
  if (stack.hidden) return recurrent(ctx, stack);
  const here = ctx.site?.stack === stack.name ? ctx.site.layer : 0;
  const unfolded = open.has(stack.name);
  const layers = unfolded ? [...Array(stack.layers).keys()] : [here];
  const flip = () => {
    if (!open.delete(stack.name)) open.add(stack.name);
    map(root, ctx);
  };
  const fold =
    stack.layers > 1
      ? button(unfolded ? "fold" : `×${stack.layers}`, flip, {
          class: "fold",
          "aria-expanded": String(unfolded),
          title: unfolded ? "Fold identical blocks" : `${stack.layers} identical blocks; unfold`,
          data: { keep: `fold:${stack.name}` },
        })
      : null;
  const last = stack.name === "decoder" || ctx.model.stacks.length === 1;
  return el(
    "section",
    { class: "column", "aria-label": stack.name, data: { stack: stack.name } },
    el("h3", {}, stack.name),
    part(ctx, "embedding", { stage: "tokens", site: siteOf(ctx, stack, here) }, ctx.state.stage === "tokens"),
    el(
      "div",
      { class: "blocks", data: { folded: unfolded ? null : "" } },
      fold,
      layers.map((layer) => block(ctx, stack, layer, layer === here)),
    ),
    last
      ? part(ctx, output(ctx), { stage: "output" }, ctx.state.stage === "output")
      : el("span", { class: "part end" }, "states"),
    badges(stack),
  );
}

/** @param {Context} ctx */
const output = ({ model }) => OUTPUTS[model.head];

/** @param {Context} ctx @param {Stack} stack @param {number} at */
function blockAt({ base }, stack, at) {
  const found = blocksOf({ trace: base }).find(({ stack: name, layer }) => name === stack.name && layer === at);
  if (!found) throw new Error(`this run has no block ${stack.name}.${at}`);
  return found;
}
/** @param {Context} ctx @param {Stack} stack @param {number} layer */
const siteOf = (ctx, stack, layer) => siteIn(blockAt(ctx, stack, layer));

/**
 * What a block adds, in its order, and the norms before and after it.
 * @param {Context} ctx @param {Stack} stack @param {number} layer @param {boolean} here
 */
function block(ctx, stack, layer, here) {
  const { stage } = ctx.state;
  const wired = blockAt(ctx, stack, layer);
  const site = siteIn(wired);
  const near = here && ctx.site?.stack === stack.name;
  const norm = () => part(ctx, "norm", { stage: "residual", site }, near && stage === "residual", "small");
  /** @param {Site} given */
  const attention = ({ site, kind }) => {
    const on = near && (stage === "attention" || stage === "heads") && ctx.site?.site === site;
    return part(
      ctx,
      KINDS[kind],
      { stage: stage === "heads" ? "heads" : "attention", site },
      on,
      kind === "cross" ? "crossing" : "",
    );
  };
  const mlp = () => part(ctx, "MLP", { stage: "mlp", site }, near && stage === "mlp");
  /** @param {ResidualSum} sum */
  const added = (sum) => (/** @type {Branch} */ branch) => [
    normsAlong(sum)
      .filter((one) => one.branch === branch && one.out !== branch.node)
      .map(norm),
    ctx.base.sites.filter((one) => branch.sites.includes(one.site)).map(attention),
    branch.mlps.map(mlp),
    branch.norms.includes(branch.node) ? norm() : null,
  ];
  const within = new Set(branchesOf(wired).flatMap(({ norms }) => norms));
  /** @param {ResidualSum} sum */
  const ends = ({ node }) =>
    ctx.base.wiring.norms.filter(({ x, out }) => x === node && node !== wired.out && !within.has(out));
  const parts = wired.sums.map((sum) => [sum.branches.map(added(sum)), ends(sum).map(norm)]);
  const name = el("span", { class: "block-name" }, `block ${layer}`);
  if (!near && open.has(stack.name)) {
    return el("a", { class: "block closed", href: ctx.link({ site }) }, name);
  }
  return el("div", { class: "block", "aria-current": near ? "true" : null }, name, parts);
}

const KINDS = { causal: "causal attention", self: "self-attention", cross: "cross attention" };

/** @param {Context} ctx @param {string} words @param {Change} change @param {boolean} on @param {string} [kind] */
function part(ctx, words, change, on, kind = "") {
  return el("a", { class: `part ${kind}`, href: ctx.link(change), "aria-current": on ? "true" : null }, words);
}

/**
 * Draw the encoder's output into every cross attention on the screen.
 * @param {HTMLElement} body @param {SVGElement} edges
 */
function connect(body, edges) {
  const box = body.getBoundingClientRect();
  const end = body.querySelector('[data-stack="encoder"] .end')?.getBoundingClientRect();
  if (!end) return;
  const paths = [...body.querySelectorAll(".crossing")].map((cross) => {
    const to = cross.getBoundingClientRect();
    const [x1, y1, x2, y2] = [
      end.right - box.left,
      end.top + end.height / 2 - box.top,
      to.left - box.left,
      to.top + to.height / 2 - box.top,
    ];
    const middle = (x1 + x2) / 2;
    return svg("path", { d: `M${x1},${y1} H${middle} V${y2} H${x2 - 3} m-4,-3 l4,3 l-4,3` });
  });
  edges.replaceChildren(...paths);
}
