/**
 * The pulse: the words flow through the model from left to right, and what lies behind it comes to light.
 *
 * In: the frame. Out: for a moment of the flow, the picture as far as it has come. It takes three seconds and can be skipped; with
 * reduced motion it is over at once.
 */

import { still } from "regard/scene/clock.js";
import { glow } from "regard/scene/painters.js";

const SPAN = 3000;

/**
 * @param {Frame} frame @param {() => void} done
 * @returns {Pulse}
 */
export function pulse(frame, done) {
  let begun = 0;
  let over = still();
  const [from, to] = [frame.label.x, frame.width];
  /** @param {number} time */
  const at = (time) => (over ? to : from + ((to - from) * (time - begun)) / SPAN);
  return {
    goesOn(time) {
      begun ||= time;
      if (!over && time - begun < SPAN) return true;
      over = true;
      done();
      return false;
    },
    skip() {
      over = true;
    },
    seen({ marks, things }, time) {
      const x = at(time);
      /** @param {Geometry} g */
      const reached = (g) => (g.u ?? g.x) <= x;
      /** @param {{ key: string, g: Geometry }} mark */
      const light = ({ key, g }) => (!LATER.test(key) || reached(g) ? 1 : 0.08);
      return {
        marks: [
          ...marks.map((mark) => ({ ...mark, g: { ...mark.g, alpha: (mark.g.alpha ?? 1) * light(mark) } })),
          { key: "pulse", paint: glow(), g: { x, y: frame.top - 10, w: 120, h: frame.bottom - frame.top + 20 } },
        ],
        things: things.map((thing) =>
          LATER.test(thing.key) && !reached(thing.g) ? { ...thing, g: { ...thing.g, alpha: 0 } } : thing,
        ),
      };
    },
  };
}

const LATER = /^(arc|guess|bar|answer|percent|ghost):/; // what comes to light when the pulse has passed
