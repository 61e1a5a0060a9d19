/**
 * Formulas as trees: what one number of a node is made of, as data (`to_json` in nn/expression.py says how it is written).
 *
 * A tree is a number, the name of a variable, or a list: ["num", value, label], ["-∞"], ["at", node, ...index],
 * ["Σ" or "max", variable, n, body], or a function's name and its arguments. Here are the functions themselves, a tree with its
 * variables filled in, and how far rounding may move its value. `compile.js` makes whole nodes of trees.
 */

/** @typedef {{ [variable: string]: Tree | undefined }} Known */

/** @param {number} x */
const erf = (x) => {
  if (Math.abs(x) >= 2.5) return Math.sign(x) * (Math.abs(x) > 6 ? 1 : 1 - tail(Math.abs(x)));
  let [term, sum] = [x, x];
  for (let n = 1; Math.abs(term) > 1e-18; n++) {
    term *= (-x * x) / n;
    sum += term / (2 * n + 1);
  }
  return (2 / Math.sqrt(Math.PI)) * sum;
};

/**
 * 1 - erf(x), where that is small: a continued fraction.
 * @param {number} x
 */
function tail(x) {
  let fraction = 0;
  for (let n = 60; n > 0; n--) fraction = n / 2 / (x + fraction);
  return Math.exp(-x * x) / Math.sqrt(Math.PI) / (x + fraction);
}

/** @typedef {(...args: number[]) => number} Formula */
/** @typedef {{ value: Formula, slopes: Formula[], ulps: number }} Operation */

/** @type {Operation} */
const difference = { value: (a, b) => a - b, slopes: [() => 1, () => -1], ulps: 1 };

/**
 * value; its slope towards each argument; by how many units in the last place a float32 library may be off.
 * @type {{ [f: string]: Operation }}
 */
export const FUNCTIONS = {
  "+": { value: (a, b) => a + b, slopes: [() => 1, () => 1], ulps: 1 },
  "-": difference,
  shift: difference, // x - b where b cancels; it is not written down
  "·": { value: (a, b) => a * b, slopes: [(_, b) => b, (a) => a], ulps: 1 },
  weigh: { value: (a, b) => (a === 0 ? 0 : a * b), slopes: [(_, b) => b, (a) => a], ulps: 1 },
  "/": { value: (a, b) => a / b, slopes: [(_, b) => 1 / b, (a, b) => -a / b / b], ulps: 1 },
  "^": { value: (a, b) => a ** b, slopes: [(a, b) => b * a ** (b - 1), () => 0], ulps: 2 },
  neg: { value: (a) => -a, slopes: [() => -1], ulps: 0 },
  exp: { value: Math.exp, slopes: [Math.exp], ulps: 4 },
  sqrt: { value: Math.sqrt, slopes: [(a) => 0.5 / Math.sqrt(a)], ulps: 2 },
  tanh: { value: Math.tanh, slopes: [(a) => 1 - Math.tanh(a) ** 2], ulps: 4 },
  erf: { value: erf, slopes: [(a) => (2 / Math.sqrt(Math.PI)) * Math.exp(-a * a)], ulps: 4 },
  sin: { value: Math.sin, slopes: [Math.cos], ulps: 4 },
  cos: { value: Math.cos, slopes: [(a) => -Math.sin(a)], ulps: 4 },
  max: { value: (a, b) => Math.max(a, b), slopes: [(a, b) => +(a > b), (a, b) => +(a <= b)], ulps: 0 },
  "//": { value: (a, b) => Math.floor(a / b), slopes: [], ulps: 0 },
  "%": { value: (a, b) => ((a % b) + b) % b, slopes: [], ulps: 0 },
  "<": { value: (a, b) => +(a < b), slopes: [], ulps: 0 },
  "≤": { value: (a, b) => +(a <= b), slopes: [], ulps: 0 },
  "=": { value: (a, b) => +(a === b), slopes: [], ulps: 0 },
  and: { value: (a, b) => +(Boolean(a) && Boolean(b)), slopes: [], ulps: 0 },
};

// What a tree is.

/** @param {Tree} e @returns {e is NumberTree} */
export const isNumber = (e) => typeof e === "number" || (typeof e === "object" && (e[0] === "num" || e[0] === "-∞"));
/** @param {Tree} e @returns {e is string} */
export const isVariable = (e) => typeof e === "string";
/** @param {Tree} e @returns {e is AtTree} */
export const isAt = (e) => Array.isArray(e) && e[0] === "at";
/** @param {Tree} e @returns {e is OverTree} */
export const isOver = (e) => Array.isArray(e) && (e[0] === "Σ" || (e[0] === "max" && e.length === 4));
/** @param {NumberTree} e */
export const numberOf = (e) => (typeof e === "number" ? e : e[0] === "num" ? e[1] : -Infinity);
/** @param {Tree} e */
export const labelOf = (e) => (Array.isArray(e) && e[0] === "num" ? String(e[2]) : "");
/** @param {Tree} e @param {string} [f] @returns {e is Call} */
export const isCall = (e, f) =>
  Array.isArray(e) && !isNumber(e) && !isAt(e) && !isOver(e) && (f === undefined || f === e[0]);

/** @param {Tree} e @returns {Tree[]} */
export const partsOf = (e) => (isNumber(e) || isVariable(e) ? [] : isOver(e) ? [e[3]] : e.slice(isAt(e) ? 2 : 1));

/**
 * The names of all nodes, weights, constants and ids in a tree.
 * @param {Tree} e @param {Set<string>} [found]
 */
export function namesIn(e, found = new Set()) {
  if (isAt(e)) found.add(e[1]);
  for (const part of partsOf(e)) namesIn(part, found);
  return found;
}

/** @type {WeakMap<Call, Set<string>>} */
const open = new WeakMap();

/**
 * The variables that a tree leaves open.
 * @param {Tree} e @returns {Set<string>}
 */
export function freeIn(e) {
  if (isVariable(e)) return new Set([e]);
  if (!Array.isArray(e)) return new Set();
  const known = open.get(e);
  if (known) return known;
  const found = new Set(partsOf(e).flatMap((part) => [...freeIn(part)]));
  if (isOver(e)) found.delete(e[1]);
  open.set(e, found);
  return found;
}

// A tree with variables filled in.

const OF_INDICES = new Set(["//", "%", "<", "≤", "=", "and"]);
const WHOLE = new Set([...OF_INDICES, "+", "-", "·"]);

/**
 * Arithmetic of whole numbers, done.
 * @param {Tree} e @returns {Tree}
 */
function whole(e) {
  if (!isCall(e) || !WHOLE.has(e[0])) return e;
  const args = e.slice(1).map(whole);
  return args.every(isNumber) ? FUNCTIONS[e[0]].value(...args.map(numberOf)) : [e[0], ...args];
}

/**
 * `known`: variable → number. Indices are computed and conditions decided; tokens' ids stand where they are looked up.
 * @param {Tree} e @param {Known} known @param {FileRun["texts"]} [ids] @returns {Tree}
 */
export function settled(e, known, ids = {}) {
  /** @param {Tree} part */
  const settle = (part) => settled(part, known, ids);
  if (isNumber(e)) return e;
  if (isVariable(e)) return known[e] ?? e;
  const [f, ...args] = e;
  if (isAt(e)) {
    const [name, ...entries] = args;
    const index = entries.map((i) => whole(settle(i)));
    const text = ids[name];
    return text && isNumber(index[0]) ? text[numberOf(index[0])] : ["at", name, ...index];
  }
  if (isOver(e)) return [f, e[1], e[2], settled(e[3], { ...known, [e[1]]: undefined }, ids)];
  if (f === "if" || f === "step") {
    const chosen = settle(args[0]);
    if (!isNumber(chosen)) return [f, chosen, ...args.slice(1).map(settle)];
    return settle(f === "step" ? args[1 + numberOf(chosen)] : args[numberOf(chosen) ? 1 : 2]);
  }
  const given = args.map(settle);
  return OF_INDICES.has(f) ? whole([f, ...given.map(whole)]) : [f, ...given];
}

// One number of a node.

/** @param {number[]} shape @param {number[]} index */
export const offsetOf = (shape, index) => index.reduce((offset, i, axis) => offset * shape[axis] + i, 0);
/** @param {FileTensor} fileTensor @param {number[]} index */
export const get = ({ shape, values }, index) => values[offsetOf(shape, index)];

/**
 * How formulas read operands that have come.
 * @template {FileTensor} T
 * @param {Map<string, T>} operands @returns {(name: string) => T}
 */
export const readFrom = (operands) => (name) => {
  const found = operands.get(name);
  if (!found) throw new Error(`${name} is read by a formula and was not fetched`);
  return found;
};

const ADDITIONS = 4; // roundings of a sum's size, and half a root of its length

/**
 * [value, how far a run may be from it in units of its number format's epsilon], in float64. read(name) → {shape, values}.
 * Each operation adds what it rounds, and passes on by its slopes what its operands were off.
 * @param {Tree} e @param {Read} read @param {{ [variable: string]: number }} [bound] @param {Map<Tree, [number, number]>} [once]
 * @returns {[value: number, off: number]}
 */
export function rounding(e, read, bound = {}, once = new Map()) {
  /** @param {Tree} part */
  const inside = (part) => rounding(part, read, bound, once);
  if (isNumber(e)) {
    const x = numberOf(e);
    return [x, Number.isInteger(x) || !Number.isFinite(x) ? 0 : Math.abs(x)];
  }
  if (isVariable(e)) return [bound[e], 0];
  if (isAt(e))
    return [
      get(
        read(e[1]),
        e.slice(2).map((i) => inside(i)[0]),
      ),
      0,
    ];
  if (isOver(e)) return over(e, read, bound, once);
  const [f, ...args] = e;
  if (f === "if") return inside(args[inside(args[0])[0] ? 1 : 2]);
  const { value, slopes, ulps } = FUNCTIONS[f];
  const given = args.map(inside);
  const values = given.map(([x]) => x);
  const made = value(...values);
  const own = Number.isFinite(made) ? ulps * Math.abs(made) : 0;
  const passed = slopes.map((slope, i) => (given[i][1] === 0 ? 0 : Math.abs(slope(...values)) * given[i][1]));
  return [made, passed.reduce((a, b) => a + b, own)];
}

/**
 * A sum, or a largest value. What rests on no other variable (the largest exponent of a softmax) is found once.
 * @param {OverTree} e @param {Read} read @param {{ [variable: string]: number }} bound @param {Map<Tree, [number, number]>} once
 * @returns {[value: number, off: number]}
 */
function over(e, read, bound, once) {
  const fixed = !freeIn(e).size;
  const known = once.get(e);
  if (known) return known;
  const [how, name, n, body] = e;
  const here = { ...bound };
  let [sum, size, off, most] = [0, 0, 0, -Infinity];
  for (here[name] = 0; here[name] < n; here[name]++) {
    const [x, error] = rounding(body, read, here, once);
    sum += x;
    size += Math.abs(x);
    off += error;
    most = Math.max(most, x);
  }
  /** @type {[number, number]} */
  const found = how === "max" ? [most, 0] : [sum, off + (ADDITIONS + Math.sqrt(n) / 2) * size];
  if (fixed) once.set(e, found);
  return found;
}
