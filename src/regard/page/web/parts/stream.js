/**
 * The residual stream as lines, read off the graph: whatever a block adds, before or after norms, one after the other or side by
 * side.
 *
 * In: a context, a stack, and which block alone is unfolded (null: all). Out: [{node, kind: "start" | "part" | "add" | "sum" |
 * "norm" | "folded", say, norm?, off?: place, open?: site}], in the order of the run. `norm` is the norm that makes the line; `off`
 * is what to edit to switch a sum (its residual) or a norm off; `open` is the site to go to for unfolding.
 */

import { embedded } from "regard/parts/run.js";
import { blocksOf, branchesOf, lastWord, nodeOf, normsAlong, siteIn, switchFor } from "regard/parts/wiring.js";

/** @param {Context} ctx @param {string} stack @param {number | null} [unfolded] @returns {StreamLine[]} */
export function stream(ctx, stack, unfolded = null) {
  const { nodes, trace } = ctx;
  const blocks = blocksOf(ctx).filter((block) => block.stack === stack);
  if (!blocks.length) return [];
  const within = new Set(blocks.flatMap(branchesOf).flatMap(({ norms }) => norms));
  const { norms, embeddings } = trace.wiring;
  /** @param {string} name */
  const copied = (name) => trace.nodes.find(({ op, inputs }) => op === "copy" && inputs[0] === name)?.name ?? name;
  /** @param {Norm} norm @param {string} say @param {string} [node] @returns {StreamLine} */
  const line = (norm, say, node = norm.out) => ({ node, kind: "norm", say, norm, off: switchFor(ctx, norm.out) });
  /**
   * Norms of the stream itself.
   * @param {string} node @param {(norm: Norm) => string} say
   */
  const after = (node, say) =>
    norms.filter(({ x, out }) => x === node && !within.has(out)).map((norm) => line(norm, say(norm), copied(norm.out)));

  /** @param {string} name @param {number} at @returns {StreamLine[]} */
  const begin = (name, at) => {
    const node = nodeOf(ctx, name);
    const { op, inputs } = node;
    if (op === "add")
      return [
        { node: copied(name), kind: "sum", say: name === embeddings[stack].at(-1) ? "input" : "sum" },
        ...after(name, () => "norm"),
      ];
    if (inputs.some((input) => nodes.has(input))) return [];
    return [{ node: name, kind: at ? "part" : "start", say: embedded(node) }];
  };
  /** @param {Block} block @returns {StreamLine[]} */
  const block = ({ layer, sums, out }) =>
    sums.flatMap((sum) => {
      const along = normsAlong(sum);
      /** @param {NormAlong} given */
      const normed = ({ out: name, branch, all }) => {
        const where = `norm ${isBefore(ctx, name, branch.node) ? "before" : "after"} ${all.map(({ kind }) => kind).join(" and ")}`;
        return norms.filter((norm) => norm.out === name).map((norm) => line(norm, where));
      };
      /** @param {Branch} branch @returns {StreamLine[]} */
      const added = (branch) => [
        ...along.filter((one) => one.branch === branch && one.out !== branch.node).flatMap(normed),
        {
          node: branch.node,
          kind: "add",
          say: `${branch.kind} ${layer}`,
          norm: norms.find((norm) => norm.out === branch.node),
        },
      ];
      const ends = copied(sum.node) === out;
      const say = ends ? `after block ${layer}` : lastWord(sum.node);
      /** @type {StreamLine} */
      const total = { node: sum.node, kind: "sum", say, off: switchFor(ctx, sum.node) };
      /** @param {Norm} norm */
      const inside = (norm) => (copied(norm.out) === out ? `norm, after block ${layer}` : "norm");
      return [...sum.branches.flatMap(added), total, ...(ends ? [] : after(sum.node, inside))];
    });
  /** @param {Block} block @returns {StreamLine[]} */
  const folded = ({ layer, out, sums }) => [
    { node: out, kind: "folded", say: `after block ${layer}`, open: siteIn({ sums }) },
  ];
  return [
    ...embeddings[stack].flatMap(begin),
    ...blocks.flatMap((one) => (unfolded === null || unfolded === one.layer ? block(one) : folded(one))),
    ...after(blocks[blocks.length - 1].out, () => "final norm"),
  ].filter(({ node }) => nodes.has(node));
}

/**
 * Whether a norm stands before what its branch looks at or thinks: it is not made of an attention or an MLP of the branch.
 * @param {Context} ctx @param {string} norm @param {string} node
 */
function isBefore({ nodes, trace }, norm, node) {
  const inner = new Set([...trace.sites.map(({ Z }) => Z), ...trace.wiring.mlps.map(({ act }) => act)]);
  const stop = new Set(trace.wiring.blocks.flatMap(({ sums, out }) => [out, ...sums.map((sum) => sum.node)]));
  /** @param {string} name @returns {boolean} */
  const made = (name) =>
    nodes.get(name)?.inputs.some((input) => !stop.has(input) && (inner.has(input) || made(input))) ?? false;
  return norm !== node && !made(norm);
}
