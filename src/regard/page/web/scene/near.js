/**
 * What is only asked for when someone is near: what each head of the open block does, what its parts add, one head's numbers.
 *
 * In: a context and the open block. Out: a Near, whose parts arrive one after another; `more()` is called when one did.
 */

import { captions } from "regard/parts/captions.js";
import { before, headOf, stepsOf } from "regard/parts/wiring.js";

/** @type {{ key: string, near: Near } | null} */
let known = null;

/**
 * @param {Context} ctx @param {World} world @param {SceneBlock | null} block @param {() => void} more
 * @returns {Near | null}
 */
export function nearOf(ctx, world, block, more) {
  if (!block) return null;
  const head = ctx.state.depth > 1 && ctx.site ? `${ctx.site.site}:${ctx.head}` : "";
  const key = JSON.stringify([ctx.trace.trace, world.stack, world.focus, block.place, head]);
  if (known?.key === key) return known.near;
  /** @type {Near} */
  const near = { effects: new Map(), added: new Map(), head: null, failed: "" };
  const old = known;
  known = { key, near };
  if (old && sameBlock(old.key, key)) [near.effects, near.added] = [old.near.effects, old.near.added];
  fill(ctx, world, block, near, () => known?.key === key && more());
  return near;
}

/** Whether two questions are about the same block, run and word. @param {string} a @param {string} b */
const sameBlock = (a, b) => JSON.stringify(JSON.parse(a).slice(0, 4)) === JSON.stringify(JSON.parse(b).slice(0, 4));

/** @param {Context} ctx @param {World} world @param {SceneBlock} block @param {Near} near @param {() => void} more */
async function fill(ctx, world, block, near, more) {
  const data = ctx.data.of(ctx.trace);
  /** @param {Promise<unknown>} asked */
  const then = (asked) => asked.then(more, (error) => (near.failed ||= error.message));
  if (ctx.state.depth > 1 && ctx.site) then(headNear(ctx, data).then((head) => (near.head = head)));
  if (!near.added.size) {
    for (const { node } of block.sums.flatMap(({ branches }) => branches)) {
      then(
        data.slice(node, [world.focus, ":"]).then(({ values }) => {
          near.added.set(node, { values, norm: Math.hypot(...values) });
        }),
      );
    }
  }
  if (near.effects.size || !world.answer) return;
  for (const { site, M } of block.sites) {
    if (!ctx.nodes.has(M)) continue;
    await then(
      data.lens("ablation", { token: world.focus, site }).then(({ sites }) => {
        near.effects.set(site, sites[site] ?? null);
      }),
    );
  }
}

/** @param {Context} ctx @param {RunData} data @returns {Promise<HeadNear>} */
async function headNear(ctx, data) {
  const here = /** @type {SiteContext} */ (ctx);
  const { site } = here;
  const names = stepsOf(ctx, site);
  /** @param {string} name */
  const whole = (name) => data.slice(name, [headOf(here, name), ":", ":"]);
  /** @param {string | null} name */
  const shown = (name) => (name !== null && ctx.nodes.has(name) ? whole(name) : null);
  const [[Q, K, V], all] = await Promise.all([
    Promise.all([site.Q, site.K, site.V].map(shown)),
    Promise.all(names.map(whole)),
  ]);
  const steps = new Map(names.map((name, i) => [name, all[i]]));
  const last = before(ctx.nodes, site, site.weights);
  const { words, titles } = captions(ctx, site, { Q, K, steps });
  /** @param {string | null} name */
  const at = (name) => (name !== null && ctx.nodes.has(name) ? headOf(here, name) : 0);
  const shares = hiding(steps.get(site.weights), steps.get(last ?? ""));
  return { steps, shares, titles, words, Q, K, V, heads: { Q: at(site.Q), K: at(site.K), V: at(site.V) } };
}

/**
 * Weights with NaN where the scores are hidden (−∞): hidden is not small.
 * @param {Tensor | undefined} weights @param {Tensor | undefined} scores @returns {Tensor | null}
 */
function hiding(weights, scores) {
  if (!weights) return null;
  return { shape: weights.shape, values: weights.values.map((a, i) => (scores?.values[i] === -Infinity ? NaN : a)) };
}
