/**
 * Where the person is, as the part of the address after "#": a link reproduces a view.
 *
 * In: changes (`set`) and the address bar (back, forward, a pasted link). Out: a frozen object, and a call to
 * `changed(next, previous)` after each change that asks for drawing.
 */

/**
 * Every key of the state with its value when the address does not say.
 * @type {State}
 */
export const DEFAULTS = Object.freeze({
  model: "", // a name of /api/models
  text: "",
  target: "", // encoder-decoders: what the decoder is made to write; empty lets it write itself
  fresh: 0, // how many tokens are generated after the text
  seed: 0,
  temperature: 0.8,
  top_k: 40,
  top_p: 1, // the smallest set of pieces with this much probability; 1 keeps all
  min_p: 0, // pieces at least this likely, relative to the likeliest; 0 keeps all
  stage: "scene", // the scene, a lesson's figure in its place, or which table
  depth: 0, // of the scene: 0 the whole model, 1 a block, 2 a head, 3 a cell, 4 a number
  matrix: "", // the step of an attention that the scene's matrix shows; the weights if empty
  voice: "story", // story, numbers or mathematics
  lang: "en",
  site: "", // "decoder.0.attention"
  head: 0,
  token: -1, // the focused query row; −1: none was chosen yet
  key: 0, // the focused key column
  node: "", // what the drawer explains, with `index`
  index: [],
  trail: [], // how the person got there: [[node, index], …]
  edits: {}, // place → what
  mode: "b", // with edits: "a" before, "b" after, "delta" the difference
  against: "", // another text to compare with
  rival: "", // another model to compare with
  view: "", // a panel's own choice, e.g. the heads panel's "lines" | "grid" | "neurons"
  run: "", // training: which run,
  step: 0, // which frame,
  tour: "", // which tour or lesson and
  page: 0, // which of its steps
  present: 0, // 1: for an audience, without what surrounds the scene
});

export const KEYS = /** @type {(keyof State)[]} */ (Object.keys(DEFAULTS));
const MODES = ["a", "b", "delta"];
/** @type {Set<keyof State>} */
const COUNTS = new Set(["fresh", "seed", "top_k", "head", "token", "key", "step", "page", "depth", "present"]);
/** @param {unknown} value */
const isIndex = (value) => Array.isArray(value) && value.every(Number.isInteger);
/** @type {{ [key in keyof State]?: (value: any) => boolean }} */
const SHAPES = {
  index: isIndex,
  trail: (value) => Array.isArray(value) && value.every((one) => typeof one?.[0] === "string" && isIndex(one[1])),
  edits: (value) => typeof value === "object" && value !== null && !Array.isArray(value),
};

/**
 * A value out of the address. Anybody may have written it: what it cannot be, it is not.
 * @param {keyof State} key @param {string} text
 */
function decode(key, text) {
  const like = DEFAULTS[key];
  if (key === "mode") return MODES.includes(text) ? text : like;
  if (typeof like === "string") return text;
  if (typeof like === "number") {
    const value = Number(text);
    return Number.isFinite(value) ? Math.max(0, COUNTS.has(key) ? Math.trunc(value) : value) : like;
  }
  try {
    const value = JSON.parse(text);
    return SHAPES[key]?.(value) ? value : like;
  } catch {
    return like;
  }
}

/** @param {unknown} value */
const encode = (value) => (typeof value === "object" ? JSON.stringify(value) : String(value));

/**
 * "#model=toy-gpt&head=3" → a whole state; unknown keys are dropped, broken values fall back.
 * @param {string} hash
 */
export function parse(hash) {
  const given = new Map(new URLSearchParams(hash.replace(/^#/, "")));
  if (given.get("lesson") && !given.has("tour")) given.set("tour", given.get("lesson") ?? ""); // as links of version 0.2 say it
  if (given.has("lesson") && given.get("stage") === "lessons")
    for (const key of ["stage", "model", "text"]) given.delete(key);
  const said = KEYS.filter((key) => given.has(key)).map((key) => [key, decode(key, given.get(key) ?? "")]);
  return Object.freeze({ ...DEFAULTS, ...Object.fromEntries(said) });
}

/** @type {Map<keyof State, [value: unknown, text: string]>} */
const spelt = new Map(); // key → [value, text]: a page has hundreds of links that differ in one key, and texts are long

/**
 * One key as it stands in the address; "" when it is as by default.
 * @param {keyof State} key @param {unknown} value
 */
function spell(key, value) {
  const known = spelt.get(key);
  if (known && known[0] === value) return known[1];
  const text = encode(value) === encode(DEFAULTS[key]) ? "" : String(new URLSearchParams([[key, encode(value)]]));
  spelt.set(key, [value, text]);
  return text;
}

/**
 * A state → "#…", leaving out what is as by default.
 * @param {State} state
 */
export function write(state) {
  return `#${KEYS.map((key) => spell(key, state[key]))
    .filter(Boolean)
    .join("&")}`;
}

/**
 * Whether two states agree in all of `keys`.
 * @param {State} a @param {State} b @param {(keyof State)[]} keys
 */
export const same = (a, b, keys) => keys.every((key) => encode(a[key]) === encode(b[key]));

/** Whether the scene is on the screen, or a lesson's figure in its place, and no table. @param {State} state */
export const isOnScene = ({ stage }) => stage === "scene" || stage === "figure";

/**
 * The state of the page. `changed(next, previous)` is called when something must be drawn.
 * → {now, set(change, {replace}), note(change), follow(hash), link(change)}
 * @returns {Store}
 * @param {(next: State, previous: State) => void} changed
 */
export function createState(changed) {
  let current = parse(location.hash);
  let drawn = current; // what the links on the screen were made from
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let soon;

  /** @param {"pushState" | "replaceState"} how */
  const address = (how) => {
    clearTimeout(soon);
    try {
      history[how](null, "", write(current));
    } catch {
      // A frame without an address of its own (a notebook): the state lives in memory only.
    }
  };

  const adopt = () => {
    const [previous, next] = [current, parse(location.hash)];
    if (write(previous) === write(next)) return;
    clearTimeout(soon);
    current = drawn = next;
    changed(current, previous);
  };
  addEventListener("popstate", adopt);
  addEventListener("hashchange", adopt);

  return {
    get now() {
      return current;
    },
    /** Merge, write the address, draw. */
    set(change, { replace = false } = {}) {
      const previous = current;
      current = Object.freeze({ ...current, ...change });
      if (write(previous) === write(current)) return;
      address(replace ? "replaceState" : "pushState");
      drawn = current;
      changed(current, previous);
    },
    /** Merge, and write the address once it rests, without drawing: for a cursor that has already moved on the screen. */
    note(change) {
      current = Object.freeze({ ...current, ...change });
      clearTimeout(soon);
      soon = setTimeout(() => address("replaceState"), 150);
    },
    /** Go where a link of this page points: what it was made to change changes, what was noted since stays. */
    follow(hash) {
      const goal = parse(hash);
      const meant = KEYS.filter((key) => encode(goal[key]) !== encode(drawn[key]));
      this.set(Object.fromEntries(meant.map((key) => [key, goal[key]])));
    },
    /** The address of the view that `change` would give, for the href of a link. */
    link(change) {
      return write({ ...current, ...change });
    },
  };
}
