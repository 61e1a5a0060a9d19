/**
 * The residual stream as lines, read off the nodes a run has: pre- and post-norm, with and without cross attention.
 *
 * In: a context, a stack, and which block alone is unfolded (null: all). Out: [{node, kind: "start" | "part" | "add" | "sum" |
 * "norm" | "folded", say, norm?: place, off?: place, open?: site}], in the order of the run. `off` is what to edit to switch a sum
 * (its residual) or a norm off; `open` is the site to go to for unfolding.
 */

/** Of a block: [the sum, what is added, the norm that goes with it, the residual's name, words]. */
const SUMS = [
  ["H", "attention.M", "norm_1", "residual_1", "attention"],
  ["C", "cross.M", "norm_cross", "residual_cross", "cross attention"],
  [null, "mlp.out", "norm_2", "residual_2", "MLP"],
];

export function stream(ctx, stack, unfolded = null) {
  const facts = ctx.model.stacks.find(({ name }) => name === stack);
  const has = (name) => ctx.nodes.has(name);
  const front = has(`${stack}.embed.out`) ? `${stack}.` : "";
  const lines = start(`${front}embed`, has);
  for (let layer = 0; layer < facts.layers; layer++) {
    const place = `${stack}.${layer}`;
    if (unfolded === null || unfolded === layer) lines.push(...block(place, layer, facts.wiring === "pre", has));
    else lines.push({ node: `${place}.out`, kind: "folded", say: `after block ${layer}`, open: `${place}.attention` });
  }
  if (has(`${front}final_norm.out`)) lines.push({
    node: `${front}final_norm.out`,
    kind: "norm",
    say: "final norm",
    norm: `${front}final_norm`,
    off: `${front}final_norm`,
  });
  return lines.filter(({ node }) => has(node));
}

function start(embed, has) {
  const parts = [
    ["tokens", "embedding"],
    ["positions", "position"],
    ["types", "segment"],
  ].filter(([part]) => has(`${embed}.${part}`));
  const lines = parts.map(([part, say], at) => ({ node: `${embed}.${part}`, kind: at ? "part" : "start", say }));
  if (has(`${embed}.norm.out`)) lines.push(
    { node: `${embed}.sum`, kind: "sum", say: "sum" },
    { node: `${embed}.norm.out`, kind: "norm", say: "norm", norm: `${embed}.norm` },
  );
  else if (parts.length > 1) lines.push({ node: `${embed}.out`, kind: "sum", say: "input" });
  return lines;
}

function block(place, layer, pre, has) {
  return SUMS.filter(([, added]) => has(`${place}.${added}`)).flatMap(([sum, added, norm, residual, words]) => {
    const total = sum ?? (pre ? "out" : "H_2");
    const normed = { node: `${place}.${norm}.out`, kind: "norm", say: "norm", norm: `${place}.${norm}`, off: `${place}.${norm}` };
    const add = { node: `${place}.${added}`, kind: "add", say: `${words} ${layer}` };
    const after = {
      node: `${place}.${total}`,
      kind: "sum",
      say: total === "out" ? `after block ${layer}` : sum ?? "sum",
      off: `${place}.${residual}`,
    };
    if (pre) return [{ ...normed, say: `norm before ${words}` }, add, after];
    return [add, after, sum === null ? { ...normed, node: `${place}.out`, say: `norm, after block ${layer}` } : normed];
  });
}
