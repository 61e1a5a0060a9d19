/**
 * Trees compiled: a node's whole array from its formula, without knowing any operation.
 *
 * In: a tree (`formula.js`), a shape, and read(name) → {shape, values, stored?}; `stored` are the same numbers in another order,
 * {values, strides}. Out: values. A tree becomes functions that
 * read variables from one list. A sum of products of two reads becomes a loop over two arrays, found by its form. A sum that
 * stays the same while the innermost index moves (the one below a softmax's line) is computed once for all of them.
 */

import { FUNCTIONS, freeIn, isAt, isCall, isNumber, isOver, isVariable, numberOf } from "regard/offline/formula.js";

/** @typedef {{ v: number[], names: string[] }} Scope */
/** @typedef {() => number} Make */
/** @typedef {Float32Array | Int32Array} Values */
/** @typedef {{ constant: number, by: Map<string, number> }} Affine */
/** @typedef {Affine & { others: [stride: number, entry: Tree][] }} Located */

/**
 * Write one row of a node (`fixed`: axis → entry), or all of it, into `out`.
 * @param {Float32Array} out @param {number[]} shape @param {Tree} tree @param {Read} read
 * @param {{ [axis: number]: number }} [fixed]
 */
export function fill(out, shape, tree, read, fixed = {}) {
  const v = shape.map(() => 0);
  const make = compile(tree, read, { v, names: shape.map((_, axis) => `i${axis}`) });
  const last = shape.length - 1;
  /** @param {number} axis @param {number} before */
  const walk = (axis, before) => {
    const from = fixed[axis] ?? 0;
    const to = axis in fixed ? from + 1 : shape[axis];
    for (let i = from; i < to; i++) {
      v[axis] = i;
      if (axis === last) out[before * shape[axis] + i] = make();
      else walk(axis + 1, before * shape[axis] + i);
    }
  };
  walk(0, 0);
  return out;
}

/**
 * The value of a tree without open variables.
 * @param {Tree} e @param {Read} read
 */
export const evaluate = (e, read) => compile(e, read, { v: [], names: [] })();

/**
 * scope: the variables around a tree, outermost first, and the list `v` of what they are. → () => number
 * @param {Tree} e @param {Read} read @param {Scope} scope @returns {Make}
 */
export function compile(e, read, scope) {
  /** @param {Tree} part */
  const inner = (part) => compile(part, read, scope);
  if (isNumber(e)) {
    const x = numberOf(e);
    return () => x;
  }
  const { v } = scope;
  if (isVariable(e)) {
    const slot = slotOf(scope, e);
    return () => v[slot];
  }
  if (isAt(e)) return reading(e, read, scope);
  if (isOver(e)) return held(e, scope, over(e, read, scope));
  const [f, ...args] = e;
  if (f === "step") return stepping(args, inner);
  const [a, b, c] = args.map(inner);
  if (f === "if") return () => (a() ? b() : c());
  const { value } = FUNCTIONS[f];
  return args.length === 1 ? () => value(a()) : () => value(a(), b());
}

/** @param {Tree[]} given @param {(e: Tree) => Make} inner */
function stepping([t, ...rows], inner) {
  const [at, made] = [inner(t), rows.map(inner)];
  return () => made[at()]();
}

/** @param {Scope} scope @param {string} name */
const slotOf = ({ names }, name) => names.lastIndexOf(name);

/**
 * Computed again only when a variable that it rests on has moved; not watched where that is always so.
 * @param {Tree} e @param {Scope} scope @param {Make} make
 */
function held(e, scope, make) {
  const free = [...freeIn(e)];
  if (!scope.names.length || free.includes(scope.names[scope.names.length - 1])) return make;
  const { v } = scope;
  const slots = free.map((name) => slotOf(scope, name));
  const known = slots.map(() => -1);
  let [begun, value] = [false, 0];
  return () => {
    let same = begun;
    for (let i = 0; i < slots.length; i++) {
      if (v[slots[i]] === known[i]) continue;
      known[i] = v[slots[i]];
      same = false;
    }
    if (!same) [begun, value] = [true, make()];
    return value;
  };
}

/** @param {OverTree} overTree @param {Read} read @param {Scope} scope @returns {Make} */
function over([how, name, n, body], read, scope) {
  const { v } = scope;
  const slot = scope.names.length;
  const inside = { v, names: [...scope.names, name] };
  const products = how === "Σ" ? dot(body, name, n, read, inside) : null;
  if (products) return products;
  const make = compile(body, read, inside);
  if (how === "Σ")
    return () => {
      let sum = 0;
      for (let k = 0; k < n; k++) {
        v[slot] = k;
        sum += make();
      }
      return sum;
    };
  return () => {
    let most = -Infinity;
    for (let k = 0; k < n; k++) {
      v[slot] = k;
      most = Math.max(most, make());
    }
    return most;
  };
}

// Where a read lies in its array.

/**
 * e as constant + Σ coefficient · variable; null if it is anything else.
 * @param {Tree} e @returns {Affine | null}
 */
function affine(e) {
  if (isNumber(e)) return { constant: numberOf(e), by: new Map() };
  if (isVariable(e)) return { constant: 0, by: new Map([[e, 1]]) };
  const [f, ...args] = e;
  if (!["+", "-", "·"].includes(f)) return null;
  const [a, b] = args.map(affine);
  if (!a || !b) return null;
  if (f === "·") return !b.by.size ? times(a, b.constant) : !a.by.size ? times(b, a.constant) : null;
  return plus(a, times(b, f === "-" ? -1 : 1));
}

/** @param {Affine} affine @param {number} x */
const times = ({ constant, by }, x) => ({ constant: constant * x, by: new Map([...by].map(([name, c]) => [name, c * x])) });

/** @param {Affine} a @param {Affine} b */
function plus(a, b) {
  const by = new Map(a.by);
  for (const [name, c] of b.by) by.set(name, (by.get(name) ?? 0) + c);
  return { constant: a.constant + b.constant, by };
}

/**
 * The array of a read, its offset as far as it is affine, and the other entries with their strides.
 * @param {AtTree} atTree @param {Read} read
 */
function located([, name, ...index], read) {
  const { shape, values: inOrder, stored } = read(name);
  const { values, strides } = stored ?? { values: inOrder, strides: rowMajor(shape) };
  let offset = { constant: 0, by: new Map() };
  /** @type {Located["others"]} */
  const others = [];
  index.forEach((e, axis) => {
    const found = affine(e);
    if (found) offset = plus(offset, times(found, strides[axis]));
    else others.push([strides[axis], e]);
  });
  return { values, ...offset, others };
}

/** @param {number[]} shape */
const rowMajor = (shape) => shape.map((_, axis) => shape.slice(axis + 1).reduce((a, b) => a * b, 1));

/**
 * () → offset.
 * @param {Located} located @param {Read} read @param {Scope} scope
 */
function offset({ constant, by, others }, read, scope) {
  const { v } = scope;
  const [[a, x] = [0, 0], [b, y] = [0, 0], [c, z] = [0, 0], ...more] = [...by].map(([name, c]) => [slotOf(scope, name), c]);
  /** @type {[by: number, part: Make][]} */
  const rest = more.map(([slot, by]) => [by, () => v[slot]]);
  for (const [stride, e] of others) rest.push([stride, compile(e, read, scope)]);
  const known = by.size ? () => constant + v[a] * x + v[b] * y + v[c] * z : () => constant;
  if (rest.length) return () => rest.reduce((sum, [x, part]) => sum + x * part(), known());
  if (by.size === 1) return () => constant + v[a] * x;
  if (by.size === 2) return () => constant + v[a] * x + v[b] * y;
  return known;
}

/** @param {AtTree} e @param {Read} read @param {Scope} scope */
function reading(e, read, scope) {
  const place = located(e, read);
  const [{ values }, at] = [place, offset(place, read, scope)];
  return () => values[at()];
}

// Sums of products.

/**
 * A read of which the offset is one part without the summed variable, and one of it alone (`along`); else null.
 * @param {AtTree} e @param {string} name @param {number} n @param {Read} read @param {Scope} scope
 */
function separated(e, name, n, read, scope) {
  const { values, constant, by, others } = located(e, read);
  const stride = by.get(name) ?? 0;
  const alone = others.filter(([, entry]) => freeIn(entry).has(name));
  if (alone.some(([, entry]) => freeIn(entry).size > 1)) return null;
  const rest = {
    constant,
    by: new Map([...by].filter(([other]) => other !== name)),
    others: others.filter((one) => !alone.includes(one)),
  };
  const along = Int32Array.from({ length: n }, (_, k) => k * stride);
  for (const [size, entry] of alone) {
    const v = [0];
    const make = compile(entry, read, { v, names: [name] });
    for (; v[0] < n; v[0]++) along[v[0]] += size * make();
  }
  return { values, start: offset(rest, read, scope), along, dense: !alone.length && stride === 1 };
}

/**
 * Σ of a product of two reads as a loop; null for any other sum.
 * @param {Tree} body @param {string} name @param {number} n @param {Read} read @param {Scope} scope @returns {Make | null}
 */
function dot(body, name, n, read, scope) {
  if (!isCall(body, "·") && !isCall(body, "weigh")) return null;
  const [f, ...args] = body;
  if (!args.every(isAt)) return null;
  const [a, b] = args.map((e) => separated(e, name, n, read, scope));
  if (!a || !b) return null;
  const [A, B, first, second] = [a.values, b.values, a.start, b.start];
  if (f === "weigh") return () => weighed(A, first(), a.along, B, second(), b.along, n); // a weight of 0 counts for nothing
  if (a.dense && b.dense) return () => side(A, first(), B, second(), n);
  return () => listed(A, first(), a.along, B, second(), b.along, n);
}

/** @param {Values} A @param {number} i @param {Values} B @param {number} j @param {number} n */
function side(A, i, B, j, n) {
  let sum = 0;
  for (let k = 0; k < n; k++) sum += A[i + k] * B[j + k];
  return sum;
}

/**
 * @param {Values} A @param {number} i @param {Int32Array} a @param {Values} B @param {number} j @param {Int32Array} b
 * @param {number} n
 */
function listed(A, i, a, B, j, b, n) {
  let sum = 0;
  for (let k = 0; k < n; k++) sum += A[i + a[k]] * B[j + b[k]];
  return sum;
}

/**
 * @param {Values} A @param {number} i @param {Int32Array} a @param {Values} B @param {number} j @param {Int32Array} b
 * @param {number} n
 */
function weighed(A, i, a, B, j, b, n) {
  let sum = 0;
  for (let k = 0; k < n; k++) {
    const x = A[i + a[k]];
    if (x !== 0) sum += x * B[j + b[k]];
  }
  return sum;
}
