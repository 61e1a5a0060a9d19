/**
 * The scene's only clock.
 *
 * In: what to draw, and for how long a change takes. Out: calls of `draw(t, now)` once per frame while something moves, t from 0
 * to 1, slow at both ends. A change that comes while another is shown begins where that one is. Nothing is drawn at rest.
 */

export const CHANGE = 400; // milliseconds from one picture to the next
const FADE = 160; // with reduced motion: a cross-fade

const reduced = matchMedia("(prefers-reduced-motion: reduce)");
export const still = () => reduced.matches;

/** @param {number} t */
const ease = (t) => (t < 0.5 ? 4 * t * t * t : 1 - (2 - 2 * t) ** 3 / 2);

/**
 * @param {(t: number, now: number) => void} draw
 * @returns {Clock}
 */
export function clock(draw) {
  let frame = 0;
  let begun = 0;
  let span = 0;
  /** @type {((now: number) => boolean) | null} */
  let pulse = null; // moves for longer than a change: returns whether it goes on

  /** @param {number} now */
  function tick(now) {
    begun ||= now;
    const t = span ? Math.min(1, (now - begun) / span) : 1;
    const goesOn = pulse ? pulse(now) : false;
    if (!goesOn) pulse = null;
    frame = t < 1 || goesOn ? requestAnimationFrame(tick) : 0;
    draw(ease(t), now);
  }
  const wake = () => {
    if (!frame) frame = requestAnimationFrame(tick);
  };
  return {
    start(moving = true) {
      begun = 0;
      span = moving ? (still() ? FADE : CHANGE) : 0;
      wake();
    },
    run(step) {
      pulse = step;
      wake();
    },
    stop() {
      cancelAnimationFrame(frame);
      frame = 0;
      pulse = null;
    },
  };
}
