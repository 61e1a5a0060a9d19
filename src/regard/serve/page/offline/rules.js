/**
 * Why a number is what it is: one rule per operation, from an index to the operands it was made of, in float64.
 *
 * In: a node, an index and its operands {name, shape, values}. Out: {recomputed, values, make, signs, rounding, symbols,
 * numbers, latex, python, note}; `values` are the terms, `make(k)` gives the factors of one, and `signs` what stands before,
 * between and after them where they are no product. `why.js` asks them.
 */

import { bend, rowOf, shares, sine as sineOf, turn, visible } from "regard/offline/compute.js";
import { at, grouped, letter, literal, number, place, quoted, subscript } from "regard/offline/words.js";

const ROOTED = 1e-9;
const FORMULAS = {
  gelu: "x · Φ(x)",
  gelu_tanh: "x/2 · (1 + tanh(√(2/π)(x + 0.044715 x³)))",
  relu: "max(0, x)",
  silu: "x / (1 + e^-x)",
  tanh: "tanh(x)",
};

/** One number of an operand. */
export function get({ shape, values }, index) {
  return values[index.reduce((offset, i, axis) => offset * shape[axis] + i, 0)];
}

/** A factor that can be asked in turn. `token`: the one whose number it is, if the terms differ in it. */
export function factor(x, index, token) {
  const label = place(x.name, index) + (token === undefined ? "" : ` ${quoted(token)}`);
  return { node: x.name, index, value: get(x, index), label };
}

export const constant = (value, label) => ({ node: "", index: [], value, label });

/** Indices of the terms, largest first. */
export const ordered = (values) => [...values.keys()].sort((a, b) => Math.abs(values[b]) - Math.abs(values[a]) || a - b);

const total = (values) => values.reduce((a, b) => a + b, 0);
const size = (values) => values.reduce((a, b) => a + Math.abs(b), 0);
const rounds = (n) => 4 + Math.sqrt(n) / 2;
const times = (factors) => factors.map(({ value }) => number(value)).join(" × ");

/** A sum of products. make(k) → factors. */
export function sumOf(values, make, symbols, latex, python, note = "") {
  const order = ordered(values);
  const shown = order.slice(0, 3).map((k) => times(make(k)));
  const left = order.slice(3);
  if (left.length) shown.push(`… (${grouped(left.length)} more: ${number(total(left.map((k) => values[k])))})`);
  const sum = total(values);
  const rounding = size(values) * rounds(values.length);
  const worked = { symbols, numbers: shown.join(" + "), latex: `${latex} = ${number(sum)}`, python, note };
  return { recomputed: sum, values, make, rounding, ...worked };
}

/** One term that is the value itself. */
const single = (value, factors, rest) => ({ recomputed: value, values: [value], make: () => factors, note: "", ...rest });

/** x W + b for one column. parts: [{x, before}]: pieces of x side by side, each an operand and an index but for the last. */
function product(asked, parts, W, column, b) {
  const along = ({ x, before }) => Array.from({ length: x.shape.at(-1) }, (_, k) => ({ x, index: [...before, k] }));
  const places = parts.flatMap(along);
  const values = places.map(({ x, index }, k) => get(x, index) * get(W, [k, column]));
  if (b) values.push(b.values[column]);
  const pair = (k) => [factor(places[k].x, places[k].index), factor(W, [k, column])];
  const make = (k) => (k === places.length ? [factor(b, [column])] : pair(k));
  const [{ x, before }] = parts;
  const many = parts.length > 1;
  const left = many ? `(${parts.map((part) => letter(part.x.name)).join(" ⊕ ")})` : letter(x.name);
  const head = before.join(", ");
  let symbols = `Σ_k ${left}[${head ? `${head}, ` : ""}k] · ${letter(W.name)}[k, ${column}]`;
  let latex = `${asked.left} = \\sum_k ${subscript(x.name, [...before, "k"])} ${subscript(W.name, ["k", column])}`;
  const written = (part) => (part.before.length ? at(part.x.name, part.before) : `trace["${part.x.name}"].double()`);
  const joined = parts.map(written).join(", ");
  let python = `(${many ? `torch.cat([${joined}])` : joined} @ ${at(W.name, [":", column])}`;
  if (b) {
    symbols += ` + ${letter(b.name)}[${column}]`;
    latex += ` + ${subscript(b.name, [column])}`;
    python += ` + ${at(b.name, [column])}`;
  }
  return sumOf(values, make, symbols, latex, `${python})`);
}

const grouping = (Q, K) => Q.shape[0] / K.shape[0];

export const RULES = {
  linear(asked, { facts }, [X, W, b]) {
    const { index } = asked;
    const column = facts.split ? index[0] * facts.split + index.at(-1) : index.at(-1);
    const row = facts.row === undefined ? index.at(-2) : facts.row < 0 ? X.shape[0] + facts.row : facts.row;
    return product(asked, [{ x: X, before: X.shape.length === 1 ? [] : [row] }], W, column, b);
  },

  concat(asked, node, [Z, W, b]) {
    const [i, column] = asked.index;
    const heads = Z.shape[0];
    const sideBySide = Array.from({ length: heads }, (_, head) => ({ x: Z, before: [head, i] }));
    const found = product(asked, sideBySide, W, column, b);
    const sides = heads > 1 ? `(${Array(heads).fill("Z").join(" ⊕ ")})` : "Z";
    const symbols = heads > 1 ? found.symbols.replace(`${sides}[0, ${i}, k]`, `Z[all heads, ${i}][k]`) : found.symbols;
    const bias = b ? ` + ${at(b.name, [column])}` : "";
    const python = `(trace["${Z.name}"][:, ${i}].flatten().double() @ ${at(W.name, [":", column])}${bias})`;
    return { ...found, symbols, python, note: "" };
  },

  joined(asked, node, [states, Z, Y, W, b]) {
    const [t, column] = asked.index;
    return product(asked, [{ x: states, before: [t] }, { x: Z, before: [0, t] }, { x: Y, before: [t] }], W, column, b);
  },

  dot(asked, node, [Q, K]) {
    const [head, i, j] = asked.index;
    const group = Math.floor(head / grouping(Q, K));
    const values = Array.from({ length: Q.shape[2] }, (_, c) => get(Q, [head, i, c]) * get(K, [group, j, c]));
    const make = (c) => [factor(Q, [head, i, c]), factor(K, [group, j, c])];
    const symbols = `Σ_c ${letter(Q.name)}[${head}, ${i}, c] · ${letter(K.name)}[${group}, ${j}, c]`;
    const latex = `${asked.left} = \\sum_c ${subscript(Q.name, [head, i, "c"])} ${subscript(K.name, [group, j, "c"])}`;
    return sumOf(values, make, symbols, latex, `(${at(Q.name, [head, i])} @ ${at(K.name, [group, j])})`);
  },

  mix(asked, node, [A, V]) {
    const [head, i, c] = asked.index;
    const before = V.shape.length === 3 ? [Math.floor(head / grouping(A, V))] : [];
    const values = Array.from({ length: A.shape[2] }, (_, j) => get(A, [head, i, j]) * get(V, [...before, j, c]));
    const make = (j) => [factor(A, [head, i, j]), factor(V, [...before, j, c], asked.tokens(V.name, before.length)[j])];
    const symbols = `Σ_j A[${head}, ${i}, j] · ${letter(V.name)}[${[...before, "j", c].join(", ")}]`;
    const latex = `${asked.left} = \\sum_j ${subscript(A.name, [head, i, "j"])} ${subscript(V.name, [...before, "j", c])}`;
    return sumOf(values, make, symbols, latex, `(${at(A.name, [head, i])} @ ${at(V.name, [...before, ":", c])})`);
  },

  softmax(asked, node, [x]) {
    const before = asked.index.slice(0, -1);
    const j = asked.index.at(-1);
    const width = x.shape.at(-1);
    const from = before.reduce((offset, i, axis) => offset * x.shape[axis] + i, 0) * width;
    const row = x.values.subarray(from, from + width);
    const most = row.reduce((a, b) => Math.max(a, b), -Infinity);
    const below = total(Float64Array.from(row, (s) => Math.exp(s - most)));
    const values = shares(row);
    const label = before.length === 2 ? (k) => asked.tokens(x.name, 2)[k] : () => undefined;
    const make = (k) => [factor(x, [...before, k], label(k))];
    const fraction = { s: row[j], most, below, count: width, value: values[j], hidden: row.includes(-Infinity) };
    return softmaxed(asked, x.name, before, fraction, { values, make });
  },

  scale(asked, { facts }, [x]) {
    const { index, left } = asked;
    const value = get(x, index);
    const rooted = Math.abs(facts.scale - facts.d_k ** -0.5) <= ROOTED * facts.scale;
    const shown = rooted ? `1/√${facts.d_k}` : number(facts.scale);
    const right = rooted
      ? `\\frac{${number(value)}}{\\sqrt{${facts.d_k}}}`
      : `${number(facts.scale)} \\cdot ${number(value)}`;
    const scaled = value * facts.scale;
    return single(scaled, [factor(x, index), constant(facts.scale, shown)], {
      rounding: 4 * Math.abs(scaled),
      symbols: `${place(x.name, index)} · ${shown}`,
      numbers: `${number(value)} · ${shown}`,
      latex: `${left} = ${right} = ${number(scaled)}`,
      python: `(${at(x.name, index)} * ${literal(facts.scale)})`,
    });
  },

  mask(asked, { facts: { window } }, [x]) {
    const { index, left } = asked;
    const [, i, j] = index;
    const value = get(x, index);
    const seen = visible(i, j, window);
    const reason = j > i ? "it comes later" : `it is ${i - j} back, and the last ${window} are seen, itself included`;
    const found = single(seen ? value : -Infinity, [factor(x, index)], {
      rounding: 0,
      symbols: seen ? place(x.name, index) : "-∞",
      numbers: seen ? number(value) : "",
      latex: `${left} = ${seen ? number(value) : "-\\infty"}`,
      python: seen ? at(x.name, index) : "-math.inf",
      note: seen ? "" : `Token ${i} may not look at token ${j}: ${reason}. e^-∞ is 0, so its weight will be 0.`,
    });
    return seen ? found : { ...found, values: [] };
  },

  add(asked, node, operands) {
    const factors = operands.map((x) => factor(x, asked.index));
    const latex = `${asked.left} = ${operands.map((x) => subscript(x.name, asked.index)).join(" + ")}`;
    const python = operands.map((x) => at(x.name, asked.index)).join(" + ");
    const symbols = factors.map(({ label }) => label).join(" + ");
    return sumOf(factors.map(({ value }) => value), (k) => [factors[k]], symbols, latex, `(${python})`);
  },

  copy: (asked, node, [x]) => RULES.add(asked, node, [x]),

  lookup(asked, { facts }, [table]) {
    const [i, c] = asked.index;
    const row = rowOf(facts, i, asked.run);
    const scale = facts.scale ?? 1;
    const x = factor(table, [row, c]);
    const value = x.value * scale;
    const scaled = scale === 1 ? "" : ` · ${number(scale)}`;
    const whats = { ids: `token ${i} has the id ${row}`, positions: `position ${i}`, types: "all tokens are of type 0" };
    const what = whats[facts.rows];
    return single(value, scale === 1 ? [x] : [x, constant(scale, "scale")], {
      rounding: 4 * Math.abs(value),
      symbols: x.label + scaled,
      numbers: scaled ? number(x.value) + scaled : "",
      latex: `${asked.left} = ${subscript(table.name, [row, c])}${scaled.replace("·", "\\cdot")} = ${number(value)}`,
      python: `(${at(table.name, [row, c])} * ${literal(scale)})`,
      note: `A row of the table ${table.name}: ${what}.`,
    });
  },

  sine(asked, { facts: { module } }) {
    const { name, exponent, angle, position, value } = sineOf(module, ...asked.index);
    const symbols = `${name}(p / 10000^${number(exponent)}) with p = ${position}`;
    return single(value, [constant(value, symbols)], {
      rounding: 4,
      symbols,
      numbers: `${name}(${number(angle)})`,
      latex: `${asked.left} = \\${name}(${position}/10000^{${number(exponent)}}) = ${number(value)}`,
      python: `math.${name}(${position} / 10000 ** ${literal(exponent)})`,
      note: "Computed from the position, not learned.",
    });
  },

  rotate(asked, { facts: { module } }, [X]) {
    const [head, i, c] = asked.index;
    const half = X.shape[2] / 2;
    const { other, cos, sin } = turn(module, i, c, X.shape[2]);
    const [x, y] = [factor(X, [head, i, c]), factor(X, [head, i, other])];
    const [first, Q] = [c < half, letter(X.name)];
    const angle = `${i}·θ_${c % half}`;
    const sign = first ? "-" : "+";
    const made = [[x, constant(cos, `cos(${angle})`)], [y, constant(sin, `${first ? "-" : ""}sin(${angle})`)]];
    const symbols = `${Q}[${head}, ${i}, ${c}] · cos(${angle}) ${sign} ${Q}[${head}, ${i}, ${other}] · sin(${angle})`;
    const turned = (name, k) => `${subscript(X.name, [head, i, k])}\\${name}(${i}\\theta_{${c % half}})`;
    const latex = `${asked.left} = ${turned("cos", c)} ${sign} ${turned("sin", other)}`;
    const python = `(${at(X.name, [head, i, c])} * ${literal(cos)} + ${at(X.name, [head, i, other])} * ${literal(sin)})`;
    const note = `The pair (${c % half}, ${(c % half) + half}) is turned by position ${i} times its frequency θ_${c % half}.`;
    return sumOf([x.value * cos, y.value * sin], (k) => made[k], symbols, latex, python, note);
  },

  mean: averaged(1),
  mean_square: averaged(2),

  variance(asked, node, [x, mean]) {
    const [i] = asked.index;
    const d = x.shape[1];
    const mu = get(mean, [i, 0]);
    const row = Array.from({ length: d }, (_, k) => get(x, [i, k]));
    const values = row.map((v) => (v - mu) ** 2 / d);
    const sum = total(values);
    const shown = ordered(values).slice(0, 3).map((k) => `(${number(row[k])} - ${number(mu)})²`);
    const spread = total(row.map((v) => Math.abs(v - mu) * (Math.abs(v) + Math.abs(mu) + Math.abs(v - mu)))) / d;
    return {
      recomputed: sum,
      values,
      make: (k) => [factor(x, [i, k]), factor(mean, [i, 0])],
      signs: ["(", " - ", `)² / ${d}`],
      rounding: spread * 2 * rounds(d),
      symbols: `1/${d} Σ_k (${letter(x.name)}[${i}, k] - μ[${i}])²`,
      numbers: `1/${d} · (${shown.join(" + ")} + …)`,
      latex: `${asked.left} = \\frac{1}{${d}}\\sum_k (${subscript(x.name, [i, "k"])} - \\mu)^2 = ${number(sum)}`,
      python: `((${at(x.name, [i])} - ${at(mean.name, [i, 0])}) ** 2).mean()`,
      note: "The mean of the squared distances from the mean (divided by d, not d - 1).",
    };
  },

  normalise(asked, { facts: { eps } }, [X, spread, mean]) {
    const [i, c] = asked.index;
    const [x, square, mu] = [get(X, [i, c]), get(spread, [i, 0]), mean ? get(mean, [i, 0]) : 0];
    const root = Math.sqrt(square + eps);
    const value = (x - mu) / root;
    const middle = mean ? [factor(mean, [i, 0])] : [];
    const factors = [factor(X, [i, c]), ...middle, factor(spread, [i, 0]), constant(eps, "ε")];
    const away = mean ? ` - ${at(mean.name, [i, 0])}` : "";
    const own = `${letter(X.name)}[${i}, ${c}]`;
    const top = mean ? `${number(x)} - ${number(mu)}` : number(x);
    return single(value, factors, {
      signs: mean ? ["(", " - ", ") / √(", " + ", ")"] : ["", " / √(", " + ", ")"],
      rounding: (8 * (Math.abs(x) + Math.abs(mu) + Math.abs(x - mu))) / root,
      symbols: mean ? `(${own} - μ[${i}]) / √(σ²[${i}] + ε)` : `${own} / √(ms[${i}] + ε)`,
      numbers: `${mean ? `(${top})` : top} / √(${number(square)} + ${number(eps, 6)})`,
      latex: `${asked.left} = \\frac{${top}}{\\sqrt{${number(square)} + ${number(eps, 6)}}} = ${number(value)}`,
      python: `((${at(X.name, [i, c])}${away}) / (${at(spread.name, [i, 0])} + ${literal(eps)}).sqrt())`,
    });
  },

  affine(asked, node, [X, gamma, beta]) {
    const [i, c] = asked.index;
    const [x, g] = [factor(X, [i, c]), factor(gamma, [c])];
    const terms = [[x, g], ...(beta ? [[factor(beta, [c])]] : [])];
    const symbols = `x̂[${i}, ${c}] · γ[${c}]${beta ? ` + β[${c}]` : ""}`;
    const latex = `${asked.left} = \\hat{x}_{${i},${c}} \\gamma_{${c}}${beta ? ` + \\beta_{${c}}` : ""}`;
    const python = `(${at(X.name, [i, c])} * ${at(gamma.name, [c])}${beta ? ` + ${at(beta.name, [c])})` : ")"}`;
    const values = terms.map((factors) => factors.reduce((a, { value }) => a * value, 1));
    return sumOf(values, (k) => terms[k], symbols, latex, python);
  },

  activation(asked, { facts: { function: kind } }, [X]) {
    const x = factor(X, asked.index);
    const value = bend(kind, x.value);
    return single(value, [x], {
      signs: [`${kind}(`, ")"],
      rounding: 16 * (Math.abs(value) + Math.min(Math.abs(x.value), 1)),
      symbols: `${kind}(${x.label})`,
      numbers: `${kind}(${number(x.value)})`,
      latex: `${asked.left} = \\mathrm{${kind.replaceAll("_", "\\_")}}(${number(x.value)}) = ${number(value)}`,
      python: `regard.nn.mlp.ACTIVATIONS["${kind}"](${at(X.name, asked.index)})`,
      note: `${kind}(x) = ${FORMULAS[kind]}`,
    });
  },

  gate(asked, node, operands) {
    const factors = operands.map((x) => factor(x, asked.index));
    const value = factors[0].value * factors[1].value;
    const latex = `${asked.left} = ${number(factors[0].value)} \\cdot ${number(factors[1].value)}`;
    const symbols = factors.map(({ label }) => label).join(" · ");
    const python = operands.map((x) => at(x.name, asked.index)).join(" * ");
    return sumOf([value], () => factors, symbols, latex, `(${python})`);
  },
}; // prettier-ignore

/** The mean of a token's features, or of their squares. */
function averaged(power) {
  return (asked, node, [x]) => {
    const [i] = asked.index;
    const d = x.shape[1];
    const values = Array.from({ length: d }, (_, k) => get(x, [i, k]) ** power / d);
    const make = (k) => [...Array(power).fill(factor(x, [i, k])), constant(1 / d, `1/${d}`)];
    const symbols = `1/${d} Σ_k ${letter(x.name)}[${i}, k]${power === 2 ? "²" : ""}`;
    const latex = `${asked.left} = \\frac{1}{${d}}\\sum_k ${subscript(x.name, [i, "k"])}${power === 2 ? "^2" : ""}`;
    return sumOf(values, make, symbols, latex, `(${at(x.name, [i])} ** ${power}).mean()`);
  };
}

/** The fraction of a softmax in words; also of one whose denominator is known only as a sum. */
export function softmaxed(asked, name, before, { s, most, below, count, value, hidden = false }, { values, make }) {
  const j = asked.index.at(-1);
  const [shift, unit] = Math.abs(most) < 30 ? ["", Math.exp(most)] : [` - ${number(most)}`, 1];
  const S = letter(name);
  const exponent = `${number(s)}${shift}`;
  const row = [...before, "k"];
  return {
    recomputed: value,
    values,
    make,
    signs: ["e^", " / Σ"],
    rounding: value * (16 + Math.sqrt(count) + 2 * (value ? most - s : 0)) + 1e-30,
    symbols: `e^${S}[${asked.index.join(", ")}] / Σ_k e^${S}[${row.join(", ")}]`,
    numbers: `e^(${exponent}) / Σ_k e^(…${shift}) = ${number(Math.exp(s - most) * unit)} / ${number(below * unit)}`,
    latex: `${asked.left} = \\frac{e^{${exponent}}}{\\sum_k e^{${subscript(name, row)}${shift}}} = ${number(value)}`,
    python: `${at(name, before)}.softmax(-1)[${j}]`,
    note: `The terms are the shares of the sum below the line${hidden ? "; hidden keys have a share of 0" : ""}.`,
  };
}
