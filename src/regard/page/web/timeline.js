/**
 * The timeline: the tokens the model wrote, one after another, live.
 *
 * In: the trace's steps. Out: a strip of pieces with their probabilities; "Play" streams new ones from the server as
 * they are drawn, "Step" draws one more. Seed, T and top-k are the header's, so a link gives the same words again.
 */

import { button, el, format } from "regard/dom.js";
import { show } from "regard/tokens.js";

const LONGEST = 24; // tokens per press of Play
/** @type {{ stopped: boolean } | null} */
let playing = null;

/** @param {HTMLElement} root @param {Context} ctx */
export function timeline(root, ctx) {
  root.querySelector(".timeline")?.remove();
  if (!ctx.backend.live) root.append(el("p", { class: "timeline hint" }, document.body.dataset.saved ?? ""));
  if (!ctx.backend.live || ctx.model.kind === "encoder") return;
  const strip = el(
    "ol",
    { class: "written", "aria-label": "Generated tokens" },
    ctx.trace.steps.map((step) => piece(ctx, step)),
  );
  const empty = ctx.trace.steps.length ? null : el("span", { class: "hint" }, "Play lets the model go on, token by token.");
  const controls = buttons(ctx, strip, () => empty?.remove());
  const plain = Object.keys(ctx.state.edits).length
    ? el("span", { class: "hint" }, "The model writes without the edits; they then act on the whole text.")
    : null;
  root.append(
    el("section", { class: "timeline", "aria-label": "Timeline" }, el("h2", {}, "Timeline"), controls, empty, plain, strip),
  );
  strip.scrollLeft = strip.scrollWidth;
}

/** @param {Context} ctx @param {HTMLElement} strip @param {() => void} started */
function buttons(ctx, strip, started) {
  const { fresh } = ctx.state;
  const play = button("Play", () => (playing ? stop() : run(ctx, strip, play, started)), {
    title: "Generate token by token",
    data: { keep: "play" },
  });
  const step = button("Step", () => ctx.go({ fresh: Math.max(fresh, ctx.trace.steps.length) + 1 }), {
    title: "One more token",
    data: { keep: "step" },
  });
  const clear = fresh ? button("Clear", () => ctx.go({ fresh: 0, token: -1 }), { class: "quiet" }) : null;
  return el("span", { class: "row" }, play, step, clear);
}

/**
 * Stream, show each token as it comes, then make the run with all of them the one on the stage.
 * @param {Context} ctx @param {HTMLElement} strip @param {HTMLButtonElement} play @param {() => void} started
 */
async function run(ctx, strip, play, started) {
  const { model, text, seed, temperature, top_k, fresh } = ctx.state;
  playing = { stopped: false };
  const mine = playing;
  play.textContent = "Stop";
  started();
  strip.replaceChildren();
  let count = 0;
  try {
    const request = { model, text, seed, temperature, top_k, max_new_tokens: fresh + LONGEST };
    for await (const event of ctx.backend.generate(request)) {
      if (event.done || mine.stopped) break;
      strip.append(piece(ctx, event, true));
      strip.scrollLeft = strip.scrollWidth;
      count++;
    }
    if (count) ctx.go({ fresh: count });
  } catch (error) {
    strip.replaceChildren(el("li", { class: "sentence error", role: "alert" }, error.message));
  } finally {
    playing = null;
    play.textContent = "Play";
  }
}

function stop() {
  if (playing) playing.stopped = true;
}

/** @param {Context} ctx @param {Step} step @param {boolean} [fresh] */
function piece(ctx, step, fresh = false) {
  const rivals = (step.candidates ?? []).slice(0, 5).map(([text, , p]) => `${show(text)} ${format(p, 3)}`);
  const words = [el("span", { class: "piece" }, show(step.piece)), el("span", { class: "p" }, format(step.probability, 2))];
  const attributes = {
    title: `probability ${format(step.probability, 4)}${rivals.length ? `; likeliest: ${rivals.join(", ")}` : ""}`,
  };
  const body =
    step.position === undefined
      ? el("span", attributes, words)
      : el("a", { ...attributes, href: ctx.link({ stage: "output", token: Math.max(0, step.position - 1) }) }, words);
  return el("li", { class: fresh ? "new" : null }, body);
}
