/**
 * A tokenizer in the browser: text ⇄ ids, equal to the Python library's.
 *
 * In: the data that `browser_tokenizer.py` makes of a tokenizer. Out: encode, decode and pieces. A text goes through
 *
 *     added tokens that match it as it is → normalizer → added tokens that match it then → pre-tokenizer → model → post-processor
 *
 * and each token keeps the characters (code points) that it came from. The time is near to linear in the text's length. A step
 * that is not known here is refused when the tokenizer is opened.
 */

import { Refused } from "regard/data.js";
import {
  bytes,
  isSecondHalf,
  lowercase,
  normalForm,
  original,
  part,
  prepend,
  strip,
  substitute,
} from "regard/offline/tokenizer/aligned.js";
import { bytesOf, cleanedUp, DECODERS, fallbackByte, readable } from "regard/offline/tokenizer/decoders.js";
import { MODELS } from "regard/offline/tokenizer/models.js";
import { compiled, createClasses, SPACE } from "regard/offline/tokenizer/patterns.js";
import { BEHAVIORS, split } from "regard/offline/tokenizer/split.js";
import { createTrie } from "regard/offline/tokenizer/trie.js";

/** @import { Aligned, Change } from "regard/offline/tokenizer/aligned.js" */
/** @typedef {{ id: number, from: number, to: number, text: string }} Found a token, and the characters that it came from */
/** @typedef {{ whole: Aligned, id: number | null }} Stretch of a text; id: of the added token that it is */
/** @typedef {{ special?: boolean, control?: boolean, most?: number }} EncodeSettings */

const VERSION = 1;
const LONGEST = 1 << 20; // UTF-16 code units of a text
const ONE_SPACE = new RegExp(`[Ġ${SPACE}]`, "u");

/** @param {TokenizerData} data @returns {BrowserTokenizer} */
export function openTokenizer(data) {
  if (data.version !== VERSION) throw refusal(data, `its data has version ${data.version}, and this page reads ${VERSION}`);
  const classes = createClasses(data.classes);
  const normalizer = data.normalizer.map((step) => changeOf(data, step, classes));
  const preTokenizer = data.pre_tokenizer.map((step) => splitOf(data, step, classes));
  const postProcessor = data.post_processor.map((step) => processorOf(data, step));
  const decoder = data.decoder.map((step) => known(data, DECODERS, "decoder", step.type)(step, classes));
  const createModel = known(data, MODELS, "model", data.model.type);
  const added = new Map(data.added.map((token) => [token.id, token]));
  const isWord = new RegExp(`[${data.added.some((token) => token.single_word) ? classes("word") : ""}]`, "u");

  /** @param {boolean} control whether a text may spell control tokens */
  function encoder(control) {
    const hidden = new Set(control ? [] : data.model.hidden);
    const tokenize = createModel(data.model, hidden);
    const spelled = data.added.filter((token) => !hidden.has(token.id));
    const find = { raw: finder(false), normalized: finder(true) };

    /** @param {boolean} normalized */
    function finder(normalized) {
      const wanted = spelled.filter((token) => token.normalized === normalized);
      return wanted.length ? findAdded(wanted, control, isWord) : null;
    }

    /** @param {string} text @returns {Stretch[]} */
    function stretches(text) {
      const whole = original(text);
      const first = find.raw ? find.raw(whole) : [{ whole, id: null }];
      return first.flatMap((stretch) => {
        if (stretch.id !== null) return [stretch];
        const normal = normalizer.reduce((now, change) => change(now), stretch.whole);
        const second = find.normalized ? find.normalized(normal) : [{ whole: normal, id: null }];
        return second.flatMap((one) => (one.id === null ? words(one.whole) : [one]));
      });
    }

    /** @param {Aligned} whole @returns {Stretch[]} */
    function words(whole) {
      let parts = whole.text ? [whole] : [];
      for (const step of preTokenizer) parts = parts.flatMap(step).filter(({ text }) => text);
      return parts.map((one) => ({ whole: one, id: null }));
    }

    /** @param {string} text @param {number} most @returns {Found[]} */
    return (text, most) => {
      /** @type {Found[]} */
      const out = [];
      for (const { whole, id } of stretches(text)) {
        const { at, from, to } = whole;
        if (id !== null) out.push({ id, from: from[at], to: to[at + whole.text.length - 1], text: whole.text });
        else for (const one of tokenize(whole.text)) out.push(located(one, whole));
        if (out.length > most) throw tooLong(most);
      }
      return out;
    };
  }

  /** @type {Map<boolean, ReturnType<typeof encoder>>} */
  const encoders = new Map();

  /** @param {number} id */
  function token(id) {
    const found = added.get(id)?.text ?? data.model.tokens[id];
    if (found === null || found === undefined) throw refusal(data, `it has no token ${id}`);
    return found;
  }

  return {
    encode(text, { special = true, control = false, most = Infinity } = {}) {
      checkText(text);
      const encode = encoders.get(control) ?? encoder(control);
      encoders.set(control, encode);
      let found = encode(text, most);
      for (const process of postProcessor) found = process(found, special, token);
      if (found.length > most) throw tooLong(most);
      return {
        ids: found.map(({ id }) => id),
        tokens: found.map(({ text }) => text),
        offsets: found.map(({ from, to }) => [from, to]),
      };
    },
    decode(ids, { skipSpecial = true } = {}) {
      let pieces = ids.filter((id) => !(skipSpecial && added.get(id)?.skipped)).map(token);
      if (!decoder.length) pieces = [pieces.join(" ")];
      for (const step of pieces.length ? decoder : []) pieces = step(pieces);
      return cleanedUp(pieces.join(""), data.clean_up);
    },
    pieces(ids) {
      return ids.map((id) => {
        const text = token(id);
        if (added.get(id)?.special) return text;
        if (data.readable === "ByteLevel") return readable(bytesOf(text));
        const byte = data.readable === "ByteFallback" ? fallbackByte(text) : null;
        return byte === null ? text.replaceAll("▁", " ") : readable(Uint8Array.of(byte));
      });
    },
    after: data.post_processor.reduce((sum, step) => sum + (step.after?.length ?? 0), 0),
  };
}

/** @param {{ id: number, begin: number, end: number, text: string }} token @param {Aligned} whole @returns {Found} */
const located = ({ id, begin, end, text }, { at, from, to }) => ({
  id,
  from: from[at + begin],
  to: to[at + end - 1],
  text,
});

// Refusals.

/** @param {TokenizerData} data @param {string} why */
const refusal = ({ where }, why) => new Refused(`The tokenizer ${where} cannot run here: ${why}.`, 400);

/** @param {number} most */
const tooLong = (most) =>
  new Refused(`The text has more than ${most.toLocaleString("en")} tokens, which is all that fit: shorten it.`, 400);

/** @template T @param {TokenizerData} data @param {{ [name: string]: T }} table @param {string} what @param {string} name */
function known(data, table, what, name) {
  if (!Object.hasOwn(table, name)) throw refusal(data, `its ${what} ${name} is not known to this page`);
  return table[name];
}

/** @param {string} text */
function checkText(text) {
  if (text.length > LONGEST) {
    throw new Refused(`The text has more than ${LONGEST.toLocaleString("en")} characters: shorten it.`, 400);
  }
  const lone = /\p{Surrogate}/u.exec(text);
  if (!lone) return;
  const code = lone[0].charCodeAt(0).toString(16).toUpperCase();
  throw new Refused(
    `The text has half a character (a lone surrogate, U+${code}) at position ${lone.index}: remove it.`,
    400,
  );
}

// Steps.

/** @param {TokenizerData} data @param {any} step @param {(name: string) => string} classes @returns {Change} */
function changeOf(data, step, classes) {
  /** @type {{ [type: string]: () => Change }} */
  const changes = {
    substitute: () => substitute(compiled(step.pattern, classes), () => step.content),
    surround: () => substitute(compiled(step.pattern, classes), (c) => ` ${c} `),
    form: () => normalForm(step.form, new RegExp(`[${classes("normalized")}]+`, "gu")),
    lowercase: () => lowercase,
    prepend: () => prepend(step.text, step.unless, step.where),
    strip: () => strip(step.left, step.right),
    bytes: () => bytes,
  };
  return known(data, changes, "step", step.type)();
}

/** @param {TokenizerData} data @param {any} step @param {(name: string) => string} classes @returns {(whole: Aligned) => Aligned[]} */
function splitOf(data, step, classes) {
  if (step.type === "split") {
    known(data, BEHAVIORS, "behavior", step.behavior);
    return split(compiled(step.pattern, classes), step.behavior, step.invert);
  }
  const change = changeOf(data, step, classes);
  return (whole) => [change(whole)];
}

/** @typedef {(found: Found[], special: boolean, token: (id: number) => string) => Found[]} Process */

/** @param {TokenizerData} data @param {any} step @returns {Process} */
function processorOf(data, step) {
  /** @type {{ [type: string]: Process }} */
  const processors = {
    around: (found, special, token) => {
      if (!special) return found;
      /** @param {number} id */
      const put = (id) => ({ id, from: 0, to: 0, text: token(id) });
      return [...step.before.map(put), ...found, ...step.after.map(put)];
    },
    trim: (found) => found.map((one, i) => trimmed(one, i, step.prefix_space)),
  };
  return known(data, processors, "post-processor", step.type);
}

/**
 * A token without the spaces around it, but for one that the tokenizer itself put before the text.
 * @param {Found} found @param {number} i @param {boolean} prefixSpace
 */
function trimmed(found, i, prefixSpace) {
  let { from, to } = found;
  const letters = [...found.text];
  let [leading, trailing] = [0, 0];
  while (leading < letters.length && ONE_SPACE.test(letters[leading])) leading++;
  while (trailing < letters.length && ONE_SPACE.test(letters[letters.length - 1 - trailing])) trailing++;
  if (leading === 1 && prefixSpace && (i === 0 || from === 0)) leading = 0;
  from = Math.min(from + leading, to);
  if (to >= trailing) to = Math.max(to - trailing, from);
  return { ...found, from, to };
}

// Added tokens.

const SPACES_AFTER = new RegExp(`${SPACE}*`, "uy");
const IS_SPACE = new RegExp(SPACE, "u");

/**
 * A text cut at added tokens: at each place the longest. One that may not be taken here (a control token in a text, a part of
 * a word) still hides others that begin within it.
 * @param {AddedToken[]} tokens @param {boolean} control @param {RegExp} isWord @returns {(whole: Aligned) => Stretch[]}
 */
function findAdded(tokens, control, isWord) {
  const trie = createTrie(tokens.map(({ text }, i) => [text, i]));
  const starts = new Set(tokens.map(({ text }) => text.charCodeAt(0)));
  /** @param {string} text @param {number} begin @param {number} end */
  const standsAlone = (text, begin, end) => {
    const before = begin && text.slice(isSecondHalf(text, begin - 1) ? begin - 2 : begin - 1, begin);
    const after = end < text.length && String.fromCodePoint(text.codePointAt(end) ?? 0);
    return !(before && isWord.test(before)) && !(after && isWord.test(after));
  };
  return (whole) => {
    const { text } = whole;
    /** @type {Stretch[]} */
    const out = [];
    let done = 0;
    for (let at = 0; at < text.length; ) {
      let [end, found] = [at, -1];
      if (starts.has(text.charCodeAt(at))) trie.prefixes(text, at, (...longest) => ([end, found] = longest));
      if (found < 0) {
        at++;
        continue;
      }
      const token = tokens[found];
      const taken = (control || !token.special) && (!token.single_word || standsAlone(text, at, end));
      let [begin, stop] = [at, end];
      at = end;
      if (!taken) continue;
      if (token.lstrip) {
        while (begin > done && IS_SPACE.test(text[begin - 1])) begin--;
        begin = Math.max(begin, done); // a token before it may have taken spaces that it begins with
      }
      SPACES_AFTER.lastIndex = stop;
      if (token.rstrip) stop += SPACES_AFTER.exec(text)?.[0].length ?? 0;
      if (done < begin) out.push({ whole: part(whole, done, begin), id: null });
      out.push({ whole: part(whole, begin, stop), id: token.id });
      done = stop;
    }
    if (done < text.length) out.push({ whole: part(whole, done, text.length), id: null });
    return out;
  };
}
