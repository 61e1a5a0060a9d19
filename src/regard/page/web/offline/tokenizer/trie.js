/**
 * Texts with ids, found wherever another text begins with one of them.
 *
 * In: texts and their ids. Out: prefixes(text, at, found), which calls found(end, id) for each of them that stands at `at`, the
 * shortest first.
 */

/** @typedef {{ id: number, next: Map<number, Node> }} Node */

/** @returns {Node} */
const node = () => ({ id: -1, next: new Map() });

/** @param {Iterable<[text: string, id: number]>} entries */
export function createTrie(entries) {
  const root = node();
  for (const [text, id] of entries) {
    let at = root;
    for (let i = 0; i < text.length; i++) {
      const unit = text.charCodeAt(i);
      const below = at.next.get(unit) ?? node();
      at.next.set(unit, below);
      at = below;
    }
    if (text) at.id = id;
  }
  return {
    /** @param {string} text @param {number} at @param {(end: number, id: number) => void} found */
    prefixes(text, at, found) {
      /** @type {Node | undefined} */
      let here = root;
      for (let i = at; i < text.length; ) {
        here = here.next.get(text.charCodeAt(i++));
        if (!here) return;
        if (here.id >= 0) found(i, here.id);
      }
    },
  };
}
