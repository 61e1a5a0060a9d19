/**
 * The scene by keyboard: arrows move the word and the cell in focus, Enter goes deeper, B held down shows the run before.
 *
 * In: key presses outside of fields and matrices, while the scene is on the screen. Out: changes of state. The other keys are in
 * keys.js.
 */

/** @param {() => { ctx: Context, world: World } | null} shown */
export function listen(shown) {
  /** @param {KeyboardEvent} event */
  const here = (event) => {
    const found = shown();
    const target = event.target instanceof HTMLElement ? event.target : null;
    const busy = event.defaultPrevented || target?.closest("input, textarea, select, dialog, #drawer");
    return found && found.ctx.state.stage === "scene" && !busy && !event.ctrlKey && !event.metaKey && !event.altKey
      ? found
      : null;
  };
  document.addEventListener("keydown", (event) => {
    const found = here(event);
    if (!found) return;
    const change = pressed(event, found.ctx, found.world);
    if (!change) return;
    event.preventDefault();
    found.ctx.go(change);
  });
  document.addEventListener("keyup", (event) => {
    const found = here(event);
    if (found && event.key === "b" && found.ctx.other && found.ctx.state.mode === "a") found.ctx.go({ mode: "b" });
  });
}

/** @param {KeyboardEvent} event @param {Context} ctx @param {World} world @returns {Change | null} */
function pressed(event, ctx, world) {
  const { depth, key } = ctx.state;
  const { site } = ctx;
  const rows = world.lanes.find(({ stack }) => stack === world.stack)?.pieces.length ?? 1;
  const columns = site ? (ctx.nodes.get(site.weights)?.shape[2] ?? 1) : 1;
  const shut = { node: "", index: [], trail: [] };
  /** @param {number} by */
  const row = (by) => ({ token: Math.min(Math.max(world.focus + by, 0), rows - 1), ...shut });
  /** @param {number} by */
  const across = (by) => {
    if (depth > 1) return { key: Math.min(Math.max(key + by, 0), columns - 1), ...shut };
    const at = world.blocks.findIndex(({ sites }) => sites.some((one) => one.site === site?.site));
    const next = world.blocks[depth ? at + by : by > 0 ? 0 : world.blocks.length - 1];
    return next ? { depth: 1, site: next.sites.at(-1)?.site ?? "", ...shut } : null;
  };
  switch (event.key) {
    case "ArrowUp":
      return row(-1);
    case "ArrowDown":
      return row(1);
    case "ArrowLeft":
      return across(-1);
    case "ArrowRight":
      return across(1);
    case "Enter":
      if (event.target instanceof Element && event.target.closest("a, button")) return null;
      if (depth < 3) return { depth: depth + 1, ...(depth ? {} : { site: world.blocks.at(-1)?.sites.at(-1)?.site ?? "" }) };
      return site && !ctx.state.node
        ? { depth: 4, node: site.weights, index: [ctx.head, world.focus, key], trail: [] }
        : null;
    case "b":
      return ctx.other && !event.repeat && ctx.state.mode !== "a" ? { mode: "a" } : null;
  }
  return null;
}
