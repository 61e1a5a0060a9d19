/**
 * The head view: queries on the left, keys on the right, a line from each to each as strong as the weight.
 *
 * In: a site, which heads are on, and what a line's strength is: the weight A, the contribution ‖A·V·W_o‖ (as a share of
 * its row, so that both are out of 1), or their difference. Out: two columns of tokens and a canvas between them. Pointing
 * at a token leaves only its lines and writes their numbers; a click holds it.
 */

import { button, choice, el, format, formula, number, sentence } from "regard/dom.js";
import { headColumns, strokes, valueAt } from "regard/parts/line-paint.js";
import { tip, untip } from "regard/parts/tip.js";
import { sidesOf } from "regard/tokens.js";

const MEASURES = [
  ["weight", "weight A", "How much each query takes of each key's value"],
  ["contribution", () => formula("contribution ‖A·V·W_o‖"), "How long the vector is that arrives, as a share of the row"],
  ["difference", "where they differ", "Contribution minus weight: orange arrives stronger than its weight says, blue weaker"],
];
const WHOLE = 8 << 20; // bytes of weights that are fetched for all heads at once

export async function lines(root, ctx, [wish, chosen]) {
  const measure = ctx.mode !== "delta" && MEASURES.some(([key]) => key === wish) ? wish : "weight";
  const { site } = ctx;
  const on = headsOn(chosen, ctx);
  const sides = sidesOf(ctx.trace, site);
  root.append(controls(ctx, measure, on));
  let numbers;
  try {
    numbers = await strengths(ctx, measure, on, [sides.queries.length, sides.keys.length]);
  } catch (error) {
    return void root.append(sentence("error", error.message)); // the switches stay, so that there is a way back
  }
  root.append(picture(ctx, { measure, on, sides, numbers }));
  if (measure !== "weight") root.append(disagreements(ctx, on, sides, numbers));
}

function headsOn(chosen, ctx) {
  const given = (chosen ?? "").split("+").filter(Boolean).map(Number).filter((h) => Number.isInteger(h) && h >= 0 && h < ctx.site.heads);
  return given.length ? [...new Set(given)].sort((a, b) => a - b) : [ctx.head];
}

function controls(ctx, measure, on) {
  const count = ctx.site.heads;
  const set = (heads) => ctx.go(heads.length === 1 ? { head: heads[0], view: `lines.${measure}` } : { view: `lines.${measure}.${heads.join("+")}` });
  const flip = (h) => set(on.includes(h) ? (on.length > 1 ? on.filter((other) => other !== h) : on) : [...on, h]);
  const one = (h) =>
    button(String(h), () => flip(h), { class: "head-switch", "aria-pressed": String(on.includes(h)), "aria-label": `head ${h}`, data: { keep: `heads:${h}` } });
  const every = on.length === count ? button("only one", () => set([on[0]]), { class: "quiet" }) : button("all", () => set([...Array(count).keys()]), { class: "quiet" });
  const kinds = ctx.mode === "delta" ? null : choice("Strength of a line", MEASURES.map(([key, word, title]) => [key, typeof word === "function" ? word() : word, title]), measure, (key) => ctx.go({ view: `lines.${key}${on.length > 1 ? `.${on.join("+")}` : ""}` }));
  return el(
    "div",
    { class: "controls" },
    el("div", { class: "head-switches", role: "group", "aria-label": "Heads" }, el("span", { class: "field-name" }, on.length > 1 ? "heads" : "head"), [...Array(count).keys()].map(one), count > 1 ? every : null),
    kinds,
  );
}

/** What the lines show, per head that is on: Map h → {weight, contribution?, shown: Float32Array (N·T)}. */
async function strengths(ctx, measure, on, [N, T]) {
  const node = `${ctx.site.site}.weights`;
  const whole = ctx.site.heads * N * T * 4 <= WHOLE ? await ctx.data.slice(node) : null;
  const one = async (h) => {
    const weight = whole ? whole.values.subarray(h * N * T, (h + 1) * N * T) : (await ctx.data.slice(node, [h, ":", ":"])).values;
    if (measure === "weight") return [h, { weight, shown: weight }];
    const contribution = shares((await ctx.data.lens("contribution", { site: ctx.site.site, head: h })).norms, N, T);
    return [h, { weight, contribution, shown: measure === "contribution" ? contribution : contribution.map((x, i) => x - weight[i]) }];
  };
  return new Map(await Promise.all(on.map(one)));
}

/** Rows of lengths (nested or flat) → each as a share of its row's sum. */
export function shares(norms, N, T) {
  const flat = Float32Array.from(norms.flat());
  for (let i = 0; i < N; i++) {
    const row = flat.subarray(i * T, (i + 1) * T);
    const sum = row.reduce((a, b) => a + b, 0) || 1;
    row.forEach((x, j) => (row[j] = x / sum));
  }
  return flat;
}

function picture(ctx, { measure, on, sides, numbers }) {
  const [N, T] = [sides.queries.length, sides.keys.length];
  const mean = new Float32Array(N * T);
  for (const { shown } of numbers.values()) shown.forEach((x, at) => (mean[at] += x / on.length));
  const signed = measure === "difference" || ctx.mode === "delta";
  const most = signed ? mean.reduce((top, x) => Math.max(top, Math.abs(x)), 0.02) : 1; // the strongest line
  const view = { on, numbers, mean, N, T, signed, most, alone: null }; // alone: {side: "query" | "key", i} | null
  let held = null;

  const canvas = el("canvas", { class: "lines-canvas", role: "img", "aria-label": `Lines from ${N} queries to ${T} keys; point at a token for its numbers` });
  const perHead = on.length > 1 ? el("canvas", { class: "lines-heads", role: "img", "aria-label": "What each head gives each key: of the token pointed at, or on average" }) : null;
  const columns = { query: side("query", sides.queries), key: side("key", sides.keys) };
  const hint = el("p", { class: "hint" }, hintOf(measure, on, signed));

  function side(name, labels) {
    const slots = labels.map(() => el("span", { class: "lines-number" }));
    const tokens = labels.map((label, i) =>
      el("button", { type: "button", class: "lines-token", "aria-pressed": "false", data: { keep: `lines:${name}:${i}` }, on: {
        pointerenter: () => isolate({ side: name, i }), pointerleave: () => isolate(held),
        focus: () => reach(name, i), click: () => hold({ side: name, i }), keydown: (event) => walk(event, name, i),
      }, tabindex: i ? "-1" : "0" }, label)); // prettier-ignore
    const rows = tokens.map((token, i) => el("li", {}, name === "query" ? [slots[i], token] : [token, slots[i]]));
    return { slots, tokens, list: el("ol", { class: `lines-side ${name}`, "aria-label": name === "query" ? "queries" : "keys" }, el("li", { class: "lines-head", "aria-hidden": "true" }, name === "query" ? "query" : "key"), rows) };
  }
  /** One stop of the Tab key per side; arrows go on from there. */
  function reach(name, i) {
    columns[name].tokens.forEach((token, at) => (token.tabIndex = at === i ? 0 : -1));
    isolate({ side: name, i });
  }
  function walk(event, name, i) {
    const other = { ArrowLeft: "query", ArrowRight: "key" }[event.key] ?? name;
    const at = i + ({ ArrowUp: -1, ArrowDown: 1 }[event.key] ?? 0);
    if (other === name && at === i) return;
    columns[other].tokens[Math.min(Math.max(at, 0), columns[other].tokens.length - 1)].focus();
    event.preventDefault();
  }
  const same = (a, b) => a?.side === b?.side && a?.i === b?.i;
  function hold(what) {
    held = same(held, what) ? null : what;
    for (const [name, { tokens }] of Object.entries(columns)) tokens.forEach((token, i) => token.setAttribute("aria-pressed", String(same(held, { side: name, i }))));
    if (held?.side === "query") ctx.note({ token: held.i });
    isolate(held);
  }
  function isolate(what) {
    view.alone = what;
    for (const [name, { slots, tokens }] of Object.entries(columns)) {
      slots.forEach((slot, i) => slot.replaceChildren(what && what.side !== name ? written(i) : ""));
      tokens.forEach((token, i) => token.classList.toggle("lit", what?.side === name && what.i === i));
    }
    ctx.light(...(what ? [sides.from[what.side === "query" ? 0 : 1], what.i] : []));
    draw();
  }
  function written(other) {
    const [i, j] = view.alone.side === "query" ? [view.alone.i, other] : [other, view.alone.i];
    const value = mean[i * T + j];
    if (on.length > 1 || measure !== "weight") return el("span", { class: "number" }, format(value));
    return number(ctx, value, `${ctx.site.site}.weights`, [on[0], i, j]);
  }
  function draw() {
    strokes(canvas, view, columns);
    if (perHead) headColumns(perHead, view);
  }
  if (perHead) {
    const under = (event) => headColumns.under(perHead, view, event);
    perHead.addEventListener("pointermove", (event) => {
      const cell = under(event);
      if (cell) tip(`head ${cell.h}: ${format(valueAt(numbers.get(cell.h).shown, view.alone, cell.k, N, T))}${view.alone ? "" : " on average"}`, event.clientX, event.clientY - 6);
      else untip();
    });
    perHead.addEventListener("pointerleave", untip);
    perHead.addEventListener("click", (event) => {
      const cell = under(event);
      if (cell && view.alone) ctx.ask(`${ctx.site.site}.weights`, [cell.h, ...(view.alone.side === "query" ? [view.alone.i, cell.k] : [cell.k, view.alone.i])]);
    });
  }
  const frame = el("div", { class: `lines${N > 40 || T > 40 ? " dense" : ""}` }, columns.query.list, el("div", { class: "lines-middle" }, canvas), columns.key.list, perHead);
  new ResizeObserver(draw).observe(frame);
  document.addEventListener("themed", function again() {
    if (!frame.isConnected) return document.removeEventListener("themed", again);
    draw();
  });
  return el("div", {}, hint, frame);
}

function hintOf(measure, on, signed) {
  const what = { weight: "the attention weight", contribution: ["the share of what arrives, ", formula("‖A·V·W_o‖"), " out of its row"], difference: "contribution minus weight" }[measure];
  const many = on.length > 1 ? `, the mean of ${on.length} heads` : "";
  return ["A line’s strength is ", what, `${many}${signed ? "; orange is more, blue is less" : ""}. Lines under 1 % are left out. Point at a token for its numbers, click to hold it.`];
}

/** Where weight and contribution differ most, in words with numbers. */
function disagreements(ctx, on, sides, numbers) {
  const [N, T] = [sides.queries.length, sides.keys.length];
  const found = on.flatMap((h) => {
    const { weight, contribution } = numbers.get(h);
    return [...contribution.keys()].map((at) => ({ h, i: Math.floor(at / T), j: at % T, weight: weight[at], share: contribution[at], gap: Math.abs(contribution[at] - weight[at]) }));
  });
  const most = found.sort((a, b) => b.gap - a.gap).slice(0, 6);
  if (!N || !most.length || most[0].gap < 0.005) return sentence("empty", "In this head weight and contribution agree to within half a percent.");
  const row = ({ h, i, j, weight, share }) =>
    el("tr", {}, on.length > 1 ? el("td", {}, `head ${h}`) : null, el("td", { class: "words-cell" }, sides.queries[i], " → ", sides.keys[j]),
      el("td", {}, number(ctx, weight, `${ctx.site.site}.weights`, [h, i, j])), el("td", {}, format(share)), el("td", {}, format(share - weight))); // prettier-ignore
  return el("section", {},
    el("h3", {}, "Weight is not contribution"),
    el("p", { class: "hint" }, "A large weight on a short value vector moves little. These pairs differ most."),
    el("table", { class: "figures" }, el("thead", {}, el("tr", {}, on.length > 1 ? el("th", {}, "") : null, ["query → key", "weight A", "share of ‖A·V·W_o‖", "difference"].map((word, at) => el("th", { scope: "col", class: at ? null : "words-cell" }, at === 2 ? formula(word) : word)))), el("tbody", {}, most.map(row)))); // prettier-ignore
}
