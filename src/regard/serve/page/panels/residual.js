/**
 * The residual stream of one token: what comes in, what each attention and each MLP adds, what goes out.
 *
 * In: the run and the focused token; `state.view` names the norm that is worked out ("norm:decoder.0.norm_1"). Out: one line
 * per sum and summand with its vector and its length, the logit lens beside each block, and the norm number by number.
 */

import { button, choice, el, format, picker, sentence } from "regard/dom.js";
import { bar } from "regard/parts/bars.js";
import { normWorkedOut } from "regard/parts/norm.js";
import { blockOf, length, mostly, tokenOf } from "regard/parts/run.js";
import { stream } from "regard/parts/stream.js";
import { vector } from "regard/parts/vector.js";
import { labelsOf, show } from "regard/tokens.js";

const FOLD = 6; // blocks; of a taller model only the one looked at is unfolded

async function render(root, ctx) {
  const stacks = ctx.model.stacks.map(({ name }) => name);
  const stack = ctx.site?.stack ?? stacks[0];
  const many = ctx.model.stacks.find(({ name }) => name === stack).layers > FOLD;
  const lines = stream(ctx, stack, many ? blockOf(ctx).layer : null);
  if (!lines.length) return root.append(sentence("empty", "This model has no residual stream to follow."));
  const token = tokenOf(ctx, stack);
  const label = labelsOf(ctx.trace, stack)[token];
  const norms = lines.filter(({ norm }) => norm).map(({ norm }) => norm);
  const chosen = norms.find((norm) => ctx.state.view === `norm:${norm}`) ?? norms.find((norm) => norm.startsWith(`${blockOf(ctx).place}.`)) ?? norms[0];
  if (stacks.length > 1) root.append(el("div", { class: "controls" }, choice("Stack", stacks.map((name) => [name, name]), stack, (name) => ctx.go({ site: ctx.trace.sites.find((site) => site.stack === name).site }))));
  const pre = ctx.model.stacks.find(({ name }) => name === stack).wiring === "pre";
  root.append(el("p", { class: "lead" }, "Each attention and each MLP ", el("b", {}, "adds"), " to the vector of ", el("b", {}, label), pre ? ". Nothing is overwritten: what leaves the last block is the sum of the lines that begin with +." : ", and after each sum the vector is normalised.", many ? " One block is unfolded; choose another to see what it adds." : ""));
  const [rows, lens] = await Promise.all([Promise.all(lines.map((line) => row(ctx, line, token))), logitLens(ctx, token, stack)]);
  root.append(table(ctx, lines, rows, lens, token, label, chosen));
  if (lens.refused) root.append(el("p", { class: "hint" }, lens.refused));
  if (!chosen) return;
  const section = root.appendChild(el("section", { class: "norm-section", id: "norm" }));
  section.append(el("div", { class: "controls" }, el("h2", {}, "A norm, worked out"), picker("which", norms.map((norm) => [norm, norm]), chosen, (norm) => ctx.go({ view: `norm:${norm}` }), { data: { keep: "residual:norm" } })));
  await normWorkedOut(section, ctx, chosen, token, label);
}

async function row(ctx, { node }, token) {
  const { values } = await ctx.data.slice(node, [token, ":"]);
  return { values, size: length(values) };
}

/** node → the likeliest pieces if the model stopped there. */
async function logitLens(ctx, token, stack) {
  if (ctx.trace.head === "none") return { tops: new Map() };
  if (ctx.trace.target_tokens && stack === "encoder") return { tops: new Map(), refused: "The logit lens reads the decoder's stream; the encoder's is never turned into words." };
  try {
    const { rows } = await ctx.data.lens("logit_lens", { token });
    return { tops: new Map(rows.map(({ node, top }) => [node, top])) };
  } catch (error) {
    return { tops: new Map(), refused: error.message };
  }
}

function table(ctx, lines, rows, { tops }, token, label, chosen) {
  const longest = Math.max(...rows.map(({ size }) => size));
  const line = ({ node, kind, say, norm, off, open }, i) => {
    const { values, size } = rows[i];
    const read = (f) => `${node}[${token}, ${f}] = ${format(values[f])}`;
    const ask = (f) => ctx.ask(node, [token, f]);
    const top = tops.get(node);
    const named = open ? el("a", { href: ctx.link({ site: open }), title: "Unfold this block", data: { keep: `open:${open}` } }, say) : norm ? button(say, () => ctx.go({ view: `norm:${norm}` }), { class: "quiet as-text", title: "Work this norm out below", "aria-pressed": String(norm === chosen), data: { keep: `norm:${norm}` } }) : say;
    const isOff = off && ctx.state.edits[off] === "off";
    const change = off && !norm?.includes("embed") ? button(isOff ? "on" : "off", () => switchOff(ctx, off, isOff), { class: "quiet small", title: `${isOff ? "Put back" : "Run again without"} ${off}`, "aria-label": `${isOff ? "Put back" : "Run again without"} ${off}` }) : null;
    return el("tr", { class: `stream-${kind}` },
      el("th", { scope: "row", title: node }, el("span", { class: "stream-sign", "aria-hidden": "true" }, { add: "+", sum: "=", norm: "∘", start: "", part: "+", folded: "⋮" }[kind]), named),
      el("td", { class: "stream-cells" }, vector({ values, bound: mostly(values), label: `${node} of ${label}`, read, ask, height: kind === "sum" || kind === "start" ? 20 : 12 })),
      el("td", { class: "stream-size" }, bar(size, longest), el("span", { class: "number" }, format(size, 2))),
      el("td", { class: "stream-lens" }, top ? top.slice(0, 3).map(([piece, , p], at) => el("span", { class: at ? "lens-next" : "lens-top", title: `${format(100 * p, 2)} %` }, el("span", { class: "piece" }, show(piece)), at ? null : el("span", { class: "number" }, `${Math.round(100 * p)} %`))) : null),
      el("td", { class: "stream-off" }, change)); // prettier-ignore
  };
  const heads = ["", "vector, each on its own scale", "length ‖x‖", tops.size ? "logit lens" : "", ""];
  return el("div", { class: "scrolls" }, el("table", { class: "stream" }, el("thead", {}, el("tr", {}, heads.map((word) => el("th", { scope: "col" }, word)))), el("tbody", {}, lines.map(line)))); // prettier-ignore
}

function switchOff(ctx, place, isOff) {
  if (!isOff) return ctx.edit(place, "off");
  const { [place]: _, ...rest } = ctx.state.edits;
  ctx.go({ edits: rest });
}

export default { id: "residual", title: "Residual", render };
