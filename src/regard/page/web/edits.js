/**
 * Edits: what was switched off, scaled or set, as chips that can be taken back, and the switch A | B | Δ.
 *
 * In: the context (its state's `edits`: place → what). Out: chips, a menu of edits for the place looked at, and the
 * three views of an edited run. The mathematics is the server's; here is only what can be said.
 */

import { button, choice, el } from "regard/dom.js";
import {
  blockOf,
  branchesOf,
  countedIn,
  maskOf,
  nodeOf,
  normsAlong,
  partsInWords,
  stepsOf,
  switchFor,
  titleOf,
  wayTo,
} from "regard/parts/wiring.js";
import { focusOf, labelsOf } from "regard/tokens.js";

/** @typedef {[label: string, place: string, what: string]} Offer */

/** @type {("Q" | "K" | "V")[]} */
const ROLES = ["Q", "K", "V"];

/** @type {{ [part: string]: string }} */
const PARTS = {
  attention: "attention",
  cross: "cross attention",
  mlp: "MLP",
  norm_1: "first norm",
  norm_2: "second norm",
  norm_cross: "norm of cross attention",
  final_norm: "final norm",
  residual_1: "residual around attention",
  residual_2: "residual around the MLP",
  residual_cross: "residual around cross attention",
  scaling: "scaling of the scores",
  mask: "mask",
  positions: "positions",
  rotary: "rotation by position",
};

/**
 * An edit as a person says it: "decoder 2, head 5: zero".
 * @param {string} place @param {Verb} what
 */
export function inWords(place, what) {
  const done =
    typeof what === "object"
      ? Object.entries(what)
          .map(([verb, value]) => `${verb} ${value}`)
          .join(" ")
      : what;
  const words = place.split(".").map((word) => PARTS[word] ?? (word === "*" ? "every block" : word));
  return `${words.join(" ").replace("attention head", "head")}: ${done}`;
}

/**
 * The edits offered where the person is. What can be off is what the graph has.
 * @param {Context} ctx @returns {Offer[]}
 */
export function offers(ctx) {
  const { site, model, nodes, trace } = ctx;
  if (!site) return [];
  if (model.recurrent) return model.stacks.map(({ name }) => tokenOff(ctx, name)); // its steps cannot be changed, what it reads can
  /** @param {string} words @param {string} node @returns {Offer | null} */
  const off = (words, node) => offer(`${words} off`, switchFor(ctx, node), "off");
  const made = ROLES.flatMap((role) => {
    const name = nodes.get(site[role])?.name;
    return name ? wayTo(nodes, name).map((step) => ({ role, step })) : [];
  });
  const sums = blockOf(ctx)?.sums.filter(({ branches }) => branches.some(isNear(site))) ?? [];
  const list = [
    offer(`head ${ctx.head} off`, `${countedIn(ctx, site.Z)}.${ctx.head}`, "zero"),
    ...stepsOf(ctx, site).map((name) => off(stepInWords(nodes, name), name)),
    site.masked ? offer("mask off", maskOf(ctx, site), "off") : null,
    ...made.map(({ role, step }) =>
      off(nodeOf(ctx, step).op === "rotate" ? "rotation by position" : `norm of ${role}`, step),
    ),
    ...sums.map(({ node, branches }) => off(`residual around ${partsInWords(branches)}`, node)),
    ...sums.flatMap((sum) => normsOf(trace, sum).map(([words, node]) => off(words, node))),
    "positions" in trace.switches ? offer("positions off", "positions", "off") : null,
    tokenOff(ctx, site.stack),
  ];
  const all = list.filter((one) => one !== null);
  return all.filter(([, place], at) => all.findIndex((one) => one[1] === place) === at);
}

/** @param {string} label @param {string | undefined} place @param {string} what @returns {Offer | null} */
const offer = (label, place, what) => (place ? [label, place, what] : null);

/**
 * Of a block with several attentions, what belongs to the one looked at, and the MLPs.
 * @param {Site} site
 */
const isNear =
  ({ site }) =>
  (/** @type {Branch} */ { sites }) =>
    !sites.length || sites.includes(site);

/** @param {Nodes} nodes @param {string} name */
function stepInWords(nodes, name) {
  const { op, facts } = nodeOf({ nodes }, name);
  if (op !== "scale" || facts.several) return titleOf(nodes, name);
  return `scaling ${facts.label?.startsWith("1/√") ? "by √d_k" : "of the scores"}`;
}

/**
 * The norms that go with a sum: [words, node].
 * @param {Trace} trace @param {ResidualSum} sum
 */
function normsOf({ wiring: { norms, blocks } }, sum) {
  const { node, branches } = sum;
  const within = new Set(blocks.flatMap(branchesOf).flatMap((branch) => branch.norms));
  const after = norms.filter(
    ({ x, out }) => x === node && !within.has(out) && blocks.every(({ out: end }) => end !== node),
  );
  return [
    ...normsAlong(sum).map(({ out, branch, all }) => [
      `norm ${out === branch.node ? "after" : "before"} ${partsInWords(all)}`,
      out,
    ]),
    ...after.map(({ out }) => [`norm after ${partsInWords(branches)}`, out]),
  ];
}

/** @param {Context} ctx @param {string} stack @returns {Offer} */
function tokenOff(ctx, stack) {
  const labels = labelsOf(ctx.trace, stack);
  const token = Math.min(Math.max(0, ctx.state[focusOf(ctx, stack)]), labels.length - 1);
  const embedded = ctx.trace.wiring.embeddings[stack].find((name) => ctx.nodes.get(name)?.facts.role === "token");
  return [`token “${labels[token]}” off`, `${countedIn(ctx, embedded)}.${token}`, "zero"];
}

/** @param {string} place */
const everywhere = (place) => place.replace(/^(encoder|decoder)\.\d+\./, "$1.*.");

/** @param {HTMLElement} root @param {Context} ctx */
export function edits(root, ctx) {
  root.querySelector(".edits")?.remove();
  const entries = Object.entries(ctx.state.edits);
  const chips = entries.map(([place, what]) => chip(ctx, place, what));
  const possible = offers(ctx).some(([, place, what]) => ctx.can(place, what));
  const hint =
    entries.length || ctx.other || !possible
      ? null
      : el("span", { class: "hint" }, "Switch something off and see what changes.");
  const compared = ctx.state.against || ctx.state.rival ? [rival(ctx)] : [];
  const view = ctx.other
    ? choice(
        "Which run is shown",
        [
          ["a", "A", "before"],
          ["b", "B", "after"],
          ["delta", "Δ", "after − before"],
        ],
        ctx.mode,
        (mode) => ctx.go({ mode }),
      )
    : null;
  root.prepend(
    el("section", { class: "edits", "aria-label": "Edits" }, el("h2", {}, "Edits"), menu(ctx), chips, compared, hint, view),
  );
}

/** @param {Context} ctx @param {string} place @param {Verb} what */
function chip(ctx, place, what) {
  const words = inWords(place, what);
  const remove = () => {
    const { [place]: gone, ...rest } = ctx.state.edits;
    ctx.go({ edits: rest });
  };
  return el(
    "span",
    { class: "chip", title: place },
    words,
    button("✕", remove, { class: "quiet", "aria-label": `Remove the edit ${words}`, data: { keep: `chip:${place}` } }),
  );
}

/** @param {Context} ctx */
function rival(ctx) {
  const words = `B: ${[ctx.state.rival, ctx.state.against && `“${ctx.state.against}”`].filter(Boolean).join(" on ")}`;
  return el(
    "span",
    { class: "chip" },
    words,
    button("✕", () => ctx.go({ against: "", rival: "" }), { class: "quiet", "aria-label": `Stop comparing with ${words}` }),
  );
}

/** @param {Context} ctx */
function menu(ctx) {
  const open = button("Edit…", () => dialog.showModal(), { data: { keep: "edit" } });
  const all = el("input", { type: "checkbox", id: "every-layer" });
  /** @param {string} place @param {Verb} what */
  const press = (place, what) => () => {
    dialog.close();
    ctx.edit(all.checked ? everywhere(place) : place, what);
  };
  const rows = offers(ctx).map(([label, place, what]) =>
    button(label, press(place, what), { title: place, disabled: !ctx.can(place, what) }),
  );
  /** @type {HTMLDialogElement} */
  const dialog = el(
    "dialog",
    {
      class: "edit-menu",
      "aria-labelledby": "edit-title",
      on: { click: (event) => event.target === dialog && dialog.close() },
    },
    el("h2", { id: "edit-title" }, `Edit ${ctx.site ? ctx.site.site : "the run"}`),
    ctx.backend.live && !ctx.model.recurrent ? el("label", { class: "check" }, all, " in every layer of this stack") : null,
    el("div", { class: "offers" }, rows),
    ctx.backend.live
      ? [anywhere(ctx, () => dialog.close()), another(ctx, () => dialog.close())]
      : el("p", { class: "hint" }, "This file holds its runs; edits that need a new one are switched off."),
    button("Close", () => dialog.close(), { class: "close" }),
  );
  return [open, dialog];
}

/**
 * Any place and any change, by name.
 * @param {Context} ctx @param {() => void} close
 */
function anywhere(ctx, close) {
  const list = el(
    "datalist",
    { id: "places" },
    ctx.trace.nodes.map(({ name }) => el("option", { value: name })),
  );
  const place = el("input", {
    type: "text",
    list: "places",
    placeholder: "decoder.0.attention.weights[3, 1, :]",
    "aria-label": "Place",
    required: true,
  });
  const what = el("input", {
    type: "text",
    placeholder: "zero, mean, scale 2, set 0.3, swap 1 2",
    "aria-label": "Change",
    required: true,
  });
  /** @param {SubmitEvent} event */
  const submit = (event) => {
    event.preventDefault();
    close();
    ctx.edit(place.value.trim(), what.value.trim());
  };
  return el(
    "form",
    { class: "row", on: { submit } },
    el("p", {}, "Anywhere, by name"),
    place,
    what,
    list,
    el("button", { type: "submit" }, "Edit"),
  );
}

/**
 * Another text or model as B.
 * @param {Context} ctx @param {() => void} close
 */
function another(ctx, close) {
  const text = el("input", {
    type: "text",
    value: ctx.state.against,
    placeholder: "another text to compare with",
    "aria-label": "Compare with this text",
  });
  const models = [
    ["", "the same model"],
    ...ctx.models
      .filter(({ kind, name }) => kind === ctx.model.kind && name !== ctx.model.name)
      .map(({ name }) => [name, name]),
  ];
  const model = el(
    "select",
    { "aria-label": "Compare with this model" },
    models.map(([value, name]) => el("option", { value, selected: value === ctx.state.rival }, name)),
  );
  /** @param {SubmitEvent} event */
  const submit = (event) => {
    event.preventDefault();
    close();
    ctx.go({ against: text.value, rival: model.value, mode: "b" });
  };
  return el(
    "form",
    { class: "row", on: { submit } },
    el("p", {}, "Compare with another run"),
    text,
    model,
    el("button", { type: "submit" }, "Compare"),
  );
}
