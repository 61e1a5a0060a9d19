/**
 * Depth 4, one number: its derivation stands in a card (drawer.js), and a thread leads from the number to it.
 *
 * In: a stage whose state names a node and an index. Out: the thread, where the number is in sight.
 */

import { palette } from "regard/scale.js";
import { matrixOf } from "regard/scene/head.js";
import { curve } from "regard/scene/painters.js";

/** @param {Stage} stage @returns {Picture} */
export function number(stage) {
  const { ctx, frame, view, near } = stage;
  const from = placeOf(stage);
  if (!from || !near) return { marks: [], things: [] };
  const { roles } = palette();
  const edge = frame.width;
  if (view.open < 0) return { marks: [], things: [] };
  return {
    marks: [
      {
        key: `thread:${ctx.state.node}`,
        paint: curve(roles.A),
        g: { x: from.x, y: from.y, u: edge, v: Math.min(from.y, frame.height * 0.4), thick: 2, alpha: 0.8 },
        from: { x: from.x, y: from.y, u: from.x, v: from.y, thick: 2 },
      },
    ],
    things: [],
  };
}

/** Where the number that is asked about stands: a cell of the matrix, or a number of the row of its word. @param {Stage} stage */
function placeOf(stage) {
  const { ctx, frame, view, near } = stage;
  const { node, index } = ctx.state;
  const gate = frame.gates[view.open];
  const steps = near?.head?.steps.get(node);
  if (gate && steps && index.length === 3) {
    const { g } = matrixOf(stage, gate, steps);
    const [R, C] = steps.shape;
    return { x: g.x + ((index[2] + 0.5) * g.w) / C, y: g.y + ((index[1] + 0.5) * g.h) / R };
  }
  const shape = ctx.nodes.get(node)?.shape;
  const row = shape && shape.length === index.length ? index[index.length - 2] : undefined;
  return row === undefined || !gate
    ? null
    : { x: gate.x + gate.w * 0.5, y: frame.y(ctx.site?.stack ?? stage.world.stack, row) };
}
