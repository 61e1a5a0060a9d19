/**
 * The header: which text, which model, what to do with it.
 *
 * In: the list of models and the state. Out: a form that is built once per language and then only told what changed, so that typing
 * is never interrupted by drawing. Enter runs.
 */

import { button, el, picker } from "regard/dom.js";
import { openKeys } from "regard/keys.js";
import { settings } from "regard/parts/settings.js";
import { openShare } from "regard/parts/share.js";
import { present } from "regard/present.js";
import { play } from "regard/scene/scene.js";
import { reveal } from "regard/scene/tour.js";
import { openTours } from "regard/tours/menu.js";
import { sayer, sentenceOf } from "regard/words/words.js";

/** @type {ReturnType<typeof build> | null} */
let form = null;

/**
 * @param {HTMLElement} root
 * @param {{ models: ModelCard[], model: ModelFacts | null, state: Store, backend: Backend, trace: Trace | null }} given
 */
export function header(root, { models, model, state, backend, trace }) {
  if (!form || form.count !== models.length || form.lang !== state.now.lang) {
    form = build(models, state, backend);
    root.replaceChildren(form.element);
    document.documentElement.lang = state.now.lang;
  }
  form.tell(state.now, model, trace);
}

/** A model by its purpose: "a story writer · 0.9 M". @param {ModelCard} card @param {string} lang */
function purpose({ name, about, parameters }, lang) {
  const words = sentenceOf(lang, "story", `purpose.${name}`) ?? (about ? `${name}: ${about}` : name);
  return parameters ? `${words} · ${inMillions(parameters)}` : words;
}

/** @param {number} count */
const inMillions = (count) => `${(count / 1e6).toFixed(count < 1e7 ? 1 : 0)} M`;

/** @param {ModelCard[]} models @param {Store} state @param {Backend} backend */
function build(models, state, backend) {
  const { lang } = state.now;
  const say = sayer(lang, state.now.voice);
  const names = models.map((card) => /** @type {[string, string]} */ ([card.name, purpose(card, lang)]));
  /** @param {string} name */
  const choose = (name) => {
    const example = models.find((one) => one.name === name)?.examples[0] ?? "";
    run({ model: name, text: example, target: "", against: "", edits: {}, site: "", head: 0, depth: 0 });
  };
  const modelField = picker(say("header.model", {}), names, state.now.model, choose, { data: { keep: "model" } });
  const next = button(
    say("header.next", {}),
    async () => {
      if (next.dataset.playing) return play();
      if (reveal()) return; // of a tour's question
      next.dataset.playing = "yes";
      try {
        await play();
      } finally {
        delete next.dataset.playing;
      }
      state.set({ fresh: state.now.fresh + 1, token: -1, node: "", index: [], trail: [] });
    },
    { class: "next", title: say("header.next.means", {}), data: { keep: "next" } },
  );
  /** @param {string} id @param {string} placeholder @param {string} label */
  const typed = (id, placeholder, label) =>
    el("input", {
      type: "text",
      id,
      autocomplete: "off",
      spellcheck: "false",
      placeholder,
      "aria-label": label,
      data: { keep: id },
    });
  const text = typed("text", say("header.text.hint", {}), say("header.text", {}));
  const target = typed("target", say("header.target.hint", {}), say("header.target", {}));
  /** @type {HTMLSelectElement} */
  const examples = el("select", {
    class: "examples",
    "aria-label": say("header.examples", {}),
    title: say("header.examples", {}),
    on: { change: () => examples.value && run({ text: examples.value, target: "" }) },
  });
  const set = settings(say, state);
  let file = "";

  /** @param {Change} change */
  function run(change) {
    state.set({ fresh: 0, ...change, ...onScene(state.now), node: "", index: [], trail: [], token: -1, key: 0 });
  }
  /** @param {SubmitEvent} event */
  const submit = (event) => {
    event.preventDefault();
    run({ text: text.value, target: target.value });
  };
  /** @param {string} key @param {() => unknown} press @param {string} [title] */
  const tool = (key, press, title = undefined) =>
    button(say(`header.${key}`, {}), press, { class: "quiet", title, data: { keep: key } });
  const run_ = say("header.run", {});
  const element = el(
    "form",
    { class: "head", on: { submit } },
    el("h1", { class: "brand" }, el("a", { href: "#", title: say("header.again", {}) }, "regard")),
    el(
      "span",
      { class: "words" },
      text,
      examples,
      target,
      el("button", { type: "submit", class: "go", "aria-label": run_, title: `${run_} (Enter)` }, "⏎"),
    ),
    next,
    modelField,
    el(
      "span",
      { class: "tools" },
      backend.live ? tool("tours", () => openTours(backend, state.now)) : null,
      tool("present", () => present(state), `${say("header.present.means", {})} (p)`),
      tool("share", () => openShare(say, file)),
      set.element,
      button("?", openKeys, {
        class: "quiet",
        "aria-label": say("header.keys", {}),
        title: `${say("header.keys", {})} (?)`,
      }),
    ),
  );
  if (!backend.live) {
    for (const field of [text, target]) field.readOnly = true;
    for (const field of element.querySelectorAll(".draws input, .head > .field select, .examples, .go"))
      field.toggleAttribute("disabled", true);
  }

  /** @type {Change} */
  let told = {};
  /** @param {State} now @param {ModelFacts | null} model @param {Trace | null} trace */
  const tell = (now, model, trace) => {
    if (now.text !== told.text) text.value = now.text;
    if (now.target !== told.target) target.value = now.target;
    if (now.model !== told.model) {
      for (const select of modelField.querySelectorAll("select")) [select.value, select.title] = [now.model, now.model];
      const given = models.find(({ name }) => name === now.model)?.examples ?? [];
      examples.hidden = !given.length;
      examples.replaceChildren(el("option", { value: "" }, "▾"), ...given.map((one) => el("option", { value: one }, one)));
    }
    examples.value = "";
    set.tell(now, model?.kind !== "encoder");
    target.hidden = model?.kind !== "encoder-decoder";
    next.hidden = model?.kind === "encoder" || now.stage !== "scene" || !backend.live;
    file = trace && backend.live ? backend.file(trace.trace) : "";
    told = now;
  };
  return { element, tell, count: models.length, lang };
}

/** Whoever runs something wants to see it, and no longer a lesson's figure. @param {State} now @returns {Change} */
const onScene = ({ stage }) => (stage === "figure" ? { stage: "scene" } : {});
