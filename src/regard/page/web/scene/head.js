/**
 * Depth 2, one head: its queries come in along the rows, its keys from below, and they meet at one large matrix.
 *
 * In: a stage with an open gate and the head's numbers. Out: marks and things. The steps from dot products to weights are states of
 * the one matrix; its rows stand in the rows of their words, so that nothing jumps.
 */

import { format } from "regard/dom.js";
import { boundOf, palette } from "regard/scale.js";
import { curve, table } from "regard/scene/painters.js";
import { show, wordOf } from "regard/tokens.js";

const THIN = 0.03; // of what is carried onward: less is not drawn

/** @param {Stage} stage @returns {Picture} */
export function head(stage) {
  const { frame, view, near, ctx, world } = stage;
  const gate = frame.gates[view.open];
  const { site } = ctx;
  if (!gate || !site || !near?.head) return { marks: [], things: [] };
  const { steps, titles, words } = near.head;
  const node = steps.has(view.matrix) ? view.matrix : site.weights;
  const numbers = steps.get(node);
  if (!numbers) return { marks: [], things: [] };
  const { g, i, j, keys, queries } = matrixOf(stage, gate, numbers);
  const last = node === site.weights;
  const { roles } = palette();
  /** @type {Mark[]} */
  const marks = [
    ...ribbons(stage, gate, { g, i, j, queries, keys }),
    {
      key: `head:${site.site}:${ctx.head}`,
      paint: table((last && near.head.shares) || numbers, {
        scale: last ? "sequential" : "diverging",
        bound: last ? 1 : boundOf(numbers.values).bound,
        digits: 24,
        cursor: [i, j],
        edge: roles.A,
      }),
      g,
      cells: {
        rows: numbers.shape[0],
        columns: numbers.shape[1],
        choose: (r, c) => ({
          token: r,
          key: c,
          depth: Math.max(2, ctx.state.depth === 3 ? 3 : 2),
          node: "",
          index: [],
          trail: [],
        }),
        enter: (r, c) => ({ token: r, key: c, depth: 3, node: "", index: [], trail: [] }),
        say: (r, c) =>
          `${show(stage.lane(site.stack)[r])} → ${show(stage.lane(keys)[c])}: ${format(numbers.values[r * numbers.shape[1] + c], 3)}`,
      },
    },
  ];
  /** @type {Thing[]} */
  const things = [...columnNames(stage, g, keys, j), ...stepChips(stage, gate, [...steps.keys()], titles, node)];
  if (view.depth === 2 && !frame.upright)
    things.push({
      key: "matrix:says",
      class: "matrix-says",
      text: words[node] ?? "",
      align: "end",
      g: { x: gate.x + gate.w - 14, y: gate.y + 26 + 34 * steps.size, size: 13 },
    });
  if (view.depth === 2 && !frame.upright && world.stack === site.stack) things.push(...sum(stage, gate));
  return { marks, things };
}

/**
 * Where the matrix stands: its rows in the words' rows.
 * @param {Stage} stage @param {Gate} gate @param {Tensor} numbers
 */
export function matrixOf({ frame, ctx, world, view }, { x, w }, { shape: [R, C] }) {
  const site = /** @type {Site} */ (ctx.site);
  const lane = frame.lanes.get(site.stack);
  const [top, height] = [lane?.top ?? 0, (lane?.bottom ?? 0) - (lane?.top ?? 0)];
  const room = view.depth > 2 ? w * 0.36 : w * 0.62;
  const cell = Math.min(room / C, Math.max(height / R, 30) * 1.15);
  const wide = cell * C;
  const left = view.depth > 2 ? x + Math.min(60, w * 0.06) : x + Math.max(w * 0.12, (w - wide) * 0.42);
  const keys = site.kind === "cross" ? world.lanes[0].stack : site.stack;
  const i = world.stack === site.stack ? Math.min(world.focus, R - 1) : Math.max(0, Math.min(ctx.state.token, R - 1));
  return { g: { x: left, y: top, w: wide, h: height }, i, j: Math.min(ctx.state.key, C - 1), keys, queries: site.stack };
}

/**
 * q into its row, k into its column, and what each word is worth times its value, onward.
 * @param {Stage} stage @param {Gate} gate
 * @param {{ g: { x: number, y: number, w: number, h: number }, i: number, j: number, queries: StackName, keys: StackName }} at
 * @returns {Mark[]}
 */
function ribbons({ frame, near, ctx }, { x, w }, { g, i, j, queries, keys }) {
  const { roles } = palette();
  const site = /** @type {Site} */ (ctx.site);
  const weights = near?.head?.steps.get(site.weights);
  const C = weights?.shape[1] ?? 1;
  const y = frame.y(queries, i);
  const column = (/** @type {number} */ c) => g.x + ((c + 0.5) * g.w) / C;
  /** @type {Mark[]} */
  const marks = [
    { key: "ribbon:q", paint: curve(roles.Q), g: { x: x - 10, y, u: g.x - 4, v: y, thick: 7, alpha: 0.55 } },
    {
      key: "ribbon:k",
      paint: under(roles.K),
      g: { x: x - 10, y: frame.y(keys, j), u: column(j), v: g.y + g.h + 3, bend: g.x - 26, thick: 6, alpha: 0.55 },
    },
  ];
  weights?.values.subarray(i * C, (i + 1) * C).forEach((weight, c) => {
    if (!(weight >= THIN)) return;
    marks.push({
      key: `ribbon:v:${c}`,
      paint: curve(roles.V),
      g: { x: column(c), y, u: x + w + 12, v: y, thick: 1 + 12 * weight, alpha: c === j ? 0.6 : 0.16 },
    });
  });
  return marks;
}

/** A curve that goes down at `bend`, along below, and arrives from there. @param {string} stroke @returns {Paint} */
const under =
  (stroke) =>
  (pen, { x, y, u, v, bend, thick }) => {
    pen.strokeStyle = stroke;
    pen.lineWidth = thick;
    pen.lineCap = "round";
    pen.beginPath();
    const [turn, low] = [bend, v + 14];
    pen.moveTo(x, y);
    pen.bezierCurveTo(turn, y, turn - 10, low, turn + 14, low);
    pen.lineTo(Math.max(turn + 14, u - 14), low);
    pen.quadraticCurveTo(u, low, u, v);
    pen.stroke();
  };

/** @param {Stage} stage @param {{ x: number, y: number, w: number, h: number }} g @param {StackName} keys @param {number} chosen @returns {Thing[]} */
function columnNames({ lane, ctx }, g, keys, chosen) {
  const pieces = lane(keys);
  const cell = g.w / pieces.length;
  const every = Math.ceil(13 / cell);
  return pieces.flatMap((piece, c) => {
    if (c % every && c !== chosen) return [];
    const text = wordOf(piece);
    return [
      {
        key: `column:${c}`,
        class: `column${c === chosen ? " chosen" : ""}${cell < 40 ? " slanted" : ""}`,
        text,
        href: ctx.link({ key: c }),
        align: /** @type {"middle"} */ ("middle"),
        g: { x: g.x + (c + 0.5) * cell, y: g.y - 12, size: Math.min(14, Math.max(10, cell * 0.4)) },
      },
    ];
  });
}

/**
 * The states of the matrix, to step through.
 * @param {Stage} stage @param {Gate} gate @param {string[]} steps @param {{ [node: string]: string }} titles @param {string} here
 * @returns {Thing[]}
 */
function stepChips({ ctx, view, frame }, { x, w, y, h }, steps, titles, here) {
  const beside = view.depth === 2 && !frame.upright; // else below the matrix, one after another
  let left = x + 14;
  return steps.map((node, i) => {
    const at = left;
    left += 44 + 7.5 * titles[node].replace(/[\^_]/g, "").length;
    return {
      key: `step:${i}`,
      class: "step",
      math: titles[node],
      text: titles[node],
      href: ctx.link({ matrix: node, node: "", index: [], trail: [] }),
      current: node === here,
      align: /** @type {"start" | "end"} */ (beside ? "end" : "start"),
      g: beside ? { x: x + w - 12, y: y + 26 + 34 * i, size: 14 } : { x: at, y: y + h - 18, size: 13 },
    };
  });
}

/** The cell in focus from step to step, in one line. @param {Stage} stage @param {Gate} gate @returns {Thing[]} */
function sum({ near, ctx, world, say }, { x, w, y, h }) {
  if (!near?.head) return [];
  const { steps, titles } = near.head;
  const site = /** @type {Site} */ (ctx.site);
  const C = steps.get(site.weights)?.shape[1] ?? 1;
  const at = world.focus * C + Math.min(ctx.state.key, C - 1);
  const parts = [...steps].map(([node, { values }]) => `${titles[node]} ${format(values[at], 2)}`);
  return [
    {
      key: "sum",
      class: "sum",
      math: parts.join("  →  "),
      text: parts.join(" → "),
      title: say("cell.open", {}),
      href: ctx.link({ depth: 3 }),
      align: "end",
      g: { x: x + w - 14, y: y + h - 14, size: 15 },
    },
  ];
}
