/**
 * The residual stream of one token: what comes in, what each attention and each MLP adds, what goes out.
 *
 * In: the run and the focused token; `state.view` names the norm that is worked out ("norm:decoder.0.norm_1"). Out: one line
 * per sum and summand with its vector and its length, the logit lens beside each block, and the norm number by number.
 */

import { absence } from "regard/delta.js";
import { button, choice, el, format, picker, sentence } from "regard/dom.js";
import { bar } from "regard/parts/bars.js";
import { isEdited } from "regard/parts/captions.js";
import { untagged } from "regard/parts/classes.js";
import { normWorkedOut } from "regard/parts/norm.js";
import { length, mostly, stackOf, tokenOf } from "regard/parts/run.js";
import { stream } from "regard/parts/stream.js";
import { vector } from "regard/parts/vector.js";
import { blockOf, blocksOf, switchFor } from "regard/parts/wiring.js";
import { labelsOf, show } from "regard/tokens.js";

/** @typedef {{ values: Float32Array, absent?: Uint8Array, size: number }} Row */
/** @typedef {{ tops: Map<string, Guess[]>, past?: Map<string, Guess[]> | null, refused?: string }} Guesses */

const FOLD = 6; // blocks; of a taller model only the one looked at is unfolded

/** @param {HTMLElement} root @param {Context} ctx */
async function render(root, ctx) {
  const stacks = ctx.model.stacks.map(({ name }) => name);
  const stack = ctx.site?.stack ?? stacks[0];
  const many = stackOf(ctx, stack).layers > FOLD;
  const here = blockOf(ctx);
  const lines = stream(ctx, stack, many && here ? here.layer : null);
  if (!lines.length) return root.append(sentence("empty", "This model has no residual stream to follow."));
  const token = tokenOf(ctx, stack);
  const label = labelsOf(ctx.trace, stack)[token];
  const norms = new Map(lines.flatMap(({ norm }) => norm ?? []).map((norm) => [placeOf(ctx, norm), norm]));
  const all = [...norms];
  const [chosen, norm] =
    all.find(([place]) => ctx.state.view === `norm:${place}`) ??
    all.find((one) => here && isOf(here, one[1])) ??
    all[0] ??
    [];
  if (stacks.length > 1)
    root.append(
      el(
        "div",
        { class: "controls" },
        choice(
          "Stack",
          stacks.map((name) => [name, name]),
          stack,
          (name) => ctx.go({ site: ctx.trace.sites.find((site) => site.stack === name)?.site }),
        ),
      ),
    );
  root.append(
    el(
      "p",
      { class: "lead" },
      "Each attention and each MLP ",
      el("b", {}, "adds"),
      " to the vector of ",
      el("b", {}, label),
      without(ctx, stack),
      many ? " One block is unfolded; choose another to see what it adds." : "",
    ),
  );
  const [rows, lens] = await Promise.all([
    Promise.all(lines.map((line) => row(ctx, line, token))),
    logitLens(ctx, token, stack),
  ]);
  root.append(table(ctx, lines, rows, lens, token, label, chosen));
  if (lens.refused) root.append(el("p", { class: "hint" }, lens.refused));
  if (!norm) return;
  const section = root.appendChild(el("section", { class: "norm-section", id: "norm" }));
  section.append(
    el(
      "div",
      { class: "controls" },
      el("h2", {}, "A norm, worked out"),
      picker(
        "which",
        all.map(([place]) => [place, place]),
        chosen,
        (place) => ctx.go({ view: `norm:${place}` }),
        { data: { keep: "residual:norm" } },
      ),
    ),
  );
  await normWorkedOut(section, ctx, norm, token, label);
}

/**
 * What a norm is called: what is to be off for it to be.
 * @param {Context} ctx @param {Norm} norm
 */
const placeOf = (ctx, { out }) => switchFor(ctx, out) ?? out;

/**
 * Whether a norm is of a block: of what it adds, or of one of its sums.
 * @param {Block} block @param {Norm} norm
 */
const isOf = ({ sums }, { x, out }) =>
  sums.some(({ node, branches }) => node === x || branches.some(({ norms }) => norms.includes(out)));

/**
 * What becomes of the sums: what the wiring says, and where an edit of this run changes that.
 * @param {Context} ctx @param {string} stack
 */
function without(ctx, stack) {
  const { trace } = ctx;
  const all = blocksOf(ctx)
    .filter((block) => block.stack === stack)
    .flatMap((block) => block.sums);
  const sums = all.map(({ node }) => node).filter((node) => isEdited(trace, node));
  const next = new Set(all.slice(1).map(({ stream }) => stream));
  const pre = all.slice(1).every(({ stream }, i) => stream === all[i].node); // each sum goes on from the one before
  const norms = trace.wiring.norms.map(({ out }) => out).filter((out) => next.has(out) && isEdited(trace, out));
  /** @param {string[]} nodes */
  const named = (nodes) => nodes.join(", ");
  const wired = pre
    ? ". Nothing is overwritten: what leaves the last block is what went into the first plus all that was added on the way"
    : ", and after each sum the vector is normalised";
  if (sums.length) return `. An edit changes ${named(sums)}: there the stream is not what it was plus what is added.`;
  return !pre && norms.length ? `${wired}, but for ${named(norms)}, which an edit changes.` : `${wired}.`;
}

/** @param {Context} ctx @param {StreamLine} line @param {number} token @returns {Promise<Row>} */
async function row(ctx, { node }, token) {
  const { values, absent } = await ctx.data.slice(node, [token, ":"]);
  return { values, absent, size: length(values) };
}

/**
 * node → the likeliest pieces if the model stopped there.
 * @param {Context} ctx @param {number} token @param {string} stack @returns {Promise<Guesses>}
 */
async function logitLens(ctx, token, stack) {
  if (ctx.trace.head === "none") return { tops: new Map() };
  if (ctx.trace.target_tokens && stack === "encoder") {
    return {
      tops: new Map(),
      refused: "The logit lens reads the decoder's stream; the encoder's is never turned into words.",
    };
  }
  if (ctx.trace.deciding && ctx.trace.deciding[token] !== token) return { tops: new Map(), refused: untagged(ctx, token) };
  try {
    /** @param {Lenses["logit_lens"]} given */
    const tops = ({ rows }) => new Map(rows.map(({ node, top }) => [node, top]));
    /** @param {RunData} data @param {number} at */
    const ask = (data, at) => data.lens("logit_lens", { token: at }).then(tops);
    if (ctx.mode !== "delta") return { tops: await ask(ctx.data, token) };
    const partners = await ctx.data.partners();
    const there = (ctx.trace.target_tokens ? partners.target : partners.source).get(token);
    const past = there === undefined ? null : await ask(ctx.data.of(ctx.base), there).catch(() => null);
    return { tops: await ask(ctx.data.of(ctx.other), token), past };
  } catch (error) {
    return { tops: new Map(), refused: error.message };
  }
}

const SIGNS = { add: "+", sum: "=", norm: "∘", start: "", part: "+", folded: "⋮" };

/**
 * @param {Context} ctx @param {StreamLine[]} lines @param {Row[]} rows @param {Guesses} guesses @param {number} token
 * @param {string} label @param {string | undefined} chosen
 */
function table(ctx, lines, rows, { tops, past }, token, label, chosen) {
  const longest = Math.max(...rows.map(({ size }) => size).filter(Number.isFinite));
  const heads = [
    "",
    "vector, each on its own scale",
    "length ‖x‖",
    tops.size ? `logit lens${ctx.mode === "delta" && !past ? " of B" : ""}` : "",
    "",
  ];
  const row = (/** @type {StreamLine} */ line, /** @type {number} */ i) => {
    const { values, absent, size } = rows[i];
    const { node, kind } = line;
    const cells = vector({
      values,
      bound: mostly(values),
      label: `${node} of ${label}`,
      read: (f) => `${node}[${token}, ${f}] = ${absence(absent, f, format(values[f]))}`,
      ask: (f) => ctx.ask(node, [token, f]),
      height: kind === "sum" || kind === "start" ? 20 : 12,
    });
    return el(
      "tr",
      { class: `stream-${kind}` },
      el(
        "th",
        { scope: "row", title: node },
        el("span", { class: "stream-sign", "aria-hidden": "true" }, SIGNS[kind]),
        nameOf(ctx, line, chosen),
      ),
      el("td", { class: "stream-cells" }, cells),
      el(
        "td",
        { class: "stream-size" },
        Number.isFinite(size) ? bar(size, longest) : null,
        el("span", { class: "number" }, absence(absent, 0, format(size, 2))),
      ),
      el("td", { class: "stream-lens" }, changedGuess(past?.get(node), tops.get(node))),
      el("td", { class: "stream-off" }, switchOf(ctx, line)),
    );
  };
  const head = el(
    "tr",
    {},
    heads.map((word) => (word ? el("th", { scope: "col" }, word) : el("td", {}))),
  );
  return el(
    "div",
    { class: "scrolls" },
    el("table", { class: "stream" }, el("thead", {}, head), el("tbody", {}, lines.map(row))),
  );
}

/**
 * A folded block opens, a norm is worked out below, the rest is only named.
 * @param {Context} ctx @param {StreamLine} streamLine @param {string | undefined} chosen
 */
function nameOf(ctx, { say, norm, open }, chosen) {
  if (open)
    return el("a", { href: ctx.link({ site: open }), title: "Unfold this block", data: { keep: `open:${open}` } }, say);
  if (!norm) return say;
  const place = placeOf(ctx, norm);
  return button(say, () => ctx.go({ view: `norm:${place}` }), {
    class: "quiet as-text",
    title: "Work this norm out below",
    "aria-pressed": String(place === chosen),
    data: { keep: `norm:${place}` },
  });
}

/** @param {Guess} guess @param {number} at */
function guess([piece, , p], at) {
  const share = at ? null : el("span", { class: "number" }, `${Math.round(100 * p)} %`);
  const title = `${format(100 * p, 2)} %`;
  return el("span", { class: at ? "lens-next" : "lens-top", title }, el("span", { class: "piece" }, show(piece)), share);
}

/** @param {Guess[]} [top] */
const guesses = (top = []) => top.slice(0, 3).map(guess);

/** @param {Guess[]} [past] @param {Guess[]} [now] */
const changedGuess = (past, now) => (past && now ? turned(past, now) : guesses(now));

/**
 * With Δ: what was likeliest, what is, and how its probability changed (against the five likeliest that are known).
 * @param {Guess[]} given @param {Guess[]} now
 */
function turned([[was, id, p]], now) {
  const [piece, best, share] = now[0];
  if (best !== id) return [guess([was, id, p], 0), " → ", guess(now[0], 0)];
  const change = Math.round(100 * share) - Math.round(100 * p);
  const word = change ? `${change > 0 ? "+" : "−"}${Math.abs(change)}` : "±0";
  return [
    guess([piece, best, share], 0),
    el("span", { class: "lens-change", title: `${format(100 * p, 2)} % before` }, word),
  ];
}

/**
 * Off, or on again: a residual or a norm.
 * @param {Context} ctx @param {StreamLine} streamLine
 */
function switchOf(ctx, { off }) {
  if (!off) return null;
  const isOff = ctx.state.edits[off] === "off";
  const title = `${isOff ? "Put back" : "Run again without"} ${off}`;
  const disabled = !isOff && !ctx.can(off, "off"); // a saved file cannot make every run again
  return button(isOff ? "on" : "off", () => switchOff(ctx, off, isOff), {
    class: "quiet small",
    title,
    "aria-label": `${isOff ? "on" : "off"}: ${title}`,
    disabled,
  });
}

/** @param {Context} ctx @param {string} place @param {boolean} isOff */
function switchOff(ctx, place, isOff) {
  if (!isOff) return ctx.edit(place, "off");
  const { [place]: _, ...rest } = ctx.state.edits;
  ctx.go({ edits: rest });
}

export default { id: "residual", title: "Residual", render };
