/**
 * The difference of two runs, token by token.
 *
 * In: a node and a place in it, in the second run's coordinates. Out: second − first. When the two have different
 * tokens, the server says which stand for each other; a token without a partner has no difference (not a number, drawn
 * hatched).
 */

/** b − a, where −∞ − (−∞) is no change. */
export const minus = (b, a) => (b === a ? 0 : b - a);

const sameTokens = (a, b) => String([a.ids, a.target_ids]) === String([b.ids, b.target_ids]);
const itself = { get: (i) => i };

/** Who stands for whom: {source, target}, each with get(j) → i: token j of the second run is i of the first, or undefined. */
export async function partnersOf(backend, base, other) {
  if (sameTokens(base, other)) return { source: itself, target: itself };
  const { align, target_align } = await backend.compare(base.trace, other.trace);
  const map = (pairs) => new Map(pairs.map(([i, j]) => [j, i]));
  return { source: map(align), target: map(target_align ?? []) };
}

/** A matrix or vector in the second run's coordinates minus its partner in the first's; `maps`: one per axis, null for itself. */
export function apart(b, a, maps) {
  return gather(a, b, maps.map((map) => ({ map, first: 0 })));
}

/** `difference(backend, base, other, node, at)` → {shape, values}. */
export async function difference(backend, base, other, node, at) {
  const after = backend.slice(other.trace, node, at);
  if (sameTokens(base, other)) {
    const [a, b] = await Promise.all([backend.slice(base.trace, node, at), after]);
    return { shape: b.shape, values: b.values.map((value, i) => minus(value, a.values[i])) };
  }
  const [b, partner] = await Promise.all([after, partnersOf(backend, base, other)]);
  const { axes, shape } = other.nodes.find(({ name }) => name === node);
  const chosen = choices(at, shape).map((part, axis) => ({ ...part, map: partner[axes[axis].replace(/ key$/, "")] }));
  const asked = chosen.map(({ one, map }) => (one === null ? ":" : map ? map.get(one) : one));
  const lost = { shape: b.shape, values: b.values.map(() => NaN) };
  if (asked.includes(undefined)) return lost;
  const a = await backend.slice(base.trace, node, asked);
  return gather(a, b, chosen.filter(({ one }) => one === null));
}

/** An index of a node in the second run → the same number's in the first, or null where a token has no partner. */
export async function indexBefore(backend, base, other, node, index) {
  const axes = other.nodes.find(({ name }) => name === node)?.axes;
  if (!axes || sameTokens(base, other)) return index;
  const partner = await partnersOf(backend, base, other);
  const there = index.map((i, axis) => partner[axes[axis].replace(/ key$/, "")]?.get(i) ?? (isToken(axes[axis]) ? null : i));
  return there.includes(null) ? null : there;
}

const isToken = (axis) => /^(source|target)\b/.test(axis);

/** What is chosen along each axis: {one} for a single index, {one: null, first} for a stretch. */
function choices(at, shape) {
  const parts = at === undefined || at === null ? [] : Array.isArray(at) ? at : at.split(",");
  return shape.map((_, axis) => {
    const part = String(parts[axis] ?? ":").trim();
    return part.includes(":") ? { one: null, first: Number(part.split(":")[0]) || 0 } : { one: Number(part) };
  });
}

/** Each entry of b minus its partner in a, which holds the same axes whole. */
function gather(a, b, axes) {
  const values = new Float32Array(b.values.length);
  for (let i = 0; i < values.length; i++) {
    let [rest, at, stride] = [i, 0, 1];
    for (let axis = b.shape.length - 1; axis >= 0; axis--) {
      const here = (rest % b.shape[axis]) + axes[axis].first;
      rest = Math.floor(rest / b.shape[axis]);
      const there = axes[axis].map ? axes[axis].map.get(here) : here;
      at = there === undefined ? NaN : at + there * stride;
      stride *= a.shape[axis];
    }
    values[i] = Number.isNaN(at) ? NaN : minus(b.values[i], a.values[at]);
  }
  return { shape: b.shape, values };
}
