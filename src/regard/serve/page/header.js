/**
 * The header: which model, which text, how it is continued.
 *
 * In: the list of models and the state. Out: a form that is built once and then only told what changed, so that typing
 * is never interrupted by drawing. Enter runs.
 */

import { button, el, picker } from "regard/dom.js";
import { openKeys } from "regard/keys.js";
import { switchTheme, theme } from "regard/theme.js";

let form = null;

export function header(root, { models, model, state, backend, trace }) {
  if (!form || form.count !== models.length) {
    form = build(models, state, backend);
    root.replaceChildren(form.element);
  }
  form.tell(state.now, model, trace);
}

function build(models, state, backend) {
  const names = models.map(({ name }) => [name, name]);
  const choose = (name) => {
    const example = models.find((one) => one.name === name)?.examples[0] ?? "";
    state.set({
      model: name,
      text: example,
      target: "",
      against: "",
      fresh: 0,
      edits: {},
      site: "",
      head: 0,
      token: -1,
      key: 0,
      node: "",
      index: [],
      trail: [],
    });
  };
  const modelField = picker("model", names, state.now.model, choose, { data: { keep: "model" } });
  const typed = (id, placeholder, label) => el("input", {
    type: "text",
    id,
    autocomplete: "off",
    spellcheck: "false",
    placeholder,
    "aria-label": label,
    data: { keep: id },
  });
  const text = typed("text", "Type a text and press Enter", "Text");
  const empty = "Target text for the decoder; empty lets it write itself";
  const target = typed("target", "target: the model's own words", empty);
  const examples = el("select", {
    class: "examples",
    "aria-label": "Examples",
    title: "Examples for this model",
    on: { change: () => examples.value && run({ text: examples.value, target: "" }) },
  });
  const settings = ["seed", "temperature", "top_k"].map((key) => setting(key, state));
  const switcher = button(
    "",
    () => (switchTheme(), (switcher.textContent = sun())),
    { class: "quiet", "aria-label": "Light or dark", title: "Light or dark" },
  );
  const save = el("a", { class: "quiet", title: "One file with this run, to open anywhere", download: "" }, "Save");

  function run(change) {
    state.set({ fresh: 0, ...change, node: "", index: [], trail: [], token: -1, key: 0 });
  }
  const submit = (event) => {
    event.preventDefault();
    run({ text: text.value, target: target.value });
  };
  const element = el(
    "form",
    { class: "head", on: { submit } },
    el("span", { class: "brand" }, "regard"),
    modelField,
    el(
      "span",
      { class: "words" },
      text,
      examples,
      target,
      el("button", { type: "submit", class: "go", "aria-label": "Run", title: "Run (Enter)" }, "⏎"),
    ),
    el("span", { class: "settings" }, settings.map(({ element: one }) => one)),
    el(
      "span",
      { class: "tools" },
      save,
      switcher,
      button("?", openKeys, { class: "quiet", "aria-label": "Keys", title: "Keys (?)" }),
    ),
  );
  if (!backend.live) {
    for (const field of [text, target]) field.readOnly = true;
    for (const field of element.querySelectorAll("input[type=number], select, .go")) field.disabled = true;
  }
  switcher.textContent = sun();

  let told = {};
  const tell = (now, model, trace) => {
    if (now.text !== told.text) text.value = now.text;
    if (now.target !== told.target) target.value = now.target;
    if (now.model !== told.model) {
      modelField.querySelector("select").value = now.model;
      const given = models.find(({ name }) => name === now.model)?.examples ?? [];
      examples.hidden = !given.length;
      examples.replaceChildren(
        el("option", { value: "" }, "▾"),
        ...given.map((one) => el("option", { value: one }, one))
      );
    }
    examples.value = "";
    for (const one of settings) one.tell(now);
    target.hidden = model?.kind !== "encoder-decoder";
    element.querySelector(".settings").hidden = model?.kind === "encoder";
    save.hidden = !trace || !backend.live;
    if (trace && backend.live) save.href = backend.file(trace.trace);
    told = now;
  };
  return { element, tell, count: models.length };
}

const sun = () => (theme() === "dark" ? "☀" : "☾");

const NAMES = {
  seed: ["seed", "Draws are repeatable: the same seed gives the same text", { min: 0, step: 1 }],
  temperature: [
    "T",
    "Temperature: logits are divided by it before the softmax; 0 always takes the likeliest",
    { min: 0, max: 5, step: 0.1 },
  ],
  top_k: ["top-k", "Only the k likeliest tokens may be drawn; 0 allows all", { min: 0, step: 1 }],
};

function setting(key, state) {
  const [name, title, limits] = NAMES[key];
  const input = el("input", {
    type: "number",
    ...limits,
    title,
    data: { keep: key },
    on: { change: () => state.set({ [key]: Math.max(0, Number(input.value) || 0) }) },
  });
  return {
    element: el("label", { class: "field", title }, el("span", { class: "field-name" }, name), input),
    tell: (now) => {
      if (document.activeElement !== input) input.value = String(now[key]);
    },
  };
}
