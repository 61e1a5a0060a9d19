/**
 * Depth 1, inside a block: its heads in a row, those that matter most for the answer first, and what its parts add to the word.
 *
 * In: a stage with an open gate. Out: marks and things within that gate.
 */

import { format } from "regard/dom.js";
import { palette } from "regard/scale.js";
import { box, curve, table } from "regard/scene/painters.js";
import { percent, strongest } from "regard/scene/whole.js";
import { headOf, looking } from "regard/scene/world.js";

const GAP = 18;
const BELOW = 38; // pixels below a head, for its name and what it does
const PARTS = 92; // pixels at the bottom, for what is added

/** @param {Stage} stage @returns {Picture} */
export function block(stage) {
  const { world, frame, view, ctx, say, near } = stage;
  const gate = frame.gates[view.open];
  if (!gate) return { marks: [], things: [] };
  /** @type {Mark[]} */
  const marks = [];
  /** @type {Thing[]} */
  const things = [];
  const heads = gate.block.sites.flatMap((site) =>
    Array.from({ length: site.heads }, (_, head) => ({ site, head, effect: near?.effects.get(site.site)?.[head] ?? null })),
  );
  heads.sort((a, b) => Math.abs(b.effect ?? 0) - Math.abs(a.effect ?? 0));
  const spot = places(heads.length, gate);
  heads.forEach(({ site, head, effect }, i) => {
    const weights = world.weights.get(site.site);
    if (!weights) return;
    const off = stage.isOff(site, head);
    const g = spot(i);
    const numbers = headOf(weights, head) ?? { shape: [1, weights.columns], values: looking(weights, world.focus, head) };
    const { paper, line, roles } = palette();
    const mine = site.stack === world.stack;
    const cell = /** @type {[number, number]} */ ([world.focus, -1]);
    marks.push({
      key: `head:${site.site}:${head}`,
      paint: table(numbers, {
        scale: "sequential",
        bound: 1,
        edge: off ? roles.A : paper,
        row: mine && numbers.shape[0] > 1 ? cell[0] : -1,
      }),
      g: { ...g, alpha: off ? 0.18 : 1 },
    });
    if (off) marks.push({ key: `off:${site.site}:${head}`, paint: box({ stroke: line, dash: [4, 3], radius: 3 }), g });
    const name = site.kind === "cross" ? say("head.cross", { head }) : say("head.name", { head });
    things.push({
      key: `head-name:${site.site}:${head}`,
      class: "head-name",
      text: name,
      title: say("head.title", { head, block: gate.block.layer }),
      href: ctx.link({ depth: 2, site: site.site, head, node: "", index: [], trail: [] }),
      align: "middle",
      cover: g,
      g: { x: g.x + g.w / 2, y: g.y + g.h + 12, size: 14 },
    });
    const told = off ? say("head.off", {}) : effect === null ? "" : effectWords(stage, effect);
    if (told)
      things.push({
        key: `effect:${site.site}:${head}`,
        class: "effect",
        text: told,
        align: "middle",
        g: { x: g.x + g.w / 2, y: g.y + g.h + 30, size: 12 },
      });
  });
  return { marks: [...marks, ...added(stage, gate).marks], things: [...things, ...added(stage, gate).things] };
}

/**
 * Where head i of n stands in the gate: in as few lines as leave it large.
 * @param {number} n @param {Gate} gate
 */
function places(n, { x, y, w, h }) {
  const [width, height] = [w - 2 * GAP, h - PARTS - 24];
  let best = { size: 0, columns: 1 };
  for (let columns = 1; columns <= n; columns++) {
    const lines = Math.ceil(n / columns);
    const size = Math.min(230, width / columns - GAP, height / lines - BELOW);
    if (size > best.size) best = { size, columns };
  }
  const { size, columns } = best;
  const lines = Math.ceil(n / columns);
  const left = x + (w - columns * (size + GAP) + GAP) / 2;
  const top = y + 20 + Math.max(0, height - lines * (size + BELOW)) / 2;
  return (/** @type {number} */ i) => ({
    x: left + (i % columns) * (size + GAP),
    y: top + Math.floor(i / columns) * (size + BELOW),
    w: size,
    h: size,
  });
}

/**
 * What switching a head off does to the answer: its probability then.
 * @param {Stage} stage @param {number} effect
 */
function effectWords({ world, say }, effect) {
  const first = world.answer?.rows[0];
  if (!first) return "";
  return say("head.effect", { before: percent(first.probability), after: percent(first.probability * Math.exp(effect)) });
}

/**
 * At the bottom of the gate: every part that is added to the word's vector, with the length of what it adds.
 * @param {Stage} stage @param {Gate} gate @returns {Picture}
 */
function added({ near, say, ctx, world, frame }, { x, y, w, h, block: { sums } }) {
  /** @type {Mark[]} */
  const marks = [];
  /** @type {Thing[]} */
  const things = [];
  const branches = sums.flatMap((sum) => sum.branches);
  const { roles, diverging } = palette();
  const most = strongest(branches.flatMap(({ node }) => near?.added.get(node)?.norm ?? 0));
  const step = (w - 2 * GAP) / branches.length;
  branches.forEach(({ kind, node, mlps }, i) => {
    const part = near?.added.get(node);
    if (!part) return;
    const left = x + GAP + i * step;
    const top = y + h - PARTS + 26;
    const strip = { shape: [1, part.values.length], values: part.values };
    const g = { x: left, y: top, w: step - GAP * 2, h: 16 };
    marks.push({ key: `added:${node}`, paint: table(strip, { scale: "diverging", bound: strongest(part.values) }), g });
    marks.push({
      key: `into:${node}`,
      paint: curve(mlps.length ? `rgb(${diverging[3].join(" ")})` : roles.A),
      g: {
        x: left + g.w,
        y: top + 8,
        u: Math.min(x + w + 8, left + g.w + 70),
        v: frame.y(world.stack, world.focus),
        thick: 2 + (8 * part.norm) / most,
        alpha: 0.5,
      },
    });
    things.push({
      key: `added-name:${node}`,
      class: "part-name",
      text: say(`added.${mlps.length ? "mlp" : kind.includes("cross") ? "cross" : "attention"}`, {
        norm: format(part.norm, 1),
      }),
      title: say("added.title", { d: part.values.length }),
      href: ctx.link(mlps.length ? { stage: "mlp" } : { stage: "residual" }),
      g: { x: left, y: top - 14, size: 13 },
    });
  });
  return { marks, things };
}
