/* Eight floats at a time, through the compiler's own vectors; intrinsics only where those have no word for it. */
#ifndef REGARD_SIMD_H
#define REGARD_SIMD_H

#include <math.h>
#include <stdint.h>
#include <string.h>
#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define AVX2 1
#include <immintrin.h>
#endif

#define INLINE static inline __attribute__((always_inline))

typedef float v8 __attribute__((vector_size(32)));
typedef int32_t v8i __attribute__((vector_size(32)));
typedef uint32_t v8u __attribute__((vector_size(32)));
typedef uint16_t v8h __attribute__((vector_size(16)));

INLINE v8 load(const float *p) {
    v8 x;
    memcpy(&x, p, sizeof x);
    return x;
}
INLINE void store(float *p, v8 x) { memcpy(p, &x, sizeof x); }
INLINE v8 all(float x) { return (v8){x, x, x, x, x, x, x, x}; }
INLINE v8i as_int(v8 x) {
    v8i y;
    memcpy(&y, &x, sizeof y);
    return y;
}
INLINE v8 as_float(v8i x) {
    v8 y;
    memcpy(&y, &x, sizeof y);
    return y;
}
INLINE v8 pick(v8i mask, v8 yes, v8 no) { return as_float((mask & as_int(yes)) | (~mask & as_int(no))); }
INLINE v8 magnitude(v8 x) { return as_float(as_int(x) & 0x7fffffff); }

/* a b + c, rounded once where the processor can. */
INLINE v8 fma8(v8 a, v8 b, v8 c) {
#ifdef AVX2
    return (v8)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
    return a * b + c;
#endif
}

#ifdef AVX2
INLINE v8 greatest(v8 a, v8 b) { return (v8)_mm256_max_ps((__m256)a, (__m256)b); } /* b if either is NaN */
INLINE v8 least(v8 a, v8 b) { return (v8)_mm256_min_ps((__m256)a, (__m256)b); } /* likewise */
INLINE v8i greatest_int(v8i a, v8i b) { return (v8i)_mm256_max_epi32((__m256i)a, (__m256i)b); }
INLINE __m128 upper(v8 x) { return _mm256_extractf128_ps((__m256)x, 1); }
INLINE __m128 lower(v8 x) { return _mm256_castps256_ps128((__m256)x); }

INLINE float sum8(v8 x) { /* ((0 4) (1 5)) ((2 6) (3 7)) */
    __m128 s = _mm_add_ps(lower(x), upper(x));
    s = _mm_add_ps(s, _mm_movehdup_ps(s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehl_ps(s, s)));
}

INLINE float max8(v8 x) {
    __m128 s = _mm_max_ps(lower(x), upper(x));
    s = _mm_max_ps(s, _mm_movehdup_ps(s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehl_ps(s, s)));
}

INLINE int32_t sum8_int(v8i x) {
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128((__m256i)x), _mm256_extracti128_si256((__m256i)x, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}

INLINE int32_t max8_int(v8i x) {
    __m128i s = _mm_max_epi32(_mm256_castsi256_si128((__m256i)x), _mm256_extracti128_si256((__m256i)x, 1));
    s = _mm_max_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}
#else
INLINE v8 greatest(v8 a, v8 b) { return pick(a > b, a, b); }
INLINE v8 least(v8 a, v8 b) { return pick(a < b, a, b); }
INLINE v8i greatest_int(v8i a, v8i b) { return ((a > b) & a) | (~(a > b) & b); }
INLINE float sum8(v8 x) { return ((x[0] + x[4]) + (x[1] + x[5])) + ((x[2] + x[6]) + (x[3] + x[7])); }

INLINE float max8(v8 x) {
    float best = x[0];
    for (int i = 1; i < 8; i++) best = x[i] > best ? x[i] : best;
    return best;
}

INLINE int32_t sum8_int(v8i x) {
    int32_t sum = 0;
    for (int i = 0; i < 8; i++) sum += x[i];
    return sum;
}

INLINE int32_t max8_int(v8i x) {
    int32_t best = x[0];
    for (int i = 1; i < 8; i++) best = x[i] > best ? x[i] : best;
    return best;
}
#endif

INLINE float half_to_float(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, rest = h & 0x7fff, bits;
    float x;
    if (rest >= 0x7c00) bits = sign | 0x7f800000 | (rest & 0x3ff) << 13; /* infinity, NaN */
    else if (rest >= 0x400) bits = sign | ((rest << 13) + (112u << 23));
    else {
        /* subnormal: an integer times 2^-24 */
        x = (float)rest * 0x1p-24f;
        return sign ? -x : x;
    }
    memcpy(&x, &bits, sizeof x);
    return x;
}

INLINE v8 load_half(const uint16_t *p) {
#ifdef AVX2
    return (v8)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
#else
    v8 x;
    for (int i = 0; i < 8; i++) x[i] = half_to_float(p[i]);
    return x;
#endif
}

/* To nearest, ties to even. */
INLINE uint16_t float_to_half(float x) {
#ifdef AVX2
    return (uint16_t)_cvtss_sh(x, 0);
#else
    uint32_t bits, sign;
    memcpy(&bits, &x, sizeof bits);
    sign = bits >> 16 & 0x8000;
    bits &= 0x7fffffff;
    if (bits > 0x7f800000) return (uint16_t)(sign | 0x7e00);
    if (bits >= 0x477ff000) return (uint16_t)(sign | 0x7c00); /* rounds beyond 65504 */
    if (bits < 0x38800000) { /* subnormal: let an addition do the rounding */
        float y;
        memcpy(&y, &bits, sizeof y);
        y += 0.5f;
        memcpy(&bits, &y, sizeof bits);
        return (uint16_t)(sign | (bits - 0x3f000000));
    }
    return (uint16_t)(sign | (bits - (112u << 23) + 0xfff + (bits >> 13 & 1)) >> 13);
#endif
}

INLINE v8 load_brain(const uint16_t *p) {
#ifdef AVX2 /* for the conversion below GCC 12 has five instructions */
    return (v8)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)), 16);
#else
    v8h h;
    memcpy(&h, p, sizeof h);
    return as_float((v8i)(__builtin_convertvector(h, v8u) << 16));
#endif
}

INLINE v8 load_bytes(const int8_t *p) {
#ifdef AVX2
    return (v8)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
#else
    v8 x;
    for (int i = 0; i < 8; i++) x[i] = (float)p[i];
    return x;
#endif
}

/* eˣ within 2 units in the last place: 2ⁿ · e^r with |r| ≤ ln 2 / 2. Below -87 it is 0, above 88 it stays at e^88. */
INLINE v8 exp8(v8 x) {
    v8i gone = x < all(-87.3f);
    x = least(all(88.0f), greatest(all(-87.3f), x)); /* in this order NaN stays NaN */
    v8 shifted = fma8(x, all(1.44269504f), all(12582912.0f)); /* 1.5 · 2²³: the integer is in the low bits */
    v8 n = shifted - all(12582912.0f);
    v8 r = fma8(n, all(-0.693359375f), x);
    r = fma8(n, all(2.12194440e-4f), r);
    v8 p = all(1.9875691500e-4f);
    p = fma8(p, r, all(1.3981999507e-3f));
    p = fma8(p, r, all(8.3334519073e-3f));
    p = fma8(p, r, all(4.1665795894e-2f));
    p = fma8(p, r, all(1.6666665459e-1f));
    p = fma8(p, r, all(5.0000001201e-1f));
    p = fma8(p, r * r, r + all(1.0f));
    v8 power = as_float((as_int(shifted) - 0x4b400000 + 127) << 23);
    return pick(gone, all(0.0f), p * power);
}

#endif
