/**
 * A QR code (ISO/IEC 18004) of a text: bytes, error correction level L, the smallest version that holds them.
 *
 * In: a text. Out: rows of modules, true where dark; null for a text beyond the largest code. Addresses with a view in them are
 * long, and level L keeps the modules large enough for a camera.
 */

const MOST = 40; // the largest version
// Of level L, by version: error correction codewords of a block, and blocks.
const CORRECTION = [
  7, 10, 15, 20, 26, 18, 20, 24, 30, 18, 20, 24, 26, 30, 22, 24, 28, 30, 28, 28, 28, 28, 30, 30, 26, 28, 30, 30, 30, 30, 30,
  30, 30, 30, 30, 30, 30, 30, 30, 30,
];
const BLOCKS = [
  1, 1, 1, 1, 1, 2, 2, 2, 2, 4, 4, 4, 4, 4, 6, 6, 6, 6, 7, 8, 8, 9, 9, 10, 12, 12, 12, 13, 14, 15, 16, 17, 18, 19, 19, 20,
  21, 22, 24, 25,
];
const LEVEL_L = 1; // as the format bits say it

/** @param {string} text @returns {boolean[][] | null} */
export function qrCode(text) {
  const bytes = [...new TextEncoder().encode(text)];
  for (let version = 1; version <= MOST; version++) {
    const room = dataCodewords(version);
    if (4 + (version < 10 ? 8 : 16) + 8 * bytes.length <= 8 * room)
      return best(version, interleaved(padded(bytes, version, room), version));
  }
  return null;
}

// ── from bytes to codewords ─────────────────────────────────────────────────────────────────────────────────────────

/** Modules for codewords: all but the patterns. @param {number} version */
function dataModules(version) {
  const count = Math.floor(version / 7) + 2;
  let modules = (16 * version + 128) * version + 64;
  if (version >= 2) modules -= (25 * count - 10) * count - 55;
  return version >= 7 ? modules - 36 : modules;
}

/** @param {number} version */
const codewords = (version) => Math.floor(dataModules(version) / 8);
/** @param {number} version */
const dataCodewords = (version) => codewords(version) - CORRECTION[version - 1] * BLOCKS[version - 1];

/** Mode, length, bytes, end, and what fills the rest. @param {number[]} bytes @param {number} version @param {number} room */
function padded(bytes, version, room) {
  /** @type {number[]} */
  const bits = [];
  /** @param {number} value @param {number} length */
  const put = (value, length) => {
    for (let i = length - 1; i >= 0; i--) bits.push((value >> i) & 1);
  };
  put(4, 4); // bytes
  put(bytes.length, version < 10 ? 8 : 16);
  for (const byte of bytes) put(byte, 8);
  put(0, Math.min(4, 8 * room - bits.length));
  put(0, (8 - (bits.length % 8)) % 8);
  for (let fill = 0; bits.length < 8 * room; fill ^= 1) put(fill ? 0x11 : 0xec, 8);
  return Array.from({ length: room }, (_, i) => bits.slice(8 * i, 8 * i + 8).reduce((sum, bit) => 2 * sum + bit, 0));
}

/** Blocks with their error correction, one codeword of each in turn. @param {number[]} data @param {number} version */
function interleaved(data, version) {
  const [count, extra] = [BLOCKS[version - 1], CORRECTION[version - 1]];
  const short = Math.floor(codewords(version) / count) - extra; // data of the first blocks; the others have one more
  const shorter = count - (codewords(version) % count);
  const divisor = generator(extra);
  let at = 0;
  const blocks = Array.from({ length: count }, (_, i) => {
    const part = data.slice(at, at + short + (i < shorter ? 0 : 1));
    at += part.length;
    return { part, check: remainder(part, divisor) };
  });
  const inTurn = (/** @type {number[][]} */ all) =>
    Array.from({ length: Math.max(...all.map((one) => one.length)) }, (_, i) =>
      all.flatMap((one) => (i < one.length ? [one[i]] : [])),
    ).flat();
  return [...inTurn(blocks.map(({ part }) => part)), ...inTurn(blocks.map(({ check }) => check))];
}

/** In GF(256) modulo x^8 + x^4 + x^3 + x^2 + 1. @param {number} x @param {number} y */
function times(x, y) {
  let z = 0;
  for (let i = 7; i >= 0; i--) {
    z = (z << 1) ^ ((z >>> 7) * 0x11d);
    z ^= ((y >>> i) & 1) * x;
  }
  return z;
}

/** The polynomial with the roots 2^0 … 2^(degree-1), without its leading 1. @param {number} degree */
function generator(degree) {
  /** @type {number[]} */
  const found = Array(degree).fill(0);
  found[degree - 1] = 1;
  for (let i = 0, root = 1; i < degree; i++, root = times(root, 2))
    for (let j = 0; j < degree; j++) found[j] = times(found[j], root) ^ (found[j + 1] ?? 0);
  return found;
}

/** @param {number[]} data @param {number[]} divisor */
function remainder(data, divisor) {
  /** @type {number[]} */
  const rest = Array(divisor.length).fill(0);
  for (const byte of data) {
    const factor = byte ^ /** @type {number} */ (rest.shift());
    rest.push(0);
    divisor.forEach((coefficient, i) => {
      rest[i] ^= times(coefficient, factor);
    });
  }
  return rest;
}

// ── from codewords to modules ───────────────────────────────────────────────────────────────────────────────────────

/** @typedef {{ size: number, dark: boolean[][], fixed: boolean[][] }} Grid */

/** @type {((r: number, c: number) => boolean)[]} */
const MASKS = [
  (r, c) => (r + c) % 2 === 0,
  (r) => r % 2 === 0,
  (_, c) => c % 3 === 0,
  (r, c) => (r + c) % 3 === 0,
  (r, c) => (Math.floor(r / 2) + Math.floor(c / 3)) % 2 === 0,
  (r, c) => ((r * c) % 2) + ((r * c) % 3) === 0,
  (r, c) => (((r * c) % 2) + ((r * c) % 3)) % 2 === 0,
  (r, c) => (((r + c) % 2) + ((r * c) % 3)) % 2 === 0,
];

/** The code with the mask that disturbs a reader least. @param {number} version @param {number[]} words */
function best(version, words) {
  const drawn = MASKS.map((_, mask) => drawing(version, words, mask));
  return drawn.reduce((a, b) => (penalty(b) < penalty(a) ? b : a));
}

/** @param {number} version @param {number[]} words @param {number} mask */
function drawing(version, words, mask) {
  const grid = patterns(version, mask);
  const { size, dark, fixed } = grid;
  let bit = 0;
  for (let right = size - 1; right >= 1; right -= 2) {
    if (right === 6) right = 5;
    for (let step = 0; step < size; step++) {
      for (const c of [right, right - 1]) {
        const r = ((right + 1) & 2) === 0 ? size - 1 - step : step;
        if (fixed[r][c]) continue;
        const value = bit < 8 * words.length && ((words[bit >> 3] >> (7 - (bit & 7))) & 1) === 1;
        dark[r][c] = value !== MASKS[mask](r, c);
        bit++;
      }
    }
  }
  return dark;
}

/** What every code of a version has. @param {number} version @param {number} mask @returns {Grid} */
function patterns(version, mask) {
  const size = 17 + 4 * version;
  const empty = () => Array.from({ length: size }, () => Array(size).fill(false));
  const grid = { size, dark: empty(), fixed: empty() };
  /** @param {number} r @param {number} c @param {boolean} dark */
  const set = (r, c, dark) => {
    if (r < 0 || c < 0 || r >= size || c >= size) return;
    grid.dark[r][c] = dark;
    grid.fixed[r][c] = true;
  };
  for (let i = 0; i < size; i++) {
    set(6, i, i % 2 === 0);
    set(i, 6, i % 2 === 0);
  }
  for (const [r, c] of [
    [3, 3],
    [3, size - 4],
    [size - 4, 3],
  ])
    square(4, (y, x, ring) => set(r + y, c + x, ring !== 2 && ring !== 4));
  const places = alignments(version, size);
  const last = places.length - 1;
  places.forEach((r, i) => {
    places.forEach((c, j) => {
      if ((i === 0 && j === 0) || (i === 0 && j === last) || (i === last && j === 0)) return; // a finder stands there
      square(2, (y, x, ring) => set(r + y, c + x, ring !== 1));
    });
  });
  formatBits(size, mask, set);
  if (version >= 7) versionBits(size, version, set);
  return grid;
}

/** Around a centre, with the ring that a module is in. @param {number} reach @param {(y: number, x: number, ring: number) => void} each */
function square(reach, each) {
  for (let y = -reach; y <= reach; y++)
    for (let x = -reach; x <= reach; x++) each(y, x, Math.max(Math.abs(y), Math.abs(x)));
}

/** Rows and columns of the alignment patterns. @param {number} version @param {number} size */
function alignments(version, size) {
  if (version === 1) return [];
  const count = Math.floor(version / 7) + 2;
  const step = Math.floor((version * 8 + count * 3 + 5) / (count * 4 - 4)) * 2;
  return [6, ...Array.from({ length: count - 1 }, (_, i) => size - 7 - i * step).reverse()];
}

/** @typedef {(r: number, c: number, dark: boolean) => void} Set */

/** @param {number} size @param {number} mask @param {Set} set */
function formatBits(size, mask, set) {
  const data = (LEVEL_L << 3) | mask;
  let rest = data;
  for (let i = 0; i < 10; i++) rest = (rest << 1) ^ ((rest >>> 9) * 0x537);
  const bits = ((data << 10) | rest) ^ 0x5412;
  const bit = (/** @type {number} */ i) => ((bits >>> i) & 1) === 1;
  for (let i = 0; i < 15; i++) {
    if (i < 8)
      set(i < 6 ? i : i + 1, 8, bit(i)); // row and column 6 are the timing pattern
    else set(8, i === 8 ? 7 : 14 - i, bit(i));
    if (i < 8) set(8, size - 1 - i, bit(i));
    else set(size - 15 + i, 8, bit(i));
  }
  set(size - 8, 8, true);
}

/** @param {number} size @param {number} version @param {Set} set */
function versionBits(size, version, set) {
  let rest = version;
  for (let i = 0; i < 12; i++) rest = (rest << 1) ^ ((rest >>> 11) * 0x1f25);
  const bits = (version << 12) | rest;
  for (let i = 0; i < 18; i++) {
    const dark = ((bits >>> i) & 1) === 1;
    const [a, b] = [size - 11 + (i % 3), Math.floor(i / 3)];
    set(a, b, dark);
    set(b, a, dark);
  }
}

/** How much a code disturbs a reader, by the four rules of the standard. @param {boolean[][]} dark */
function penalty(dark) {
  const size = dark.length;
  const columns = dark.map((_, c) => dark.map((row) => row[c]));
  let sum = 0;
  for (const line of [...dark, ...columns]) {
    const text = line.map(Number).join("");
    for (const [run] of text.matchAll(/0{5,}|1{5,}/g)) sum += run.length - 2;
    for (const finder of ["00001011101", "10111010000"])
      for (let at = text.indexOf(finder); at >= 0; at = text.indexOf(finder, at + 1)) sum += 40;
  }
  for (let r = 0; r + 1 < size; r++)
    for (let c = 0; c + 1 < size; c++) {
      const one = dark[r][c];
      if (one === dark[r][c + 1] && one === dark[r + 1][c] && one === dark[r + 1][c + 1]) sum += 3;
    }
  const count = dark.flat().filter(Boolean).length;
  return sum + 10 * Math.floor(Math.abs((20 * count) / (size * size) - 10));
}
