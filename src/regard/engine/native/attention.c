/* Attention over the KV cache, for grouped queries: softmax(scale · q Kᵀ) V, keys in chunks of 128.
 *
 * Each chunk gives, per query, its largest score m, its Σ e^(s-m) and its weighted sum of values; chunks are merged in order,
 * as softmax allows (Milakov and Gimelshein, 2018). Chunks begin at multiples of 128 on whichever thread, so a
 * query's result is the same alone, in the prefill of a prompt of hundreds, and when its chunks were split over threads.
 *
 * Prefill, many rows of one sequence (`whole`): tiles of queries, a chunk of keys at a time, memory linear in the length.
 * Decode step, a single row (`part`, `merge`): each chunk may be another thread's; the one of the newest key also stores it.
 */
#include "kernels.h"
#include "simd.h"

#define QUERIES 48 /* (row, head) pairs of one tile */

typedef struct { /* a thread's scratch memory, floats; `width` is d_k rounded up */
    float *Q, *S, *Z, *chunk; /* QUERIES × width, × CHUNK, × width, × width */
    float *K, *V;             /* a chunk widened to floats: CHUNK × width */
    float *most, *total;      /* QUERIES */
} workspace;

static workspace lay(uint8_t *room, int64_t width) {
    float *p = (float *)room;
    workspace w;
    w.Q = p, p += QUERIES * width;
    w.S = p, p += QUERIES * CHUNK;
    w.Z = p, p += QUERIES * width;
    w.chunk = p, p += QUERIES * width;
    w.K = p, p += CHUNK * width;
    w.V = p, p += CHUNK * width;
    w.most = p, p += QUERIES;
    w.total = p;
    return w;
}

/* The address of a head's keys (values: `second`) in a sequence's KV cache, from token `start` on, a multiple of 8. */
INLINE uint8_t *place(const step *s, const batch *b, void *kv, int32_t head, int second, int64_t start) {
    const int64_t capacity = s->cross ? b->source_capacity : b->capacity;
    const int64_t part = ((int64_t)s->layer * 2 + second) * s->cache->heads + head;
    return (uint8_t *)kv + (part * capacity + start) * token_bytes(s->cache);
}

INLINE void write_element(const cache *c, void *at, int64_t i, float x) {
    if (c->format == F16) ((uint16_t *)at)[i] = float_to_half(x);
    else ((float *)at)[i] = x;
}

/* n numbers quantized to bytes with stride `apart`, and a scale for each 32: |error| ≤ scale / 2. NaN gives a scale of NaN. */
static void write_bytes(const float *x, int64_t n, int8_t *q, int64_t apart, float *scales) {
    for (int64_t first = 0; first < n; first += BLOCK, scales += apart) {
        const int64_t last = first + BLOCK < n ? first + BLOCK : n;
        float peak = 0.0f;
        for (int64_t i = first; i < last && peak == peak; i++) peak = fabsf(x[i]) <= peak ? peak : fabsf(x[i]);
        const float inverse = peak > 1e-30f ? 127.0f / peak : 0.0f; /* a smaller block is rounded to 0 */
        for (int64_t i = first; i < last; i++) {
            const float shifted = x[i] * inverse + 12582912.0f; /* 1.5 · 2²³: the integer is in the low bits */
            uint32_t bits;
            memcpy(&bits, &shifted, sizeof bits);
            q[apart * i] = (int8_t)(bits & 255);
        }
        *scales = peak <= 1e-30f ? 0.0f : peak * (1.0f / 127.0f);
    }
}

/* Rotary: pairs (x_i, x_{i + pairs}) rotated by the position's angles; the dimensions after them are copied. */
static void turn(const step *s, const batch *b, int64_t position, const float *x, float factor, float *out) {
    const int64_t pairs = s->rotary, d_k = s->cache->d_k;
    const float *cosines = b->cosines + position * pairs, *sines = b->sines + position * pairs;
    for (int64_t i = 0; i < pairs; i++) {
        const float first = x[i] * factor, second = x[i + pairs] * factor;
        out[i] = first * cosines[i] - second * sines[i];
        out[i + pairs] = second * cosines[i] + first * sines[i];
    }
    for (int64_t i = 2 * pairs; i < d_k; i++) out[i] = x[i] * factor;
}

static void store_head(const step *s, const batch *b, int64_t row, int32_t head, float *room) {
    const cache *c = s->cache;
    const int64_t position = b->positions[row];
    void *kv = s->cross ? b->sources[row] : b->caches[row];
    const float *K = s->K + row * s->in_stride + (int64_t)head * c->d_k,
                *V = s->V + row * s->in_stride + (int64_t)head * c->d_k;
    if (s->rotary) {
        turn(s, b, position, K, 1.0f, room);
        K = room;
    }
    const int64_t lane = position % 8;
    uint8_t *keys = place(s, b, kv, head, 0, position - lane), *values = place(s, b, kv, head, 1, position);
    if (c->format == Q8_0) {
        write_bytes(K, c->d_k, (int8_t *)keys + lane, 8, (float *)(keys + 8 * (int64_t)c->width) + lane);
        write_bytes(V, c->d_k, (int8_t *)values, 1, (float *)(values + c->width));
        return;
    }
    for (int64_t i = 0; i < c->d_k; i++) {
        write_element(c, keys, 8 * i + lane, K[i]);
        write_element(c, values, i, V[i]);
    }
}

/* Store the new keys and values of one row in the KV cache. */
void NAME(store)(const step *s, const batch *b, int64_t row) {
    float turned[512];
    for (int32_t head = 0; head < s->cache->heads; head++) store_head(s, b, row, head, turned);
}

/* Queries first … last-1 of a tile: pair i is row i / group, head i % group of those that share a key/value head. */
static void gather(const step *s, const batch *b, int64_t row, int32_t head, int64_t first, int64_t last, workspace *w) {
    const cache *c = s->cache;
    const int64_t group = s->heads / c->heads;
    for (int64_t i = first; i < last; i++) {
        const int64_t r = row + i / group;
        const float *q = s->in + r * s->in_stride + (head * group + i % group) * c->d_k;
        float *out = w->Q + (i - first) * c->width;
        if (s->rotary) turn(s, b, b->positions[r], q, s->scale, out);
        else
            for (int64_t k = 0; k < c->d_k; k++) out[k] = q[k] * s->scale;
        for (int64_t k = c->d_k; k < c->width; k++) out[k] = 0.0f;
    }
}

/* Keys that a row attends to: [from, to). */
INLINE void reach(const step *s, const batch *b, int64_t row, int64_t *from, int64_t *to) {
    *from = 0;
    *to = s->cross ? b->source_lengths[row] : s->causal ? b->positions[row] + 1 : b->visible[row];
    if (s->window && *to > s->window) *from = *to - s->window;
}

/* Scores of one query → e^(s-m) in place, 0 where masked; returns m and the sum. An unmasked score of NaN or ∞ makes the sum
 * NaN, and with it the result. If all are -∞ the sum is 0. */
static void soften(float *S, int64_t n, int64_t from, int64_t to, float *most, float *total) {
    for (int64_t j = 0; j < from; j++) S[j] = -INFINITY;
    for (int64_t j = to; j < n; j++) S[j] = -INFINITY;
    v8 m = all(-INFINITY), sum = all(0.0f);
    for (int64_t j = 0; j < n; j += 8) m = greatest(load(S + j), m);
    *most = max8(m);
    const v8 zero = all(*most == -INFINITY ? 0.0f : *most);
    for (int64_t j = 0; j < n; j += 8) {
        const v8 e = exp8(load(S + j) - zero);
        store(S + j, e);
        sum += e;
    }
    *total = sum8(sum);
}

/* A chunk's keys and values, in the cache's own format … */
static panels keys_of(const step *s, const batch *b, void *kv, int32_t head, int64_t start) {
    const cache *c = s->cache;
    return (panels){c->format, 8, 8 * c->width, place(s, b, kv, head, 0, start)};
}

static panels values_of(const step *s, const batch *b, void *kv, int32_t head, int64_t start) {
    const cache *c = s->cache;
    return (panels){c->format, c->width, 8, place(s, b, kv, head, 1, start)};
}

/* … and as floats, in the same order, in `room` if they are not floats already. */
static panels wide_keys(const cache *c, panels P, int64_t keys, float *room) {
    const uint8_t *at = P.at;
    const panels wide = {F32, P.down, P.across, room};
    if (P.format == F32) return P;
    for (int64_t i = 0; i < keys * c->width && P.format == F16; i += 8)
        store(room + i, load_half((const uint16_t *)at + i));
    for (int64_t j = 0; j < keys && P.format == Q8_0; j += 8, at += 8 * token_bytes(c), room += 8 * c->width) {
        const float *scales = (const float *)(at + 8 * c->width);
        for (int64_t first = 0; first < c->width; first += BLOCK, scales += 8) {
            const int64_t last = first + BLOCK < c->width ? first + BLOCK : c->width;
            const v8 scale = load(scales);
            for (int64_t i = first; i < last; i++) store(room + 8 * i, load_bytes((const int8_t *)at + 8 * i) * scale);
        }
    }
    return wide;
}

static panels wide_values(const cache *c, panels P, int64_t keys, float *room) {
    const uint8_t *at = P.at;
    const panels wide = {F32, P.down, P.across, room};
    if (P.format == F32) return P;
    for (int64_t i = 0; i < keys * c->width && P.format == F16; i += 8)
        store(room + i, load_half((const uint16_t *)at + i));
    for (int64_t j = 0; j < keys && P.format == Q8_0; j++, at += token_bytes(c), room += c->width)
        for (int64_t i = 0; i < c->width; i += 8)
            store(room + i, load_bytes((const int8_t *)at + i) * all(((const float *)(at + c->width))[i / BLOCK]));
    return wide;
}

INLINE int all_finite(const float *x, int64_t n) {
    v8 sum = all(0.0f);
    for (int64_t i = 0; i < n; i += 8) sum += load(x + i) * all(0.0f);
    return sum8(sum) == 0.0f;
}

/* One chunk for `queries` queries in w->Q: weighted sums to `out` (stride width), m to most, sums to total.
 * The results of queries for which the whole chunk is masked are meaningless. */
static void attend_chunk(const cache *c, panels K, panels V, int64_t keys, int64_t queries, const int64_t *from,
                         const int64_t *to, workspace *w, float *out, float *most, float *total) {
    const int64_t padded = (keys + 31) & ~(int64_t)31, bytes = keys * token_bytes(c);
    const int widen = queries > 6 || c->format == Q8_0;
    for (int64_t i = 0; i < bytes && queries <= 6; i += 64)
        __builtin_prefetch((const uint8_t *)V.at + i, 0, 2); /* on the way */
    if (widen) K = wide_keys(c, K, padded, w->K);
    NAME(multiply)(queries, padded / 8, c->width, w->Q, c->width, K, w->S, CHUNK, 0);
    for (int64_t i = 0; i < queries; i++)
        if (from[i] < to[i]) soften(w->S + i * CHUNK, padded, from[i], to[i], most + i, total + i);
    if (widen) V = wide_values(c, V, keys, w->V);
    NAME(multiply)(queries, c->width / 8, keys, w->S, CHUNK, V, out, c->width, 0);
    for (int64_t i = 0; i < queries; i++) { /* 0 · NaN is NaN: a masked value must not count */
        const int64_t seen = to[i] - from[i];
        if (seen <= 0 || seen == keys || all_finite(out + i * c->width, c->width)) continue;
        panels part = V;
        part.at = (const uint8_t *)V.at + from[i] * V.down * (V.format == F32 ? 4 : 2);
        NAME(multiply)(1, c->width / 8, seen, w->S + i * CHUNK + from[i], CHUNK, part, out + i * c->width, c->width, 0);
    }
}

/* (m, total, Z), at first (-∞, 0, 0), and a chunk's (m2, total2, Z2) → both together, in the first. */
static void merge_one(float *most, float *total, float *Z, float most2, float total2, const float *Z2, int64_t width) {
    const float m = most2 > *most ? most2 : *most, zero = m == -INFINITY ? 0.0f : m;
    const v8 e = exp8((v8){*most - zero, most2 - zero});
    *most = m;
    *total = *total * e[0] + total2 * e[1];
    const v8 a = all(e[0]), b = all(e[1]);
    for (int64_t i = 0; i < width; i += 8) store(Z + i, fma8(load(Z2 + i), b, load(Z + i) * a));
}

static void finish(const step *s, int64_t row, int32_t head, const float *Z, float total) {
    float *out = s->out + row * s->out_stride + (int64_t)head * s->cache->d_k;
    const float inverse = 1.0f / total;
    for (int64_t i = 0; i < s->cache->d_k; i++) out[i] = Z[i] * inverse;
}

/* Pairs (row, head) number first … last-1, counted from `row`, of one sequence and one key/value head. */
static void tile(const step *s, const batch *b, int64_t row, int32_t head, int64_t first, int64_t last, workspace *w) {
    const cache *c = s->cache;
    const int64_t group = s->heads / c->heads, queries = last - first, width = c->width;
    void *kv = s->cross ? b->sources[row] : b->caches[row];
    int64_t begin = INT64_MAX, end = 0, from[QUERIES], to[QUERIES], here_from[QUERIES], here_to[QUERIES];
    float most[QUERIES], total[QUERIES];
    gather(s, b, row, head, first, last, w);
    memset(w->Z, 0, (size_t)(queries * width) * sizeof *w->Z);
    for (int64_t i = 0; i < queries; i++) {
        reach(s, b, row + (first + i) / group, from + i, to + i);
        begin = from[i] < begin ? from[i] : begin;
        end = to[i] > end ? to[i] : end;
        w->most[i] = -INFINITY, w->total[i] = 0.0f;
    }
    for (int64_t start = begin / CHUNK * CHUNK; start < end; start += CHUNK) {
        const int64_t keys = end - start < CHUNK ? end - start : CHUNK;
        const panels K = keys_of(s, b, kv, head, start), V = values_of(s, b, kv, head, start);
        for (int64_t i = 0; i < queries; i++) {
            here_from[i] = from[i] > start ? from[i] - start : 0;
            here_to[i] = to[i] - start < keys ? to[i] - start : keys;
        }
        attend_chunk(c, K, V, keys, queries, here_from, here_to, w, w->chunk, most, total);
        for (int64_t i = 0; i < queries; i++)
            if (here_from[i] < here_to[i])
                merge_one(w->most + i, w->total + i, w->Z + i * width, most[i], total[i], w->chunk + i * width, width);
    }
    for (int64_t i = 0; i < queries; i++)
        finish(s, row + (first + i) / group, (int32_t)(head * group + (first + i) % group), w->Z + i * width, w->total[i]);
}

/* Rows first … last-1, of one sequence, for one key/value head. Their keys and values are in the cache already. */
void NAME(whole)(const step *s, const batch *b, int64_t first, int64_t last, int32_t head, uint8_t *room) {
    workspace w = lay(room, s->cache->width);
    const int64_t pairs = (last - first) * (s->heads / s->cache->heads);
    for (int64_t i = 0; i < pairs; i += QUERIES) tile(s, b, first, head, i, i + QUERIES < pairs ? i + QUERIES : pairs, &w);
}

/* One chunk of one row: m, total and Z of each query head go to `partial`, (2 + width) floats each. */
void NAME(part)(const step *s, const batch *b, int64_t row, int32_t head, int64_t chunk, float *partial, uint8_t *room) {
    const cache *c = s->cache;
    const int64_t group = s->heads / c->heads, width = c->width, start = chunk * CHUNK;
    workspace w = lay(room, width);
    void *kv = s->cross ? b->sources[row] : b->caches[row];
    int64_t from, to, here_from[QUERIES], here_to[QUERIES];
    reach(s, b, row, &from, &to);
    const int64_t keys = to - start < CHUNK ? to - start : CHUNK;
    if (!s->cross && start + keys == to) store_head(s, b, row, head, w.Q);
    for (int64_t i = 0; i < QUERIES; i++) here_from[i] = from > start ? from - start : 0, here_to[i] = keys;
    for (int64_t first = 0; first < group; first += QUERIES) {
        const int64_t last = first + QUERIES < group ? first + QUERIES : group;
        gather(s, b, row, head, first, last, &w);
        attend_chunk(c, keys_of(s, b, kv, head, start), values_of(s, b, kv, head, start), keys, last - first, here_from,
                     here_to, &w, w.chunk, w.most, w.total);
        for (int64_t i = 0; i < last - first; i++) {
            float *out = partial + (first + i) * (2 + width);
            out[0] = w.most[i], out[1] = w.total[i];
            memcpy(out + 2, w.chunk + i * width, (size_t)width * sizeof(float));
        }
    }
}

/* The chunks of one row and key/value head, in order; `partial` holds chunk after chunk. */
void NAME(merge)(const step *s, const batch *b, int64_t row, int32_t head, int64_t chunks, const float *partial) {
    (void)b;
    const int64_t group = s->heads / s->cache->heads, width = s->cache->width;
    float Z[512];
    for (int64_t i = 0; i < group; i++) {
        memset(Z, 0, (size_t)width * sizeof *Z);
        float most = -INFINITY, total = 0.0f;
        for (int64_t n = 0; n < chunks; n++) {
            const float *p = partial + (n * group + i) * (2 + width);
            merge_one(&most, &total, Z, p[0], p[1], p + 2, width);
        }
        finish(s, row, (int32_t)(head * group + i), Z, total);
    }
}
