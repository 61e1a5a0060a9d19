/**
 * A formula written out: in symbols, in LaTeX, in Python, character by character as explain/render.py writes it.
 *
 * In: a tree for one number, its index filled in, and the letters that the file gives for names. Out: text.
 */

import { isAt, isCall, isNumber, isOver, isVariable, labelOf, numberOf, partsOf } from "regard/offline/formula.js";

// Numbers and tokens.

/**
 * Significant digits as Python rounds them: a tie goes to the even digit. → [digits, power of ten]
 * @param {number} x @param {number} digits @returns {[digits: string, power: number]}
 */
function rounded(x, digits) {
  const [near, exact] = [x.toExponential(digits - 1), x.toExponential(digits + 25)].map((text) =>
    text.replace(".", "").split("e"),
  );
  const [kept, left] = [exact[0].slice(0, digits), exact[0].slice(digits)];
  return /^50*$/.test(left) && Number(kept.at(-1)) % 2 === 0 ? [kept, Number(exact[1])] : [near[0], Number(near[1])];
}

/**
 * A number in `digits` significant ones: fixed point where that is short, otherwise a power of ten.
 * @param {number} x @param {number} [digits]
 */
export function number(x, digits = 4) {
  if (!Number.isFinite(x)) return Number.isNaN(x) ? "nan" : x < 0 ? "-∞" : "∞";
  if (x === 0) return Object.is(x, -0) ? "-0" : "0";
  const sign = x < 0 ? "-" : "";
  const [found, power] = rounded(Math.abs(x), digits);
  if (power < -4 || power >= digits) return sign + trimmed(`${found[0]}.${found.slice(1)}`) + exponential(power);
  if (power < 0) return sign + trimmed(`0.${"0".repeat(-power - 1)}${found}`);
  return sign + trimmed(`${found.slice(0, power + 1)}.${found.slice(power + 1)}`);
}

/** @param {number} power */
const exponential = (power) => `e${power < 0 ? "-" : "+"}${String(Math.abs(power)).padStart(2, "0")}`;
/** @param {string} text */
const trimmed = (text) => text.replace(/\.?0*$/, "");

/**
 * What belongs to a formula is not rounded where a few digits write it.
 * @param {number} x
 */
const constant = (x) => number(x, 9);

/**
 * A number as Python writes it: as short as it can be read back.
 * @param {number} x
 */
function literal(x) {
  if (x === -Infinity) return "-np.inf";
  if (Number.isInteger(x) && Math.abs(x) < 2 ** 53) return String(x);
  const [mantissa, exponent] = x.toExponential().split("e");
  const power = Number(exponent);
  return power < -4 || power >= 16 ? mantissa + exponential(power) : String(x);
}

/** @param {number} n */
export const grouped = (n) => String(n).replace(/\B(?=(\d{3})+$)/g, ",");

/**
 * A token in quotes, with what cannot be seen written out.
 * @param {string} text
 */
export function quoted(text) {
  const mark = text.includes("'") && !text.includes('"') ? '"' : "'";
  const shown = [...text].map((c) => {
    if (c === "\\" || c === mark) return `\\${c}`;
    const short = { "\n": "\\n", "\r": "\\r", "\t": "\\t" }[c];
    if (short) return short;
    if (c === " " || !/[\p{C}\p{Z}]/u.test(c)) return c;
    const code = (c.codePointAt(0) ?? 0).toString(16);
    const [kind, length] = code.length <= 2 ? ["x", 2] : code.length <= 4 ? ["u", 4] : ["U", 8];
    return `\\${kind}${code.padStart(length, "0")}`;
  });
  return mark + shown.join("") + mark;
}

// How tightly a formula is held together: what is weaker than its surroundings is put into brackets.

/** @type {{ [f: string]: number }} */
const PRECEDENCE = { "+": 1, "-": 1, neg: 1, "·": 2, weigh: 2, "/": 2, "^": 3, exp: 3 };
/** @type {{ [power: number]: string }} */
const RAISED = { 2: "²", 3: "³" };

/** @param {Tree} e */
function strength(e) {
  if (isNumber(e)) return labelOf(e).includes("/") ? 2 : numberOf(e) < 0 ? 1 : 4;
  if (isCall(e, "shift")) return strength(e[1]);
  if (isOver(e)) return e[0] === "Σ" ? 2 : 4;
  return isCall(e) ? (PRECEDENCE[e[0]] ?? 4) : 4;
}

/**
 * How tightly the two sides of an operator must be held together.
 * @param {string} f @param {Tree} b
 */
const sides = (f, b) =>
  ({
    "+": [1, 1],
    "-": [1, 2],
    "·": [2, isOver(b) ? 3 : 2],
    weigh: [2, isOver(b) ? 3 : 2],
    "/": [2, isOver(b) ? 2 : 3],
    "^": [4, 4],
    "//": [2, 3],
    "%": [2, 3],
  })[f] ?? [0, 0];

/**
 * Text, and in turn the numbers that a person can look at: reads, and constants with a name.
 * @param {Tree} e @param {string} [times] @returns {Tree[]}
 */
export function pieces(e, times = " · ") {
  const inner = (/** @type {Tree} */ x, /** @type {number} */ least) =>
    strength(x) < least ? ["(", ...pieces(x, times), ")"] : pieces(x, times);
  if (isNumber(e)) return [labelOf(e) ? e : constant(numberOf(e))];
  if (isVariable(e) || isAt(e)) return [e];
  if (isOver(e)) return [`${e[0]}_${e[1]} `, ...inner(e[3], 2)];
  const [f, a, b] = e;
  const [left, right] = sides(f, b);
  if (f === "shift") return pieces(a, times); // what is taken from every exponent cancels
  if (f === "+" || f === "-" || f === "/") return [...inner(a, left), ` ${f} `, ...inner(b, right)];
  if (f === "·" || f === "weigh") return [...inner(a, left), times, ...inner(b, right)];
  if (f === "^")
    return [...inner(a, left), ...(isNumber(b) && RAISED[numberOf(b)] ? [RAISED[numberOf(b)]] : ["^", ...inner(b, right)])];
  if (f === "neg") return ["-", ...inner(a, 3)];
  if (f === "exp") return ["e^", ...inner(a, 4)];
  if (f === "sqrt") return ["√(", ...pieces(a, times), ")"];
  if (f === "//") return ["⌊", ...inner(a, left), "/", ...inner(b, right), "⌋"];
  if (f === "%") return [...inner(a, left), " mod ", ...inner(b, right)];
  const args = e.slice(1).flatMap((arg, i) => [...(i ? [", "] : []), ...pieces(arg, times)]);
  return [`${f}(`, ...args, ")"];
}

/** @param {Tree[]} listed @param {(piece: any) => string} write */
export const joined = (listed, write) => listed.map((piece) => (typeof piece === "string" ? piece : write(piece))).join("");

// Python.

/** @type {{ [f: string]: string }} */
const OPERATORS = {
  ...{ "+": "+", "-": "-", shift: "-", "·": "*", "/": "/", "^": "**" },
  ...{ "//": "//", "%": "%", "≤": "<=", "<": "<", "=": "==" },
};
/** @type {{ [f: string]: string }} */
const CALLED = {
  ...{ exp: "np.exp", sqrt: "np.sqrt", tanh: "np.tanh", erf: "math.erf", sin: "np.sin", cos: "np.cos" },
  ...{ max: "np.maximum", and: "np.logical_and", neg: "-" },
};

/**
 * An expression that computes the number from `trace`. whole: variables that are arrays of indices → how many.
 * @param {Tree} e @param {{ [name: string]: number }} [whole] @returns {string}
 */
export function python(e, whole = {}) {
  const inner = (/** @type {Tree} */ x) => python(x, whole);
  if (isNumber(e)) return literal(numberOf(e));
  if (isVariable(e)) return e in whole ? `np.arange(${whole[e]})` : e.replaceAll("′", "_");
  if (isAt(e)) return `np.float64(trace["${e[1]}"][${indices(e.slice(2), whole)}])`;
  const [f, a, b, c] = e;
  if (isOver(e)) {
    const how = f === "Σ" ? "sum" : "max";
    return oneByOne(c) ? `${how}(${python(c)} for ${python(a)} in range(${b}))` : `${python(c, { [a]: b })}.${how}()`;
  }
  if (f === "if") return `(${inner(b)} if ${inner(a)} else ${inner(c)})`;
  if (f === "weigh") return `np.where(${inner(a)} == 0, 0, ${inner(a)} * ${inner(b)})`;
  if (f in OPERATORS) return `(${inner(a)} ${OPERATORS[f]} ${inner(b)})`;
  return `${CALLED[f]}(${e.slice(1).map(inner).join(", ")})`;
}

/**
 * Whether a sum's body cannot be computed for all indices at once: it chooses between arrays, or holds other sums.
 * @param {Tree} e @returns {boolean}
 */
function oneByOne(e) {
  if (isCall(e, "shift")) return oneByOne(e[1]); // what is subtracted from all is the same for all
  return isOver(e) || isCall(e, "if") || (isCall(e) && partsOf(e).some(oneByOne));
}

/**
 * All along an axis is a colon, as long as no other entry needs to go along with it.
 * @param {Tree[]} index @param {{ [name: string]: number }} whole
 */
function indices(index, whole) {
  /** @param {Tree} i */
  const all = (i) => isVariable(i) && i in whole;
  const plain = index.filter(all).length === 1 && index.every((i) => isNumber(i) || isVariable(i));
  return index.map((i) => (plain && all(i) ? ":" : python(i, whole))).join(", ") || "...";
}

// What names a node or a weight: `letters` of the file, name → [in symbols, in LaTeX].

/** @param {string} text */
function latexNumber(text) {
  if (text.startsWith("1/√")) return `\\frac{1}{\\sqrt{${text.slice(3)}}}`;
  if (text.startsWith("√(") && text.endsWith(")")) return `\\sqrt{${text.slice(2, -1)}}`.replaceAll("π", "\\pi");
  if (text.startsWith("√")) return `\\sqrt{${text.slice(1)}}`;
  return text.replaceAll("∞", "\\infty").replaceAll("ε", "\\varepsilon");
}

/**
 * → {place, symbols, subscript, latex}.
 * @param {FileContents["letters"]} letters
 */
export function createWriter(letters) {
  /** @param {string} name @param {Tree[]} index */
  const place = (name, index) => {
    const entries = index.map((i) => joined(pieces(i, "·"), String));
    return entries.length ? `${letters[name][0]}[${entries.join(", ")}]` : letters[name][0];
  };
  /** @param {Tree} e */
  const symbols = (e) => joined(pieces(e), (x) => (isAt(x) ? place(x[1], x.slice(2)) : labelOf(x)));
  /** @param {string} name @param {Tree[]} index */
  const subscript = (name, index) => `{${letters[name][1]}}_{${index.map(latex).join(",")}}`;

  /** @param {Tree} e @returns {string} */
  function latex(e) {
    const inner = (/** @type {Tree} */ x, /** @type {number} */ least) =>
      strength(x) < least ? `(${latex(x)})` : latex(x);
    if (isNumber(e)) return latexNumber(labelOf(e) || constant(numberOf(e)));
    if (isVariable(e)) return e.replaceAll("′", "'");
    if (isAt(e)) return subscript(e[1], e.slice(2));
    if (isOver(e)) return `${e[0] === "Σ" ? "\\sum" : "\\max"}_{${e[1]}} ${inner(e[3], 2)}`;
    const [f, a, b] = e;
    const [left, right] = sides(f, b);
    if (f === "shift") return latex(a);
    if (f === "+" || f === "-") return `${inner(a, left)} ${f} ${inner(b, right)}`;
    if (f === "·" || f === "weigh")
      return `${inner(a, left)}${isNumber(a) || isNumber(b) ? " \\cdot " : " "}${inner(b, right)}`;
    if (f === "/") return `\\frac{${latex(a)}}{${latex(b)}}`;
    if (f === "^") return `${inner(a, left)}^{${latex(b)}}`;
    if (f === "neg") return `-${inner(a, 3)}`;
    if (f === "exp") return `e^{${latex(a)}}`;
    if (f === "sqrt") return `\\sqrt{${latex(a)}}`;
    if (f === "//") return `\\lfloor ${latex(a)}/${latex(b)} \\rfloor`;
    if (f === "%") return `${inner(a, left)} \\bmod ${inner(b, right)}`;
    const known = ["sin", "cos", "tanh", "max"].includes(f);
    return `${known ? `\\${f}` : `\\mathrm{${f}}`}(${e.slice(1).map(latex).join(", ")})`;
  }

  return { place, symbols, subscript, latex };
}
