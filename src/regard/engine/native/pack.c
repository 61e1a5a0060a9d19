/* Rows as files hold them → groups of 8 rows as the kernels read them (engine.h). No number changes; those that are NaN or
 * infinite are noticed on the way, in blocks by their scales. */
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine.h"
#include "pool.h"

#define SLICE 64 /* groups a thread takes at a time */
#define INLINE static inline __attribute__((always_inline))

/* The bytes of a block (of a column, for floats) in a file's row, and where its integers begin. */
static const struct {
    int64_t numbers, bytes, integers;
} FILED[] = {
    [F32] = {1, 4, 0},    [F16] = {1, 2, 0},    [BF16] = {1, 2, 0},
    [Q8_0] = {32, 34, 2}, [Q4_0] = {32, 18, 2}, [Q4_1] = {32, 20, 4},
};

int64_t regard_packed_bytes(int32_t format, int64_t rows, int64_t columns) {
    if (format < F32 || format > Q4_1 || rows < 1 || columns < 1 || columns % FILED[format].numbers) return -1;
    return (rows + 7) / 8 * 8 * (columns / FILED[format].numbers) * FILED[format].bytes;
}

/* Whether a number of 16 bits is finite: not all of its exponent's bits (half 0x7C00, bfloat 0x7F80) are set. */
INLINE int is_finite(const uint8_t *number, uint16_t exponent) {
    uint16_t bits;
    memcpy(&bits, number, 2);
    return (bits & exponent) != exponent;
}

INLINE int pack_words(const uint8_t *const *rows, int64_t n, int64_t columns, uint8_t *out) {
    int fine = 1;
    for (int64_t k = 0; k < columns; k++, out += 32)
        for (int64_t r = 0; r < n; r++) {
            memcpy(out + 4 * r, rows[r] + 4 * k, 4);
            fine &= is_finite(rows[r] + 4 * k + 2, 0x7F80); /* a float's upper half is a bfloat */
        }
    return fine;
}

INLINE int pack_halves(const uint8_t *const *rows, int64_t n, int64_t columns, uint16_t exponent, uint8_t *out) {
    int fine = 1;
    for (int64_t k = 0; k < columns; k++, out += 16)
        for (int64_t r = 0; r < n; r++) {
            memcpy(out + 2 * r, rows[r] + 2 * k, 2);
            fine &= is_finite(rows[r] + 2 * k, exponent);
        }
    return fine;
}

/* Scales (and minima) of the 8 rows, then the integers: 4 bytes of each row in turn. */
INLINE int pack_blocks(int32_t format, const uint8_t *const *rows, int64_t n, int64_t blocks, uint8_t *out) {
    const int64_t bytes = FILED[format].bytes, head = FILED[format].integers;
    int fine = 1;
    for (int64_t b = 0; b < blocks; b++, out += 8 * bytes)
        for (int64_t r = 0; r < n; r++) {
            const uint8_t *block = rows[r] + b * bytes;
            for (int64_t i = 0; i < head / 2; i++) {
                memcpy(out + 16 * i + 2 * r, block + 2 * i, 2);
                fine &= is_finite(block + 2 * i, 0x7C00);
            }
            for (int64_t i = 0; i < (bytes - head) / 4; i++)
                memcpy(out + 8 * head + 32 * i + 4 * r, block + head + 4 * i, 4);
        }
    return fine;
}

/* A group of 8 rows, or what is left of them and zeros. Formats are named so that each gets loops of its own. */
static int pack_group(const packing *p, int64_t group, int64_t bytes) {
    const int64_t first = group * LANES, n = p->n_rows - first < LANES ? p->n_rows - first : LANES;
    const uint8_t *const *rows = (const uint8_t *const *)p->rows + first;
    uint8_t *out = p->packed + group * bytes;
    if (n < LANES) memset(out, 0, (size_t)bytes);
    switch (p->format) {
    case F32: return pack_words(rows, n, p->columns, out);
    case F16: return pack_halves(rows, n, p->columns, 0x7C00, out);
    case BF16: return pack_halves(rows, n, p->columns, 0x7F80, out);
    case Q8_0: return pack_blocks(Q8_0, rows, n, p->columns / BLOCK, out);
    case Q4_0: return pack_blocks(Q4_0, rows, n, p->columns / BLOCK, out);
    default: return pack_blocks(Q4_1, rows, n, p->columns / BLOCK, out);
    }
}

/* The pages of a mapped file that rows first … last-1 fill have been read; otherwise all of the file would be resident. */
static void give_back(const packing *p, int64_t first, int64_t last, int64_t row_bytes) {
    const int64_t page = sysconf(_SC_PAGESIZE);
    const intptr_t start = ((intptr_t)p->rows[first] + page - 1) / page * page;
    const intptr_t end = ((intptr_t)p->rows[last - 1] + row_bytes) / page * page;
    if (start < end) madvise((void *)start, (size_t)(end - start), MADV_DONTNEED);
}

typedef struct {
    packing *matrices;
    int64_t n, taken; /* taken: slices, counted over all matrices */
    int64_t *done; /* bytes */
} packings;

static void pack_slices(void *job, int id, int threads) {
    (void)id, (void)threads;
    packings *all = job;
    int64_t number = __atomic_fetch_add(&all->taken, 1, __ATOMIC_RELAXED), before = 0;
    for (packing *p = all->matrices; p < all->matrices + all->n;) {
        const int64_t groups = (p->n_rows + LANES - 1) / LANES, slices = (groups + SLICE - 1) / SLICE;
        if (number - before >= slices) {
            before += slices;
            p++;
            continue;
        }
        const int64_t first = (number - before) * SLICE, last = first + SLICE < groups ? first + SLICE : groups;
        const int64_t bytes = regard_packed_bytes(p->format, p->n_rows, p->columns) / groups;
        int fine = 1;
        for (int64_t group = first; group < last; group++) fine &= pack_group(p, group, bytes);
        if (p->mapped) give_back(p, first * LANES, last * LANES < p->n_rows ? last * LANES : p->n_rows, bytes / LANES);
        if (!fine) __atomic_store_n(&p->finite, 0, __ATOMIC_RELAXED);
        __atomic_fetch_add(all->done, (last - first) * bytes, __ATOMIC_RELAXED);
        number = __atomic_fetch_add(&all->taken, 1, __ATOMIC_RELAXED);
    }
}

/* Every matrix; `finite` becomes 0 where one holds something else, and `done` grows by the bytes written. */
int regard_pack(packing *matrices, int64_t n, int32_t threads, int64_t *done) {
    for (int64_t i = 0; i < n; i++)
        if (regard_packed_bytes(matrices[i].format, matrices[i].n_rows, matrices[i].columns) < 0) return -1;
    packings all = {matrices, n, 0, done};
    pool_run(pack_slices, &all, threads);
    return 0;
}
