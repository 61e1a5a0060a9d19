/**
 * Splitting: a text into the parts around the matches of a pattern.
 *
 * In: a part of a text, a pattern, and what becomes of its matches. Out: parts, none of them empty.
 */

import { part } from "regard/offline/tokenizer/aligned.js";

/** @import { Aligned } from "regard/offline/tokenizer/aligned.js" */
/** @typedef {{ begin: number, end: number, match: boolean }} Span */

/**
 * All of a text as matches and what is between them.
 * @param {string} text @param {RegExp} pattern @param {boolean} invert
 */
function spans(text, pattern, invert) {
  /** @type {Span[]} */
  const found = [];
  let done = 0;
  for (const { index, 0: match } of text.matchAll(pattern)) {
    if (done < index) found.push({ begin: done, end: index, match: invert });
    done = index + match.length;
    found.push({ begin: index, end: done, match: !invert });
  }
  if (done < text.length) found.push({ begin: done, end: text.length, match: invert });
  return found;
}

/**
 * Each span to the one before it if `joins` says so of the two.
 * @param {Span[]} all @param {(span: Span, before: Span) => boolean} joins
 */
function joined(all, joins) {
  /** @type {Span[]} */
  const out = [];
  all.forEach((span, i) => {
    if (!i || !joins(span, all[i - 1])) out.push({ ...span });
    else {
      out[out.length - 1].begin = Math.min(out[out.length - 1].begin, span.begin);
      out[out.length - 1].end = Math.max(out[out.length - 1].end, span.end);
    }
  });
  return out;
}

/** @param {Span} span @param {Span} before */
const isFirstMatch = (span, before) => span.match && !before.match;

/** @type {{ [behavior: string]: (all: Span[]) => Span[] }} */
export const BEHAVIORS = {
  Isolated: (all) => all,
  Removed: (all) => all.filter(({ match }) => !match),
  Contiguous: (all) => joined(all, (span, before) => span.match === before.match),
  MergedWithPrevious: (all) => joined(all, isFirstMatch),
  MergedWithNext: (all) => joined(all.toReversed(), isFirstMatch).reverse(),
};

/**
 * @param {RegExp} pattern @param {string} behavior @param {boolean} invert @returns {(whole: Aligned) => Aligned[]}
 */
export function split(pattern, behavior, invert) {
  const merge = BEHAVIORS[behavior];
  return (whole) => merge(spans(whole.text, pattern, invert)).map(({ begin, end }) => part(whole, begin, end));
}
