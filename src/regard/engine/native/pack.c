/* Rows as files hold them → groups of 8 rows as the kernels read them (engine.h). No number changes. */
#include <stdint.h>
#include <string.h>

#include "engine.h"

/* The bytes of a block (of a column, for floats) in a file's row, and where its integers begin. */
static const struct { int64_t numbers, bytes, integers; } FILED[] = {
    [F32] = {1, 4, 0}, [F16] = {1, 2, 0}, [BF16] = {1, 2, 0}, [Q8_0] = {32, 34, 2}, [Q4_0] = {32, 18, 2}, [Q4_1] = {32, 20, 4},
};

int64_t regard_packed_bytes(int32_t format, int64_t rows, int64_t columns) {
    if (format < F32 || format > Q4_1 || rows < 1 || columns < 1 || columns % FILED[format].numbers) return -1;
    return (rows + 7) / 8 * 8 * (columns / FILED[format].numbers) * FILED[format].bytes;
}

static void pack_words(const uint8_t *const *rows, int64_t n, int64_t columns, uint8_t *out) {
    for (int64_t k = 0; k < columns; k++, out += 32)
        for (int64_t r = 0; r < n; r++) memcpy(out + 4 * r, rows[r] + 4 * k, 4);
}

static void pack_halves(const uint8_t *const *rows, int64_t n, int64_t columns, uint8_t *out) {
    for (int64_t k = 0; k < columns; k++, out += 16)
        for (int64_t r = 0; r < n; r++) memcpy(out + 2 * r, rows[r] + 2 * k, 2);
}

/* Scales (and minima) side by side, then the integers: 4 bytes of each row in turn. */
static void pack_blocks(int32_t format, const uint8_t *const *rows, int64_t n, int64_t blocks, uint8_t *out) {
    const int64_t bytes = FILED[format].bytes, head = FILED[format].integers;
    for (int64_t b = 0; b < blocks; b++, out += 8 * bytes) {
        for (int64_t r = 0; r < n; r++) {
            const uint8_t *block = rows[r] + b * bytes;
            for (int64_t i = 0; i < head / 2; i++) memcpy(out + 16 * i + 2 * r, block + 2 * i, 2);
            for (int64_t i = 0; i < (bytes - head) / 4; i++) memcpy(out + 8 * head + 32 * i + 4 * r, block + head + 4 * i, 4);
        }
    }
}

/* `rows` points at each row; the last group is filled up with zeros. */
int regard_pack(int32_t format, const void *const *rows, int64_t n_rows, int64_t columns, uint8_t *packed) {
    const int64_t all = regard_packed_bytes(format, n_rows, columns);
    if (all < 0) return -1;
    const int64_t group = all / ((n_rows + 7) / 8);
    for (int64_t first = 0; first < n_rows; first += 8, packed += group) {
        const uint8_t *const *here = (const uint8_t *const *)rows + first;
        const int64_t n = n_rows - first < 8 ? n_rows - first : 8;
        if (n < 8) memset(packed, 0, (size_t)group);
        if (format == F32) pack_words(here, n, columns, packed);
        else if (format == F16 || format == BF16) pack_halves(here, n, columns, packed);
        else pack_blocks(format, here, n, columns / BLOCK, packed);
    }
    return 0;
}
