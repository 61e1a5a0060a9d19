/**
 * Training, replayed: what each head looked at while the model learned, with the loss, the entropies and the gradients.
 *
 * In: the runs the server was given, `state.run`, `state.step` (a frame), `state.view` = "probe.site" and `state.head`. Out: a
 * slider over the frames that can play, the attention of a probe sentence at that step, and curves with the cursor there.
 */

import { button, choice, el, picker, sentence } from "regard/dom.js";
import { matrix } from "regard/matrix.js";
import { entropies, gradients, losses } from "regard/parts/metrics.js";
import { show } from "regard/tokens.js";

const PACE = 450; // milliseconds a frame

/** @param {HTMLElement} root @param {Context} ctx */
async function render(root, ctx) {
  const [runs, { run: read }] = [await ctx.backend.runs(), ctx.backend];
  if (!runs.length || !read)
    return root.append(
      sentence(
        "empty",
        "No training run is open. Start the page with “regard view --run DIRECTORY”, or from a directory that has runs/. ",
        "Frames are kept of the sentences given as probes.",
      ),
    );
  const run = runs.find(({ name }) => name === ctx.state.run) ?? runs.find(({ steps }) => steps.length) ?? runs[0];
  const { lines } = await read(run.name);
  root.append(
    el(
      "div",
      { class: "controls" },
      picker(
        "run",
        runs.map(({ name }) => [name, name]),
        run.name,
        (name) => ctx.go({ run: name, step: 0, view: "" }),
        { data: { keep: "training:run" } },
      ),
    ),
  );
  const charts = [losses(lines, run.steps, pick), gradients(lines, pick)].filter((one) => one !== null);
  const heads = entropies(lines);
  const frames = run.steps.length ? await replay(root, ctx, run, shown) : null;
  const none = run.error ?? "This run kept no frames: no probes were given to it. Its curves are below.";
  if (!frames) root.append(sentence("empty", none));
  root.append(
    el(
      "div",
      { class: "beside even charts" },
      charts.map(({ element }) => element),
      heads?.element ?? null,
    ),
  );
  shown(frames?.step ?? null);

  /**
   * Everything that stands at a step moves there together.
   * @param {number | null} step
   */
  function shown(step) {
    for (const one of charts) one.cursor(step);
    heads?.at(step);
  }
  /** @param {number} x */
  function pick(x) {
    if (frames) frames.go(nearest(run.steps, x));
    else for (const one of charts) one.cursor(Math.round(x));
  }
}

/** @param {number[]} steps @param {number} x */
const nearest = (steps, x) => steps.reduce((best, s) => (Math.abs(s - x) < Math.abs(best - x) ? s : best));

/**
 * The frames of one probe at one site and head. → {step, go(step)}
 * @param {HTMLElement} root @param {Context} ctx @param {TrainingRun} run @param {(step: number | null) => void} shown
 */
async function replay(root, ctx, run, shown) {
  const sites = [...new Set(run.nodes.map(({ node }) => node))];
  const [probe, node] = chosen(ctx, run, sites);
  const kept = run.nodes.filter((one) => one.node === node);
  const kind = kept.find((one) => one.probe === probe) ?? kept[0];
  const head = Math.min(Math.max(0, ctx.state.head), kind.shape[0] - 1);
  /** @param {number | string} p @param {string} n */
  const view = (p, n) => ctx.go({ view: `${p}.${n}` });
  root.append(
    el(
      "div",
      { class: "controls" },
      run.probes.length > 1
        ? picker(
            "probe",
            run.probes.map(({ text }, i) => [i, text.replace("\t", " → ")]),
            probe,
            (p) => view(p, node),
          )
        : el("span", { class: "probe" }, `“${run.probes[0].text.replace("\t", "” → “")}”`),
      picker(
        "site",
        sites.map((one) => [one, one.replace(/\.weights$/, "")]),
        node,
        (n) => view(probe, n),
        { data: { keep: "training:site" } },
      ),
      el(
        "span",
        { class: "field" },
        el("span", { class: "field-name" }, "head"),
        choice(
          "Head",
          [...Array(kind.shape[0]).keys()].map((h) => [h, String(h)]),
          head,
          (h) => ctx.go({ head: Number(h) }),
        ),
      ),
    ),
  );

  const { steps } = run;
  let at = Math.max(0, steps.indexOf(ctx.state.step) >= 0 ? steps.indexOf(ctx.state.step) : steps.length - 1);
  const [, N, T] = kind.shape;
  const holder = el("div", { class: "frame" });
  const labels = labelsOf(run.probes[probe], node, N, T);
  /** @param {number} step */
  const load = async (step) => {
    const { values } = (await ctx.backend.frame?.(run.name, step, probe, node)) ?? { values: new Float32Array() };
    return values.subarray(head * N * T, (head + 1) * N * T);
  };
  const first = await load(steps[at]);

  const word = el("output", { class: "frame-step" });
  /** @type {HTMLInputElement} */
  const slider = el("input", {
    type: "range",
    min: 0,
    max: steps.length - 1,
    step: 1,
    value: at,
    "aria-label": "step",
    data: { keep: "training:step" },
    on: { input: () => go(steps[Number(slider.value)]) },
  });
  const play = button("▶ play", toggle, { "aria-label": "Play the frames", class: "play" });
  root.append(el("div", { class: "scrub" }, play, slider, word), holder);
  const picture = matrix(holder, {
    values: first,
    shape: [N, T],
    ...labels,
    title: node.replace(/\.weights$/, ""),
    subtitle: `head ${head}: where it looked`,
    axes: ["query", "key"],
    scale: "sequential",
    role: "A",
    say: "attention weights of the probe",
    height: 420,
    cell: { min: 6, max: 44 },
  });

  /** @type {ReturnType<typeof setInterval> | undefined} */
  let timer;
  let turn = 0;
  /** @param {number} step */
  async function go(step) {
    const mine = ++turn;
    at = steps.indexOf(step);
    slider.value = String(at);
    say();
    shown(step);
    const values = await load(step);
    if (mine !== turn) return;
    picture.show(values);
    ctx.note({ step });
  }
  function say() {
    word.textContent = `step ${steps[at]}`;
    slider.setAttribute("aria-valuetext", `step ${steps[at]}`);
  }
  function toggle() {
    if (timer) return stop();
    if (at === steps.length - 1) at = -1;
    play.textContent = "❚❚ pause";
    timer = setInterval(() => (holder.isConnected && at < steps.length - 1 ? go(steps[at + 1]) : stop()), PACE);
  }
  function stop() {
    clearInterval(timer);
    timer = undefined;
    play.textContent = "▶ play";
  }
  say();
  return { step: steps[at], go };
}

/**
 * The probe and the site of the view ("0.decoder.0.attention.weights"), or the first of each; crossings before the rest.
 * @param {Context} ctx @param {TrainingRun} run @param {string[]} sites @returns {[probe: number, node: string]}
 */
function chosen(ctx, run, sites) {
  const [, p, n] = /^(\d+)\.(.+)$/.exec(ctx.state.view) ?? [];
  const probe = run.probes[Number(p)] ? Number(p) : 0;
  return [probe, sites.includes(n) ? n : (sites.findLast((site) => site.includes(".cross.")) ?? sites[0])];
}

/**
 * Whose tokens stand at the rows and columns: a translation's decoder has read the start and all but its last token.
 * @param {TrainingRun["probes"][number]} given @param {string} node @param {number} N @param {number} T
 */
function labelsOf({ tokens }, node, N, T) {
  const source = tokens[0].map(show);
  const target = tokens[1] ? ["⟨start⟩", ...tokens[1].slice(0, -1).map(show)] : source;
  const decoder = node.startsWith("decoder.");
  const rows = decoder ? target : source;
  const cols = decoder && !node.includes(".cross.") ? target : source;
  return { rows: rows.slice(0, N), cols: cols.slice(0, T) };
}

export default { id: "training", title: "Training", render };
