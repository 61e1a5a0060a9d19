/**
 * One query's row of the attention workbench, worked out with this run's numbers.
 *
 * In: the slices of a head and a cell (query i, key j). Out: the vectors q, k, v of that cell; its weight as a fraction
 * of exponentials; and z_i as the weighted sum of the values. Every number is a link to its derivation.
 */

import { el, format, formula, number } from "regard/dom.js";
import { matrix } from "regard/matrix.js";
import { handedOn, isChanged, isEdited } from "regard/parts/captions.js";
import { workedFor } from "regard/parts/run.js";

const SHOWN = 5; // terms written out; the rest is summed
const GUTTER = 112; // pixels left of every strip, so that channels stand below each other

/** `rowInFocus(root, ctx, sides)` → {load() → the head's numbers, draw(i, j)}, both async. Of a difference, the run after is worked out. */
export function rowInFocus(root, ctx, sides) {
  const { site, head } = ctx;
  const data = ctx.mode === "delta" ? ctx.data.of(ctx.other) : ctx.data;
  const name = (what) => `${site.site}.${what}`;
  const used = (what) => (ctx.nodes.has(name(`${what}_rotated`)) ? `${what}_rotated` : what);
  const group = (what) => {
    const heads = ctx.nodes.get(name(what))?.shape[0] ?? site.heads;
    return Math.floor((head * heads) / site.heads); // grouped-query attention shares key/value heads
  };
  const [Q, K, V] = [used("Q"), used("K"), "V"];
  const before = ctx.nodes.has(name("masked")) ? "masked" : "scores";
  // Whole heads are asked for, not rows: moving the cursor then asks nothing more.
  const whole = (what, h) => data.slice(name(what), [h, ":", ":"]);
  const load = async () => {
    const heads = { dots: head, scores: head, weights: head, Z: head, Q: group(Q), K: group(K), V: group(V) };
    const asked = Object.entries(heads).map(async ([what, h]) => [what, await whole({ Q, K }[what] ?? what, h)]);
    const masked = before === "masked" ? await whole("masked", head) : null;
    return { ...Object.fromEntries(await Promise.all(asked)), masked };
  };
  let turn = 0;

  const draw = async (i, j) => {
    const mine = ++turn;
    const { dots, scores, masked, weights, Z, Q: q, K: k, V: values } = await load();
    if (mine !== turn) return;
    const cell = { i, j, query: sides.queries[i], key: sides.keys[j], keys: sides.keys };
    const run = {
      name,
      group,
      names: { Q, K, V },
      before,
      dots: rowOf(dots, i),
      scores: rowOf(masked ?? scores, i),
      weights: rowOf(weights, i),
      q: rowOf(q, i),
      k: rowOf(k, j),
      z: rowOf(Z, i),
      values,
    };
    root.replaceChildren(...[workedFor(ctx)].filter(Boolean));
    vectors(root, ctx, cell, run);
    fraction(root, ctx, cell, run);
    sum(root, ctx, cell, run);
  };
  return { load, draw };
}

export const rowOf = ({ shape: [, C], values }, i) => values.subarray(i * C, (i + 1) * C);

const vector = (letter, token) => el(
  "span",
  { class: "vector", data: { role: letter.toUpperCase() } },
  el("b", {}, letter),
  el("sub", {}, token),
);

/** q of the query, k and v of the key, as strips on one scale; then q · k. */
function vectors(root, ctx, { i, j, query, key }, { q, k, values, dots, name, names, group }) {
  const d = q.length;
  const v = rowOf(values, j);
  const bound = most(q, k, v);
  const strips = el("div", { class: "strips" });
  const made = q.reduce((sum, x, c) => sum + x * k[c], 0);
  const size = q.reduce((sum, x, c) => sum + Math.abs(x * k[c]), 0);
  const dot = asEdited(
    isChanged(ctx.trace, name("dots"), dots[j], made, size) ? made : null,
    number(ctx, dots[j], name("dots"), [ctx.head, i, j]),
  );
  root.append(el(
    "section",
    { class: "work" },
    el("h3", {}, "The vectors of this cell"),
    strips,
    el("p", { class: "worked" }, vector("q", query), " · ", vector("k", key), " = ", dot),
  ));
  const strip = (role, token, vectorValues, what, at) =>
    matrix(strips, {
      values: vectorValues,
      shape: [1, d],
      rows: [token],
      gutter: GUTTER,
      bound,
      fit: true,
      cell: { h: 20, max: 40 },
      title: formula(role.toLowerCase()),
      say: `${role.toLowerCase()} of ${token}`,
      role,
      node: name(what),
      axes: ["token", "channel"],
      index: (_, f) => [group(what), at, f],
      ctx,
      legend: role === "V",
    });
  strip("Q", query, q, names.Q, i);
  strip("K", key, k, names.K, j);
  strip("V", key, v, names.V, j);
}

const most = (...rows) => Math.max(...rows.flatMap((row) => [...row]).map(Math.abs).filter(Number.isFinite), 1e-9);

/** The largest entries of a row, by size, with what is left. */
function largest(row, most, always) {
  const order = [...row.keys()].filter((t) => Number.isFinite(row[t])).sort((a, b) => row[b] - row[a]);
  const shown = order.slice(0, most);
  if (!shown.includes(always) && Number.isFinite(row[always])) shown[shown.length - 1] = always;
  return { shown, rest: order.filter((t) => !shown.includes(t)) };
}

const over = (upper, lower) => el(
  "span",
  { class: "fraction" },
  el("span", { class: "upper" }, upper),
  el("span", { class: "lower" }, lower),
);

/** What was worked out, and where an edit made something else of it, that too. `made`: null where nothing did. */
const asEdited = (made, value) => (made === null ? value : [format(made), "; an edit made it ", value]);

/** The powers of e of a row of scores, and their sum: {shift, power(t), total}. */
export function powers(scores) {
  const top = scores.reduce((most, s) => (s > most ? s : most), -Infinity);
  const shift = top > 50 ? top : 0; // e^50 is as much as can be read; the fraction stays the same
  const power = (t) => Math.exp(scores[t] - shift);
  return { shift, power, total: [...scores.keys()].reduce((sum, t) => sum + power(t), 0) };
}

/** A_ij = e^{S_ij} / Σ_k e^{S_ik}, in symbols, in exponents, in numbers. */
export function fraction(root, ctx, { i, j, query, key, keys }, { scores, weights, before, name }) {
  const section = root.appendChild(el("section", { class: "work" }, el("h3", {}, "Softmax of the row")));
  const { shift, power, total } = powers(scores);
  const made = power(j) / total;
  const weight = asEdited(
    isChanged(ctx.trace, name("weights"), weights[j], made, 1) ? made : null,
    number(ctx, weights[j], name("weights"), [ctx.head, i, j]),
  );
  if (!Number.isFinite(scores[j])) {
    section.append(el(
      "p",
      { class: "worked" },
      `“${key}” is hidden from “${query}”: its score is −∞, and e`,
      el("sup", {}, "−∞"),
      " = ",
      weight,
      ".",
    ));
    return;
  }
  const { shown, rest } = largest(scores, SHOWN, j);
  const e = (t) => el(
    "span",
    { class: "power", title: keys[t] },
    "e",
    el(
      "sup",
      {},
      number(ctx, scores[t], name(before), [ctx.head, i, t], { digits: 2 }),
      shift ? ` − ${format(shift, 1)}` : null,
    ),
  );
  const tail = rest.length ? [" + ", el("span", { class: "others" }, `${rest.length} more`)] : [];
  section.append(
    el(
      "p",
      { class: "worked equation" },
      el("span", { class: "vector", data: { role: "A" } }, el("b", {}, "A"), el("sub", {}, `${query}, ${key}`)),
      el("span", {}, " = "),
      over(e(j), [shown.map((t, at) => [at ? " + " : null, e(t)]), tail]),
      el("span", {}, " = "),
      over(format(power(j), 3), format(total, 3)),
      el("span", {}, " = "),
      weight,
    ),
  );
}

/** z_i = Σ_j A_ij v_j. */
function sum(root, ctx, cell, run) {
  mixture(root, ctx, cell, run, {
    letter: "v",
    role: "V",
    title: "V",
    subtitle: "the values, with their weights",
    node: run.name("V"),
    index: (t, f) => [run.group("V"), t, f],
    together: isEdited(ctx.trace, run.name("M"))
      ? "all heads together would give M; an edit changed it"
      : formula("all heads side by side, times W_o, give M"),
  });
}

/** A weighted sum of rows: in symbols, then the rows and their mixture on one scale. `of`: what the rows are called. */
export function mixture(root, ctx, { i, query, keys }, { weights, values, z, name }, of) {
  const [T, d] = values.shape;
  const section = root.appendChild(el("section", { class: "work" }, el("h3", {}, of.role ? "Weighted sum of values" : "Weighted sum of states")));
  const otherwise = handedOn(ctx.trace, name("Z"), z, weights, values);
  const row = { values: z, shape: [1, d], rows: [query], title: "Z", node: name("Z"), index: (_, f) => [ctx.head, i, f] };
  const form = { fit: true, gutter: GUTTER, cell: { h: 20, max: 40 }, axes: ["token", "channel"], ctx };
  if (otherwise) {
    section.append(el("p", { class: "worked" }, otherwise));
    matrix(section, { ...form, ...row, subtitle: of.together });
    return;
  }
  const sizes = weights.map((a) => Math.abs(a) || -Infinity); // a weight of 0 adds nothing
  const { shown, rest } = largest(sizes, Math.min(SHOWN + 1, T), -1);
  const term = (t, at) => [
    at ? " + " : null,
    number(ctx, weights[t], name("weights"), [ctx.head, i, t]),
    " ",
    vector(of.letter, keys[t]),
  ];
  const left = rest.reduce((total, t) => total + weights[t], 0);
  const tail = rest.length
    ? el("span", { class: "others" }, ` + ${rest.length} more with weights of ${format(left)} together`)
    : null;
  section.append(el("p", { class: "worked" }, el("b", {}, "z"), el("sub", {}, query), " = ", shown.map(term), tail));
  const picked = new Float32Array(shown.length * d);
  shown.forEach((t, r) => picked.set(rowOf(values, t), r * d));
  const share = { ...form, bound: most(picked, z) };
  matrix(section, {
    ...share,
    values: picked,
    shape: [shown.length, d],
    rows: shown.map((t) => `${format(weights[t], 2)} × ${keys[t]}`),
    title: of.title,
    subtitle: of.subtitle,
    role: of.role,
    node: of.node,
    index: (r, f) => of.index(shown[r], f),
    legend: false,
  });
  matrix(section, { ...share, ...row, subtitle: ["their weighted sum; ", of.together] });
}
