/**
 * Numbers out of the text that a file carries them in: base64 of gzip of their bytes, bytes of equal rank together.
 *
 * In: {shape, type, data}. Out: {shape, values}. Half precision becomes float32, exactly.
 */

const WIDTH = { float32: 4, float16: 2, int32: 4 };

/** @param {Parcel} parcel @returns {Promise<FileTensor>} */
export async function unpack({ shape, type, data }) {
  const packed = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const planes = new Uint8Array(await new Response(stream).arrayBuffer());
  const bytes = interleaved(planes, WIDTH[type]);
  if (type === "int32") return { shape, values: new Int32Array(bytes.buffer) };
  return { shape, values: type === "float16" ? halves(new Uint16Array(bytes.buffer)) : new Float32Array(bytes.buffer) };
}

/**
 * All first bytes, all second bytes, … → number after number. Little-endian, as every machine with a browser is.
 * @param {Uint8Array} planes @param {number} width
 */
function interleaved(planes, width) {
  const count = planes.length / width;
  const bytes = new Uint8Array(planes.length);
  for (let rank = 0; rank < width; rank++) {
    const from = rank * count;
    for (let i = 0; i < count; i++) bytes[i * width + rank] = planes[from + i];
  }
  return bytes;
}

/** @type {Float32Array | undefined} */
let table;

/**
 * float16 → float32, by looking each of the 65,536 up.
 * @param {Uint16Array} bits
 */
function halves(bits) {
  const known = table ?? Float32Array.from({ length: 65536 }, (_, n) => half(n));
  table = known;
  return Float32Array.from(bits, (n) => known[n]);
}

/** @param {number} n */
function half(n) {
  const [sign, exponent, fraction] = [n & 0x8000 ? -1 : 1, (n >> 10) & 31, n & 1023];
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -14 * (fraction / 1024));
}

/**
 * (m, n) → (n, m).
 * @param {FileTensor} fileTensor
 */
export function flipped({ shape: [m, n], values }) {
  const turned = values.slice();
  for (let i = 0; i < m; i++) for (let j = 0; j < n; j++) turned[j * m + i] = values[i * n + j];
  return { shape: [n, m], values: turned };
}
