/* The kernels of one instruction set. Each is compiled once for AVX2 and once as plain C; `regard_choose` picks. */
#ifndef REGARD_KERNELS_H
#define REGARD_KERNELS_H

#include "engine.h"

#ifndef ISA
#define ISA portable
#endif
#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)
#define NAME(x) JOIN(x, ISA)

#define MANY 16        /* rows above which a product with quantized weights widens them once for all rows */
#define ROOM (20 << 10) /* bytes of a thread's scratch memory that a product may use */

/* The input of a product, `rows` × `columns`. Floats: X. Quantized: for every block of 32 columns 64 bytes of q (words or,
 * for 4 bits and not many rows, what is faster on the instruction set), a scale, and the scale times the integers' sum. */
typedef struct {
    int64_t rows, columns;
    const float *X;
    int64_t stride; /* from a row to the next, floats of X or bytes of q */
    const uint8_t *q; /* rows × columns × 2 bytes */
    const float *scale, *sum; /* rows × columns/32 each */
} input;

typedef struct {
    const char *name;
    /* out[r][8 g … 8 g + 7] for groups g of W in [first, last): the product with every row of the input */
    void (*product)(const matrix *W, int64_t first, int64_t last, const input *x, float *out, int64_t stride, float *room);
    /* one row of `n` floats → integers of 15 bits in blocks of 32 */
    void (*quantise)(int words, const float *x, int64_t n, uint8_t *q, float *scale, float *sum);
    void (*norm)(int32_t kind, const float *x, int64_t n, const float *gain, const float *shift, float eps, float *out);
    /* bias, activation, gate, residual: what follows a product, in numbers [first, first + n) of one row */
    void (*finish)(const step *s, int64_t first, int64_t n, const float *x, float *out);
    void (*embed)(const matrix *W, int64_t row, float scale, const float *plus, float *out);
    void (*store)(const step *s, const batch *b, int64_t row);
    /* attention over the cache: see attention.c */
    void (*whole)(const step *s, const batch *b, int64_t first, int64_t last, int32_t head, uint8_t *room);
    void (*part)(const step *s, const batch *b, int64_t row, int32_t head, int64_t chunk, float *partial, uint8_t *room);
    void (*merge)(const step *s, const batch *b, int64_t row, int32_t head, int64_t chunks, const float *partial);
    float (*log_total)(const float *x, int64_t n);
    int (*ranked)(const float *x, int64_t n, int64_t k, int64_t *ids, float *values);
} kernels;

extern const kernels kernels_portable;
#ifdef WITH_AVX2
extern const kernels kernels_avx2;
#endif

/* Parts of the table, each in a file of its own. */
void NAME(product)(const matrix *, int64_t, int64_t, const input *, float *, int64_t, float *);
void NAME(product_float)(const matrix *, int64_t, int64_t, const input *, float *, int64_t, float *);
void NAME(product_rounded)(const matrix *, int64_t, int64_t, const input *, float *, int64_t, void *);
void NAME(quantise)(int, const float *, int64_t, uint8_t *, float *, float *);
void NAME(norm)(int32_t, const float *, int64_t, const float *, const float *, float, float *);
void NAME(finish)(const step *, int64_t, int64_t, const float *, float *);
void NAME(embed)(const matrix *, int64_t, float, const float *, float *);
void NAME(store)(const step *, const batch *, int64_t);
void NAME(whole)(const step *, const batch *, int64_t, int64_t, int32_t, uint8_t *);
void NAME(part)(const step *, const batch *, int64_t, int32_t, int64_t, float *, uint8_t *);
void NAME(merge)(const step *, const batch *, int64_t, int32_t, int64_t, const float *);
float NAME(log_total)(const float *, int64_t);
int NAME(ranked)(const float *, int64_t, int64_t, int64_t *, float *);

/* Eight numbers for each k and g, at element k·down + g·across: a matrix as the float kernels read it. */
typedef struct {
    int32_t format;
    int64_t down, across;
    const void *at;
} panels;

/* C (rows × 8 groups) = or, with `more`, += X (rows × depth) times the panels (depth × 8 groups).
 * One accumulator per number, k in order: the result for a row is the same however many rows there are. */
void NAME(multiply)(int64_t rows, int64_t groups, int64_t depth, const float *X, int64_t x_stride, panels P, float *C,
                    int64_t c_stride, int more);

#endif
