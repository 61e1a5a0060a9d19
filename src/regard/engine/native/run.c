/* Runs a plan on a batch of rows: each step is divided among the threads. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "kernels.h"
#include "pool.h"

#define SHARE 64 /* rows per thread from which a product is divided by rows, not by groups of the matrix … */
#define STRIP 16 /* … and computed so many groups of the matrix at a time */

typedef struct {
    const plan *p;
    const batch *b;
    int32_t *sequences, *sources; /* first row of every sequence (of every source); last, the number of rows */
    int32_t n_sequences, n_sources;
} job;

static const kernels *chosen;

const char *regard_choose(const char *name) {
    const kernels *found = 0;
#ifdef WITH_AVX2
    __builtin_cpu_init();
    const int able = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
    if (able && (!name || !strcmp(name, kernels_avx2.name))) found = &kernels_avx2;
#endif
    if (!found && (!name || !strcmp(name, kernels_portable.name))) found = &kernels_portable;
    if (found) chosen = found;
    return found ? found->name : 0;
}

static int64_t begin_of(int64_t n, int part, int parts) { return n * part / parts; }
static int64_t padded(int64_t n) { return (n + 7) & ~(int64_t)7; }

/* ── products ─────────────────────────────────────────────────────────────────────────────────────────────────────── */

static uint8_t *own_scratch(const plan *p, int id) { return p->scratch + id * p->scratch_bytes; }

/* The input of a product, `rows` rows of `in`: normed, and quantized if W is. It is stored in `room`; this call computes rows
 * first … last-1 of it. */
static input prepare(const plan *p, const step *s, const float *in, int64_t rows, int64_t first, int64_t last, int words,
                     uint8_t *room, int id) {
    const int64_t n = s->W->columns;
    const int rounded = s->W->format >= Q8_0;
    input x = {.rows = rows, .columns = n, .X = in, .stride = s->in_stride};
    if (!rounded && !s->norm) return x;
    const int64_t bytes = (n / BLOCK | 1) * 2 * BLOCK; /* of a quantized row: an odd number of cache lines, see plan.py */
    float *scales = (float *)(room + rows * bytes), *sums = scales + rows * (n / BLOCK);
    float *plain = (float *)own_scratch(p, id);
    for (int64_t r = first; r < last; r++) {
        const float *row = in + r * s->in_stride;
        if (s->norm) {
            float *normed = rounded ? plain : (float *)room + r * n;
            chosen->norm(s->norm, row, n, s->gain, s->shift, s->eps, normed);
            row = normed;
        }
        if (rounded) chosen->quantise(words, row, n, room + r * bytes, scales + r * (n / BLOCK), sums + r * (n / BLOCK));
    }
    if (rounded) x.q = room, x.stride = bytes, x.scale = scales, x.sum = sums;
    else x.X = (float *)room, x.stride = n;
    return x;
}

static matrix from_group(const matrix *W, int64_t first) {
    matrix rest = *W;
    rest.data += first * W->group_bytes;
    return rest;
}

/* Groups first … last-1 of the product with all of x, whose first row is number `row`, then bias, activation, gate and
 * residual. `aside` is a temporary for products that are added or gated. */
static void product_of(const job *j, const step *s, const input *x, int64_t row, int64_t first, int64_t last, float *aside,
                       float *room) {
    const int64_t stride = s->out ? s->out_stride : j->b->logits_stride, n = last - first;
    float *out = (s->out ? s->out : j->b->logits) + row * stride + 8 * first;
    const int direct = !s->add && !s->gate;
    float *y = direct ? out : aside;
    const int64_t y_stride = direct ? stride : j->p->temporary_stride;
    const matrix W = from_group(s->W, first);
    if (s->gate) {
        const matrix gate = from_group(s->gate, first);
        chosen->product(&gate, 0, n, x, out, stride, room);
    }
    chosen->product(&W, 0, n, x, y, y_stride, room);
    if (direct && !s->bias && !s->activation) return;
    for (int64_t r = 0; r < x->rows; r++) chosen->finish(s, 8 * first, 8 * n, y + r * y_stride, out + r * stride);
}

/* Whether a step is divided by rows; each thread then has the same rows in every such step. */
static int by_rows(const step *s, int64_t rows, int threads) {
    return s->op == PRODUCT ? rows >= SHARE * (int64_t)threads : s->op == EMBED || s->op == NORM;
}

/* Many rows are divided among the threads: each prepares its own, without a barrier, and multiplies them with a strip of the
 * matrix at a time, whose results are still in cache for bias, activation and residual. With fewer rows the matrix is divided
 * among the threads; up to FEW rows are prepared by every thread for itself. */
static void product(const job *j, const step *s, int64_t rows, int id, int threads) {
    const plan *p = j->p;
    const int64_t groups = padded(s->W->rows) / 8, row_bytes = 4 * (int64_t)p->widest;
    const int64_t row = begin_of(rows, id, threads), end = begin_of(rows, id + 1, threads);
    const int words = s->W->format == Q8_0 || rows > MANY, own = rows <= FEW;
    float *room = (float *)own_scratch(p, id);
    if (by_rows(s, rows, threads)) {
        const float *in = s->in + row * s->in_stride;
        const input x = prepare(p, s, in, end - row, 0, end - row, words, p->prepared + row * row_bytes, id);
        float *aside = p->temporary + row * p->temporary_stride;
        for (int64_t g = 0; g < groups; g += STRIP)
            product_of(j, s, &x, row, g, g + STRIP < groups ? g + STRIP : groups, aside, room);
        return;
    }
    const int64_t first = begin_of(groups, id, threads), last = begin_of(groups, id + 1, threads);
    uint8_t *copy = p->prepared + (own ? (p->max_rows + (int64_t)FEW * id) * row_bytes : 0);
    const input x = prepare(p, s, s->in, rows, own ? 0 : row, own ? rows : end, words, copy, id);
    if (!own && (s->norm || s->W->format >= Q8_0)) pool_meet();
    product_of(j, s, &x, 0, first, last, p->temporary + 8 * first, room);
}

/* ── attention ────────────────────────────────────────────────────────────────────────────────────────────────────── */

static void store(const job *j, const step *s, int id, int threads) {
    const int64_t rows = j->b->rows;
    for (int64_t r = begin_of(rows, id, threads); r < begin_of(rows, id + 1, threads); r++) chosen->store(s, j->b, r);
}

/* Prefill: rows of one sequence together, a tile of them at a time. */
static void attend_many(const job *j, const step *s, int id, int threads) {
    const int32_t *starts = s->cross ? j->sources : j->sequences, n = s->cross ? j->n_sources : j->n_sequences;
    const int64_t group = s->heads / s->cache->heads, stretch = group > 24 ? 1 : 48 / group;
    int64_t number = 0;
    for (int32_t i = 0; i < n; i++)
        for (int64_t first = starts[i]; first < starts[i + 1]; first += stretch) {
            const int64_t last = first + stretch < starts[i + 1] ? first + stretch : starts[i + 1];
            for (int32_t head = 0; head < s->cache->heads; head++)
                if (number++ % threads == id) chosen->whole(s, j->b, first, last, head, own_scratch(j->p, id));
        }
}

static void chunks_of(const step *s, const batch *b, int64_t row, int64_t *first, int64_t *count) {
    const int64_t to = b->positions[row] + 1, from = s->window && to > s->window ? to - s->window : 0;
    *first = from / CHUNK;
    *count = (to + CHUNK - 1) / CHUNK - *first;
}

/* Decode step, a row of each sequence: with few rows chunks of keys are divided among the threads, else whole heads. */
static void attend_one(const job *j, const step *s, int64_t most, int id, int threads) {
    const batch *b = j->b;
    const int32_t heads = s->cache->heads;
    const int64_t each = s->heads / heads * (2 + (int64_t)s->cache->width), pairs = (int64_t)b->rows * heads;
    const int spread = most > 1 && pairs < 8 * threads;
    int64_t number = 0, first, count;
    for (int64_t i = 0; i < pairs; i++) {
        const int64_t row = i / heads;
        const int32_t head = (int32_t)(i % heads);
        float *partial = j->p->partial + i * most * each;
        chunks_of(s, b, row, &first, &count);
        if (spread) {
            for (int64_t c = 0; c < count; c++)
                if (number++ % threads == id)
                    chosen->part(s, b, row, head, first + c, partial + c * each, own_scratch(j->p, id));
        } else if (i % threads == id) {
            for (int64_t c = 0; c < count; c++)
                chosen->part(s, b, row, head, first + c, partial + c * each, own_scratch(j->p, id));
            chosen->merge(s, b, row, head, count, partial);
        }
    }
    if (!spread) return;
    pool_meet();
    for (int64_t i = begin_of(pairs, id, threads); i < begin_of(pairs, id + 1, threads); i++) {
        chunks_of(s, b, i / heads, &first, &count);
        chosen->merge(s, b, i / heads, (int32_t)(i % heads), count, j->p->partial + i * most * each);
    }
}

static void attend(const job *j, const step *s, int id, int threads) {
    const batch *b = j->b;
    if (s->causal && !s->cross && j->n_sequences == b->rows) {
        int64_t most = 0, first, count;
        for (int64_t r = 0; r < b->rows; r++) {
            chunks_of(s, b, r, &first, &count);
            most = count > most ? count : most;
        }
        const int64_t needed = (int64_t)b->rows * s->heads * most * (2 + (int64_t)s->cache->width);
        if (needed <= j->p->partial_floats) {
            attend_one(j, s, most, id, threads);
            return;
        }
    }
    if (!s->cross) {
        store(j, s, id, threads);
        pool_meet();
    }
    attend_many(j, s, id, threads);
}

/* ── the plan ─────────────────────────────────────────────────────────────────────────────────────────────────────── */

static void rowwise(const job *j, const step *s, int64_t rows, int id, int threads) {
    const batch *b = j->b;
    for (int64_t r = begin_of(rows, id, threads); r < begin_of(rows, id + 1, threads); r++) {
        float *out = s->out + r * s->out_stride;
        if (s->op == EMBED)
            chosen->embed(s->W, b->ids[r], s->scale, s->table ? s->table + (int64_t)b->positions[r] * s->n : 0, out);
        else if (s->op == NORM) chosen->norm(s->norm, s->in + r * s->in_stride, s->n, s->gain, s->shift, s->eps, out);
        else memcpy(out, s->in + b->wanted_rows[r] * s->in_stride, (size_t)s->n * sizeof(float)); /* PICK */
    }
}

/* A barrier follows each step, unless each thread continues with its own rows. */
static void work(void *what, int id, int threads) {
    const job *j = what;
    const step *end = j->p->steps + j->p->n_steps;
    for (const step *s = j->p->steps; s < end; s++) {
        const int64_t rows = s->selected ? j->b->wanted : j->b->rows;
        if (!rows) continue;
        switch (s->op) {
        case PRODUCT: product(j, s, rows, id, threads); break;
        case ATTEND: attend(j, s, id, threads); break;
        case STORE: store(j, s, id, threads); break;
        default: rowwise(j, s, rows, id, threads); break;
        }
        const int same = s + 1 < end && s[1].selected == s->selected;
        if (!same || !by_rows(s, rows, threads) || !by_rows(s + 1, rows, threads)) pool_meet();
    }
}

/* The indices at which runs of equal pointers begin; returns how many. */
static int32_t runs(void *const *pointers, int32_t rows, int32_t *starts) {
    int32_t n = 0;
    for (int32_t r = 0; r < rows && pointers; r++)
        if (r == 0 || pointers[r] != pointers[r - 1]) starts[n++] = r;
    starts[n] = rows;
    return n;
}

/* Whether every index is in [0, end). */
static int within(const int32_t *numbers, int32_t rows, int64_t end) {
    int32_t low = 0, high = 0;
    for (int32_t r = 0; r < rows; r++) {
        low = numbers[r] < low ? numbers[r] : low;
        high = numbers[r] > high ? numbers[r] : high;
    }
    return low == 0 && high < end;
}

/* Bounds check: 0, or the code of the refusal if a row would be read or written beyond an embedding, a table of positions or
 * a KV cache. */
static int refused(const plan *p, const batch *b) {
    if (b->rows < 1 || b->rows > p->max_rows || b->wanted < 0 || b->wanted > b->rows) return BAD_BATCH;
    if (!within(b->wanted_rows, b->wanted, b->rows)) return BAD_BATCH;
    int64_t end = INT64_MAX; /* of positions */
    for (const step *s = p->steps; s < p->steps + p->n_steps; s++) {
        if (s->op == EMBED && !within(b->ids, b->rows, s->W->rows)) return BAD_ID;
        if (s->op == EMBED && s->table && s->table_rows < end) end = s->table_rows;
        if (s->op == ATTEND && s->rotary && b->angles < end) end = b->angles;
        const int64_t room = s->cross ? b->source_capacity : b->capacity;
        if ((s->op == STORE || (s->op == ATTEND && !s->cross)) && room < end) end = room;
    }
    if (!within(b->positions, b->rows, end)) return BAD_POSITION;
    for (const step *s = p->steps; s < p->steps + p->n_steps; s++) {
        if (s->op != ATTEND || (s->causal && !s->cross)) continue;
        const int64_t most = s->cross ? b->source_capacity : b->capacity; /* keys */
        return within(s->cross ? b->source_lengths : b->visible, b->rows, most + 1) ? 0 : BAD_POSITION;
    }
    return 0;
}

int regard_run(const plan *p, const batch *b) {
    const int reason = refused(p, b);
    if (reason) return reason;
    if (!chosen) regard_choose(0);
    int32_t *starts = malloc(2 * ((size_t)b->rows + 1) * sizeof *starts);
    if (!starts) return NO_MEMORY;
    job j = {.p = p, .b = b, .sequences = starts, .sources = starts + b->rows + 1};
    j.n_sequences = runs(b->caches, b->rows, j.sequences);
    j.n_sources = runs(b->sources, b->rows, j.sources);
    pool_run(work, &j, p->threads);
    free(starts);
    return 0;
}

/* ── what Python must know ────────────────────────────────────────────────────────────────────────────────────────── */

const char *regard_sources(void) { return SOURCES; } /* build.py's hash of what this library was made from */

int regard_sizes(int64_t *sizes) {
    const int64_t all[] = {sizeof(matrix), sizeof(packing), sizeof(cache), sizeof(step), sizeof(batch), sizeof(plan)};
    memcpy(sizes, all, sizeof all);
    return (int)(sizeof all / sizeof *all);
}

int64_t regard_scratch_bytes(int32_t d_k) {
    const int64_t width = padded(d_k);
    const int64_t attention = 4 * (48 * (3 * width + CHUNK + 2) + 2 * CHUNK * width) + 64;
    return attention < ROOM ? ROOM : attention;
}

int64_t regard_cache_bytes(const cache *c, int64_t capacity) {
    return 2 * capacity * c->layers * c->heads * token_bytes(c);
}

/* Copy the first `length` tokens of a KV cache into another sequence's. */
void regard_fork(const cache *c, void *to, int64_t to_capacity, const void *from, int64_t from_capacity, int64_t length) {
    const int64_t token = token_bytes(c);
    for (int64_t i = 0; i < 2 * (int64_t)c->layers * c->heads; i++)
        memcpy((uint8_t *)to + i * to_capacity * token, (const uint8_t *)from + i * from_capacity * token,
               (size_t)(padded(length) * token));
}

/* ── choosing ─────────────────────────────────────────────────────────────────────────────────────────────────────── */

typedef struct {
    const float *x;
    int64_t rows, stride, n, k;
    float *totals; /* or, if there are none, the best: */
    int64_t *ids;
    float *values;
    atomic_int odd; /* a row holds a NaN */
} choice;

static void choose_rows(void *what, int id, int threads) {
    choice *c = what;
    for (int64_t r = begin_of(c->rows, id, threads); r < begin_of(c->rows, id + 1, threads); r++) {
        const float *x = c->x + r * c->stride;
        if (c->totals) c->totals[r] = chosen->log_total(x, c->n);
        else if (chosen->ranked(x, c->n, c->k, c->ids + r * c->k, c->values + r * c->k)) atomic_store(&c->odd, 1);
    }
}

static void divide_rows(choice *c, int32_t threads) {
    if (!chosen) regard_choose(0);
    if (threads < 2 || c->rows < 2) choose_rows(c, 0, 1); /* without waiting for another caller's turn */
    else pool_run(choose_rows, c, c->rows < threads ? (int)c->rows : threads);
}

/* log Σ exp of each row. */
void regard_log_totals(const float *x, int64_t rows, int64_t stride, int64_t n, float *totals, int32_t threads) {
    choice c = {.x = x, .rows = rows, .stride = stride, .n = n, .totals = totals};
    divide_rows(&c, threads);
}

/* The k largest numbers of each row, largest first, equal ones by rising index. Not 0: there is a NaN, and the result is undefined. */
int regard_ranked(const float *x, int64_t rows, int64_t stride, int64_t n, int64_t k, int64_t *ids, float *values,
                  int32_t threads) {
    if (k < 1 || k > n) return -1;
    choice c = {.x = x, .rows = rows, .stride = stride, .n = n, .k = k, .ids = ids, .values = values};
    divide_rows(&c, threads);
    return atomic_load(&c.odd);
}
