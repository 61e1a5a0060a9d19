/**
 * Patterns and character classes of a tokenizer's data.
 *
 * In: classes by name, packed by `character_classes.py`, and patterns, of which every second part names a class. Out: regular
 * expressions. Classes are written into them as ranges, since a browser's own \p{L} depends on its Unicode version.
 */

/** Whitespace: the one class on which every library and browser agrees. */
export const SPACE = "\\p{White_Space}";

/**
 * "1t-p 6-p": how many code points to skip and, after a dash, how many more than one to take, in base 36.
 * @param {string} packed
 */
function source(packed) {
  let [out, at] = ["", 0];
  for (const range of packed.split(" ")) {
    if (!range) continue;
    const [skip, more = 0] = range.split("-").map((digits) => Number.parseInt(digits, 36));
    const first = at + skip;
    at = first + more + 1;
    out += more ? `\\u{${first.toString(16)}}-\\u{${(at - 1).toString(16)}}` : `\\u{${first.toString(16)}}`;
  }
  return out;
}

/**
 * name → the inside of a character class, [here].
 * @param {{ [name: string]: string }} packed
 */
export function createClasses(packed) {
  /** @type {Map<string, string>} */
  const known = new Map([["\\s", SPACE]]);
  /** @param {string} name */
  return (name) => {
    const found = known.get(name) ?? source(packed[name]);
    known.set(name, found);
    return found;
  };
}

/**
 * A pattern that finds every match in turn.
 * @param {TokenizerPattern} parts @param {(name: string) => string} classes
 */
export const compiled = (parts, classes) =>
  new RegExp(parts.map((part, i) => (i % 2 ? classes(part) : part)).join(""), "gu");
