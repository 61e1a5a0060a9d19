/**
 * Edits: what was switched off, scaled or set, as chips that can be taken back, and the switch A | B | Δ.
 *
 * In: the context (its state's `edits`: place → what). Out: chips, a menu of edits for the place looked at, and the
 * three views of an edited run. The mathematics is the server's; here is only what can be said.
 */

import { button, choice, el } from "regard/dom.js";
import { focusOf, labelsOf } from "regard/tokens.js";

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

/** An edit as a person says it: "decoder 2, head 5: zero". */
function inWords(place, what) {
  const done = typeof what === "object"
    ? Object.entries(what).map(([verb, value]) => `${verb} ${value}`).join(" ")
    : what;
  const words = place.split(".").map((word) => PARTS[word] ?? (word === "*" ? "every block" : word));
  return `${words.join(" ").replace("attention head", "head")}: ${done}`;
}

/** The edits offered where the person is: [label, place, what]. */
function offers(ctx) {
  const { site, model } = ctx;
  if (!site) return [];
  if (model.recurrent) return model.stacks.map(({ name }) => tokenOff(ctx, name)); // its steps cannot be changed, what it reads can
  const stack = model.stacks.find(({ name }) => name === site.stack) ?? model.stacks[0];
  const block = site.site.slice(0, site.site.lastIndexOf("."));
  const here = site.kind === "cross" ? "cross" : "1";
  const { scale, d_k } = ctx.nodes.get(`${site.site}.scores`).facts;
  const rooted = Math.abs(scale * Math.sqrt(d_k) - 1) < 1e-6;
  const list = [
    [`head ${ctx.head} off`, `${site.site}.head.${ctx.head}`, "zero"],
    scale !== 1 && [`scaling ${rooted ? "by √d_k" : "of the scores"} off`, `${site.site}.scaling`, "off"],
    ctx.nodes.has(`${site.site}.masked`) && ["mask off", `${site.site}.mask`, "off"],
    [`residual around ${site.kind === "cross" ? "cross " : ""}attention off`, `${block}.residual_${here}`, "off"],
    ["residual around the MLP off", `${block}.residual_2`, "off"],
    [
      `norm ${stack.wiring === "pre" ? "before" : "after"} ${site.kind === "cross" ? "cross " : ""}attention off`,
      `${block}.norm_${here}`,
      "off",
    ],
    [`norm ${stack.wiring === "pre" ? "before" : "after"} the MLP off`, `${block}.norm_2`, "off"],
    ["positions off", "positions", "off"],
    tokenOff(ctx, site.stack),
  ];
  return list.filter(Boolean);
}

function tokenOff(ctx, stack) {
  const labels = labelsOf(ctx.trace, stack);
  const token = Math.min(Math.max(0, ctx.state[focusOf(ctx, stack)]), labels.length - 1);
  return [`token “${labels[token]}” off`, `${ctx.trace.target_tokens ? `${stack}.` : ""}token.${token}`, "zero"];
}

const everywhere = (place) => place.replace(/^(encoder|decoder)\.\d+\./, "$1.*.");

export function edits(root, ctx) {
  root.querySelector(".edits")?.remove();
  const entries = Object.entries(ctx.state.edits);
  const chips = entries.map(([place, what]) => chip(ctx, place, what));
  const possible = offers(ctx).some(([, place, what]) => ctx.can(place, what));
  const hint = entries.length || ctx.other || !possible
    ? null
    : el("span", { class: "hint" }, "Switch something off and see what changes.");
  const compared = ctx.state.against || ctx.state.rival ? [rival(ctx)] : [];
  const view = ctx.other
    ? choice(
      "Which run is shown",
      [["a", "A", "before"], ["b", "B", "after"], ["delta", "Δ", "after − before"]],
      ctx.mode,
      (mode) => ctx.go({ mode }),
    )
    : null;
  root.prepend(el(
    "section",
    { class: "edits", "aria-label": "Edits" },
    el("h2", {}, "Edits"),
    menu(ctx),
    chips,
    compared,
    hint,
    view,
  ));
}

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

function rival(ctx) {
  const words = `B: ${[ctx.state.rival, ctx.state.against && `“${ctx.state.against}”`].filter(Boolean).join(" on ")}`;
  return el(
    "span",
    { class: "chip" },
    words,
    button(
      "✕",
      () => ctx.go({ against: "", rival: "" }),
      { class: "quiet", "aria-label": `Stop comparing with ${words}` },
    ),
  );
}

function menu(ctx) {
  const open = button("Edit…", () => dialog.showModal(), { data: { keep: "edit" } });
  const all = el("input", { type: "checkbox", id: "every-layer" });
  const press = (place, what) => () => {
    dialog.close();
    ctx.edit(all.checked ? everywhere(place) : place, what);
  };
  const rows = offers(ctx).map(([label, place, what]) => button(
    label,
    press(place, what),
    { title: place, disabled: !ctx.can(place, what) },
  ));
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

/** Any place and any change, by name. */
function anywhere(ctx, close) {
  const list = el("datalist", { id: "places" }, ctx.trace.nodes.map(({ name }) => el("option", { value: name })));
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

/** Another text or model as B. */
function another(ctx, close) {
  const text = el("input", {
    type: "text",
    value: ctx.state.against,
    placeholder: "another text to compare with",
    "aria-label": "Compare with this text",
  });
  const models = [
    ["", "the same model"],
    ...ctx.models.filter(
      ({ kind, name }) => kind === ctx.model.kind && name !== ctx.model.name,
    ).map(({ name }) => [name, name])
  ];
  const model = el(
    "select",
    { "aria-label": "Compare with this model" },
    models.map(([value, name]) => el("option", { value, selected: value === ctx.state.rival }, name)),
  );
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
