/**
 * The MLP of one block, for the focused token: fan out, bend, fan in.
 *
 * In: the run, the block (that of the attention site looked at) and `state.view` = "act", "up", "out.17" …: which layer
 * is shown in full, and which neuron is marked. Out: the curve with this token's neurons on it, the neurons that make most
 * of the output, and the whole canvas token × neuron.
 */

import { button, choice, el, format, formula, number, picker, sentence } from "regard/dom.js";
import { matrix } from "regard/matrix.js";
import { ACTIVATIONS, curve } from "regard/parts/activation.js";
import { bar } from "regard/parts/bars.js";
import { isEdited } from "regard/parts/captions.js";
import { blockName, largest, length, tokenOf } from "regard/parts/run.js";
import { biasOf, blockOf, blocksOf, countedIn, matrixOf, mlpOf, nodeOf, siteIn } from "regard/parts/wiring.js";
import { labelsOf } from "regard/tokens.js";

/** @typedef {Awaited<ReturnType<typeof gather>>} Row */

const MOST = 12;
/** @type {(keyof Mlp)[]} */
const LAYERS = ["up", "gate", "act", "gated", "out"];
const BIGGEST = 16 << 20; // bytes of W_down that are asked for

/** @param {HTMLElement} root @param {Context} ctx */
async function render(root, ctx) {
  const block = blockOf(ctx);
  const mlp = block && mlpOf(ctx, block);
  if (!block || !mlp) return root.append(sentence("empty", "There is no MLP here."));
  const token = tokenOf(ctx, block.stack);
  const labels = labelsOf(ctx.trace, block.stack);
  const {
    facts: { function: bend = "" },
    shape,
  } = nodeOf(ctx, mlp.act);
  const [wide] = shape.slice(-1);
  /** @type {Options} */
  const places = blocksOf(ctx)
    .filter((one) => mlpOf(ctx, one))
    .map((one) => [siteIn(one), blockName(ctx, one)]);
  root.append(
    el(
      "div",
      { class: "controls" },
      picker("block", places, siteIn(block), (site) => ctx.go({ site }), { data: { keep: "mlp:block" } }),
      el("span", { class: "hint" }, "for the token ", el("b", {}, labels[token]), "; choose another in the sentence above"),
    ),
    el(
      "p",
      { class: "lead" },
      formula(written(ctx, mlp, bend.replace(/_tanh$/, ""))),
      el("span", { class: "hint" }, `: ${ctx.model.d} → ${wide} → ${ctx.model.d} numbers, for every token alike`),
    ),
  );
  const run = await gather(ctx, mlp, token);
  root.append(
    el(
      "div",
      { class: "beside even mlp" },
      el(
        "section",
        {},
        el("h3", {}, "The bend"),
        el(
          "p",
          { class: "hint" },
          formula(ACTIVATIONS[bend]?.[1] ?? bend),
          `; a point is one of the ${run.before.length} neurons. ${bent(run)}`,
        ),
        curve({
          name: bend,
          before: run.before,
          after: run.act,
          edited: isEdited(ctx.trace, mlp.act),
          label: labels[token],
          ask: (n) => ctx.ask(mlp.act, [token, n]),
        }),
      ),
      strongest(ctx, mlp, token, run),
    ),
  );
  await whole(root, ctx, mlp, token, labels);
}

/**
 * The whole of it in symbols, with the biases that there are.
 * @param {Context} ctx @param {Mlp} mlp @param {string} bend
 */
function written(ctx, mlp, bend) {
  /** @param {"up" | "gate"} layer */
  const into = (layer) => `x W_${layer}${biasOf(ctx, mlp[layer]) ? " + b" : ""}`;
  const end = `W_down${biasOf(ctx, mlp.out) ? " + b" : ""}`;
  if (!mlp.gated) return `out = ${bend}(${into("up")}) ${end}`;
  const up = into("up");
  return `out = (${bend}(${into("gate")}) ⊙ ${up.endsWith("b") ? `(${up})` : up}) ${end}`;
}

/**
 * The token's row of every layer, and what each neuron adds to the output.
 * @param {Context} ctx @param {Mlp} mlp @param {number} token
 */
async function gather(ctx, mlp, token) {
  const data = ctx.data.of(ctx.trace); // a difference of two runs has no place on the curve: with Δ, the run after
  const row = (/** @type {string} */ name) => data.slice(name, [token, ":"]).then(({ values }) => values);
  const [up, act, out, gate, gated] = await Promise.all([
    row(mlp.up),
    row(mlp.act),
    row(mlp.out),
    mlp.gate ? row(mlp.gate) : null,
    mlp.gated ? row(mlp.gated) : null,
  ]);
  const hidden = gated ?? act;
  return { up, gate, act, gated, out, hidden, before: gate ?? up, adds: await contributions(ctx, data, mlp, hidden, out) };
}

/**
 * hidden_n (w_n · out) / ‖out‖: how far neuron n goes in the direction that comes out; with the bias they sum to ‖out‖.
 * @param {Context} ctx @param {RunData} data @param {Mlp} mlp @param {Float32Array} hidden @param {Float32Array} out
 */
async function contributions(ctx, data, mlp, hidden, out) {
  const name = matrixOf(ctx, mlp.out);
  if (!name || hidden.length * out.length * 4 > BIGGEST || isEdited(ctx.trace, mlp.out)) return null;
  try {
    const { values } = await data.slice(name);
    const [d, size] = [out.length, length(out) || 1];
    return hidden.map((h, n) => {
      let along = 0;
      for (let f = 0; f < d; f++) along += values[n * d + f] * out[f];
      return (h * along) / size;
    });
  } catch {
    return null; // an exported file may not carry the weights
  }
}

/** @param {Row} row */
function bent({ before, act }) {
  const quiet = act.filter((a) => Math.abs(a) < 0.05).length;
  return `${quiet} are all but off; ${before.filter((x) => x > 0).length} are above 0.`;
}

/** @param {Context} ctx @param {Mlp} mlp @param {number} token @param {Row} row */
function strongest(ctx, mlp, token, { up, gate, act, gated, hidden, adds, out }) {
  /** @param {number} n */
  const size = (n) => Math.abs(adds ? adds[n] : hidden[n]);
  const top = largest(hidden.length, MOST, size);
  const end = size(top[0]);
  const from = top.some((n) => (adds ?? hidden)[n] < 0) ? "middle" : "left";
  const columns = [
    ["neuron", ""],
    ...(gate ? [["gate", ""]] : []),
    ["up", ""],
    ["act", ""],
    ...(gated ? [["gated", ""]] : []),
    [adds ? "adds" : "size", "wide"],
  ];
  const neuron = countedIn(ctx, mlp.gated ?? mlp.act);
  const chosen = Number(ctx.state.view.split(".")[1] ?? NaN);
  const [layer] = ctx.state.view.split(".");
  /** @param {number} n */
  const mark = (n) => ctx.go({ view: `${LAYERS.find((one) => one === layer) ?? "act"}${n === chosen ? "" : `.${n}`}` });
  const row = (/** @type {number} */ n) =>
    el(
      "tr",
      { class: n === chosen ? "chosen" : "" },
      el(
        "th",
        { scope: "row" },
        button(String(n), () => mark(n), {
          class: "quiet",
          title: "Mark this neuron below, in every token",
          "aria-pressed": String(n === chosen),
          data: { keep: `mlp:${n}` },
        }),
      ),
      gate ? el("td", {}, number(ctx, gate[n], mlp.gate, [token, n], { digits: 2 })) : null,
      el("td", {}, number(ctx, up[n], mlp.up, [token, n], { digits: 2 })),
      el("td", {}, number(ctx, act[n], mlp.act, [token, n], { digits: 2 })),
      gated ? el("td", {}, number(ctx, gated[n], mlp.gated, [token, n], { digits: 2 })) : null,
      el(
        "td",
        { class: "adds" },
        bar(adds ? adds[n] : hidden[n], end, from),
        el("span", {}, format(adds ? adds[n] : hidden[n], 2)),
      ),
      el(
        "td",
        {},
        button("off", () => ctx.edit(`${neuron}.${n}`, "zero"), {
          class: "quiet",
          title: `Run again with neuron ${n} at zero`,
          disabled: !neuron || !ctx.can(`${neuron}.${n}`, "zero"),
        }),
      ),
    );
  const others = `the other ${hidden.length - top.length}${biasOf(ctx, mlp.out) ? " and the bias" : ""}`;
  const shown = adds ? top.reduce((sum, n) => sum + adds[n], 0) : 0;
  return el(
    "section",
    {},
    el("h3", {}, `The ${top.length} neurons that ${adds ? "add most" : "are largest"}`),
    el(
      "p",
      { class: "hint" },
      adds
        ? [
            "Each neuron adds its number times its row of ",
            formula("W_down"),
            ". How far that goes in the direction of the output:",
          ]
        : isEdited(ctx.trace, mlp.out)
          ? "The largest after the bend. An edit changes what the MLP hands on: it is not the sum of what they add."
          : "The largest after the bend.",
    ),
    el(
      "div",
      { class: "scrolls" },
      el(
        "table",
        { class: "figures neurons-top" },
        el(
          "thead",
          {},
          el(
            "tr",
            {},
            columns.map(([word, kind]) => el("th", { scope: "col", class: kind }, word)),
            el("td", {}),
          ),
        ),
        el("tbody", {}, top.map(row)),
      ),
    ),
    adds
      ? el(
          "p",
          { class: "hint" },
          `These add ${format(shown, 2)}, ${others} add ${format(length(out) - shown, 2)}: together ‖out‖ = ${format(length(out), 2)}.`,
        )
      : null,
  );
}

/**
 * The chosen layer for all tokens.
 * @param {HTMLElement} root @param {Context} ctx @param {Mlp} mlp @param {number} token @param {string[]} labels
 */
async function whole(root, ctx, mlp, token, labels) {
  const [wish, marked] = ctx.state.view.split(".");
  const layers = LAYERS.filter((name) => ctx.nodes.has(mlp[name]));
  const layer = layers.find((name) => name === wish) ?? "act";
  const node = nodeOf(ctx, mlp[layer]).name;
  const slice = await ctx.data.slice(node);
  const column = Number(marked ?? -1);
  const holder = el(
    "section",
    {},
    el("h3", {}, "All tokens"),
    el(
      "div",
      { class: "controls" },
      choice(
        "Layer",
        layers.map((name) => [name, name]),
        layer,
        (name) => ctx.go({ view: `${name}${marked ? `.${marked}` : ""}` }),
      ),
    ),
  );
  root.append(holder);
  const wide = layer === "out" ? "feature" : "neuron";
  matrix(holder, {
    ...slice,
    rows: labels,
    cols: null,
    title: node,
    subtitle: `token × ${wide}`,
    axes: ["token", wide],
    ctx,
    node,
    index: (r, c) => [r, c],
    cursor: [token, column >= 0 && layer !== "out" ? column : 0],
    moved: (r) => ctx.note({ token: r }),
    cell: { min: 3, max: 40, h: 20 },
    say: `MLP ${layer}`,
  });
}

export default { id: "mlp", title: "MLP", render };
