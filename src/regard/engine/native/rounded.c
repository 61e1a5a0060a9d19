/* Products with quantized matrices: 8-bit and 4-bit integers in blocks of 32.
 *
 * The input is quantized to integers of 15 bits, block by block: x ≈ scale · a with |a| ≤ 127 · 128, so every product of
 * integers is exact and a result differs from the one on unrounded input by at most Σ |w| · scale / 2. Per block and group
 * of 8 rows:   y += d · scale · Σ q a  (+ m · scale · Σ a).
 *
 * AVX2, 4 bits: a = 128 high + low, both of 8 bits; unsigned nibbles times signed bytes are added up in 16 bits over one
 * block (8 × 2 × 15 × 127 = 30480 fits). 8 bits: bytes are widened to 16 bits and multiplied with a itself. For many rows
 * 4 bits are widened too, each piece of the matrix once.
 */
#if defined(__GNUC__) && !defined(__clang__)
/* Either would collect the products of a block before adding them up. */
#pragma GCC optimize("no-tree-ter", "no-tree-reassoc")
#endif
#include "kernels.h"
#include "simd.h"

#define LIMIT 16256 /* 127 · 128 */
#define AHEAD 3072  /* bytes of the matrix prefetched: a third faster from memory than without */
#ifdef AVX2
#define DEEP 512 /* columns, at most, of a piece that serves many rows */
#define TALL 256 /* rows that stay in the second-level cache, DEEP columns of each */
#define HOLD(x) __asm__("" : "+x"(x)) /* a sum stays in its register, and products are added as they come */
#endif

static const int64_t BLOCK_BYTES[] = {[Q8_0] = 272, [Q4_0] = 144, [Q4_1] = 160};

/* 32 floats → integers, words or high and low bytes; their sum. Adding 1.5 · 2²³ rounds to nearest even. */
#ifdef AVX2

INLINE int32_t put(int words, const float *x, float inverse, uint8_t *q) {
    __m256i a[4], total = _mm256_setzero_si256();
    for (int i = 0; i < 4; i++) {
        a[i] = (__m256i)(as_int(load(x + 8 * i) * all(inverse) + all(12582912.0f)) - 0x4b400000);
        total = _mm256_add_epi32(total, a[i]);
    }
    const __m256i first = _mm256_permute4x64_epi64(_mm256_packs_epi32(a[0], a[1]), _MM_SHUFFLE(3, 1, 2, 0));
    const __m256i second = _mm256_permute4x64_epi64(_mm256_packs_epi32(a[2], a[3]), _MM_SHUFFLE(3, 1, 2, 0));
    __m256i *out = (__m256i *)q;
    if (words) {
        _mm256_storeu_si256(out, first);
        _mm256_storeu_si256(out + 1, second);
    } else { /* 32 high bytes, 32 low ones */
        const __m256i half = _mm256_set1_epi16(64);
        const __m256i h0 = _mm256_srai_epi16(_mm256_add_epi16(first, half), 7);
        const __m256i h1 = _mm256_srai_epi16(_mm256_add_epi16(second, half), 7);
        const __m256i l0 = _mm256_sub_epi16(first, _mm256_slli_epi16(h0, 7));
        const __m256i l1 = _mm256_sub_epi16(second, _mm256_slli_epi16(h1, 7));
        _mm256_storeu_si256(out, _mm256_permute4x64_epi64(_mm256_packs_epi16(h0, h1), _MM_SHUFFLE(3, 1, 2, 0)));
        _mm256_storeu_si256(out + 1, _mm256_permute4x64_epi64(_mm256_packs_epi16(l0, l1), _MM_SHUFFLE(3, 1, 2, 0)));
    }
    return sum8_int((v8i)total);
}

#else

INLINE int32_t put(int words, const float *x, float inverse, uint8_t *q) {
    (void)words; /* always */
    int32_t sum = 0;
    for (int i = 0; i < BLOCK; i++) {
        const float shifted = x[i] * inverse + 12582912.0f;
        int32_t bits;
        memcpy(&bits, &shifted, sizeof bits);
        const int16_t a = (int16_t)((uint32_t)bits - 0x4b400000u);
        memcpy(q + 2 * i, &a, sizeof a);
        sum += a;
    }
    return sum;
}

#endif

void NAME(quantise)(int words, const float *x, int64_t n, uint8_t *q, float *scale, float *sum) {
    for (int64_t b = 0; b < n / BLOCK; b++, x += BLOCK, q += 2 * BLOCK) {
        v8i most = as_int(magnitude(load(x))); /* compared as integers, NaN is the largest: it comes out at the scale */
        for (int i = 8; i < BLOCK; i += 8) most = greatest_int(most, as_int(magnitude(load(x + i))));
        const int32_t bits = max8_int(most);
        float peak;
        memcpy(&peak, &bits, sizeof peak);
        const float inverse = peak > 1e-30f ? LIMIT / peak : 0.0f; /* a smaller block is nothing */
        const int32_t total = put(words, x, inverse, q);
        scale[b] = peak < 1e-30f ? 0.0f : peak * (1.0f / LIMIT);
        sum[b] = scale[b] * (float)total;
    }
}

#ifdef AVX2

INLINE __m256i four(const uint8_t *p) { /* 4 bytes, 8 times */
    int32_t x;
    memcpy(&x, p, sizeof x);
    return _mm256_set1_epi32(x);
}

INLINE __m256i eight(const uint8_t *p) { /* 8 bytes, 4 times */
    int64_t x;
    memcpy(&x, p, sizeof x);
    return _mm256_set1_epi64x(x);
}

INLINE __m256i bytes(const uint8_t *p) { return _mm256_loadu_si256((const __m256i *)p); }

/* Σ q · plane over a block, 16 sums of 16 bits: two for each of the 8 rows. */
INLINE __m256i plane(const __m256i *w, const uint8_t *q) {
    __m256i even = _mm256_maddubs_epi16(w[0], four(q)), odd = _mm256_maddubs_epi16(w[1], four(q + 4));
#pragma GCC unroll 8
    for (int i = 2; i < 8; i += 2) {
        even = _mm256_add_epi16(even, _mm256_maddubs_epi16(w[i], four(q + 4 * i)));
        odd = _mm256_add_epi16(odd, _mm256_maddubs_epi16(w[i + 1], four(q + 4 * i + 4)));
    }
    return _mm256_add_epi16(even, odd);
}

/* Σ q a of 8 rows with each of R rows of the input, in 32 bits. */
INLINE void dots_4(const int R, const uint8_t *nibbles, const uint8_t *const *q, v8i *dots) {
    const __m256i low = _mm256_set1_epi8(15);
    const __m256i one = _mm256_set1_epi16(1), weight = _mm256_set1_epi16(128);
    __m256i w[8];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        const __m256i both = bytes(nibbles + 32 * i);
        w[i] = _mm256_and_si256(both, low);
        w[4 + i] = _mm256_and_si256(_mm256_srli_epi16(both, 4), low);
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; r++) {
        const __m256i high = _mm256_madd_epi16(plane(w, q[r]), weight);
        dots[r] = (v8i)_mm256_add_epi32(high, _mm256_madd_epi16(plane(w, q[r] + BLOCK), one));
    }
}

INLINE void dots_8(const int R, const uint8_t *w, const uint8_t *const *q, v8i *dots) {
    __m256i sum[4][2];
#pragma GCC unroll 4
    for (int r = 0; r < R; r++) sum[r][0] = sum[r][1] = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) { /* 4 columns: rows 0…3, rows 4…7 */
        const __m256i first = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(w + 32 * i)));
        const __m256i second = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(w + 32 * i + 16)));
#pragma GCC unroll 4
        for (int r = 0; r < R; r++) {
            const __m256i a = eight(q[r] + 8 * i);
            sum[r][0] = _mm256_add_epi32(sum[r][0], _mm256_madd_epi16(first, a));
            sum[r][1] = _mm256_add_epi32(sum[r][1], _mm256_madd_epi16(second, a));
            HOLD(sum[r][0]);
            HOLD(sum[r][1]);
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; r++) { /* two sums for each row: rows 0 1 · 4 5 · 2 3 · 6 7 → in order */
        const __m256i pairs = _mm256_hadd_epi32(sum[r][0], sum[r][1]);
        dots[r] = (v8i)_mm256_permute4x64_epi64(pairs, _MM_SHUFFLE(3, 1, 2, 0));
    }
}

#else

INLINE int16_t word(const uint8_t *q, int i) {
    int16_t a;
    memcpy(&a, q + 2 * i, sizeof a);
    return a;
}

INLINE void dots_4(const int R, const uint8_t *nibbles, const uint8_t *const *q, v8i *dots) {
    for (int r = 0; r < R; r++) {
        int32_t sum[8] = {0};
        for (int i = 0; i < 16; i++) {
            const int32_t low = word(q[r], i), high = word(q[r], 16 + i);
            const uint8_t *w = nibbles + 32 * (i / 4) + i % 4;
            for (int row = 0; row < 8; row++) sum[row] += (w[4 * row] & 15) * low + (w[4 * row] >> 4) * high;
        }
        memcpy(&dots[r], sum, sizeof sum);
    }
}

INLINE void dots_8(const int R, const uint8_t *bytes, const uint8_t *const *q, v8i *dots) {
    for (int r = 0; r < R; r++) {
        int32_t sum[8] = {0};
        for (int i = 0; i < BLOCK; i++) {
            const int32_t a = word(q[r], i);
            const int8_t *w = (const int8_t *)bytes + 32 * (i / 4) + i % 4;
            for (int row = 0; row < 8; row++) sum[row] += w[4 * row] * a;
        }
        memcpy(&dots[r], sum, sizeof sum);
    }
}

#endif

/* y + d · scale · (dot, of nibbles that stand for -8…7 less 8 Σ a) + m · scale · Σ a, for 8 rows of W. */
INLINE v8 scaled(const int format, v8i dot, v8 scale, v8 sum, v8 d, v8 m, v8 y) {
    v8 part = __builtin_convertvector(dot, v8) * scale;
    if (format == Q4_0) part = fma8(all(-8.0f), sum, part);
    y = fma8(d, part, y);
    return format == Q4_1 ? fma8(m, sum, y) : y;
}

/* One group of 8 rows of W with R rows of the input. */
INLINE void strip(const int format, const int R, const uint8_t *w, int64_t blocks, const input *x, int64_t row, float *out,
                  int64_t stride) {
    v8 y[4];
    const uint8_t *q[4];
#pragma GCC unroll 4
    for (int r = 0; r < R; r++) {
        y[r] = all(0.0f);
        q[r] = x->q + (row + r) * x->stride;
    }
    for (int64_t b = 0; b < blocks; b++, w += BLOCK_BYTES[format]) {
        const float *scale = x->scale + row * blocks + b, *sum = x->sum + row * blocks + b;
        const v8 d = load_half((const uint16_t *)w);
        v8i dots[4];
        for (int64_t ahead = AHEAD; ahead < AHEAD + BLOCK_BYTES[format]; ahead += 64) __builtin_prefetch(w + ahead);
        if (format == Q8_0) dots_8(R, w + 16, q, dots);
        else dots_4(R, w + (format == Q4_1 ? 32 : 16), q, dots);
#pragma GCC unroll 4
        for (int r = 0; r < R; r++) {
            const v8 m = format == Q4_1 ? load_half((const uint16_t *)w + 8) : d;
            y[r] = scaled(format, dots[r], all(scale[r * blocks]), all(sum[r * blocks]), d, m, y[r]);
            q[r] += 2 * BLOCK;
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; r++) store(out + (row + r) * stride, y[r]);
}

#ifdef AVX2

/* For many rows, two groups of a piece of the matrix are widened once. A block of them: scales, minima, and the integers as
 * words, of each pair of columns the 8 rows' of both groups. */
typedef struct {
    v8 d[2], m[2];
    __m256i w[16][2];
} wide;

_Static_assert(sizeof(wide) * (DEEP / BLOCK) <= ROOM, "a piece fits into a thread's room");

typedef struct { /* from column `k` on; while it is used, the next one is prefetched */
    const wide *w;
    int64_t k, blocks, groups;       /* groups: 2, the last one may be alone */
    const uint8_t *ahead;            /* of the next piece's first group; the second is `apart` from there */
    int64_t apart, each;             /* each: bytes to prefetch per strip of rows */
} piece;

/* 4 columns of each of the 8 rows → two pairs of columns. */
INLINE void spread(__m256i bytes, wide *out, int pair, int g) {
    const __m256 first = (__m256)_mm256_cvtepi8_epi16(_mm256_castsi256_si128(bytes)); /* rows 0…3 */
    const __m256 second = (__m256)_mm256_cvtepi8_epi16(_mm256_extracti128_si256(bytes, 1));
    const __m256i left = (__m256i)_mm256_shuffle_ps(first, second, 0x88); /* rows 0 1 · 4 5 · 2 3 · 6 7 → in order */
    const __m256i right = (__m256i)_mm256_shuffle_ps(first, second, 0xdd);
    out->w[pair][g] = _mm256_permute4x64_epi64(left, _MM_SHUFFLE(3, 1, 2, 0));
    out->w[pair + 1][g] = _mm256_permute4x64_epi64(right, _MM_SHUFFLE(3, 1, 2, 0));
}

INLINE void widen(const int format, const uint8_t *w, int64_t blocks, int g, wide *out) {
    const __m256i low = _mm256_set1_epi8(15);
    for (int64_t b = 0; b < blocks; b++, w += BLOCK_BYTES[format], out++) {
        const uint8_t *integers = w + (format == Q4_1 ? 32 : 16);
        out->d[g] = load_half((const uint16_t *)w);
        if (format == Q4_1) out->m[g] = load_half((const uint16_t *)w + 8);
        for (int i = 0; i < 8 && format == Q8_0; i++) spread(bytes(integers + 32 * i), out, 2 * i, g);
        for (int i = 0; i < 4 && format != Q8_0; i++) {
            const __m256i both = bytes(integers + 32 * i);
            spread(_mm256_and_si256(both, low), out, 2 * i, g);
            spread(_mm256_and_si256(_mm256_srli_epi16(both, 4), low), out, 8 + 2 * i, g);
        }
    }
}

/* R rows × 2 groups. */
INLINE void tile(const int format, const int R, piece p, const input *x, int64_t row, float *out, int64_t stride) {
    const int64_t blocks = x->columns / BLOCK, first = row * blocks + p.k / BLOCK;
    v8 y[4][2];
#pragma GCC unroll 4
    for (int r = 0; r < R; r++)
#pragma GCC unroll 2
        for (int g = 0; g < 2; g++) y[r][g] = p.k && g < p.groups ? load(out + r * stride + 8 * g) : all(0.0f);
    const uint8_t *q = x->q + row * x->stride + 2 * p.k;
    for (int64_t b = first; b < first + p.blocks; b++, p.w++, q += 2 * BLOCK) {
        __m256i dots[4][2];
#pragma GCC unroll 4
        for (int r = 0; r < R; r++) __builtin_prefetch(q + x->stride * (R + r)); /* the next strip's */
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++) {
            const __m256i w0 = p.w->w[i][0], w1 = p.w->w[i][1];
#pragma GCC unroll 4
            for (int r = 0; r < R; r++) {
                const __m256i a = four(q + x->stride * r + 4 * i);
                const __m256i u = _mm256_madd_epi16(w0, a), v = _mm256_madd_epi16(w1, a);
                dots[r][0] = i ? _mm256_add_epi32(dots[r][0], u) : u;
                dots[r][1] = i ? _mm256_add_epi32(dots[r][1], v) : v;
                HOLD(dots[r][0]);
                HOLD(dots[r][1]);
            }
        }
#pragma GCC unroll 4
        for (int r = 0; r < R; r++) {
            const v8 scale = all(x->scale[b + r * blocks]), sum = all(x->sum[b + r * blocks]);
#pragma GCC unroll 2
            for (int g = 0; g < 2; g++)
                y[r][g] = scaled(format, (v8i)dots[r][g], scale, sum, p.w->d[g], p.w->m[g], y[r][g]);
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; r++)
#pragma GCC unroll 2
        for (int g = 0; g < 2; g++)
            if (g < p.groups) store(out + r * stride + 8 * g, y[r][g]);
}

/* Rows row … end-1 with one piece. */
INLINE void tiles(const int format, piece p, const input *x, int64_t row, int64_t end, float *out, int64_t stride) {
    for (; row + 4 <= end; row += 4, p.ahead += p.each) {
        for (int64_t i = 0; i < p.each; i += 64) {
            __builtin_prefetch(p.ahead + i, 0, 2);
            __builtin_prefetch(p.ahead + p.apart + i, 0, 2);
        }
        tile(format, 4, p, x, row, out + row * stride, stride);
    }
    if (row + 3 == end) tile(format, 3, p, x, row, out + row * stride, stride);
    else if (row + 2 == end) tile(format, 2, p, x, row, out + row * stride, stride);
    else if (row + 1 == end) tile(format, 1, p, x, row, out + row * stride, stride);
}

INLINE void many(const int format, const matrix *W, int64_t first, int64_t last, const input *x, float *out, int64_t stride,
                 wide *room) {
    const int64_t pieces = (x->columns + DEEP - 1) / DEEP, deep = (x->columns / BLOCK + pieces - 1) / pieces * BLOCK;
    const int64_t tall = pieces > 2 ? TALL / 2 : TALL; /* results that come back for each piece need room there too */
    for (int64_t top = 0; top < x->rows; top += tall) {
        const int64_t end = x->rows < top + tall ? x->rows : top + tall, strips = (end - top + 3) / 4;
        for (int64_t k = 0; k < x->columns; k += deep)
            for (int64_t g = first; g < last; g += 2) {
                const uint8_t *w = W->data + g * W->group_bytes + k / BLOCK * BLOCK_BYTES[format];
                piece p = {
                    .w = room,
                    .k = k,
                    .blocks = (x->columns - k < deep ? x->columns - k : deep) / BLOCK,
                    .groups = last - g < 2 ? 1 : 2,
                    .ahead = w + 2 * W->group_bytes,
                    .apart = W->group_bytes,
                };
                p.each = (p.blocks * BLOCK_BYTES[format] + strips - 1) / strips;
                for (int i = 0; i < p.groups; i++) widen(format, w + i * p.apart, p.blocks, i, room);
                tiles(format, p, x, top, end, out + 8 * g, stride);
            }
    }
}

#endif

/* A group of W stays in the first-level cache while all rows pass. */
INLINE void few(const int format, const matrix *W, int64_t first, int64_t last, const input *x, float *out,
                int64_t stride) {
    const int64_t blocks = x->columns / BLOCK;
    for (int64_t g = first; g < last; g++) {
        const uint8_t *w = W->data + g * W->group_bytes;
        int64_t row = 0;
        for (; row + 4 <= x->rows; row += 4) strip(format, 4, w, blocks, x, row, out + 8 * g, stride);
        if (row + 3 == x->rows) strip(format, 3, w, blocks, x, row, out + 8 * g, stride);
        else if (row + 2 == x->rows) strip(format, 2, w, blocks, x, row, out + 8 * g, stride);
        else if (row + 1 == x->rows) strip(format, 1, w, blocks, x, row, out + 8 * g, stride);
    }
}

INLINE void product_as(const int format, const matrix *W, int64_t first, int64_t last, const input *x, float *out,
                       int64_t stride, void *room) {
#ifdef AVX2
    if (x->rows > MANY) {
        many(format, W, first, last, x, out, stride, room);
        return;
    }
#endif
    (void)room;
    few(format, W, first, last, x, out, stride);
}

void NAME(product_rounded)(const matrix *W, int64_t first, int64_t last, const input *x, float *out, int64_t stride,
                           void *room) {
    switch (W->format) {
    case Q8_0: product_as(Q8_0, W, first, last, x, out, stride, room); break;
    case Q4_0: product_as(Q4_0, W, first, last, x, out, stride, room); break;
    default: product_as(Q4_1, W, first, last, x, out, stride, room); break;
    }
}
