/**
 * Edits that a file can honour: a place in words becomes changes of nodes.
 *
 * In: edits (place → what), and what the file says of places: switches (a node, and what is left of it), counted things
 * (a node and an axis), masks (scores, and where some of them are hidden). Out: node → changes, (values, shape, numbers) →
 * values, in the order of explain/edit.py: switches act before numbers that are written over. An edit that only the model can
 * honour is refused.
 */

import { Refused } from "regard/data.js";
import { isNumber, settled } from "regard/offline/formula.js";
import { nodeIn } from "regard/offline/run.js";

/** @typedef {[spans: Span[], shown: boolean]} Entry */
/** @typedef {{ switched?: [string, NodeChange][], written?: [string, NodeChange][], hidden?: { name: string, entry: Entry } }} Found */

/**
 * What stands in the place of a step that is off: the sum of these, of none of them 0.
 * @type {(others: string[]) => NodeChange}
 */
const instead = (others) => async (values, _, numbers) => {
  const kept = await Promise.all(others.map(numbers));
  return values.map((_, k) => kept.reduce((sum, other) => sum + other.values[k], 0));
};

/**
 * "3, 1:4, :" as [from, to) per axis, all of those that are not named; null if it lies outside.
 * @param {string | undefined} text @param {number[]} shape @returns {Span[] | null}
 */
function spansOf(text, shape) {
  const given = text === undefined ? [] : text.split(",").map((entry) => entry.trim());
  const spans = shape.map((n, axis) => span(given[axis] ?? ":", n));
  return given.length <= shape.length && spans.every(([from, to]) => from >= 0 && from < to) ? spans : null;
}

/** @param {string} entry @param {number} n @returns {Span} */
function span(entry, n) {
  const found = /^(?:(-?\d+)|(\d*):(\d*)|\*)$/.exec(entry);
  if (!found) return [0, 0];
  const one = found[1] === undefined ? null : Number(found[1]) + (Number(found[1]) < 0 ? n : 0);
  const [from, to] = one === null ? [Number(found[2] || 0), Number(found[3] || n)] : [one, one + 1];
  return to <= n ? [from, to] : [0, 0];
}

/**
 * make(offset) for every number within the spans.
 * @param {number[]} shape @param {Span[]} spans @param {(offset: number) => void} make
 */
function within(shape, spans, make) {
  /** @param {number} axis @param {number} offset */
  const walk = (axis, offset) => {
    if (axis === shape.length) return make(offset);
    for (let i = spans[axis][0]; i < spans[axis][1]; i++) walk(axis + 1, offset * shape[axis] + i);
  };
  walk(0, 0);
}

/** @type {(spans: Span[], value: number) => NodeChange} */
const writing = (spans, value) => (values, shape) => {
  const out = values.slice();
  within(shape, spans, (k) => {
    out[k] = value;
  });
  return out;
};

/**
 * entries: [spans of (query, key), whether they are seen], one after the other.
 * @type {(entries: Entry[], scores: string) => NodeChange}
 */
const hiding = (entries, scores) => async (values, shape, numbers) => {
  const out = values.slice();
  const seen = entries.some(([, shown]) => shown) ? (await numbers(scores)).values : out;
  for (const [spans, shown] of entries) {
    within(shape, [[0, shape[0]], ...spans], (k) => {
      out[k] = shown ? seen[k] : -Infinity;
    });
  }
  return out;
};

/** @param {FileContents} file @param {FileGraph} graph */
export function createPlaces(file, graph) {
  const { switches, counted, masks, fixed } = file.places;

  /**
   * One edit as {switched, written, hidden}: [node, change] pairs, or entries of a mask; null where the file cannot honour it.
   * @param {string} place @param {Verb} what @returns {Found | null}
   */
  function read(place, what) {
    const parts = /^([^[\]]+?)(?:\[([^[\]]*)\])?$/.exec(place.trim());
    if (!parts) return null;
    const [, name, at] = parts;
    if (name in switches) {
      /** @type {[string, NodeChange][]} */
      const switched = switches[name].map(([node, others]) => [node, instead(others)]);
      return what === "off" && at === undefined ? { switched } : null;
    }
    if (name in masks) return masked(name, at, what);
    const [, family, which] = /^(.+)\.(\d+)$/.exec(name) ?? [];
    const [node, axis] = counted[family] ?? [name, null];
    const { shape, together = [] } = graph.get(node) ?? {};
    if (!shape || together.length || fixed.includes(node) || (axis !== null && at !== undefined)) return null;
    const spans = spansOf(axis === null ? at : [...Array(axis).fill(":"), which].join(","), shape);
    const value = what === "zero" || what === "off" ? 0 : typeof what === "object" ? (what.set ?? NaN) : NaN;
    return spans && Number.isFinite(value) ? { written: [[node, writing(spans, value)]] } : null;
  }

  /** @param {string} name @param {string | undefined} at @param {Verb} what @returns {Found | null} */
  function masked(name, at, what) {
    const [scores, node] = masks[name];
    const spans = spansOf(at, nodeIn(graph, scores).shape.slice(1));
    const shown = what === "off" || what === "show";
    if (!spans || !(shown || what === "hide") || (shown && !node)) return null; // without a mask all is shown
    return { hidden: { name, entry: [spans, shown] } };
  }

  /**
   * Whether every query still sees a key.
   * @param {string} name @param {Entry[]} entries
   */
  function sighted(name, entries) {
    if (entries.every(([, shown]) => shown)) return true;
    const [scores, node] = masks[name];
    const [, N, T] = nodeIn(graph, scores).shape;
    /** @param {number} i @param {number} j */
    const isHidden = (i, j) => node !== null && isNumber(settled(nodeIn(graph, node).formula, { i0: 0, i1: i, i2: j }));
    return Array.from({ length: N }, (_, i) => {
      const seen = Array.from({ length: T }, (_, j) => !isHidden(i, j));
      for (const [[rows, keys], shown] of entries) if (i >= rows[0] && i < rows[1]) seen.fill(shown, ...keys);
      return seen.includes(true);
    }).every(Boolean);
  }

  /**
   * All edits together.
   * @param {Edits} edits
   */
  function changesOf(edits) {
    /** @type {[string, NodeChange][]} */
    const switched = [];
    /** @type {[string, NodeChange][]} */
    const written = [];
    /** @type {Map<string, Entry[]>} */
    const hidden = new Map();
    for (const [place, what] of Object.entries(edits)) {
      const found = read(place, what);
      if (!found) throw new Refused(`This file cannot honour the edit of ${place}: it takes “regard view”.`, 400);
      switched.push(...(found.switched ?? []));
      written.push(...(found.written ?? []));
      const { name, entry } = found.hidden ?? {};
      if (name && entry) hidden.set(name, [...(hidden.get(name) ?? []), entry]);
    }
    for (const [name, entries] of hidden) {
      if (!sighted(name, entries))
        throw new Refused(`${name}: a token would see nothing at all; leave it at least one key.`, 400);
      const [scores, node] = masks[name];
      switched.push([node ?? scores, hiding(entries, scores)]);
    }
    /** @type {Map<string, NodeChange[]>} */
    const changes = new Map();
    for (const [node, change] of [...switched, ...written]) changes.set(node, [...(changes.get(node) ?? []), change]);
    return changes;
  }

  return { changesOf };
}

/**
 * The only edit if it takes a head away: {site, head}; else null.
 * @param {Edits} edits
 */
export function headOff(edits) {
  const [[place, what] = ["", ""], ...more] = Object.entries(edits);
  const found = !more.length && (what === "zero" || what === "off") && /^(.+)\.head\.(\d+)$/.exec(place);
  return found ? { site: found[1], head: Number(found[2]) } : null;
}
