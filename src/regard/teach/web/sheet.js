// A worksheet that checks itself. Each field carries a hash of its answer (self_check.py says what for); what is typed is right
// if it is at most one unit of the last digit asked for away from the number with that hash. A right answer is noticed while
// one types, a wrong one when the field is left or Enter is pressed.

const MINUS = "−";
/** The sheet on the screen. @type {Sheet | undefined} */
let shown;

/** The 32-bit Fowler-Noll-Vo hash of an ASCII string, in hexadecimal. @param {string} text */
function fnv1a(text) {
  let value = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) value = Math.imul(value ^ text.charCodeAt(i), 0x01000193);
  return (value >>> 0).toString(16).padStart(8, "0");
}

/** A number as people type it, in plain ASCII; undefined if it is none. @param {string} typed */
function parse(typed) {
  const text = typed
    .trim()
    .replace(/^[−–]\s*/, "-")
    .replace(",", ".");
  return /^[+-]?(\d+\.?\d*|\.\d+)$/.test(text) ? text : undefined;
}

/**
 * So many units of the last digit, as the sheet writes numbers: 43 with two decimals is 0.43.
 * @param {number} units @param {number} decimals
 */
function written(units, decimals) {
  const digits = String(Math.abs(units)).padStart(decimals + 1, "0");
  return `${units < 0 ? MINUS : ""}${digits.slice(0, -decimals)}.${digits.slice(-decimals)}`;
}

/**
 * The field's answer in units of its last digit, if it is no further than `reach` units from `units`.
 * @param {HTMLInputElement} field @param {string} salt @param {number} units @param {number} reach
 */
function answerNear(field, salt, units, reach) {
  if (!(Math.abs(units) < 1e9)) return undefined;
  for (let each = Math.ceil(units - reach); each <= units + reach; each++)
    if (fnv1a(`${each} ${field.dataset.blank} ${salt}`) === field.dataset.hash) return each;
  return undefined;
}

/**
 * What there is to say about what was typed.
 * @param {HTMLInputElement} field @param {string} salt
 * @returns {{ right?: string, say: string }}
 */
function judge(field, salt) {
  const text = parse(field.value);
  if (text === undefined) return { say: `“${field.value.trim()}” is not a number.` };
  const decimals = Number(field.dataset.decimals);
  const units = Number(`${text}e${decimals}`); // exact, as multiplying by a power of ten is not
  const found = answerNear(field, salt, units, 1);
  if (found !== undefined) return { right: written(found, decimals), say: "right." };
  if (answerNear(field, salt, -units, 1) !== undefined) return { say: "the digits are right, the sign is not." };
  const missing = decimals - (text.split(".")[1] ?? "").length;
  if (missing > 0 && answerNear(field, salt, units, 10 ** missing / 2) !== undefined)
    return { say: `give ${decimals === 2 ? "two" : "three"} decimals.` };
  return { say: "not yet. The “?” beside the field says how it is computed." };
}

/** One sheet: its fields, and what has been found so far. */
class Sheet {
  /** @param {HTMLElement} section */
  constructor(section) {
    this.section = section;
    this.salt = section.dataset.salt ?? "";
    /** @type {HTMLInputElement[]} */
    this.fields = [...section.querySelectorAll("input")];
    /** @type {Map<string, string>} */
    this.found = new Map();
    for (const copy of section.querySelectorAll("[data-copy]")) copy.setAttribute("data-from", copy.textContent ?? "");
    for (const field of this.fields) {
      field.addEventListener("input", () => this.check(field, false));
      field.addEventListener("change", () => this.check(field, true));
      field.addEventListener("keydown", (event) => {
        if (event.key === "Enter") this.next(field);
      });
      field.nextElementSibling?.addEventListener("click", () => this.hint(field));
      this.check(field, true); // a browser may have kept what was typed before the page was loaded again
    }
  }

  /** @param {HTMLInputElement} field @param {boolean} done whether it has been typed to its end */
  check(field, done) {
    const blank = field.dataset.blank ?? "";
    const { right, say } = field.value.trim() === "" ? { right: undefined, say: "" } : judge(field, this.salt);
    const wrong = done && say !== "" && right === undefined;
    if (right === undefined) this.found.delete(blank);
    else this.found.set(blank, right);
    if (right !== undefined && done) field.value = right;
    field.parentElement?.classList.toggle("right", right !== undefined);
    field.parentElement?.classList.toggle("wrong", wrong);
    field.setAttribute("aria-invalid", String(wrong));
    if (right !== undefined || wrong) this.say(field, "verdict", say);
    else this.unsay(field);
    for (const copy of this.section.querySelectorAll(`[data-copy="${blank}"]`)) {
      copy.textContent = right ?? copy.getAttribute("data-from") ?? copy.textContent;
    }
    showProgress();
  }

  /**
   * The formula with this sheet's numbers; one that is still to be found is called by its name.
   * @param {HTMLInputElement} field
   */
  hint(field) {
    const name = (/** @type {string} */ blank) => this.fields.find((each) => each.dataset.blank === blank)?.dataset.name;
    const value = (/** @type {string} */ blank) => {
      const found = this.found.get(blank);
      return found === undefined ? `[${name(blank)}]` : found.startsWith(MINUS) ? `(${found})` : found;
    };
    const text = (field.dataset.hint ?? "").replace(/\{(\w+\.\d+)\}/g, (_, blank) => value(blank));
    this.say(field, "hint", text);
    field.focus();
  }

  /** A sentence below the field's table. @param {HTMLInputElement} field @param {string} kind @param {string} text */
  say(field, kind, text) {
    const place = this.below(field);
    const name = (field.dataset.name ?? "").replace(/^the /, "The ");
    place.dataset.kind = kind;
    place.textContent = `${name}: ${text}`;
  }

  /** A verdict goes when what it was about changes; a hint stays while one types. @param {HTMLInputElement} field */
  unsay(field) {
    const place = this.below(field);
    if (place.dataset.kind === "verdict") place.textContent = "";
  }

  /** @param {HTMLInputElement} field */
  below(field) {
    return /** @type {HTMLElement} */ (field.closest("div")?.nextElementSibling);
  }

  /** @param {HTMLInputElement} field */
  next(field) {
    const after = this.fields[this.fields.indexOf(field) + 1];
    if (after) after.focus();
    else field.blur();
  }
}

/** @type {HTMLElement[]} */
const sections = [...document.querySelectorAll("section")];
/** Those that have been on the screen. @type {Map<HTMLElement, Sheet>} */
const sheets = new Map();
const which = /** @type {HTMLSelectElement | null} */ (document.getElementById("which"));

function showProgress() {
  if (!shown) return;
  const bar = /** @type {HTMLProgressElement} */ (document.getElementById("progress"));
  const count = /** @type {HTMLElement} */ (document.getElementById("count"));
  const [right, all] = [shown.found.size, shown.fields.length];
  bar.max = all;
  bar.value = right;
  const text = right === all ? `All ${all} right` : `${right} of ${all} right`;
  if (count.textContent !== text) count.textContent = text;
}

/** The sheet that the address or the list says, and no other. */
function choose() {
  const number = Math.min(Math.max(Number.parseInt(location.hash.slice(1), 10) || 1, 1), sections.length);
  const chosen = sections[number - 1];
  for (const section of sections) section.hidden = section !== chosen;
  shown = sheets.get(chosen) ?? new Sheet(chosen);
  sheets.set(chosen, shown);
  if (which) which.value = String(number);
  showProgress();
}

which?.addEventListener("change", () => {
  location.hash = which.value;
});
addEventListener("hashchange", choose);
choose();
