/**
 * The whole model on a phone: the scene stands upright. Words are columns, blocks are bands, and time goes down.
 *
 * In: a stage in a narrow room. Out: marks and things under the same keys as in whole.js, so that turning the phone turns the picture.
 */

import { palette } from "regard/scale.js";
import { box, table } from "regard/scene/painters.js";
import { percent } from "regard/scene/whole.js";
import { headOf, looking } from "regard/scene/world.js";
import { wordOf } from "regard/tokens.js";

const TOP = 62; // pixels for the words
const EACH = 30; // pixels of an answer
const SHOWN = 4;
const FAINT = 0.05;

/** A curve that leaves and arrives upright. @param {string} stroke @returns {Paint} */
const fall =
  (stroke) =>
  (pen, { x, y, u, v, thick }) => {
    pen.strokeStyle = stroke;
    pen.lineWidth = Math.max(0.5, thick);
    pen.lineCap = "round";
    pen.beginPath();
    pen.moveTo(x, y);
    pen.bezierCurveTo(x, (y + v) / 2, u, (y + v) / 2, u, v);
    pen.stroke();
  };

/** @param {Stage} stage @returns {Picture} */
export function upright(stage) {
  const { world, frame, ctx, say, surface } = stage;
  /** @type {Picture} */
  const picture = { marks: [], things: [] };
  const { marks, things } = picture;
  const { ink, line, paper, roles } = palette();
  const answers = Math.min(SHOWN, world.answer?.rows.length ?? 0);
  const bottom = frame.height - (answers ? answers * EACH + 30 : 8);
  const lane = world.lanes.find(({ stack }) => stack === world.stack) ?? world.lanes[0];
  const blocks = world.blocks.filter(({ stack }) => stack === lane.stack);
  const step = (frame.width - 16) / lane.pieces.length;
  /** @param {number} i */
  const x = (i) => 8 + (i + 0.5) * step;
  const pitch = (bottom - TOP) / Math.max(1, blocks.length);
  const tall = pitch * 0.68;
  const norms = [
    world.embedded.get(lane.stack)?.norms ?? null,
    ...blocks.map(({ out }) => world.streams?.get(out) ?? null),
  ];
  const most = Math.max(1e-9, ...norms.flatMap((one) => (one ? [...one] : [])));

  lane.pieces.forEach((piece, i) => {
    const chosen = i === world.focus;
    blocks.forEach((block, k) => {
      const thick = 1.5 + (norms[k] ? (Math.min(12, step * 0.5) * norms[k][i]) / most : 0);
      const y = TOP + k * pitch - (k ? pitch - tall : 0);
      marks.push({
        key: `stream:${lane.stack}:${i}:${block.place}`,
        paint: box({ fill: chosen ? ink : line, radius: 0 }),
        g: { x: x(i) - thick / 2, y, w: thick, h: pitch, alpha: chosen ? 0.24 : 0.75 },
      });
    });
    if (step < 13 && !chosen && i % Math.ceil(13 / step)) return;
    things.push({
      key: `word:${lane.stack}:${i}`,
      class: `word upright${chosen ? " chosen" : ""}`,
      text: wordOf(piece),
      title: say("word.title", { position: i + 1, piece: wordOf(piece) }),
      href: ctx.link({ token: i }),
      current: chosen,
      g: { x: x(i), y: TOP - 10, size: Math.min(16, Math.max(11, step * 0.5)), turn: -50 },
    });
  });
  blocks.forEach((block, k) => {
    const y = TOP + k * pitch + (pitch - tall) / 2;
    const g = { x: 2, y, w: frame.width - 4, h: tall };
    marks.push({ key: `gate:${block.place}`, paint: box({ fill: surface, radius: 10 }), g: { ...g, alpha: 0.72 } });
    marks.push({ key: `gate:${block.place}:edge`, paint: box({ stroke: line, radius: 10 }), g });
    marks.push(...miniatures(world, block, g, paper));
    things.push({
      key: `door:${block.place}`,
      class: "door",
      text: "",
      label: say("gate.title", { block: block.layer, stack: block.stack }),
      href: ctx.link({ depth: 1, site: block.sites.at(-1)?.site ?? "", node: "", index: [], trail: [] }),
      g: { ...g, alpha: 1 },
    });
    for (const site of block.sites) {
      const weights = world.weights.get(site.site);
      if (!weights || site.kind === "cross") continue;
      looking(weights, world.focus).forEach((weight, j) => {
        if (weight < FAINT || j === world.focus) return;
        marks.push({
          key: `arc:${site.site}:${j}`,
          paint: fall(roles.A),
          g: { x: x(j), y: y - 6, u: x(world.focus), v: y + tall + 4, thick: 1 + 7 * weight, alpha: 0.2 + 0.7 * weight },
        });
      });
    }
    const guess = world.guesses.get(block.out);
    if (guess && pitch > 26)
      things.push({
        key: `guess:${block.place}`,
        class: "guess",
        text: `“${wordOf(guess[0])}” ${percent(guess[2])} %`,
        align: "end",
        g: { x: frame.width - 10, y: y + Math.min(14, tall / 2), size: 13 },
      });
  });
  bars(stage, picture, bottom);
  return picture;
}

/** Heads in a row, as large as the band. @param {World} world @param {SceneBlock} block @param {Geometry} g @param {string} edge @returns {Mark[]} */
function miniatures(world, block, { x, y, w, h }, edge) {
  const all = block.sites.flatMap((site) => {
    const weights = world.weights.get(site.site);
    return weights ? Array.from({ length: site.heads }, (_, head) => ({ site, head, weights })) : [];
  });
  const size = Math.min(h - 10, (w * 0.6) / all.length - 5, 46);
  if (size < 9) return [];
  return all.map(({ site, head, weights }, i) => {
    const numbers = headOf(weights, head) ?? { shape: [1, weights.columns], values: looking(weights, world.focus, head) };
    return {
      key: `head:${site.site}:${head}`,
      paint: table(numbers, { scale: "sequential", bound: 1, edge }),
      g: { x: x + 8 + i * (size + 5), y: y + (h - size) / 2, w: size, h: size, alpha: 0.92 },
    };
  });
}

/** The answer, at the foot. @param {Stage} stage @param {Picture} picture @param {number} top */
function bars({ world, frame, say, ctx, hidden }, { marks, things }, top) {
  if (!world.answer) return;
  const { diverging } = palette();
  const word = 110;
  things.push({
    key: "answer:title",
    class: "answer-title",
    text: say(`answer.${world.answer.kind}`, {}),
    g: { x: 8, y: top + 14, size: 13 },
  });
  world.answer.rows.slice(0, SHOWN).forEach(({ piece, id, probability }, i) => {
    const y = top + 40 + i * EACH;
    things.push({
      key: `answer:${id}`,
      class: i ? "answer" : "answer first",
      text: hidden ? "?" : wordOf(piece),
      href: hidden ? null : ctx.link({ stage: "output" }),
      g: { x: 8, y, size: 16 },
    });
    if (hidden) return;
    const room = frame.width - word - 80;
    marks.push({
      key: `bar:${id}`,
      paint: box({ fill: `rgb(${diverging[4].join(" ")})`, radius: 1 }),
      g: { x: word, y: y - 8, w: Math.max(1.5, room * probability), h: 16, alpha: i ? 0.55 : 1 },
    });
    things.push({
      key: `percent:${id}`,
      class: "percent",
      text: `${(100 * probability).toFixed(1)} %`,
      g: { x: word + room * probability + 8, y, size: 13 },
    });
  });
}
