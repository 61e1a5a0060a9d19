/**
 * Heads: one head's lines from word to word, all heads of the model at once, one query against every key, or the way through
 * all blocks.
 *
 * In: the run, and `state.view` = "lines" | "grid" | "neurons" | "rollout", each with choices of its own behind dots
 * ("lines.contribution.0+3", "grid.entropy"). Out: the view.
 */

import { choice, el, picker, sentence } from "regard/dom.js";
import { grid } from "regard/parts/head-grid.js";
import { lines } from "regard/parts/head-lines.js";
import { neurons } from "regard/parts/head-neurons.js";
import { endOf, rollout } from "regard/parts/rollout.js";
import { siteName } from "regard/parts/run.js";

/** @type {{ [view: string]: [word: string, title: string, draw: (root: HTMLElement, ctx: SiteContext, choices: string[]) => unknown] }} */
const VIEWS = {
  lines: ["One site", "Who looks at whom, as lines", lines],
  grid: ["All heads", "Every head of every block, small, ranked by what it does", grid],
  neurons: ["One query", "q times k, number by number", neurons],
  rollout: ["Through all blocks", "Rollout: what is in each token after so many blocks of attention", rollout],
};

const WHOLE = new Set(["grid", "rollout"]); // views that are not of one site

/** @param {HTMLElement} root @param {Context} ctx */
async function render(root, ctx) {
  if (!ctx.site) return root.append(sentence("empty", "This run has no attention to show."));
  const [named, ...choices] = ctx.state.view.split(".");
  const here = named in VIEWS ? named : "lines";
  const last = endOf(ctx);
  /** @type {Options<string>} */
  const options = Object.entries(VIEWS).map(([key, [word, title]]) => [key, word, title]);
  /** @type {Options} */
  const sites = ctx.trace.sites.map((site) => [site.site, siteName(ctx, site)]);
  root.append(
    el(
      "div",
      { class: "controls" },
      choice("View", options, here, (view) => ctx.go(view === "rollout" ? { view, site: last } : { view })),
      WHOLE.has(here)
        ? null
        : picker("site", sites, ctx.site.site, (site) => ctx.go({ site }), { data: { keep: "heads:site" } }),
    ),
  );
  await VIEWS[here][2](root, ctx, here === named ? choices : []);
}

export default { id: "heads", title: "Heads", render };
