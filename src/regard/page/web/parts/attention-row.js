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
import { before, headOf, nodeOf, stepsOf, wayTo } from "regard/parts/wiring.js";

/**
 * @template {string} K
 * @typedef {{ [name in K]: Float32Array }} Rows
 */
/** @typedef {{ i: number, j: number, query: string, key: string, keys: string[] }} FocusCell */
/**
 * A query's row: `last` is the step that the weights are made of, `scores` are its numbers.
 * @typedef {{ last?: string, scores: Float32Array | null } & Rows<"weights" | "z">} RowRun
 */
/**
 * … with what the weights mix.
 * @typedef {RowRun & { values: Tensor }} MixedRun
 */
/**
 * The vectors of a cell. `values`: of every key; `dots`: of the query with each, where that is a step.
 * @typedef {Rows<"q" | "k"> & { values: Tensor | null, dots: Float32Array | null }} CellVectors
 */
/**
 * What the rows of a weighted sum are called.
 * @typedef {object} Mixed
 * @property {string} letter @property {Role} [role] @property {string} title @property {string} subtitle @property {string} node
 * @property {(t: number, f: number) => number[]} index @property {Child} together
 */

const SHOWN = 5; // terms written out; the rest is summed
const GUTTER = 112; // pixels left of every strip, so that channels stand below each other

/**
 * `rowInFocus(root, ctx, sides)` → {load() → the head's numbers, draw(i, j)}, both async. Of a difference, the run after is worked out.
 * @param {HTMLElement} root @param {SiteContext} ctx @param {Sides} sides
 */
export function rowInFocus(root, ctx, sides) {
  const { site } = ctx;
  const data = ctx.mode === "delta" ? ctx.data.of(ctx.other) : ctx.data;
  const names = stepsOf(ctx, site);
  // Whole heads are asked for, not rows: moving the cursor then asks nothing more.
  /** @param {string} name */
  const whole = (name) => data.slice(name, [headOf(ctx, name), ":", ":"]);
  /** @param {string | null} name */
  const shown = (name) => (name !== null && ctx.nodes.has(name) ? whole(name) : null);
  const load = async () => {
    const [[Q, K, V], Z, rest] = await Promise.all([
      Promise.all([site.Q, site.K, site.V].map(shown)),
      whole(site.Z),
      Promise.all(names.map(whole)),
    ]);
    return { Q, K, V, Z, steps: new Map(names.map((name, i) => [name, rest[i]])) };
  };
  let turn = 0;

  /** @param {number} i @param {number} j */
  const draw = async (i, j) => {
    const mine = ++turn;
    const { Q, K, V, Z, steps } = await load();
    const weights = steps.get(site.weights);
    if (mine !== turn || !weights) return;
    const cell = { i, j, query: sides.queries[i], key: sides.keys[j], keys: sides.keys };
    /** @param {string} [name] */
    const row = (name) => {
      const slice = name && steps.get(name);
      return slice ? rowOf(slice, i) : null;
    };
    const last = before(ctx.nodes, site, site.weights);
    const run = { last, scores: row(last), weights: rowOf(weights, i), z: rowOf(Z, i) };
    root.replaceChildren(workedFor(ctx) ?? "");
    if (Q && K) vectors(root, ctx, cell, { q: rowOf(Q, i), k: rowOf(K, j), values: V, dots: row(dotOf(ctx, names)) });
    fraction(root, ctx, cell, run);
    if (V) sum(root, ctx, cell, { ...run, values: V });
  };
  return { load, draw };
}

/**
 * The step that is the dot product and nothing else, if one is.
 * @param {Context} ctx @param {string[]} steps
 */
const dotOf = ({ nodes }, steps) => steps.find((name) => nodes.get(name)?.op === "dot" && !nodes.get(name)?.facts.several);

/** @param {Tensor} tensor @param {number} i */
export const rowOf = ({ shape: [, C], values }, i) => values.subarray(i * C, (i + 1) * C);

/** @param {string} letter @param {string} token */
const vector = (letter, token) =>
  el("span", { class: "vector", data: { role: letter.toUpperCase() } }, el("b", {}, letter), el("sub", {}, token));

/**
 * q of the query, k and v of the key, as strips on one scale; then q · k.
 * @param {HTMLElement} root @param {SiteContext} ctx @param {FocusCell} focusCell @param {CellVectors} cellVectors
 */
function vectors(root, ctx, { i, j, query, key }, { q, k, values, dots }) {
  const v = values ? rowOf(values, j) : new Float32Array();
  const bound = most(q, k, v);
  const strips = el("div", { class: "strips" });
  const made = q.reduce((sum, x, c) => sum + x * k[c], 0);
  const size = q.reduce((sum, x, c) => sum + Math.abs(x * k[c]), 0);
  const node = dotOf(ctx, stepsOf(ctx, ctx.site));
  const dot =
    dots && node
      ? asEdited(
          isChanged(ctx.trace, node, dots[j], made, size) ? made : null,
          number(ctx, dots[j], node, [ctx.head, i, j]),
        )
      : format(made);
  root.append(
    el(
      "section",
      { class: "work" },
      el("h3", {}, "The vectors of this cell"),
      asCompared(ctx),
      strips,
      el("p", { class: "worked" }, vector("q", query), " · ", vector("k", key), " = ", dot),
    ),
  );
  /** @param {"Q" | "K" | "V"} role @param {string} token @param {Float32Array} vectorValues @param {string} name @param {number} at */
  const strip = (role, token, vectorValues, name, at) =>
    matrix(strips, {
      values: vectorValues,
      shape: [1, vectorValues.length],
      rows: [token],
      gutter: GUTTER,
      bound,
      fit: true,
      cell: { h: 20, max: 40 },
      title: formula(role.toLowerCase()),
      say: `${role.toLowerCase()} of ${token}`,
      role,
      node: name,
      axes: ["token", "channel"],
      index: (_, f) => [headOf(ctx, name), at, f],
      ctx,
      legend: role === "V",
    });
  strip("Q", query, q, nodeOf(ctx, ctx.site.Q).name, i);
  strip("K", key, k, nodeOf(ctx, ctx.site.K).name, j);
  if (values) strip("V", key, v, nodeOf(ctx, ctx.site.V).name, j);
}

/** @type {{ [op: string]: string }} */
const MADE = { rotate: "turned by position", normalise: "normed" };

/**
 * What became of q and k before they are compared, if anything did.
 * @param {SiteContext} ctx
 */
function asCompared(ctx) {
  const { trace, nodes, site } = ctx;
  const ways = [site.Q, site.K].map((name) => wayTo(nodes, nodeOf(ctx, name).name));
  const [q, k] = ways.map((way) => {
    const ops = way.slice(1).map((step) => nodeOf(ctx, step).op);
    return ops
      .filter((op) => op !== "affine")
      .map((op) => MADE[op] ?? op.replaceAll("_", " "))
      .join(", then ");
  });
  const words =
    q === k
      ? q && `q and k are ${q} before they are compared`
      : [q && `q is ${q}`, k && `k is ${k}`].filter(Boolean).join("; ");
  const changed = ways.flat().filter((name) => isEdited(trace, name));
  const edited = changed.length ? `; an edit changes ${changed.join(" and ")}` : "";
  return words ? el("p", { class: "hint" }, `${words}${edited}.`) : null;
}

/** @param {...Float32Array} rows */
const most = (...rows) =>
  Math.max(
    ...rows
      .flatMap((row) => [...row])
      .map(Math.abs)
      .filter(Number.isFinite),
    1e-9,
  );

/**
 * The largest entries of a row, by size, with what is left.
 * @param {Float32Array} row @param {number} most @param {number} always
 */
function largest(row, most, always) {
  const order = [...row.keys()].filter((t) => Number.isFinite(row[t])).sort((a, b) => row[b] - row[a]);
  const shown = order.slice(0, most);
  if (!shown.includes(always) && Number.isFinite(row[always])) shown[shown.length - 1] = always;
  return { shown, rest: order.filter((t) => !shown.includes(t)) };
}

/** @param {Child} upper @param {Child} lower */
const over = (upper, lower) =>
  el("span", { class: "fraction" }, el("span", { class: "upper" }, upper), el("span", { class: "lower" }, lower));

/**
 * What was worked out, and where an edit made something else of it, that too. `made`: null where nothing did.
 * @param {number | null} made @param {Child} value
 */
const asEdited = (made, value) => (made === null ? value : [format(made), "; an edit made it ", value]);

/**
 * The powers of e of a row of scores, and their sum: {shift, power(t), total}.
 * @param {Float32Array} scores
 */
export function powers(scores) {
  const top = scores.reduce((most, s) => (s > most ? s : most), -Infinity);
  const shift = top > 50 ? top : 0; // e^50 is as much as can be read; the fraction stays the same
  /** @param {number} t */
  const power = (t) => Math.exp(scores[t] - shift);
  return { shift, power, total: [...scores.keys()].reduce((sum, t) => sum + power(t), 0) };
}

/**
 * A_ij = e^{S_ij} / Σ_k e^{S_ik}, in symbols, in exponents, in numbers; of what is no softmax, its formula.
 * @param {HTMLElement} root @param {SiteContext} ctx @param {FocusCell} focusCell @param {RowRun} rowRun
 */
export function fraction(root, ctx, { i, j, query, key, keys }, { last, scores, weights }) {
  const node = ctx.site.weights;
  const { op, facts } = nodeOf(ctx, node);
  const A = el("span", { class: "vector", data: { role: "A" } }, el("b", {}, "A"), el("sub", {}, `${query}, ${key}`));
  const link = number(ctx, weights[j], node, [ctx.head, i, j]);
  if (op !== "softmax" || facts.several || !scores) {
    root.append(
      el(
        "section",
        { class: "work" },
        el("h3", {}, "The weight"),
        el("p", { class: "worked" }, A, " = ", link, el("span", { class: "hint" }, `: ${facts.said}`)),
      ),
    );
    return;
  }
  const section = root.appendChild(el("section", { class: "work" }, el("h3", {}, "Softmax of the row")));
  const { shift, power, total } = powers(scores);
  const made = power(j) / total;
  const weight = asEdited(isChanged(ctx.trace, node, weights[j], made, 1) ? made : null, link);
  if (!Number.isFinite(scores[j])) {
    section.append(
      el(
        "p",
        { class: "worked" },
        `“${key}” is hidden from “${query}”: its score is −∞, and e`,
        el("sup", {}, "−∞"),
        " = ",
        weight,
        ".",
      ),
    );
    return;
  }
  const { shown, rest } = largest(scores, SHOWN, j);
  /** @param {number} t */
  const e = (t) =>
    el(
      "span",
      { class: "power", title: keys[t] },
      "e",
      el(
        "sup",
        {},
        number(ctx, scores[t], last ?? null, [ctx.head, i, t], { digits: 2 }),
        shift ? ` − ${format(shift, 1)}` : null,
      ),
    );
  const tail = rest.length ? [" + ", el("span", { class: "others" }, `${rest.length} more`)] : [];
  section.append(
    el(
      "p",
      { class: "worked equation" },
      A,
      el("span", {}, " = "),
      over(e(j), [shown.map((t, at) => [at ? " + " : null, e(t)]), tail]),
      el("span", {}, " = "),
      over(format(power(j), 3), format(total, 3)),
      el("span", {}, " = "),
      weight,
    ),
  );
}

/**
 * z_i = Σ_j A_ij v_j.
 * @param {HTMLElement} root @param {SiteContext} ctx @param {FocusCell} cell @param {MixedRun} run
 */
function sum(root, ctx, cell, run) {
  const { name: V } = nodeOf(ctx, ctx.site.V);
  mixture(root, ctx, cell, run, {
    letter: "v",
    role: "V",
    title: "V",
    subtitle: "the values, with their weights",
    node: V,
    index: (t, f) => [headOf(ctx, V), t, f],
    together: !ctx.site.M
      ? ""
      : isEdited(ctx.trace, ctx.site.M)
        ? "all heads together would give M; an edit changed it"
        : formula("all heads side by side, times W_o, give M"),
  });
}

/**
 * A weighted sum of rows: in symbols, then the rows and their mixture on one scale. `of`: what the rows are called.
 * @param {HTMLElement} root @param {SiteContext} ctx @param {FocusCell} focusCell @param {MixedRun} mixedRun @param {Mixed} of
 */
export function mixture(root, ctx, { i, query, keys }, { weights, values, z }, of) {
  const { Z, weights: node } = ctx.site;
  const [T, d] = values.shape;
  const section = root.appendChild(
    el("section", { class: "work" }, el("h3", {}, of.role ? "Weighted sum of values" : "Weighted sum of states")),
  );
  const otherwise = handedOn(ctx.trace, Z, z, weights, values);
  /** @type {MatrixOptions} */
  const row = { values: z, shape: [1, d], rows: [query], title: "Z", node: Z, index: (_, f) => [ctx.head, i, f] };
  const form = { fit: true, gutter: GUTTER, cell: { h: 20, max: 40 }, axes: ["token", "channel"], ctx };
  if (otherwise) {
    section.append(el("p", { class: "worked" }, otherwise));
    matrix(section, { ...form, ...row, subtitle: of.together });
    return;
  }
  const sizes = weights.map((a) => Math.abs(a) || -Infinity); // a weight of 0 adds nothing
  const { shown, rest } = largest(sizes, Math.min(SHOWN + 1, T), -1);
  /** @param {number} t @param {number} at */
  const term = (t, at) => [
    at ? " + " : null,
    number(ctx, weights[t], node, [ctx.head, i, t]),
    " ",
    vector(of.letter, keys[t]),
  ];
  const left = rest.reduce((total, t) => total + weights[t], 0);
  const tail = rest.length
    ? el("span", { class: "others" }, ` + ${rest.length} more with weights of ${format(left)} together`)
    : null;
  section.append(el("p", { class: "worked" }, el("b", {}, "z"), el("sub", {}, query), " = ", shown.map(term), tail));
  const picked = new Float32Array(shown.length * d);
  for (const [r, t] of shown.entries()) picked.set(rowOf(values, t), r * d);
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
