/**
 * The only place where elements are made.
 *
 * In: a tag, attributes and children. Out: an element whose children are elements and text nodes, never parsed markup,
 * so that a token or a model name can contain anything. Styles are set through the CSSOM, which a strict
 * Content-Security-Policy allows.
 */

const SVG = "http://www.w3.org/2000/svg";
const PROPERTIES = new Set(["value", "checked", "disabled", "selected", "hidden", "open", "htmlFor"]);

/** @param {HTMLElement | SVGElement} node @param {NonNullable<Attributes["data"]>} data */
function mark(node, data) {
  for (const [key, value] of Object.entries(data)) {
    if (value !== null && value !== undefined) node.dataset[key] = String(value);
  }
}

/**
 * @template {HTMLElement | SVGElement} E
 * @param {E} node @param {Attributes} attributes @param {Child[]} children
 */
function fill(node, { on = {}, style = {}, data = {}, ...others }, children) {
  for (const [event, listener] of Object.entries(on)) node.addEventListener(event, /** @type {EventListener} */ (listener));
  for (const [key, value] of Object.entries(style)) node.style.setProperty(key, String(value));
  mark(node, data);
  for (const [name, value] of Object.entries(others)) {
    if (value === null || value === undefined || value === false) continue;
    if (PROPERTIES.has(name)) Object.assign(node, { [name]: value });
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  const inside = /** @type {Exclude<Child, Child[]>[]} */ (/** @type {unknown[]} */ (children).flat(Infinity));
  node.append(...inside.filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/**
 * `el("p", {class: "note", on: {click}, style: {"--w": "3px"}, data: {keep: "x"}}, "text", child, [more])`.
 * null, undefined and false are left out, among attributes and among children.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag @param {Attributes} [attributes] @param {...Child} children
 */
export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/**
 * The same for SVG.
 * @template {keyof SVGElementTagNameMap} K
 * @param {K} tag @param {Attributes} [attributes] @param {...Child} children
 */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/**
 * What draws on a canvas.
 * @param {HTMLCanvasElement} canvas
 */
export function penOf(canvas) {
  const pen = canvas.getContext("2d");
  if (!pen) throw new Error("this browser cannot draw on a canvas");
  return pen;
}

/**
 * A button with a word on it: `button("Step", () => …, {title: "…"})`.
 * @param {Child} label @param {() => unknown} press @param {Attributes} [attributes]
 */
export function button(label, press, attributes = {}) {
  return el("button", { type: "button", ...attributes, on: { click: press } }, label);
}

/**
 * A labelled drop-down. options: [[value, text], …]; `choose(value)` is called on change.
 * @param {string} label @param {Options} options @param {string | number} value @param {(value: string) => unknown} choose
 * @param {Attributes} [attributes]
 */
export function picker(label, options, value, choose, attributes = {}) {
  const items = options.map(([key, text]) => el("option", { value: key, selected: String(key) === String(value) }, text));
  /** @type {HTMLSelectElement} */
  const select = el("select", { ...attributes, on: { change: () => choose(select.value) } }, items);
  return el("label", { class: "field" }, el("span", { class: "field-name" }, label), select);
}

/**
 * A row of buttons of which one is pressed. options: [[value, text, title?], …].
 * @template {string | number} V
 * @param {string} label @param {Options<V>} options @param {NoInfer<V>} value
 * @param {(value: V) => unknown} choose
 */
export function choice(label, options, value, choose) {
  const one = (/** @type {Options<V>[number]} */ [key, text, title]) =>
    button(text, () => choose(key), {
      "aria-pressed": String(String(key) === String(value)),
      title,
      data: { keep: `${label}:${key}` },
    });
  return el("div", { class: "choice", role: "group", "aria-label": label }, options.map(one));
}

/**
 * Empty states, hints, errors: one sentence. kind: "empty" | "busy" | "error".
 * @param {"empty" | "busy" | "error"} kind @param {...Child} words
 */
export function sentence(kind, ...words) {
  return el("p", { class: `sentence ${kind}`, role: kind === "error" ? "alert" : "status" }, words);
}

/**
 * A formula written plainly: `^x`, `^{…}`, `^(…)` are raised, `W_q` and `A[1, 4, 2]` get subscripts, single letters are
 * slanted and longer names (norm_1.out) stand upright. `formula("A = softmax(Q K^T / √d_k)")` → span.
 * @param {string} text
 */
export function formula(text) {
  return el("span", { class: "formula" }, typeset(text));
}

const NAME = /^\p{L}[\p{L}\d]*(?:[_.][\p{L}\d]+)*/u;
/** @type {{ [open: string]: string }} */
const CLOSING = { "[": "]", "(": ")", "{": "}" };

/** @param {string} text */
function typeset(text) {
  /** @type {Child[]} */
  const out = [];
  for (let at = 0; at < text.length; ) {
    if (text[at] === "^") {
      const end = atom(text, at + 1);
      out.push(el("sup", {}, typeset(bare(text.slice(at + 1, end)))));
      at = end;
      continue;
    }
    const quoted = /^(["']).*?\1/.exec(text.slice(at))?.[0];
    if (quoted && (at === 0 || text[at - 1] === " ")) {
      out.push(el("span", { class: "name" }, `“${quoted.slice(1, -1)}”`));
      at += quoted.length;
      continue;
    }
    const name = NAME.exec(text.slice(at))?.[0];
    if (name) {
      at += name.length;
      const index = text[at] === "[" ? text.slice(at + 1, group(text, at) - 1) : null;
      if (index !== null) at = group(text, at);
      out.push(named(name, index));
      continue;
    }
    out.push(text[at] === "-" ? "−" : text[at]);
    at++;
  }
  return out;
}

/** @param {string} name @param {string | null} index */
function named(name, index) {
  const [, letter, below] = /^(\p{L})(?:_(\p{L}+))?$/u.exec(name) ?? [];
  const word = letter ? (letter === "Σ" ? letter : el("i", {}, letter)) : el("span", { class: "name" }, name);
  const under = [below ? typeset(below) : [], below && index ? ", " : [], index ? typeset(index) : []].flat();
  return [word, under.length ? el("sub", {}, under) : null];
}

/**
 * Where the group that opens at `at` ends.
 * @param {string} text @param {number} at
 */
function group(text, at) {
  const [open, close] = [text[at], CLOSING[text[at]]];
  for (let depth = 0, i = at; i < text.length; i++) {
    if (text[i] === open) depth++;
    if (text[i] === close && --depth === 0) return i + 1;
  }
  return text.length;
}

/**
 * Where the thing that begins at `at` ends: a group, a name with its index, a number, or one sign.
 * @param {string} text @param {number} at
 */
function atom(text, at) {
  if (text[at] in CLOSING) return group(text, at);
  const word = /^[−-]?(?:[\d.]+|∞)|^.?/u.exec(text.slice(at))?.[0] ?? "";
  const name = NAME.exec(text.slice(at))?.[0];
  const end = at + (name ?? word).length;
  return name && text[end] === "[" ? group(text, end) : end;
}

/** @param {string} text */
const bare = (text) => (/^[({].*[)}]$/s.test(text) ? text.slice(1, -1) : text);

/** @type {HTMLElement | undefined} */
let live;

/**
 * Tell a screen reader. One polite live region for the whole page; the last sentence wins.
 * @param {string} text
 */
export function announce(text) {
  live ??= document.body.appendChild(el("div", { class: "unseen", "aria-live": "polite", id: "said" }));
  live.textContent = text;
}

/**
 * A number that is a link to its derivation: `number(ctx, 0.871, "decoder.0.attention.weights", [3, 1, 3])`.
 * @param {Context} ctx @param {number} value @param {string | null} node @param {number[]} index
 * @param {{ digits?: number, text?: string | null, title?: string | null }} [given]
 */
export function number(ctx, value, node, index, { digits = 3, text = null, title = null } = {}) {
  const shown = text ?? format(value, digits);
  if (!node) return el("span", { class: "number" }, shown);
  const name = title ?? `${node}[${index.join(", ")}]`;
  const attributes = { class: "number", href: ctx.why(node, index), title: name, "aria-label": `${name}: ${shown}` };
  return el("a", attributes, shown);
}

/**
 * Digits for people: fixed point where it reads well, powers of ten elsewhere, a true minus sign.
 * @param {number} value @param {number} [digits]
 */
export function format(value, digits = 3) {
  if (Number.isNaN(value)) return "not a number";
  if (value === Infinity) return "∞";
  if (value === -Infinity) return "−∞";
  const size = Math.abs(value);
  const text =
    size === 0
      ? "0"
      : size >= 1e5 || size < 0.5 * 10 ** -digits
        ? power(value, Math.max(1, digits - 1))
        : value.toFixed(size >= 1000 ? Math.min(1, digits) : size >= 100 ? Math.min(2, digits) : digits);
  return text.replace("-", "−");
}

/**
 * A change: the same with its sign, also when it is a plus.
 * @param {number} value @param {number} [digits]
 */
export const signed = (value, digits = 3) => `${value > 0 ? "+" : ""}${format(value, digits)}`;

/** @type {{ [sign: string]: string }} */
const SUPERSCRIPT = { "-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹" };

/** @param {number} value @param {number} digits */
function power(value, digits) {
  const [mantissa, exponent] = value.toExponential(digits).split("e");
  const raised = [...String(Number(exponent))].map((c) => SUPERSCRIPT[c]).join("");
  return `${mantissa}·10${raised}`;
}
