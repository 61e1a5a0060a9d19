/**
 * Depth 0, the whole model: every token is a row, its residual stream a ribbon, every block a gate.
 *
 * In: a world and its frame. Out: marks and things. Arcs show where the word in focus looked, the line of words below the gates
 * what the model would say if it stopped there, and the bars at the right what it says.
 */

import { palette } from "regard/scale.js";
import { band, box, curve, table, text } from "regard/scene/painters.js";
import { headOf, looking } from "regard/scene/world.js";
import { show, wordOf } from "regard/tokens.js";

const FAINT = 0.04; // of a row's attention: less is not drawn
const SHOWN = 6; // answers

/** @param {Stage} stage @returns {Picture} */
export function whole(stage) {
  return join(rows(stage), gates(stage), arcs(stage), guesses(stage), answers(stage));
}

/** @param {...Picture} pictures @returns {Picture} */
export const join = (...pictures) => ({
  marks: pictures.flatMap(({ marks }) => marks),
  things: pictures.flatMap(({ things }) => things),
});

/** Words, their vectors and their ribbons. @param {Stage} stage @returns {Picture} */
export function rows(stage) {
  const { world, frame, say, ctx } = stage;
  /** @type {Mark[]} */
  const marks = [];
  /** @type {Thing[]} */
  const things = [];
  const { ink, line } = palette();
  for (const { stack, pieces } of world.lanes) {
    const lane = frame.lanes.get(stack);
    const vectors = world.embedded.get(stack);
    if (!lane) continue;
    const bound = vectors ? strongest(vectors.values) : 1;
    const segments = segmentsOf(stage, stack);
    const most = Math.max(1e-9, ...segments.flatMap(({ norms }) => (norms ? [...norms] : [])));
    pieces.forEach((piece, i) => {
      const { y, h } = lane.rows[i];
      const chosen = stack === world.stack && i === world.focus;
      if (vectors && frame.strip.w && h > 5) {
        const strip = { shape: [1, vectors.shape[1]], values: rowOf(vectors, i) };
        const paint = table(strip, { scale: "diverging", bound });
        marks.push({
          key: `vector:${stack}:${i}`,
          paint,
          g: { x: frame.strip.x, y: y - Math.min(9, h * 0.32), w: frame.strip.w, h: Math.min(18, h * 0.64) },
        });
      }
      for (const { key, x, w, norms, after } of segments) {
        const thick = (/** @type {Float32Array | null | undefined} */ of) =>
          of ? 1.5 + (Math.min(15, h * 0.5) * of[i]) / most : 1.5;
        marks.push({
          key: `stream:${stack}:${i}:${key}`,
          paint: band(chosen ? ink : line),
          g: { x, y, w, a: thick(norms), b: thick(after ?? norms), alpha: chosen ? 0.24 : 0.75 },
        });
      }
      if (h >= 11 || chosen) {
        things.push({
          key: `word:${stack}:${i}`,
          class: chosen ? "word chosen" : "word",
          text: wordOf(piece),
          title: say("word.title", { position: i + 1, piece: show(piece) }),
          href: ctx.link({ token: i, ...(stage.depth > 1 ? { key: Math.min(i, ctx.state.key) } : {}) }),
          g: { x: frame.label.x, y, size: Math.min(17, Math.max(10, h * 0.62)) },
          align: "end",
          current: chosen,
        });
      }
    });
  }
  return { marks, things };
}

/** @param {Tensor} tensor @param {number} i */
const rowOf = ({ shape: [, d], values }, i) => values.subarray(i * d, (i + 1) * d);

/** @param {Numbers} values */
export const strongest = (values) => {
  let most = 0;
  for (const value of values) if (Math.abs(value) > most && Math.abs(value) < Infinity) most = Math.abs(value);
  return most || 1;
};

/**
 * The pieces of a lane's ribbons: up to the first gate, from gate to gate, and to the end. `norms`: the lengths of the vectors there.
 * @param {Stage} stage @param {StackName} stack
 */
function segmentsOf({ world, frame }, stack) {
  const own = frame.gates.filter(({ block }) => block.stack === stack);
  const end = stack === world.lanes.at(-1)?.stack ? frame.stream.x + frame.stream.w : memoryEnd(frame, stack);
  let x = frame.stream.x;
  let norms = world.embedded.get(stack)?.norms ?? null;
  const found = own.map(({ x: left, w, block }) => {
    const after = world.streams?.get(block.out) ?? null;
    const one = { key: block.place, x, w: left + w - x, norms, after };
    x = left + w;
    norms = after ?? norms;
    return one;
  });
  return [...found, { key: "end", x, w: Math.max(0, end - x), norms, after: norms }];
}

/** What an encoder read is handed on up to the last block that looks at it. @param {Frame} frame @param {StackName} stack */
function memoryEnd({ gates, stream }, stack) {
  const last = gates
    .filter(({ block }) => block.stack !== stack && block.sites.some(({ kind }) => kind === "cross"))
    .at(-1);
  return last ? last.x + last.w * 0.5 : stream.x + stream.w;
}

/** Gates, with miniatures of their heads while there is room. @param {Stage} stage @returns {Picture} */
export function gates(stage) {
  const { frame, say, ctx } = stage;
  const { paper, line, roles } = palette();
  /** @type {Mark[]} */
  const marks = [];
  /** @type {Thing[]} */
  const things = [];
  for (const gate of frame.gates) {
    const { x, y, w, h, block, open, folded } = gate;
    if (w < 1) continue; // on a phone the open block stands alone
    const key = `gate:${block.place}`;
    const { surface } = stage;
    marks.push({ key, paint: box({ fill: surface, radius: 12 }), g: { x, y, w, h, alpha: open ? 0.9 : 0.72 } });
    marks.push({
      key: `${key}:edge`,
      paint: box({ stroke: open ? roles.A : line, line: open ? 2 : 1, radius: 12 }),
      g: { x, y, w, h },
    });
    const title = say("gate.title", { block: block.layer, stack: block.stack });
    if (w >= 44 || open || block.layer % Math.ceil(30 / (w + 6)) === 0) {
      const name = w >= 64 ? say("gate.name", { block: block.layer }) : String(block.layer);
      things.push({
        key: `name:${block.place}`,
        class: "gate-name",
        text: name,
        align: "middle",
        g: { x: x + w / 2, y: y - 13, size: 14 },
      });
    }
    if (!open) {
      things.push({
        key: `door:${block.place}`,
        class: "door",
        text: "",
        label: title,
        title,
        href: ctx.link({
          depth: 1,
          site: block.sites.at(-1)?.site ?? "",
          view: block.place,
          node: "",
          index: [],
          trail: [],
        }),
        g: { x, y, w, h, alpha: 1 },
      });
    }
    if (!folded && !open) marks.push(...miniatures(stage, gate, paper));
  }
  return { marks, things };
}

/**
 * Small pictures of every head's weights, and of what the MLP adds to the word in focus.
 * @param {Stage} stage @param {Gate} gate @param {string} edge @returns {Mark[]}
 */
function miniatures({ world }, { x, y, w, h, block }, edge) {
  const all = block.sites.flatMap((site) => {
    const weights = world.weights.get(site.site);
    return weights ? Array.from({ length: site.heads }, (_, head) => ({ site, head, weights })) : [];
  });
  const columns = w < 56 ? 1 : w > 130 && all.length > 6 ? 3 : 2;
  const lines = Math.ceil(all.length / columns);
  const size = Math.min(58, (w - 12) / columns - 6, (h - 30) / lines - 6);
  if (size < 9) return [];
  const tall = lines * (size + 6);
  const [left, top] = [x + (w - columns * (size + 6) + 6) / 2, y + 16 + Math.max(0, (h - 32 - tall) * 0.12)];
  const below = top + tall + 18;
  const strips = block.mlps.flatMap((node) => {
    const values = world.added.get(node);
    if (!values || below + 30 > y + h || w < 60) return [];
    const g = { x: left, y: below, w: columns * (size + 6) - 6, h: 12 };
    const paint = table({ shape: [1, values.length], values }, { scale: "diverging", bound: strongest(values) });
    return [
      { key: `added:${node}`, paint, g },
      { key: `mlp:${node}`, paint: text("MLP"), g: { x: x + w / 2, y: below + 24 } },
    ];
  });
  const heads = all.flatMap(({ site, head, weights }, i) => {
    const numbers = headOf(weights, head) ?? { shape: [1, weights.columns], values: looking(weights, world.focus, head) };
    const g = { x: left + (i % columns) * (size + 6), y: top + Math.floor(i / columns) * (size + 6), w: size, h: size };
    return [
      {
        key: `head:${site.site}:${head}`,
        paint: table(numbers, { scale: "sequential", bound: 1, edge }),
        g: { ...g, alpha: 0.92 },
      },
    ];
  });
  return [...heads, ...strips];
}

/** At the end of each ribbon, the label of its word. @param {Stage} stage @returns {Picture} */
export function tags({ world, frame, ctx }) {
  const things = (world.tags ?? []).flatMap((tag, i) =>
    tag === null
      ? []
      : [
          {
            key: `tag:${i}`,
            class: i === world.focus ? "tag chosen" : "tag",
            text: tag,
            href: ctx.link({ token: i }),
            g: { x: frame.stream.x + frame.stream.w + 5, y: frame.y(world.stack, i), size: 12 },
          },
        ],
  );
  return { marks: [], things: frame.upright ? [] : things };
}

/** Where the word in focus looked, averaged over heads. @param {Stage} stage @returns {Picture} */
export function arcs({ world, frame }) {
  /** @type {Mark[]} */
  const marks = [];
  const { roles } = palette();
  for (const { x, w, block, folded, open } of frame.gates) {
    if (open || w < 1 || block.stack !== world.stack) continue;
    for (const site of block.sites) {
      const weights = world.weights.get(site.site);
      if (!weights) continue;
      const keys = site.kind === "cross" ? (world.lanes[0]?.stack ?? site.stack) : site.stack;
      const looked = looking(weights, world.focus);
      looked.forEach((weight, j) => {
        if (weight < FAINT || (site.kind !== "cross" && j === world.focus)) return;
        const inset = folded ? 3 : 14;
        marks.push({
          key: `arc:${site.site}:${j}`,
          paint: curve(roles.A),
          g: {
            x: x - inset,
            y: frame.y(keys, j),
            u: x + w + inset / 2,
            v: frame.y(world.stack, world.focus),
            thick: 1 + 9 * weight * (w < 44 ? 0.45 : 1),
            alpha: 0.16 + 0.7 * weight,
          },
        });
      });
    }
  }
  return { marks, things: [] };
}

/**
 * Under each gate, what the model would say if it stopped there: in two lines, without overlap. Where there is no room for all, the
 * open gate's and the last are told, then those at which the word changes.
 * @param {Stage} stage @returns {Picture}
 */
export function guesses({ world, frame, ctx, say }) {
  const all = frame.gates.flatMap((gate, i) => {
    if (gate.w < 1) return [];
    const guess = world.guesses.get(gate.block.out);
    if (!guess) return [];
    const before = i ? world.guesses.get(frame.gates[i - 1].block.out)?.[1] : null;
    const rank = gate.open || i === frame.gates.length - 1 ? 0 : guess[1] === before ? 2 : 1;
    return [{ gate, guess, rank }];
  });
  /** @type {[number, number][][]} */
  const taken = [[], []];
  const things = all
    .sort((a, b) => a.rank - b.rank)
    .flatMap(({ gate: { x, w, block }, guess: [piece, , probability], rank }) => {
      const word = wordOf(piece);
      const short = w < 90;
      if (short && rank > 1) return [];
      const text = short ? `${word} ${percent(probability)}` : `“${word}” ${percent(probability)} %`;
      const half = text.length * (short ? 3.2 : 3.9) + 3;
      const at = Math.min(x + w / 2, frame.stream.x + frame.stream.w + 20 - half);
      const line = taken.findIndex((spans) => spans.every(([from, to]) => at + half < from || at - half > to));
      if (line < 0) return [];
      taken[line].push([at - half, at + half]);
      return [
        {
          key: `guess:${block.place}`,
          class: "guess",
          text,
          title: say("guess.title", { block: block.layer, piece: word, percent: percent(probability) }),
          href: ctx.link({ stage: "residual", site: block.sites.at(-1)?.site ?? "" }),
          align: /** @type {"middle"} */ ("middle"),
          g: { x: at, y: frame.bottom + 13 + 16 * line, size: short ? 11.5 : 14 },
        },
      ];
    });
  return { marks: [], things };
}

/** @param {number} p */
export const percent = (p) => (p >= 0.0995 ? (100 * p).toFixed(0) : (100 * p).toFixed(1));

/** The answer as bars, with ghosts of what it was before an edit. @param {Stage} stage @returns {Picture} */
export function answers({ world, frame, say, ctx, hidden }) {
  const { answer, ghosts } = world;
  /** @type {Mark[]} */
  const marks = [];
  /** @type {Thing[]} */
  const things = [];
  if (!answer || frame.upright) return { marks, things };
  const { diverging } = palette();
  const orange = `rgb(${diverging[4].join(" ")})`;
  const count = Math.min(answer.rows.length, frame.upright ? 4 : SHOWN);
  const pitch = Math.min(44, (frame.bottom - frame.top) / (count + 1));
  const middle = frame.y(world.stack, world.focus);
  const start = Math.min(
    Math.max(frame.top + pitch, middle - (count * pitch) / 2),
    frame.bottom - count * pitch + pitch / 2,
  );
  const word = frame.upright ? frame.answer.w : Math.min(108, frame.answer.w * 0.45);
  const room = frame.answer.w - word - 62;
  const { x } = frame.answer;
  things.push({
    key: "answer:title",
    class: "answer-title",
    text: say(`answer.${answer.kind}`, {}),
    g: { x, y: start - pitch * 0.9, size: 14 },
  });
  const before = new Map((ghosts?.rows ?? []).map((row) => [row.id, row.probability]));
  answer.rows.slice(0, count).forEach(({ piece, id, probability }, i) => {
    const y = start + i * pitch;
    const label = hidden ? "?" : wordOf(piece);
    things.push({
      key: `answer:${id}`,
      class: i ? "answer" : "answer first",
      text: label,
      title: say("answer.title", { piece: label, percent: percent(probability) }),
      href: hidden ? null : ctx.link({ stage: "output" }),
      g: { x, y, size: i ? 16 : 18 },
    });
    if (hidden || frame.upright) return;
    const was = before.get(id);
    if (was !== undefined && Math.abs(was - probability) > 5e-4)
      marks.push({
        key: `ghost:${id}`,
        paint: box({ stroke: orange, radius: 1, dash: [3, 2] }),
        g: { x: x + word, y: y - 9, w: Math.max(1, room * was), h: 18, alpha: 0.7 },
      });
    marks.push({
      key: `bar:${id}`,
      paint: box({ fill: orange, radius: 1 }),
      g: { x: x + word, y: y - 9, w: Math.max(1.5, room * probability), h: 18, alpha: i ? 0.55 : 1 },
      from: { x: x + word, y: y - 9, w: 0, h: 18 },
    });
    things.push({
      key: `percent:${id}`,
      class: "percent",
      text: `${(100 * probability).toFixed(1)} %`,
      g: { x: x + word + Math.max(1.5, room * Math.max(probability, was ?? 0)) + 8, y, size: 14 },
    });
  });
  return { marks, things };
}
