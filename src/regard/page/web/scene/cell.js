/**
 * Depth 3, one cell: q and k over each other, their products into a sum, the sum through every step to a share, and the share times v.
 *
 * In: a stage with a head's numbers. Out: marks and things beside the matrix. Every number leads to its derivation.
 */

import { format } from "regard/dom.js";
import { palette } from "regard/scale.js";
import { matrixOf } from "regard/scene/head.js";
import { box, line, table } from "regard/scene/painters.js";
import { strongest } from "regard/scene/whole.js";
import { wordOf } from "regard/tokens.js";

/** @param {Stage} stage @returns {Picture} */
export function cell(stage) {
  const { frame, view, near, ctx, say } = stage;
  const gate = frame.gates[view.open];
  const { site } = ctx;
  if (!gate || !site || !near?.head) return { marks: [], things: [] };
  const { steps, titles, Q, K, V } = near.head;
  const weights = steps.get(site.weights);
  if (!weights) return { marks: [], things: [] };
  const { g, i, j, keys } = matrixOf(stage, gate, weights);
  const C = weights.shape[1];
  const { roles } = palette();
  /** @type {Mark[]} */
  const marks = [];
  /** @type {Thing[]} */
  const things = [];
  const left = g.x + g.w + 44;
  const width = gate.x + gate.w - left - 28;
  const [asks, answers] = [wordOf(stage.lane(site.stack)[i]), wordOf(stage.lane(keys)[j])];
  const start = { x: g.x + (j * g.w) / C, y: frame.y(site.stack, i) - 6, w: g.w / C, h: 12 }; // strips grow out of the cell
  let y = gate.y + 44;
  /** @param {string} key @param {Float32Array} values @param {string} words @param {Role | ""} role @param {string | null} node @param {number} head @param {number} row */
  const strip = (key, values, words, role, node, head, row) => {
    const at = { x: left, y, w: width, h: 20 };
    marks.push({
      key: `strip:${key}`,
      paint: table(
        { shape: [1, values.length], values },
        { scale: "diverging", bound: strongest(values), digits: 30, edge: role ? roles[role] : "" },
      ),
      g: at,
      from: start,
      cells: node ? numbersOf(node, [head, row], values) : undefined,
    });
    things.push({
      key: `strip-name:${key}`,
      class: "strip-name",
      role: role || undefined,
      text: words,
      g: { x: left, y: y - 13, size: 13, room: width },
    });
    y += 52;
  };
  if (Q && K) {
    const q = rowOf(Q, i);
    const k = rowOf(K, j);
    strip("q", q, say("cell.q", { piece: asks }), "Q", site.Q, near.head.heads.Q, i);
    strip("k", k, say("cell.k", { piece: answers }), "K", site.K, near.head.heads.K, j);
    const products = q.map((value, c) => value * k[c]);
    strip("products", products, say("cell.products", { n: products.length }), "A", null, 0, 0);
    for (let c = 0; c < products.length; c++) {
      const x = left + ((c + 0.5) * width) / products.length;
      marks.push({
        key: `drop:${c}`,
        paint: line(roles.A),
        g: {
          x,
          y: y - 30,
          u: left + 40,
          v: y - 6,
          thick: 0.4 + (2.6 * Math.abs(products[c])) / strongest(products),
          alpha: 0.35,
        },
      });
    }
    y += 16;
  }
  let x = left;
  [...steps].forEach(([node, { values }], n) => {
    const value = values[i * C + j];
    const words = `${n ? "→ " : ""}${titles[node]} = `;
    things.push({
      key: `value:${n}`,
      class: "value",
      math: `${words}${format(value, 3)}`,
      text: `${words}${format(value, 3)}`,
      title: say("value.title", {}),
      href: ctx.link({ depth: 4, node, index: [ctx.head, i, j], trail: [] }),
      g: { x, y, size: 16 },
    });
    x += 30 + 8.2 * (words.length + 5);
    if (x > left + width - 90 && n < steps.size - 1) [x, y] = [left, y + 30];
  });
  y += 48;
  y = shares(
    stage,
    { marks, things },
    { row: weights.values.subarray(i * C, (i + 1) * C), j, left, width, y, asks, answers },
  );
  if (V) {
    const [a, v] = [weights.values[i * C + j], rowOf(V, j)];
    strip("v", v, say("cell.v", { piece: answers }), "V", site.V, near.head.heads.V, j);
    const carried = v.map((value) => a * value);
    strip("carried", carried, say("cell.carried", { weight: format(a, 2), piece: answers }), "V", null, 0, 0);
  }
  return { marks, things };
}

/** @param {string} node @param {number[]} at @param {Float32Array} values @returns {Cells} */
const numbersOf = (node, at, values) => ({
  rows: 1,
  columns: values.length,
  choose: (_, c) => ({ depth: 4, node, index: [...at, c], trail: [] }),
  enter: (_, c) => ({ depth: 4, node, index: [...at, c], trail: [] }),
  say: (_, c) => `${node}[${[...at, c].join(", ")}] = ${format(values[c], 4)}`,
});

/** @param {Tensor} tensor @param {number} i */
const rowOf = ({ shape: [, d], values }, i) => values.slice(i * d, (i + 1) * d);

/**
 * The row's weights as shares of one bar.
 * @param {Stage} stage @param {Picture} picture
 * @param {{ row: Float32Array, j: number, left: number, width: number, y: number, asks: string, answers: string }} at
 */
function shares({ say }, { marks, things }, { row, j, left, width, y, asks, answers }) {
  const { roles } = palette();
  const total = row.reduce((sum, a) => sum + Math.max(0, a), 0) || 1;
  things.push({
    key: "shares",
    class: "strip-name",
    role: "A",
    text: say("cell.shares", { piece: asks, other: answers, percent: (100 * row[j]).toFixed(0) }),
    g: { x: left, y: y - 4, size: 13, room: width },
  });
  let x = left;
  row.forEach((a, c) => {
    const w = (width * Math.max(0, a)) / total;
    marks.push({
      key: `share:${c}`,
      paint: box({ fill: roles.A, radius: 1 }),
      g: { x: x + 0.5, y: y + 10, w: Math.max(0.5, w - 1), h: 16, alpha: c === j ? 0.95 : 0.28 },
    });
    x += w;
  });
  return y + 66;
}
