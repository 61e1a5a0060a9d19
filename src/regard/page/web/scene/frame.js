/**
 * Where everything stands: rows of words, columns of gates, the answer at the right.
 *
 * In: a world, the view (how deep, which block is open) and the room there is. Out: numbers in pixels. Nothing is drawn here.
 * A word's row is as high as there is room for; of a long text, rows near the focus are higher than the others.
 */

const PITCH = { most: 84, least: 13 }; // pixels from row to row; below the least, rows far from the focus give way
const SLIVER = { most: 34, least: 7 };
const INSET = { top: 40, bottom: 46 }; // inside a gate, above the first row and below the last

/**
 * @param {World} world @param {SceneView} view @param {{ width: number, height: number }} room
 * @returns {Frame}
 */
export function frameOf(world, view, { width, height }) {
  const upright = width < 620;
  const narrow = width < 980;
  const label = upright ? 58 : narrow ? 76 : 112;
  const strip = upright ? 0 : narrow ? 40 : 68;
  const gap = upright ? 8 : 14;
  const answer = upright ? 0 : narrow ? 150 : Math.min(290, width * 0.2);
  const left = label + gap + strip + gap * (upright ? 1 : 2);
  const right = width - answer - (upright ? 4 : gap * 3);
  const top = 26;
  const bottom = height - (upright ? 34 : 40);
  const lanes = lanesOf(world, { top: top + INSET.top, bottom: bottom - INSET.bottom });
  return {
    width,
    height,
    upright,
    top,
    bottom,
    label: { x: label },
    strip: { x: label + gap, w: strip },
    stream: { x: label + gap * 2 + strip, w: right - (label + gap * 2 + strip) },
    answer: { x: width - answer, w: answer - 8 },
    lanes,
    gates: gatesOf(world, { ...view, alone: upright }, { left, right, top, bottom, lanes }),
    y: (stack, i) => lanes.get(stack)?.rows[i]?.y ?? 0,
  };
}

/**
 * Rows of each lane, from the top down; two lanes share the height by their numbers of words.
 * @param {World} world @param {{ top: number, bottom: number }} room
 * @returns {Frame["lanes"]}
 */
function lanesOf(world, { top, bottom }) {
  const between = world.lanes.length > 1 ? 46 : 0;
  const words = world.lanes.reduce((sum, { pieces }) => sum + pieces.length, 0);
  const free = bottom - top - between;
  /** @type {Frame["lanes"]} */
  const lanes = new Map();
  let y = top;
  for (const { stack, pieces } of world.lanes) {
    const height = Math.min((free * pieces.length) / words, pieces.length * PITCH.most);
    const slack = world.lanes.length > 1 ? 0 : Math.max(0, free - height) / 2;
    const rows = heights(pieces.length, height, stack === world.stack ? world.focus : -1);
    let at = y + slack;
    lanes.set(stack, {
      top: at,
      bottom: at + height,
      rows: rows.map((h) => {
        at += h;
        return { y: at - h / 2, h };
      }),
    });
    y = at + between;
  }
  return lanes;
}

/**
 * The heights of n rows that share `height`: equal if they are high enough to read, else a fisheye at the focus.
 * @param {number} n @param {number} height @param {number} focus
 */
function heights(n, height, focus) {
  const even = height / n;
  if (even >= PITCH.least || focus < 0) return Array.from({ length: n }, () => even);
  const shares = Array.from({ length: n }, (_, i) => 1 + 30 / (1 + ((i - focus) / 2.2) ** 2));
  const total = shares.reduce((a, b) => a + b, 0);
  const capped = shares.map((share) => Math.min(PITCH.least + 3, (height * share) / total));
  const rest = (height - capped.reduce((a, b) => a + b, 0)) / n;
  return capped.map((h) => h + Math.max(0, rest));
}

/**
 * A gate per block, over the lanes that it reads; the open one is wide, and its neighbours fold to slivers.
 * @param {World} world @param {SceneView & { alone: boolean }} view @param {{ left: number, right: number, top: number, bottom: number, lanes: Frame["lanes"] }} room
 * @returns {Gate[]}
 */
function gatesOf({ blocks }, { open, alone }, { left, right, top, bottom, lanes }) {
  const n = blocks.length;
  const folded = open >= 0;
  const share = (right - left) / Math.max(1, n);
  const sliver = alone ? 0 : Math.min(SLIVER.most, Math.max(SLIVER.least, ((right - left) * 0.24) / Math.max(1, n)));
  const space = folded && alone ? 0 : folded ? Math.min(12, sliver / 2) : Math.min(54, share * 0.3);
  const wide = right - left - (n - 1) * (sliver + space);
  let x = left + (folded ? 0 : space / 2);
  return blocks.map((block, i) => {
    const w = folded ? (i === open ? wide : sliver) : share - space;
    const own = lanes.get(block.stack);
    const across = lanes.size < 2 || block.sites.some(({ kind }) => kind === "cross");
    const y = across || own === [...lanes.values()][0] ? top : (own?.top ?? 0) - INSET.top;
    const end = across || own === [...lanes.values()].at(-1) ? bottom : (own?.bottom ?? 0) + INSET.bottom / 2;
    const gate = {
      x,
      w,
      y,
      h: end - y,
      block,
      open: i === open,
      folded: folded && i !== open,
    };
    x += w + space;
    return gate;
  });
}
