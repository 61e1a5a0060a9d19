/**
 * The stage: tabs, the sentence, and the panel that the state names.
 *
 * In: a context. Out: the panel's drawing. A panel is `panels/x.js` with the default export `{id, title, render(root,
 * ctx)}`; `render` may be async. The new drawing is prepared unseen and then takes the old one's place, so nothing
 * flickers.
 */

import { el, sentence } from "regard/dom.js";
import { tourBar } from "regard/parts/tour-bar.js";
import { KEYS, same } from "regard/state.js";
import { sentences } from "regard/tokens.js";

/** @type {Set<keyof State>} */
const DRAWER_ONLY = new Set(["node", "index", "trail"]);

/** @type {{ state: State, trace: Trace, other: Trace | null } | null} */
let last = null; // what is on the stage: {state, trace, other}
let coming = 0;

/**
 * Whether the panel must be drawn again; what the drawer shows is no reason.
 * @param {Context} ctx
 */
function changed(ctx) {
  const keys = KEYS.filter((key) => !DRAWER_ONLY.has(key));
  return !last || last.trace !== ctx.trace || last.other !== ctx.other || !same(last.state, ctx.state, keys);
}

/**
 * Draw the stage; resolves when the panel is on the screen.
 * @param {HTMLElement} root @param {Context} ctx @param {PanelEntry[]} panels
 */
export async function stage(root, ctx, panels) {
  const here = panels.some(([id]) => id === ctx.state.stage) ? ctx.state.stage : "attention"; // every kind has it
  if (!changed(ctx) && root.querySelector(".panel")) return;
  const mine = ++coming;
  const strip = el("div", { class: "strip" });
  const words = sentences(strip, ctx);
  const panel = el("section", { class: "panel", id: `panel-${here}`, "aria-label": here, data: { coming: "" } });
  /** @param {Change} change */
  const note = (change) => {
    ctx.note(change);
    if (last) last.state = { ...last.state, ...change };
  };
  const frame = { ...ctx, light: words.light, note };
  root.querySelector("[data-coming]")?.remove();
  if (!root.querySelector(".panel")) root.replaceChildren(tabs(ctx, panels, here), strip, sentence("busy", "Drawing…"));
  root.append(panel); // laid out but unseen: canvases need a width
  const [tour] = await Promise.all([tourBar(ctx), draw(panel, frame, here)]);
  if (mine !== coming) return panel.remove();
  last = { state: ctx.state, trace: ctx.trace, other: ctx.other };
  delete panel.dataset.coming;
  root.replaceChildren(tabs(ctx, panels, here), ...(tour ? [tour] : []), strip, panel);
}

/** @param {HTMLElement} panel @param {Context} ctx @param {string} name */
async function draw(panel, ctx, name) {
  try {
    const { default: drawn } = await import(`regard/panels/${name}.js`);
    await drawn.render(panel, ctx);
  } catch (error) {
    if (!error.status) console.error(error);
    panel.replaceChildren(sentence("error", error.message || `The panel “${name}” could not be drawn.`));
  }
}

/** @param {Context} ctx @param {PanelEntry[]} panels @param {string} here */
function tabs(ctx, panels, here) {
  /** @param {PanelEntry} panelEntry */
  const tab = ([id, title]) =>
    el(
      "a",
      {
        class: "tab",
        href: ctx.link({ stage: id }),
        "aria-current": id === here ? "page" : null,
        data: { keep: `tab:${id}` },
      },
      title,
    );
  return el("nav", { class: "tabs", "aria-label": "Stages" }, tab(["scene", "← Scene"]), panels.map(tab));
}
