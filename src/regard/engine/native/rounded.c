/* Products with matrices of 8-bit and 4-bit integers in blocks of 32.
 *
 * The input is rounded to integers of 15 bits, block by block: x ≈ scale · a with |a| ≤ 127 · 128, so every product of
 * integers is exact and a result differs from the one on unrounded input by at most Σ |w| · scale / 2. Per block and group
 * of 8 rows:   y += d · scale · Σ q a  (+ m · scale · Σ a).
 *
 * AVX2, 4 bits: a = 128 high + low, both of 8 bits; unsigned nibbles times signed bytes are added up in 16 bits over one
 * block (8 × 2 × 15 × 127 = 30480 fits). 8 bits: bytes are widened to 16 bits and multiplied with a itself.
 */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-tree-ter", "no-tree-reassoc") /* which would collect the products of a block before adding them up */
#endif
#include "kernels.h"
#include "simd.h"

#define LIMIT 16256 /* 127 · 128 */
#define AHEAD 3072  /* bytes of the matrix asked for in advance: a third faster from memory than without asking */

static const int64_t BLOCK_BYTES[] = {[Q8_0] = 272, [Q4_0] = 144, [Q4_1] = 160};

/* 32 floats → integers, as the kernel for `format` reads them; their sum. Adding 1.5 · 2²³ rounds to nearest even. */
#ifdef AVX2

INLINE int32_t put(int32_t format, const float *x, float inverse, uint8_t *q) {
    __m256i a[4], total = _mm256_setzero_si256();
    for (int i = 0; i < 4; i++) {
        a[i] = (__m256i)(as_int(load(x + 8 * i) * all(inverse) + all(12582912.0f)) - 0x4b400000);
        total = _mm256_add_epi32(total, a[i]);
    }
    const __m256i first = _mm256_permute4x64_epi64(_mm256_packs_epi32(a[0], a[1]), _MM_SHUFFLE(3, 1, 2, 0));
    const __m256i second = _mm256_permute4x64_epi64(_mm256_packs_epi32(a[2], a[3]), _MM_SHUFFLE(3, 1, 2, 0));
    __m256i *out = (__m256i *)q;
    if (format == Q8_0) { /* 32 words */
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

INLINE int32_t put(int32_t format, const float *x, float inverse, uint8_t *q) {
    (void)format; /* words for both */
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

void NAME(quantise)(int32_t format, const float *x, int64_t n, uint8_t *q, float *scale, float *sum) {
    for (int64_t b = 0; b < n / BLOCK; b++, x += BLOCK, q += 2 * BLOCK) {
        v8i most = as_int(magnitude(load(x))); /* compared as integers, NaN is the largest: it comes out at the scale */
        for (int i = 8; i < BLOCK; i += 8) most = greatest_int(most, as_int(magnitude(load(x + i))));
        const int32_t bits = max8_int(most);
        float peak;
        memcpy(&peak, &bits, sizeof peak);
        const float inverse = peak > 1e-30f ? LIMIT / peak : 0.0f; /* a smaller block is nothing */
        const int32_t total = put(format, x, inverse, q);
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
#pragma GCC unroll 1
    for (int i = 0; i < 8; i++) { /* 4 columns: rows 0…3, rows 4…7 */
        const __m256i first = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(w + 32 * i)));
        const __m256i second = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(w + 32 * i + 16)));
#pragma GCC unroll 4
        for (int r = 0; r < R; r++) {
            const __m256i a = eight(q[r] + 8 * i);
            sum[r][0] = _mm256_add_epi32(sum[r][0], _mm256_madd_epi16(first, a));
            sum[r][1] = _mm256_add_epi32(sum[r][1], _mm256_madd_epi16(second, a));
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

/* One group of 8 rows of W with R rows of the input. */
INLINE void strip(const int format, const int R, const uint8_t *w, int64_t blocks, const input *x, int64_t row, float *out,
                  int64_t stride) {
    v8 y[4];
    const uint8_t *q[4];
#pragma GCC unroll 4
    for (int r = 0; r < R; r++) {
        y[r] = all(0.0f);
        q[r] = x->q + (row + r) * x->columns * 2;
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
            const v8 dot = __builtin_convertvector(dots[r], v8);
            v8 part = dot * all(scale[r * blocks]);
            if (format == Q4_0) part = fma8(all(-8.0f), all(sum[r * blocks]), part);
            y[r] = fma8(d, part, y[r]);
            if (format == Q4_1) y[r] = fma8(load_half((const uint16_t *)w + 8), all(sum[r * blocks]), y[r]);
            q[r] += 2 * BLOCK;
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; r++) store(out + (row + r) * stride, y[r]);
}

INLINE void product_as(const int format, const matrix *W, int64_t first, int64_t last, const input *x, float *out,
                       int64_t stride) {
    const int64_t blocks = x->columns / BLOCK, fit = (20 << 10) / (2 * x->columns); /* 20 kB of input at a time */
    const int64_t tall = fit < 4 ? 4 : fit & ~3;
    for (int64_t top = 0; top < x->rows; top += tall) {
        const int64_t rows = x->rows < top + tall ? x->rows : top + tall;
        for (int64_t g = first; g < last; g++) {
            const uint8_t *w = W->data + g * W->group_bytes;
            int64_t row = top;
            for (; row + 4 <= rows; row += 4) strip(format, 4, w, blocks, x, row, out + 8 * g, stride);
            if (row + 3 == rows) strip(format, 3, w, blocks, x, row, out + 8 * g, stride);
            else if (row + 2 == rows) strip(format, 2, w, blocks, x, row, out + 8 * g, stride);
            else if (row + 1 == rows) strip(format, 1, w, blocks, x, row, out + 8 * g, stride);
        }
    }
}

void NAME(product_rounded)(const matrix *W, int64_t first, int64_t last, const input *x, float *out, int64_t stride) {
    switch (W->format) {
    case Q8_0: product_as(Q8_0, W, first, last, x, out, stride); break;
    case Q4_0: product_as(Q4_0, W, first, last, x, out, stride); break;
    default: product_as(Q4_1, W, first, last, x, out, stride); break;
    }
}
