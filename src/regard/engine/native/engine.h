/* What Python and the kernels share: packed matrices, the KV cache, the steps of a plan, and a batch of rows.
 *
 * A plan is a flat array of steps over buffers that Python has allocated; `regard_run` runs them on a batch of rows, on
 * all threads. A row is one token of one sequence: a batch may hold rows of different sequences (decode steps) and many
 * rows of one sequence (prefill), and a row's result does not depend, to the last bit, on the other rows of the batch.
 *
 * library.py mirrors these structs; `regard_sizes` lets it check that it does.
 */
#ifndef REGARD_ENGINE_H
#define REGARD_ENGINE_H

#include <stddef.h>
#include <stdint.h>

#define LANES 8    /* rows of a packed matrix that are interleaved; floats in a vector */
#define BLOCK 32   /* numbers that share a scale */
#define CHUNK 128  /* keys of one softmax; longer sequences merge several */
#define FEW 4      /* rows up to which every thread prepares its own copy of a product's input */

enum format { F32, F16, BF16, Q8_0, Q4_0, Q4_1 };
enum norm { NO_NORM, LAYER_NORM, RMS_NORM };
enum activation { NO_ACTIVATION, GELU, GELU_TANH, SILU, RELU, TANH };
enum op { EMBED, NORM, PRODUCT, STORE, ATTEND, PICK };
enum refusal { BAD_BATCH = -1, NO_MEMORY = -2, BAD_ID = -3, BAD_POSITION = -4 }; /* of regard_run */

/* A matrix W (rows × columns) for y = W x, in groups of 8 rows:
 *   F32, F16, BF16   column after column, the numbers of the 8 rows interleaved
 *   Q8_0             blocks of 32 columns: 8 half scales · 8 × (4 columns of each of the 8 rows, a byte each)
 *   Q4_0             8 half scales · 4 × (8 rows × 4 bytes; low nibbles are columns 0…15, high ones 16…31)
 *   Q4_1             8 half scales · 8 half minima · nibbles as in Q4_0
 * Rows that fill up the last group are zero. */
typedef struct {
    int32_t format, rows, columns, unused;
    int64_t group_bytes;
    const uint8_t *data;
} matrix;

/* A matrix to be packed: `rows` points to each of its rows as stored in a file; `mapped`: they are in a memory map of the
 * file, whose pages can be released after packing. */
typedef struct {
    int32_t format, finite, mapped, unused;
    int64_t n_rows, columns;
    const void *const *rows;
    uint8_t *packed;
} packing;

/* The memory layout of one sequence's KV cache, from its pointer on:
 *   layer · K: key/value heads × (capacity/8 × width × 8 keys interleaved) · V: heads × capacity × width
 * width is d_k rounded up to 8; the capacity, a multiple of 32, is the same for all sequences of a batch. Numbers are F32, F16
 * or Q8_0: bytes, where 8 keys are followed by their scales (8 floats for each 32 of the width), and so is every value. */
typedef struct {
    int32_t format, heads, d_k, width, layers, unused;
} cache;

/* Bytes of one key, or one value, of one head. */
static inline int64_t token_bytes(const cache *c) {
    const int64_t width = c->width;
    return c->format == F32 ? 4 * width : c->format == F16 ? 2 * width : width + 4 * ((width + BLOCK - 1) / BLOCK);
}

typedef struct {
    int32_t op, selected; /* selected: run only on the rows whose logits are wanted */
    int32_t norm, activation, add;
    int32_t n;                       /* width of the rows: embed, norm, pick */
    int32_t heads, layer, cross, causal, window;
    int32_t rotary;                  /* pairs of dimensions of a head that are rotated by the position */
    float eps, scale;
    int64_t in_stride, out_stride;
    const float *in;
    float *out;                      /* null for the product that writes the batch's logits */
    const matrix *W, *gate;
    const float *bias, *gate_bias;   /* padded to a multiple of 8 */
    const float *gain, *shift;       /* of the norm */
    const float *K, *V;              /* attend and store: new keys and values, strided as `in` */
    const cache *cache;
    const float *table;              /* embed: a vector per position, or none */
    int64_t table_rows;
} step;

typedef struct {
    int32_t rows, wanted;
    const int32_t *ids, *positions;
    const int32_t *visible;          /* keys a row attends to when its attention is not causal */
    void *const *caches; /* the KV cache of each row's sequence; rows of one sequence are contiguous, in order */
    void *const *sources; /* cross attention: the KV cache of each row's encoded source */
    const int32_t *source_lengths;
    int64_t capacity, source_capacity;
    const int32_t *wanted_rows;
    float *logits;
    int64_t logits_stride;
    const float *cosines, *sines; /* rotary: angles × pairs */
    int64_t angles;
} batch;

typedef struct {
    int32_t n_steps, max_rows, threads, widest; /* widest: the most columns of any product's input, padded */
    const step *steps;
    float *temporary; /* max_rows × the most rows of a matrix whose product is added or gated, padded */
    int64_t temporary_stride;
    uint8_t *prepared; /* inputs of products, normed and perhaps quantized: max_rows, then FEW per thread */
    float *partial; /* attention split over threads: see attention.c */
    int64_t partial_floats;
    uint8_t *scratch; /* scratch_bytes for each thread */
    int64_t scratch_bytes;
} plan;

int regard_run(const plan *p, const batch *b);
const char *regard_sources(void);
int regard_sizes(int64_t *sizes);
int64_t regard_packed_bytes(int32_t format, int64_t rows, int64_t columns);
int regard_pack(packing *matrices, int64_t n, int32_t threads, int64_t *done);
int64_t regard_scratch_bytes(int32_t d_k);
int64_t regard_cache_bytes(const cache *c, int64_t capacity);
void regard_fork(const cache *c, void *to, int64_t to_capacity, const void *from, int64_t from_capacity, int64_t length);
void regard_log_totals(const float *x, int64_t rows, int64_t stride, int64_t n, float *totals, int32_t threads);
int regard_ranked(const float *x, int64_t rows, int64_t stride, int64_t n, int64_t k, int64_t *ids, float *values,
                  int32_t threads);
const char *regard_choose(const char *name);

#endif
