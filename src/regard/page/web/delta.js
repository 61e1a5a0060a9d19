/**
 * The difference of two runs, token by token.
 *
 * In: a node and a place in it, in the second run's coordinates. Out: second − first. When the two have different tokens, the
 * server says which stand for each other. Where there is no difference to show (a token without a partner, what a mask hides)
 * the value is not a number, drawn hatched, and `absent` says which of these it is.
 */

/**
 * b − a, where −∞ − (−∞) is no change.
 * @param {number} b @param {number} a
 */
export const minus = (b, a) => (b === a ? 0 : b - a);

/** Why an entry has no difference, by its number in `absent`; 0: it has one. */
export const ABSENT = ["", "no counterpart in A", "hidden in A and in B", "hidden in A", "hidden in B"];
const [ALONE, BOTH, IN_A, IN_B] = [1, 2, 3, 4];

/**
 * An entry of the difference: [value, why there is none]. `a`: undefined where the token has no partner.
 * @param {number} b @param {number | undefined} a
 * @returns {[value: number, none: number]}
 */
function between(b, a) {
  if (a === undefined) return [NaN, ALONE];
  const [before, after] = [a === -Infinity, b === -Infinity];
  return before || after ? [NaN, before && after ? BOTH : before ? IN_A : IN_B] : [minus(b, a), 0];
}

/**
 * {shape, values, absent} of entries `b` and their partners.
 * @param {Tensor} tensor @param {(k: number) => number | undefined} partner
 */
function subtracted({ shape, values }, partner) {
  const [out, absent] = [new Float32Array(values.length), new Uint8Array(values.length)];
  for (const [k, value] of values.entries()) [out[k], absent[k]] = between(value, partner(k));
  return { shape, values: out, absent };
}

/**
 * b − a of one number in words.
 * @param {number} b @param {number | undefined} a @param {(value: number) => string} written
 */
export function changeOf(b, a, written) {
  const [value, none] = between(b, a);
  return ABSENT[none] || written(value);
}

/**
 * Entry k of a difference in words, or `words` where it has a number.
 * @param {ArrayLike<number> | undefined} absent @param {number} k @param {string} words
 */
export const absence = (absent, k, words) => ABSENT[absent?.[k] ?? 0] || words;

/** @param {Trace} a @param {Trace} b */
const sameTokens = (a, b) => String([a.ids, a.target_ids]) === String([b.ids, b.target_ids]);
/** @type {Partner} */
const itself = { get: (i) => i };

/**
 * Who stands for whom: {source, target}, each with get(j) → i: token j of the second run is i of the first, or undefined.
 * @param {Backend} backend @param {Trace} base @param {Trace} other
 * @returns {Promise<{ [axis: string]: Partner } & Partners>}
 */
export async function partnersOf(backend, base, other) {
  if (sameTokens(base, other)) return { source: itself, target: itself };
  const { align, target_align } = await backend.compare(base.trace, other.trace);
  /** @param {[number, number][]} pairs */
  const map = (pairs) => new Map(pairs.map(([i, j]) => /** @type {[number, number]} */ ([j, i])));
  return { source: map(align), target: map(target_align ?? []) };
}

/**
 * A matrix or vector in the second run's coordinates minus its partner in the first's; `maps`: one per axis, null for itself.
 * @param {Tensor} b @param {Tensor} a @param {(Partner | null)[]} maps
 */
export function apart(b, a, maps) {
  return gather(
    a,
    b,
    maps.map((map) => ({ map, first: 0 })),
  );
}

/**
 * `difference(backend, base, other, node, at)` → {shape, values, absent}.
 * @param {Backend} backend @param {Trace} base @param {Trace} other @param {string} node @param {At} [at]
 */
export async function difference(backend, base, other, node, at) {
  const after = backend.slice(other.trace, node, at);
  const [there, here] = [base, other].map(({ nodes }) => nodes.find(({ name }) => name === node));
  if (here && !there) return alone(await after);
  if (sameTokens(base, other) && String(here?.shape) === String(there?.shape)) {
    const [a, b] = await Promise.all([backend.slice(base.trace, node, at), after]);
    return subtracted(b, (k) => a.values[k]);
  }
  const [b, partner] = await Promise.all([after, partnersOf(backend, base, other)]);
  if (!here) return alone(b);
  const { axes, shape } = here;
  const chosen = choices(at, shape).map((part, axis) => ({ ...part, map: partner[axes[axis].replace(/ key$/, "")] }));
  const asked = chosen.flatMap(({ one, map }) => (one === null ? ":" : ((map ? map.get(one) : one) ?? [])));
  if (asked.length < chosen.length) return alone(b); // one of the tokens has no partner
  const a = await backend.slice(base.trace, node, asked);
  return gather(
    a,
    b,
    chosen.filter(({ one }) => one === null),
  );
}

/**
 * What is in the second run only.
 * @param {Tensor} b
 */
export const alone = (b) => subtracted(b, () => undefined);

/**
 * An index of a node in the second run → the same number's in the first, or null where a token has no partner.
 * @param {Backend} backend @param {Trace} base @param {Trace} other @param {string} node @param {number[]} index
 */
export async function indexBefore(backend, base, other, node, index) {
  const axes = other.nodes.find(({ name }) => name === node)?.axes;
  if (!axes || sameTokens(base, other)) return index;
  const partner = await partnersOf(backend, base, other);
  const there = index.flatMap(
    (i, axis) => partner[axes[axis].replace(/ key$/, "")]?.get(i) ?? (isToken(axes[axis]) ? [] : i),
  );
  return there.length < index.length ? null : there;
}

/** @param {string} axis */
const isToken = (axis) => /^(source|target)\b/.test(axis);

/**
 * What is chosen along each axis: {one} for a single index, {one: null, first} for a stretch.
 * @param {At | undefined} at @param {number[]} shape
 */
function choices(at, shape) {
  const parts = at === undefined || at === null ? [] : Array.isArray(at) ? at : at.split(",");
  return shape.map((_, axis) => {
    const part = String(parts[axis] ?? ":").trim();
    return part.includes(":") ? { one: null, first: Number(part.split(":")[0]) || 0 } : { one: Number(part), first: 0 };
  });
}

/**
 * Each entry of b minus its partner in a, which holds the same axes whole.
 * @param {Tensor} a @param {Tensor} b @param {{ map?: Partner | null, first: number }[]} axes
 */
function gather(a, b, axes) {
  return subtracted(b, (i) => {
    let [rest, at, stride] = [i, 0, 1];
    for (let axis = b.shape.length - 1; axis >= 0; axis--) {
      const here = (rest % b.shape[axis]) + axes[axis].first;
      rest = Math.floor(rest / b.shape[axis]);
      const { map } = axes[axis];
      const there = (map ? map.get(here) : here) ?? NaN;
      at = there < a.shape[axis] ? at + there * stride : NaN; // another model may have fewer heads or features
      stride *= a.shape[axis];
    }
    return Number.isNaN(at) ? undefined : a.values[at];
  });
}
