/**
 * Lines over steps, drawn by hand in SVG: loss, gradient norms, a lesson's plot.
 *
 * In: series [{name, points: [[x, y], …], tone: 0…1 (depth of a layer) | "main" | "second" | "third" | "fourth" | "fifth"}].
 * Out: {element, cursor(x)}. The picture is laid out for the width it really has and again when that changes; `pick(x)` is
 * called when a person points at a step.
 *
 *   chart({title, series, log: false, height: 180, pick, cursor: x, unit: "step", marks: [x…]})
 */

import { el, format, svg } from "regard/dom.js";

/**
 * @typedef {object} ChartOptions
 * @property {Child} title @property {string} [say] @property {Series[]} series @property {boolean} [log] @property {number} [height]
 * @property {((x: number) => void) | null} [pick] @property {number | null} [cursor] @property {string} [unit]
 * @property {number[]} [marks] @property {string[] | null} [names]
 */

const ROOM = { left: 48, right: 14, top: 10, bottom: 24 };

/** @param {ChartOptions} chartOptions */
export function chart({
  title,
  say = typeof title === "string" ? title : "",
  series,
  log = false,
  height = 190,
  pick = null,
  cursor: first = null,
  unit = "step",
  marks = [],
  names = null,
}) {
  const drawn = series
    .map((one) => ({
      ...one,
      points: one.points.filter(([, y]) => Number.isFinite(y) && (!log || y > 0)),
    }))
    .filter(({ points }) => points.length);
  const frame = el("div", { class: "chart-frame" });
  const readout = el("span", { class: "chart-readout" });
  const element = el("figure", { class: "chart" }, el("figcaption", {}, title, readout), frame, key(drawn));
  let [width, at] = [0, first];
  /** @type {SVGLineElement | null} */
  let line = null;
  const scales = extent(drawn, log);

  /** @param {number} x */
  const X = (x) => ROOM.left + ((x - scales.x[0]) / (scales.x[1] - scales.x[0] || 1)) * (width - ROOM.left - ROOM.right);
  /** @param {number} y */
  const Y = (y) => {
    const [low, high] = scales.y;
    return (
      height - ROOM.bottom - (((log ? Math.log10(y) : y) - low) / (high - low || 1)) * (height - ROOM.top - ROOM.bottom)
    );
  };

  function draw() {
    width = frame.clientWidth;
    if (!width || !drawn.length) return;
    line = svg("line", { class: "chart-cursor", y1: ROOM.top, y2: height - ROOM.bottom });
    frame.replaceChildren(
      svg(
        "svg",
        { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": spoken(say, drawn, unit) },
        (log ? decades(...scales.y) : ticks(...scales.y, 4)).map((y) => level(y, Y, width)),
        steps(scales.x, names, width).map(([x, word]) =>
          svg("text", { class: "chart-tick", x: X(x), y: height - 7, "text-anchor": "middle" }, word),
        ),
        marks.map((x) =>
          svg("line", { class: "chart-mark", x1: X(x), x2: X(x), y1: height - ROOM.bottom, y2: height - ROOM.bottom + 4 }),
        ),
        drawn.map(({ points, tone, dots }) => [
          svg("path", {
            class: `chart-line ${hue(tone)}`,
            d: points.map(([x, y], i) => `${i ? "L" : "M"}${X(x).toFixed(1)} ${Y(y).toFixed(1)}`).join(""),
            style: depth(tone),
          }),
          dots
            ? points.map(([x, y]) =>
                svg("circle", { class: `chart-dot ${hue(tone)}`, cx: X(x), cy: Y(y), r: 2.5, style: depth(tone) }),
              )
            : [],
        ]),
        line,
      ),
    );
    cursor(at);
  }

  /**
   * Move the vertical line to a step and read the lines out there.
   * @param {number | null} x
   */
  function cursor(x) {
    at = x;
    if (!line) return;
    line.setAttribute("visibility", x === null ? "hidden" : "visible");
    if (x === null) {
      readout.textContent = "";
      return;
    }
    line.setAttribute("x1", String(X(x)));
    line.setAttribute("x2", String(X(x)));
    /** @param {Series} series */
    const read = ({ name, points }) => `${drawn.length > 1 ? `${name} ` : ""}${format(nearest(points, x)[1], 3)}`;
    const words = drawn.length > 2 ? [] : drawn.map(read);
    readout.textContent = `${unit} ${names ? names[x] : x}${words.length ? ": " : ""}${words.join(" · ")}`;
  }

  if (pick) {
    /** @param {PointerEvent} event */
    const point = (event) => {
      const along = (event.clientX - frame.getBoundingClientRect().left - ROOM.left) / (width - ROOM.left - ROOM.right);
      pick(scales.x[0] + Math.min(Math.max(along, 0), 1) * (scales.x[1] - scales.x[0]));
    };
    frame.classList.add("picks");
    frame.addEventListener("pointerdown", (event) => {
      frame.setPointerCapture(event.pointerId);
      point(event);
    });
    frame.addEventListener("pointermove", (event) => event.buttons && point(event));
  }
  new ResizeObserver(draw).observe(frame);
  return { element, cursor };
}

/** @param {number | string | undefined} tone */
const hue = (tone) => (typeof tone === "number" ? "layer" : (tone ?? "main"));
/** @param {number | string | undefined} tone @returns {{ [property: string]: string }} */
const depth = (tone) => (typeof tone === "number" ? { "--depth": tone.toFixed(3) } : {});
/** @param {Series["points"]} points @param {number} x */
const nearest = (points, x) => points.reduce((best, p) => (Math.abs(p[0] - x) < Math.abs(best[0] - x) ? p : best));

/** @param {Series[]} series */
function key(series) {
  if (series.length < 2) return null;
  return el(
    "ul",
    { class: "chart-key" },
    series.map(({ name, tone }) =>
      el("li", {}, el("span", { class: `chart-swatch ${hue(tone)}`, style: depth(tone) }), name),
    ),
  );
}

/** @param {Series[]} series @param {boolean} log @returns {{ x: Span, y: Span }} */
function extent(series, log) {
  const all = series.flatMap(({ points }) => points);
  if (!all.length) return { x: [0, 1], y: [0, 1] };
  const [xs, ys] = [all.map(([x]) => x), all.map(([, y]) => (log ? Math.log10(y) : y))];
  const [low, high] = [Math.min(...ys), Math.max(...ys)];
  const floor = !log && low >= 0 && low < 0.6 * high ? 0 : low;
  return { x: [Math.min(...xs), Math.max(...xs)], y: [floor, high === floor ? floor + 1 : high] };
}

/**
 * Round numbers between two ends.
 * @param {number} low @param {number} high @param {number} about
 */
function ticks(low, high, about) {
  const rough = (high - low) / about;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((k) => k * unit).find((k) => k >= rough) ?? 10 * unit;
  const out = [];
  for (let y = Math.ceil(low / step - 1e-9) * step; y <= high + step * 1e-6; y += step) out.push(y);
  return out;
}

/**
 * Powers of ten between two exponents, with 2 and 5 times them when they are few.
 * @param {number} low @param {number} high
 */
function decades(low, high) {
  const all = [];
  for (let n = Math.floor(low); n <= high; n++) for (const k of [1, 2, 5]) all.push(k * 10 ** n);
  const within = all.filter((y) => Math.log10(y) >= low - 1e-9 && Math.log10(y) <= high + 1e-9);
  const tens = within.filter((y) => Math.abs(Math.log10(y) - Math.round(Math.log10(y))) < 1e-9);
  return within.length <= 5 ? within : tens.filter((_, i) => i % Math.ceil(tens.length / 5) === 0);
}

/** @param {number} value @param {(y: number) => number} Y @param {number} width */
function level(value, Y, width) {
  const y = Y(value);
  const plain = value === 0 || (Math.abs(value) >= 0.001 && Math.abs(value) < 1e5);
  const word = plain ? String(Number(value.toPrecision(6))).replace("-", "−") : format(value, 1).replace(/^1\.0·/, "");
  return [
    svg("line", { class: "chart-level", x1: ROOM.left, x2: width - ROOM.right, y1: y, y2: y }),
    svg("text", { class: "chart-tick", x: ROOM.left - 7, y: y + 3.5, "text-anchor": "end" }, word),
  ];
}

/** @param {Span} span @param {string[] | null} names @param {number} width @returns {[x: number, word: string][]} */
function steps([low, high], names, width) {
  if (names) {
    const every = Math.ceil(names.length / Math.max(2, Math.floor(width / 60)));
    return names.flatMap((name, i) => (i % every === 0 ? [[i, name]] : []));
  }
  return ticks(low, high, width < 420 ? 3 : 6).map((x) => [x, String(Math.round(x))]);
}

/** @param {string} title @param {Series[]} series @param {string} unit */
function spoken(title, series, unit) {
  const ends = series.map(
    ({ name, points }) => `${name} from ${format(points[0][1])} to ${format(points[points.length - 1][1])}`,
  );
  return `${title} per ${unit}: ${ends.join("; ")}`;
}
