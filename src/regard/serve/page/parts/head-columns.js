/**
 * Beside the head view: a column per head that is on, a cell per token.
 *
 * In: a view {on, numbers, N, T, signed, most, alone}; alone = {side, i} is the token whose row is shown, otherwise each cell is
 * an average. Out: a canvas to be walked through with the pointer or the arrow keys; Enter and click ask why.
 */

import { ABSENT } from "regard/delta.js";
import { announce, el, format } from "regard/dom.js";
import { prepared } from "regard/parts/line-paint.js";
import { tip, untip } from "regard/parts/tip.js";
import { colours, css, palette } from "regard/scale.js";

const WIDE = 16; // pixels of a column
const STEPS = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] };

/** `sides`: {queries, keys}. `ask(h, i, j)` asks why. → {element, draw()} */
export function headColumns(view, sides, ask) {
  const { on, numbers, N, T } = view;
  let cursor = null; // [which of the columns, which row]
  const element = el("canvas", {
    class: "lines-heads",
    tabindex: "0",
    role: "application",
    "aria-roledescription": "matrix",
    "aria-label":
      `What each of ${on.length} heads gives each key: of the token that is held, or on average. ` +
      "Arrow keys move, Enter asks why.",
    data: { keep: "lines:heads" },
  });
  const rows = () => (view.alone?.side === "key" ? N : T);
  const labels = () => (view.alone?.side === "key" ? sides.queries : sides.keys);

  function draw() {
    const height = element.parentElement?.clientHeight ?? 0;
    element.style.width = `${on.length * WIDE}px`;
    if (!height) return;
    const pen = prepared(element, on.length * WIDE, height);
    const [top, row] = geometry(element);
    const colour = colours(view.signed ? "diverging" : "sequential", view.most);
    pen.font = `11px ${palette().figures}`;
    pen.textAlign = "center";
    pen.fillStyle = palette().faint;
    on.forEach((h, at) => pen.fillText(String(h), at * WIDE + WIDE / 2, top - 8));
    on.forEach((h, at) => {
      for (let k = 0; k < rows(); k++) {
        pen.fillStyle = css(colour(valueAt(numbers.get(h).shown, view.alone, k, N, T)));
        pen.fillRect(at * WIDE + 1, top + k * row + 3, WIDE - 2, row - 6);
      }
    });
    if (!cursor || document.activeElement !== element) return;
    pen.strokeStyle = palette().ink;
    pen.lineWidth = 2;
    pen.strokeRect(cursor[0] * WIDE + 1, top + cursor[1] * row + 2, WIDE - 2, row - 4);
  }

  const words = ([at, k]) => {
    const found = valueAt(numbers.get(on[at]).shown, view.alone, k, N, T);
    const value = Number.isNaN(found) ? ABSENT[1] : format(found); // weights are numbers; only a difference may have none
    return `head ${on[at]}, ${labels()[k]}: ${value}${view.alone ? "" : " on average"}`;
  };
  function why([at, k]) {
    if (!view.alone) return announce("An average over queries has no single reason: hold a token first.");
    ask(on[at], ...(view.alone.side === "query" ? [view.alone.i, k] : [k, view.alone.i]));
  }
  /** The cell under the pointer, or null. */
  const under = (event) => {
    const [top, row] = geometry(element);
    const [at, k] = [Math.floor(event.offsetX / WIDE), Math.floor((event.offsetY - top) / row)];
    return on[at] === undefined || k < 0 || k >= rows() ? null : [at, k];
  };
  const place = ([at, k]) => {
    const [[top, row], box] = [geometry(element), element.getBoundingClientRect()];
    return [box.left + (at + 0.5) * WIDE, box.top + top + k * row];
  };
  const show = (cell) => {
    tip(words(cell), ...place(cell));
    announce(words(cell));
    draw();
  };
  const listeners = {
    pointermove: (event) => (under(event) ? tip(words(under(event)), event.clientX, event.clientY - 6) : untip()),
    pointerleave: untip,
    click: (event) => under(event) && why(under(event)),
    focus: () => show((cursor ??= [0, 0])),
    blur: () => (untip(), draw()),
    keydown: (event) => {
      if (event.key === "Enter") why(cursor);
      else if (event.key in STEPS) {
        const [x, y] = STEPS[event.key];
        cursor = [within(cursor[0] + x, on.length), within(cursor[1] + y, rows())];
        show(cursor);
      } else return;
      event.preventDefault();
    },
  };
  for (const [name, does] of Object.entries(listeners)) element.addEventListener(name, does);
  return { element, draw };
}

const within = (i, count) => Math.min(Math.max(i, 0), count - 1);

/** What stands in row k of a head's column: of the token that is alone, or of all queries on average. */
function valueAt(shown, alone, k, N, T) {
  if (alone) return shown[alone.side === "query" ? alone.i * T + k : k * T + alone.i];
  const each = Array.from({ length: N }, (_, i) => shown[i * T + k]).filter((x) => !Number.isNaN(x));
  return each.reduce((sum, x) => sum + x, 0) / each.length;
}

/** Where the first token's row begins and how high a row is. */
function geometry(canvas) {
  const items = canvas.parentElement.querySelectorAll(".lines-side.key > li:not(.lines-head)");
  const box = canvas.parentElement.getBoundingClientRect();
  const first = items[0].getBoundingClientRect();
  return [first.top - box.top, first.height];
}
