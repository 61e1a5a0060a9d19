/**
 * The operations of a run, each from its operands to a whole node.
 *
 * In: a node {name, op, shape, inputs, facts}, its operands {shape, values} and the run's ids. Out: values (Float32Array),
 * summed in float64. A file that keeps only the base of a run computes the rest of it with these, and a file with weights
 * also what follows from an edit.
 */

/** Of the operations that need weights, these can be computed where the weights are in the file. */
export const OPERATIONS = {
  lookup({ shape: [N, d], facts }, [table], run) {
    const scale = facts.scale ?? 1;
    const rows = (i) => rowOf(facts, i, run);
    return each([N, d], ([i, c]) => table.values[rows(i) * d + c] * scale);
  },
  sine: ({ shape, facts: { module } }) => each(shape, ([i, c]) => sine(module, i, c).value),
  add: ({ shape }, operands) => each(shape, (_, k) => operands.reduce((sum, { values }) => sum + values[k], 0)),
  copy: (node, [x]) => x.values.slice(),
  linear({ shape, facts }, [X, W, b]) {
    const [d, columns] = W.shape;
    const one = facts.row !== undefined && X.shape.length > 1; // only one token's is computed
    const rows = one ? [(facts.row + X.shape[0]) % X.shape[0]] : [...Array(X.values.length / d).keys()];
    const flat = product(X.values, rows, W, b);
    return facts.split ? headed(flat, shape, columns, facts.split) : flat;
  },
  concat({ shape: [N] }, [Z, W, b]) {
    const [h, , d_k] = Z.shape;
    const side = new Float32Array(N * h * d_k); // heads side by side
    for (let head = 0; head < h; head++) {
      for (let i = 0; i < N; i++) side.set(block(Z.values, head * N + i, d_k), (i * h + head) * d_k);
    }
    return product(side, [...Array(N).keys()], W, b);
  },
  rotate({ shape, facts: { module } }, [X]) {
    const d_k = shape[2];
    return each(shape, ([, i, c], k) => {
      const { other, cos, sin } = turn(module, i, c, d_k);
      return X.values[k] * cos + X.values[k - c + other] * sin;
    });
  },
  dot({ shape }, [Q, K]) {
    const [d, T] = [Q.shape[2], K.shape[1]];
    const group = Q.shape[0] / K.shape[0];
    const [query, key] = [(h, i) => (h * Q.shape[1] + i) * d, (h, j) => (Math.floor(h / group) * T + j) * d];
    return each(shape, ([h, i, j]) => inner(Q.values, query(h, i), K.values, key(h, j), d));
  },
  scale: ({ shape, facts }, [x]) => each(shape, (_, k) => x.values[k] * facts.scale),
  mask: ({ shape, facts: { window } }, [x]) =>
    each(shape, ([, i, j], k) => (visible(i, j, window) ? x.values[k] : -Infinity)),
  softmax({ shape }, [x]) {
    const width = shape.at(-1);
    const out = new Float32Array(x.values.length);
    for (let at = 0; at < out.length; at += width) out.set(shares(x.values.subarray(at, at + width)), at);
    return out;
  },
  mix({ shape }, [A, V]) {
    const [h, N, d] = shape;
    const T = A.shape[2];
    const group = V.shape.length === 3 ? h / V.shape[0] : 0;
    return each([h, N, d], ([head, i, c]) => {
      const from = group ? Math.floor(head / group) * T * d : 0;
      let sum = 0;
      for (let j = 0; j < T; j++) sum += A.values[(head * N + i) * T + j] * V.values[from + j * d + c];
      return sum;
    });
  },
  mean: ({ shape }, [x]) => each(shape, ([i]) => average(rowsOf(x, i), (v) => v)),
  mean_square: ({ shape }, [x]) => each(shape, ([i]) => average(rowsOf(x, i), (v) => v * v)),
  variance: ({ shape }, [x, mean]) => each(shape, ([i]) => average(rowsOf(x, i), (v) => (v - mean.values[i]) ** 2)),
  normalise: ({ shape, facts }, [x, spread, mean]) =>
    each(shape, ([i], k) => (x.values[k] - (mean ? mean.values[i] : 0)) / Math.sqrt(spread.values[i] + facts.eps)),
  affine: ({ shape }, [x, gamma, beta]) =>
    each(shape, ([, c], k) => x.values[k] * gamma.values[c] + (beta ? beta.values[c] : 0)),
  activation: ({ shape, facts }, [x]) => each(shape, (_, k) => bend(facts.function, x.values[k])),
  gate: ({ shape }, [a, b]) => each(shape, (_, k) => a.values[k] * b.values[k]),
}; // prettier-ignore

/** Values of a shape, made from index and place. */
function each(shape, make) {
  const out = new Float32Array(shape.reduce((a, b) => a * b, 1));
  const index = shape.map(() => 0);
  for (let k = 0; k < out.length; k++) {
    out[k] = make(index, k);
    for (let axis = shape.length - 1; axis >= 0 && ++index[axis] === shape[axis]; axis--) index[axis] = 0;
  }
  return out;
}

export function inner(a, i, b, j, length) {
  let sum = 0;
  for (let k = 0; k < length; k++) sum += a[i + k] * b[j + k];
  return sum;
}

/** Chosen rows of X, times W, plus b: row after row. */
function product(X, rows, { shape: [d, columns], values: W }, b) {
  const out = new Float32Array(rows.length * columns);
  const sums = new Float64Array(columns);
  rows.forEach((row, at) => {
    sums.fill(0);
    if (b) sums.set(b.values);
    for (let k = 0; k < d; k++) {
      const x = X[row * d + k];
      for (let c = 0, w = k * columns; c < columns; c++, w++) sums[c] += x * W[w];
    }
    out.set(sums, at * columns);
  });
  return out;
}

/** (N, h·d_k) → (h, N, d_k). */
function headed(flat, [h, N, d_k], columns) {
  const out = new Float32Array(flat.length);
  for (let i = 0; i < N; i++) {
    for (let head = 0; head < h; head++) out.set(block(flat, (i * columns) / d_k + head, d_k), (head * N + i) * d_k);
  }
  return out;
}

const block = (values, k, size) => values.subarray(k * size, (k + 1) * size);

const rowsOf = ({ shape, values }, i) => values.subarray(i * shape[1], (i + 1) * shape[1]);

const average = (row, of) => row.reduce((sum, v) => sum + of(v), 0) / row.length;

/** e^x over its sum, in float64. */
export function shares(row) {
  const most = row.reduce((a, b) => Math.max(a, b), -Infinity);
  const powers = Float64Array.from(row, (x) => Math.exp(x - most));
  const total = powers.reduce((a, b) => a + b, 0);
  return powers.map((x) => x / total);
}

/** Which row of its table a lookup takes. */
export function rowOf({ rows, of, offset = 0 }, i, { ids, target_ids }) {
  return rows === "ids" ? (of === "target" ? target_ids : ids)[i] : rows === "positions" ? i + offset : 0;
}

export const visible = (i, j, window) => j <= i && (window === undefined || j > i - window);

/** A sinusoidal position: which function of which angle. */
export function sine({ d, halves, stretch, offset }, i, c) {
  const half = Math.floor(d / 2);
  const steps = stretch ? Math.max(half - 1, 1) : d / 2;
  const first = Math.floor((d + 1) / 2);
  const cosine = halves ? c >= first : c % 2 === 1;
  const [k, name] = [halves ? c % first : Math.floor(c / 2), cosine ? "cos" : "sin"];
  const exponent = k / steps;
  const angle = (i + offset) / 10000 ** exponent;
  return { name, exponent, angle, position: i + offset, value: Math[name](angle) };
}

/** A rotation by position: the feature it is paired with, and cosine and (signed) sine, rounded as the run rounds them. */
export function turn({ frequencies }, i, c, d_k) {
  const half = d_k / 2;
  const angle = Math.fround(i * Math.fround(frequencies[c % half]));
  const sin = Math.fround(Math.sin(angle));
  return { other: c < half ? c + half : c - half, cos: Math.fround(Math.cos(angle)), sin: c < half ? -sin : sin };
}

const BENDS = {
  gelu: (x) => 0.5 * x * erfc(-x / Math.SQRT2),
  gelu_tanh: (x) => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3))),
  relu: (x) => Math.max(0, x),
  silu: (x) => x / (1 + Math.exp(-x)),
  tanh: Math.tanh,
};

export const bend = (name, x) => BENDS[name](x);

/** 1 - erf(x) to float64: a series where it converges at once, a continued fraction where it is small. */
function erfc(x) {
  if (x < 0) return 2 - erfc(-x);
  if (x > 27) return 0;
  if (x < 2.5) {
    let [term, sum] = [x, x];
    for (let n = 1; Math.abs(term) > 1e-18; n++) {
      term *= (-x * x) / n;
      sum += term / (2 * n + 1);
    }
    return 1 - (2 / Math.sqrt(Math.PI)) * sum;
  }
  let fraction = 0;
  for (let n = 60; n > 0; n--) fraction = n / 2 / (x + fraction);
  return Math.exp(-x * x) / Math.sqrt(Math.PI) / (x + fraction);
}
