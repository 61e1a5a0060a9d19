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
/** @type {{ [key: string]: [x: number, y: number] }} */
const STEPS = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] };

/**
 * `sides`: {queries, keys}. `ask(h, i, j)` asks why. → {element, draw()}
 * @param {LinesView} view @param {Sides} sides @param {(h: number, i: number, j: number) => void} ask
 */
export function headColumns(view, sides, ask) {
  const { on, numbers, N, T } = view;
  /** @type {Cell} */
  let cursor = [0, 0]; // [which of the columns, which row]
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
  /** @param {number} h */
  const shownOf = (h) => numbers.get(h)?.shown ?? view.mean;
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
    on.forEach((h, at) => {
      pen.fillStyle = palette().faint;
      pen.fillText(String(h), at * WIDE + WIDE / 2, top - 8);
      for (let k = 0; k < rows(); k++) {
        pen.fillStyle = css(colour(valueAt(shownOf(h), view.alone, k, N, T)));
        pen.fillRect(at * WIDE + 1, top + k * row + 3, WIDE - 2, row - 6);
      }
    });
    if (document.activeElement !== element) return;
    pen.strokeStyle = palette().ink;
    pen.lineWidth = 2;
    pen.strokeRect(cursor[0] * WIDE + 1, top + cursor[1] * row + 2, WIDE - 2, row - 4);
  }

  /** @param {Cell} cell */
  const words = ([at, k]) => {
    const found = valueAt(shownOf(on[at]), view.alone, k, N, T);
    const value = Number.isNaN(found) ? ABSENT[1] : format(found); // weights are numbers; only a difference may have none
    return `head ${on[at]}, ${labels()[k]}: ${value}${view.alone ? "" : " on average"}`;
  };
  /** @param {Cell} cell */
  function why([at, k]) {
    if (!view.alone) return announce("An average over queries has no single reason: hold a token first.");
    const { side, i } = view.alone;
    if (side === "query") ask(on[at], i, k);
    else ask(on[at], k, i);
  }
  /**
   * The cell under the pointer, or null.
   * @param {MouseEvent} event @returns {Cell | null}
   */
  const under = (event) => {
    const [top, row] = geometry(element);
    const [at, k] = [Math.floor(event.offsetX / WIDE), Math.floor((event.offsetY - top) / row)];
    return on[at] === undefined || k < 0 || k >= rows() ? null : [at, k];
  };
  /** @param {Cell} cell @returns {[x: number, y: number]} */
  const place = ([at, k]) => {
    const [[top, row], box] = [geometry(element), element.getBoundingClientRect()];
    return [box.left + (at + 0.5) * WIDE, box.top + top + k * row];
  };
  /** @param {Cell} cell */
  const show = (cell) => {
    tip(words(cell), ...place(cell));
    announce(words(cell));
    draw();
  };
  element.addEventListener("pointermove", (event) => {
    const cell = under(event);
    if (cell) tip(words(cell), event.clientX, event.clientY - 6);
    else untip();
  });
  element.addEventListener("pointerleave", untip);
  element.addEventListener("click", (event) => {
    const cell = under(event);
    if (cell) why(cell);
  });
  element.addEventListener("focus", () => show(cursor));
  element.addEventListener("blur", () => {
    untip();
    draw();
  });
  element.addEventListener("keydown", (event) => {
    if (event.key === "Enter") why(cursor);
    else if (event.key in STEPS) {
      const [x, y] = STEPS[event.key];
      cursor = [within(cursor[0] + x, on.length), within(cursor[1] + y, rows())];
      show(cursor);
    } else return;
    event.preventDefault();
  });
  return { element, draw };
}

/** @param {number} i @param {number} count */
const within = (i, count) => Math.min(Math.max(i, 0), count - 1);

/**
 * What stands in row k of a head's column: of the token that is alone, or of all queries on average.
 * @param {Float32Array} shown @param {LinesToken | null} alone @param {number} k @param {number} N @param {number} T
 */
function valueAt(shown, alone, k, N, T) {
  if (alone) return shown[alone.side === "query" ? alone.i * T + k : k * T + alone.i];
  const each = Array.from({ length: N }, (_, i) => shown[i * T + k]).filter((x) => !Number.isNaN(x));
  return each.reduce((sum, x) => sum + x, 0) / each.length;
}

/**
 * Where the first token's row begins and how high a row is.
 * @param {HTMLCanvasElement} canvas
 */
function geometry(canvas) {
  const frame = canvas.parentElement ?? canvas;
  const item = frame.querySelector(".lines-side.key > li:not(.lines-head)") ?? frame;
  const [box, first] = [frame.getBoundingClientRect(), item.getBoundingClientRect()];
  return [first.top - box.top, first.height];
}
