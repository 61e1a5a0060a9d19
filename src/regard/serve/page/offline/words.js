/**
 * How formulas write names and numbers, the same as the terminal and the server do.
 *
 * In: names of nodes and weights, indices, numbers, tokens. Out: text, LaTeX and Python.
 */

const LETTERS = {
  ...{ dots: "QKᵀ", scores: "S", masked: "S", weights: "A", Q_rotated: "Q′", K_rotated: "K′", probabilities: "p" },
  ...{ mean: "μ", variance: "σ²", mean_square: "ms", normalised: "x̂" },
};
const LATEX = {
  ...{ "QKᵀ": "(QK^\\top)", "Q′": "Q'", "K′": "K'", μ: "\\mu", "σ²": "\\sigma^2", "x̂": "\\hat{x}" },
  ...{ ms: "\\overline{x^2}", γ: "\\gamma", β: "\\beta" },
};
const TABLES = { tokens: "E", positions: "P", types: "T" };

/** What a formula calls a node or a weight. */
export function letter(name) {
  const [last, own = ""] = name.split(".").reverse();
  if (last === "weight" || last === "bias") {
    if (own.includes("norm")) return last === "weight" ? "γ" : "β";
    if (last === "bias") return "b";
    return TABLES[own] ?? (own.startsWith("W_") ? own : `W_${own}`);
  }
  return LETTERS[last] ?? (last === "out" && own ? `${own}.out` : last);
}

export const place = (name, index) => (index.length ? `${letter(name)}[${index.join(", ")}]` : letter(name));

export function subscript(name, index) {
  const plain = letter(name);
  let symbol = LATEX[plain] ?? (plain.startsWith("W_") ? `W_{${plain.slice(2)}}` : plain);
  const word = symbol.length > 1 && !"\\(W".includes(symbol[0]) && !symbol.endsWith("'");
  if (word) symbol = `\\mathrm{${symbol.replaceAll("_", "\\_")}}`;
  return `{${symbol}}_{${index.join(",")}}`;
}

/** Python for some of a node's numbers, in float64. */
export const at = (name, index) => `trace["${name}"][${index.join(", ") || "..."}].double()`;

/** A number in `digits` significant ones: fixed point where that is short, otherwise a power of ten. */
export function number(x, digits = 4) {
  if (!Number.isFinite(x)) return Number.isNaN(x) ? "nan" : x < 0 ? "-∞" : "∞";
  if (x === 0) return Object.is(x, -0) ? "-0" : "0";
  const [mantissa, exponent] = x.toExponential(digits - 1).split("e");
  const power = Number(exponent);
  if (power < -4 || power >= digits) return trimmed(mantissa) + exponential(power);
  return trimmed(x.toFixed(Math.max(0, digits - 1 - power)));
}

const exponential = (power) => `e${power < 0 ? "-" : "+"}${String(Math.abs(power)).padStart(2, "0")}`;
const trimmed = (text) => (text.includes(".") ? text.replace(/\.?0+$/, "") : text);

/** A number as Python writes it: as short as it can be read back. */
export function literal(x) {
  const [mantissa, exponent] = x.toExponential().split("e");
  const power = Number(exponent);
  if (x !== 0 && (power < -4 || power >= 16)) return mantissa + exponential(power);
  return Number.isInteger(x) ? `${Object.is(x, -0) ? "-0" : x}.0` : String(x);
}

/** A token in quotes, with what cannot be seen written out. */
export function quoted(text) {
  const mark = text.includes("'") && !text.includes('"') ? '"' : "'";
  const shown = [...text].map((c) => {
    if (c === "\\" || c === mark) return `\\${c}`;
    const short = { "\n": "\\n", "\r": "\\r", "\t": "\\t" }[c];
    if (short) return short;
    if (c === " " || !/[\p{C}\p{Z}]/u.test(c)) return c;
    const code = c.codePointAt(0).toString(16);
    const [kind, length] = code.length <= 2 ? ["x", 2] : code.length <= 4 ? ["u", 4] : ["U", 8];
    return `\\${kind}${code.padStart(length, "0")}`;
  });
  return mark + shown.join("") + mark;
}

export const grouped = (n) => String(n).replace(/\B(?=(\d{3})+$)/g, ",");
