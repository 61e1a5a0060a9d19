/* Products with float matrices: 32 or 16 bits, one row or many.
 *
 * One row streams through the matrix, four groups (32 outputs) abreast. Many rows are tiles of 6 rows × 16 outputs in
 * registers, over pieces of the depth that stay in the first-level cache; 16-bit pieces are widened once per piece. While
 * all rows pass over a piece, the next one is prefetched, so that memory is as busy as the multiplier.
 */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-tree-pre")    /* which would keep a tile's sums in memory */
#pragma GCC optimize("align-loops=64") /* a tile's loop is two cache lines, and not three: up to a sixth faster */
#endif
#include "kernels.h"
#include "simd.h"

#define DEEP 256  /* columns of a piece */
#define TALL 192  /* rows of X that stay in the second-level cache, DEEP columns of each */
#define NEAR (256 << 10) /* bytes of X that stay there whole */
#define OFTEN 64  /* columns after which more of the next piece is prefetched */

typedef struct
{ /* the next piece, two groups `apart`: `each` bytes of both are prefetched every OFTEN columns of a strip */
    const uint8_t *at;
    int64_t apart, each;
} next;

INLINE v8 fetch(const int format, const void *p, int64_t i) {
    if (format == F32) return load((const float *)p + i);
    return format == F16 ? load_half((const uint16_t *)p + i) : load_brain((const uint16_t *)p + i);
}

/* R rows × G groups in registers. R, G, and whether there is a next piece, are constants wherever this is inlined. */
INLINE void tile(const int format, const int R, const int G, int64_t depth, const float *X, int64_t x_stride, panels P,
                 int64_t first, float *C, int64_t c_stride, int more, const next *ahead) {
    v8 sum[6][4];
    const int64_t base = first * P.across;
    const uint8_t *ask = ahead ? ahead->at : 0;
#pragma GCC unroll 8
    for (int r = 0; r < R; r++)
#pragma GCC unroll 4
        for (int g = 0; g < G; g++) sum[r][g] = more ? load(C + r * c_stride + 8 * (first + g)) : all(0.0f);
    for (int64_t start = 0, end; start < depth; start = end) {
        end = ahead && start + OFTEN < depth ? start + OFTEN : depth;
        for (int64_t i = 0; ahead && i < ahead->each; i += 64) {
            __builtin_prefetch(ask + i, 0, 2);
            __builtin_prefetch(ask + ahead->apart + i, 0, 2);
        }
        if (ahead) ask += ahead->each;
        for (int64_t k = start; k < end; k++) { /* of x and w, the fewer stay in registers beside the sums */
            v8 x[3], w[2];
#pragma GCC unroll 4
            for (int r = 0; r < R && R <= 3; r++) x[r] = all(X[r * x_stride + k]);
#pragma GCC unroll 4
            for (int g = 0; g < G && R > 3; g++) w[g] = fetch(format, P.at, base + k * P.down + g * P.across);
#pragma GCC unroll 4
            for (int g = 0; g < G && R <= 3; g++) {
                const v8 one = fetch(format, P.at, base + k * P.down + g * P.across);
#pragma GCC unroll 8
                for (int r = 0; r < R; r++) sum[r][g] = fma8(x[r], one, sum[r][g]);
            }
#pragma GCC unroll 8
            for (int r = 0; r < R && R > 3; r++) {
                const v8 one = all(X[r * x_stride + k]);
#pragma GCC unroll 4
                for (int g = 0; g < G; g++) sum[r][g] = fma8(one, w[g], sum[r][g]);
            }
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; r++)
#pragma GCC unroll 4
        for (int g = 0; g < G; g++) store(C + r * c_stride + 8 * (first + g), sum[r][g]);
}

/* R rows, all groups. */
INLINE void strip(const int format, const int R, int64_t groups, int64_t depth, const float *X, int64_t x_stride, panels P,
                  float *C, int64_t c_stride, int more, const next *ahead) {
    int64_t g = 0;
    if (R <= 3)
        for (; g + 4 <= groups; g += 4) tile(format, R, 4, depth, X, x_stride, P, g, C, c_stride, more, ahead);
    for (; g + 2 <= groups; g += 2) tile(format, R, 2, depth, X, x_stride, P, g, C, c_stride, more, ahead);
    if (g < groups) tile(format, R, 1, depth, X, x_stride, P, g, C, c_stride, more, ahead);
}

static int64_t strips_of(int64_t rows) { return (rows + 5) / 6; }

/* Strips of equal height, or nearly: two rows alone would pass over the panels at half the speed. */
INLINE void multiply_as(const int format, int64_t rows, int64_t groups, int64_t depth, const float *X, int64_t x_stride,
                        panels P, float *C, int64_t c_stride, int more, next *ahead) {
    for (int64_t left = strips_of(rows), R; left; left--, rows -= R, X += R * x_stride, C += R * c_stride) {
        R = (rows + left - 1) / left;
        switch (R) {
        case 1: strip(format, 1, groups, depth, X, x_stride, P, C, c_stride, more, ahead); break;
        case 2: strip(format, 2, groups, depth, X, x_stride, P, C, c_stride, more, ahead); break;
        case 3: strip(format, 3, groups, depth, X, x_stride, P, C, c_stride, more, ahead); break;
        case 4: strip(format, 4, groups, depth, X, x_stride, P, C, c_stride, more, ahead); break;
        case 5: strip(format, 5, groups, depth, X, x_stride, P, C, c_stride, more, ahead); break;
        default: strip(format, 6, groups, depth, X, x_stride, P, C, c_stride, more, ahead); break;
        }
        if (ahead) ahead->at += (depth + OFTEN - 1) / OFTEN * ahead->each;
    }
}

void NAME(multiply)(int64_t rows, int64_t groups, int64_t depth, const float *X, int64_t x_stride, panels P, float *C,
                    int64_t c_stride, int more) {
    switch (P.format) {
    case F32: multiply_as(F32, rows, groups, depth, X, x_stride, P, C, c_stride, more, 0); break;
    case F16: multiply_as(F16, rows, groups, depth, X, x_stride, P, C, c_stride, more, 0); break;
    default: multiply_as(BF16, rows, groups, depth, X, x_stride, P, C, c_stride, more, 0); break;
    }
}

/* `depth` columns of two groups as floats, in `room` (2 × 8 × DEEP) if they are not floats already. */
static panels widened(panels P, int64_t groups, int64_t depth, float *room) {
    if (P.format == F32) return P;
    for (int64_t g = 0; g < groups; g++)
        for (int64_t k = 0; k < depth; k++)
            store(room + 8 * (g * DEEP + k), fetch(P.format, P.at, g * P.across + k * P.down));
    return (panels){F32, 8, 8 * DEEP, room};
}

void NAME(product_float)(const matrix *W, int64_t first, int64_t last, const input *x, float *out, int64_t stride,
                         float *room) {
    const int64_t depth = x->columns, size = W->format == F32 ? 4 : 2;
    const panels P = {W->format, 8, 8 * depth, W->data + first * W->group_bytes};
    out += 8 * first;
    if (x->rows <= 6) {
        NAME(multiply)(x->rows, last - first, depth, x->X, x->stride, P, out, stride, 0);
        return;
    }
    for (int64_t top = 0; top < x->rows; top += TALL) {
        const int64_t rows = x->rows - top < TALL ? x->rows - top : TALL, strips = strips_of(rows);
        const int near = rows * depth * (int64_t)sizeof(float) <= NEAR; /* then two groups go all the way down at once */
        const int64_t groups = last - first, together = near ? 2 : groups;
        for (int64_t start = 0; start < groups; start += together)
            for (int64_t k = 0; k < depth; k += DEEP)
                for (int64_t g = start; g < start + together && g < groups; g += 2) {
                    const int64_t deep = depth - k < DEEP ? depth - k : DEEP, wide = groups - g < 2 ? 1 : 2;
                    const int64_t here = g * P.across + k * P.down, below = here + deep * P.down;
                    const int64_t beside = (g + 2) * P.across + (near ? 0 : k * P.down);
                    const uint8_t *data = P.at;
                    next ahead = {
                        .at = data + (near && k + deep < depth ? below : beside) * size,
                        .apart = P.across * size,
                        .each = (8 * OFTEN * size + strips - 1) / strips,
                    };
                    const panels piece = {P.format, P.down, P.across, data + here * size};
                    multiply_as(F32, rows, wide, deep, x->X + top * x->stride + k, x->stride,
                                widened(piece, wide, deep, room), out + top * stride + 8 * g, stride, k > 0, &ahead);
                }
    }
}
