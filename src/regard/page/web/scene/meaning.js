/**
 * What an embedding model makes of texts: points, near to each other if they mean the same.
 *
 * In: the vectors of the text on the screen and of a few other sentences. Out: how similar each is to the first (cosine), and where
 * it stands on the plane that shows most of their differences (the first two principal components).
 */

import { palette } from "regard/scale.js";
import { box, line } from "regard/scene/painters.js";

const ROUNDS = 60; // of power iteration: enough for a picture

/** @param {Context} ctx @returns {Promise<Meaning | null>} */
export async function meaningOf(ctx) {
  const { backend, trace, models } = ctx;
  const others = models.find(({ name }) => name === trace.model)?.examples.filter((text) => text !== trace.text) ?? [];
  if (!backend.embed || trace.head !== "none") return null;
  const texts = [trace.text, ...others];
  const { shape, values } = await backend.embed(trace.model, texts);
  const rows = texts.map((_, i) => values.subarray(i * shape[1], (i + 1) * shape[1]));
  const { places, kept } = plane(rows);
  const sentences = texts.map((text, i) => ({
    text,
    similarity: cosine(rows[0], rows[i]),
    x: places[i][0],
    y: places[i][1],
  }));
  return { sentences, kept };
}

/** @param {Float32Array} a @param {Float32Array} b */
const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
/** @param {Float32Array} a @param {Float32Array} b */
const cosine = (a, b) => dot(a, b) / Math.sqrt(dot(a, a) * dot(b, b) || 1);

/** The first two principal components of some vectors, and the share of their variance. @param {Float32Array[]} rows */
function plane(rows) {
  const mean = rows[0].map((_, c) => rows.reduce((sum, row) => sum + row[c], 0) / rows.length);
  const centred = rows.map((row) => row.map((x, c) => x - mean[c]));
  const gram = centred.map((a) => Float32Array.from(centred, (b) => dot(a, b)));
  const total = gram.reduce((sum, row, i) => sum + row[i], 0) || 1;
  const first = strongestOf(gram);
  const rest = gram.map((row, i) => row.map((x, j) => x - first.size * first.vector[i] * first.vector[j]));
  const second = strongestOf(rest);
  const scale = (/** @type {{ size: number }} */ { size }) => Math.sqrt(Math.max(0, size));
  const places = rows.map((_, i) => [first.vector[i] * scale(first), second.vector[i] * scale(second)]);
  return { places, kept: (first.size + second.size) / total };
}

/** The largest eigenvalue and its vector, by power iteration from a fixed start. @param {Float32Array[]} matrix */
function strongestOf(matrix) {
  let vector = Float32Array.from(matrix, (_, i) => 1 + i / 10);
  let size = 0;
  for (let round = 0; round < ROUNDS; round++) {
    const next = Float32Array.from(matrix, (row) => dot(row, vector));
    size = Math.sqrt(dot(next, next));
    if (!size) return { size: 0, vector: vector.fill(0) };
    vector = next.map((x) => x / size);
  }
  return { size, vector };
}

/** At the right: the points, and below them the sentences with their similarities. @param {Stage} stage @returns {Picture} */
export function meaning({ world, frame, say, ctx }) {
  /** @type {Picture} */
  const picture = { marks: [], things: [] };
  if (!world.meaning) return picture;
  const { sentences, kept } = world.meaning;
  const { x, w } = frame.answer;
  const { ink, diverging, line: faint } = palette();
  const side = Math.min(w, (frame.bottom - frame.top) * 0.42);
  const centre = { x: x + w / 2, y: frame.top + 30 + side / 2 };
  const reach = Math.max(...sentences.map((one) => Math.max(Math.abs(one.x), Math.abs(one.y)))) || 1;
  /** @param {{ x: number, y: number }} point */
  const at = (point) => ({ x: centre.x + (point.x / reach) * side * 0.44, y: centre.y - (point.y / reach) * side * 0.44 });
  const here = at(sentences[0]);
  picture.things.push({
    key: "meaning:title",
    class: "answer-title",
    text: say("meaning.title", { kept: (100 * kept).toFixed(0) }),
    g: { x, y: frame.top + 8, size: 14, room: w },
  });
  sentences.forEach((one, i) => {
    const spot = at(one);
    const size = i ? 10 : 14;
    if (i)
      picture.marks.push({
        key: `near:${one.text}`,
        paint: line(faint),
        g: { x: here.x, y: here.y, u: spot.x, v: spot.y, thick: Math.max(0.5, 5 * one.similarity) },
      });
    picture.marks.push({
      key: `point:${one.text}`,
      paint: box({ fill: i ? ink : `rgb(${diverging[4].join(" ")})`, radius: 99 }),
      g: { x: spot.x - size / 2, y: spot.y - size / 2, w: size, h: size },
    });
    if (!i) return;
    const y =
      frame.top + side + 40 + (i - 1) * Math.min(46, (frame.bottom - frame.top - side - 40) / (sentences.length - 1));
    picture.marks.push({
      key: `alike:${one.text}`,
      paint: box({ fill: `rgb(${diverging[4].join(" ")})`, radius: 1 }),
      g: { x, y: y + 12, w: Math.max(1, w * Math.max(0, one.similarity)), h: 5, alpha: 0.7 },
    });
    picture.things.push({
      key: `text:${one.text}`,
      class: "alike",
      text: `${one.similarity.toFixed(2)}  ${one.text}`,
      title: say("meaning.open", { text: one.text, similarity: one.similarity.toFixed(3) }),
      href: ctx.link({ text: one.text, token: -1 }),
      g: { x, y, size: 13, room: w },
    });
  });
  return picture;
}
