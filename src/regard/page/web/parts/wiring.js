/**
 * Which node plays which part, as the graph says it: `trace.sites` (the steps of each attention, what it compares and mixes),
 * `trace.wiring` (norms, MLPs, what each block adds to the stream) and `trace.switches` (what can be off, and which nodes that
 * concerns). They are read off the edges in Python (model/graph.py, model/wiring.py); nothing on the page knows a node by its name.
 */

/**
 * A node that every run like this one has.
 * @param {{ nodes: Nodes }} ctx @param {string | null} [name]
 */
export function nodeOf({ nodes }, name) {
  const node = nodes.get(name);
  if (!node) throw new Error(`this run has no node ${name}`);
  return node;
}

/**
 * The steps of a site that this run shows, in order; the last are the weights.
 * @param {{ nodes: Nodes }} ctx @param {Site} site
 */
export const stepsOf = ({ nodes }, { steps }) => steps.filter((name) => nodes.has(name));

/**
 * The step of a site that one of its nodes is made of.
 * @param {Nodes} nodes @param {Site} site @param {string} name
 */
export const before = (nodes, { steps }, name) => nodes.get(name)?.inputs.find((input) => steps.includes(input));

/**
 * What a node was before: the nodes with the same axes that it is made of, itself last.
 * @param {Nodes} nodes @param {string} name @returns {string[]}
 */
export function wayTo(nodes, name) {
  const { axes, inputs } = nodeOf({ nodes }, name);
  const same = inputs.filter((input) => String(nodes.get(input)?.axes) === String(axes));
  return [...new Set([...same.flatMap((input) => wayTo(nodes, input)), name])];
}

/**
 * Which of a node's heads a query head reads: grouped-query attention shares key/value heads.
 * @param {SiteContext} ctx @param {string} name
 */
export const headOf = (ctx, name) => Math.floor((ctx.head * nodeOf(ctx, name).shape[0]) / ctx.site.heads);

/** @type {{ [op: string]: string }} */
const TITLES = { dot: "Q K^T", add: "bias", mask: "mask", softmax: "softmax" };

/**
 * The last word of a node's name.
 * @param {string} name
 */
export const lastWord = (name) => name.slice(name.lastIndexOf(".") + 1);

/**
 * A step in a word or two.
 * @param {Nodes} nodes @param {string} name
 */
export function titleOf(nodes, name) {
  const { op, facts } = nodeOf({ nodes }, name);
  if (facts.several) return lastWord(name);
  if (op === "scale") return facts.label?.startsWith("1/√") ? "÷ √d_k" : "scores";
  return TITLES[op] ?? op.replaceAll("_", " ");
}

/**
 * Every block of the run, in order.
 * @param {{ trace: Trace }} ctx
 */
export const blocksOf = ({ trace }) => trace.wiring.blocks;

/**
 * The block that a site is in.
 * @param {{ trace: Trace }} ctx @param {Site | null} site
 */
export const blockAround = (ctx, site) =>
  blocksOf(ctx).find((block) => branchesOf(block).some(({ sites }) => site && sites.includes(site.site)));

/**
 * The block the person is in, that of the attention site looked at; undefined where the network has no blocks.
 * @param {Context} ctx @returns {Block | undefined}
 */
export const blockOf = (ctx) => blockAround(ctx, ctx.site) ?? blocksOf(ctx)[0];

/**
 * What a block adds to the stream.
 * @param {{ sums: ResidualSum[] }} block
 */
export const branchesOf = ({ sums }) => sums.flatMap(({ branches }) => branches);

/**
 * The norms on the way of what a sum adds, each once, where it is first met.
 * @param {ResidualSum} sum @returns {NormAlong[]}
 */
export const normsAlong = ({ branches }) =>
  [...new Set(branches.flatMap(({ norms }) => norms))].map((out) => {
    const all = branches.filter(({ norms }) => norms.includes(out));
    return { out, branch: all[0], all };
  });

/**
 * "attention and the MLP".
 * @param {Branch[]} branches
 */
export const partsInWords = (branches) => branches.map(({ kind }) => (kind === "MLP" ? "the MLP" : kind)).join(" and ");

/**
 * A site in the same block, by which a block is gone to.
 * @param {{ sums: ResidualSum[] }} block
 */
export const siteIn = (block) => branchesOf(block).flatMap(({ sites }) => sites)[0];

/**
 * The first MLP of a block, or undefined.
 * @param {{ trace: Trace }} ctx @param {Block} block
 */
export const mlpOf = ({ trace }, block) =>
  trace.wiring.mlps.find(({ out }) => branchesOf(block).some(({ mlps }) => mlps.includes(out)));

/**
 * The weights and biases of a linear map: x W + b.
 * @param {{ nodes: Nodes }} ctx @param {string | null} name
 */
export const matrixOf = ({ nodes }, name) => nodes.get(name)?.inputs[1];
/** @param {{ nodes: Nodes }} ctx @param {string | null} name */
export const biasOf = ({ nodes }, name) => nodes.get(name)?.inputs[2];

/**
 * The nodes between the last block and the answer, and of a recurrent network all.
 * @param {Context} ctx
 */
export function afterBlocks({ nodes, trace }) {
  const outs = new Set(trace.wiring.blocks.map(({ out }) => out));
  /** @type {Map<string, GraphNode>} */
  const found = new Map();
  /** @param {string} name */
  const visit = (name) => {
    const node = nodes.get(name);
    if (!node || found.has(name) || outs.has(name)) return;
    found.set(name, node);
    node.inputs.forEach(visit);
  };
  visit("logits");
  return [...found.values()];
}

/**
 * What to switch off so that a node is without its step: the switch that concerns the fewest others; undefined where none does.
 * @param {{ trace: Trace }} ctx @param {string} node @returns {string | undefined}
 */
export const switchFor = ({ trace }, node) =>
  Object.entries(trace.switches)
    .filter(([, concerned]) => concerned.includes(node))
    .sort(([a, x], [b, y]) => x.length - y.length || b.length - a.length)[0]?.[0];

/**
 * The place whose numbered parts are those of a node: its heads, its neurons.
 * @param {{ trace: Trace }} ctx @param {string} [node]
 */
export const countedIn = ({ trace }, node) => Object.keys(trace.counted).find((place) => trace.counted[place] === node);

/**
 * The place of a site's mask, where entries can be hidden or shown.
 * @param {{ trace: Trace }} ctx @param {Site} site
 */
export const maskOf = ({ trace }, { site }) => Object.keys(trace.masks).find((place) => trace.masks[place] === site);
