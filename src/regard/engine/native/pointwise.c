/* What happens to each row on its own: norms, activations, embeddings, the best of the logits. */
#include "kernels.h"
#include "simd.h"

/* Rows are read 8 floats at a time; what is left over goes through a padded copy. */
INLINE v8 some(const float *p, int64_t n) {
    float x[8] = {0};
    memcpy(x, p, (size_t)n * sizeof *p);
    return load(x);
}

static float total(const float *x, int64_t n) {
    v8 a = all(0.0f), b = all(0.0f);
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        a += load(x + i);
        b += load(x + i + 8);
    }
    for (; i + 8 <= n; i += 8) a += load(x + i);
    if (i < n) b += some(x + i, n - i);
    return sum8(a + b);
}

static float squares(const float *x, int64_t n, float mean) {
    v8 a = all(0.0f), b = all(0.0f), m = all(mean);
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        const v8 u = load(x + i) - m, v = load(x + i + 8) - m;
        a = fma8(u, u, a);
        b = fma8(v, v, b);
    }
    for (; i < n; i++) {
        const float u = x[i] - mean;
        a[i % 8] += u * u;
    }
    return sum8(a + b);
}

/* layer: γ (x - μ)/√(σ² + ε) + β.  rms: γ x/√(mean(x²) + ε). */
void NAME(norm)(int32_t kind, const float *x, int64_t n, const float *gain, const float *shift, float eps, float *out) {
    const float mean = kind == LAYER_NORM ? total(x, n) / (float)n : 0.0f;
    const float factor = 1.0f / sqrtf(squares(x, n, mean) / (float)n + eps);
    const v8 m = all(mean), f = all(factor);
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        v8 y = (load(x + i) - m) * f * load(gain + i);
        store(out + i, shift ? y + load(shift + i) : y);
    }
    for (; i < n; i++) out[i] = (x[i] - mean) * factor * gain[i] + (shift ? shift[i] : 0.0f);
}

INLINE v8 sigmoid(v8 x) { return all(1.0f) / (all(1.0f) + exp8(-x)); }
INLINE v8 tanh_of(v8 x) { /* by odd symmetry, so that nothing cancels far from 0; near 0 the series */
    const v8 a = magnitude(x), e = exp8(a + a), square = x * x;
    const v8 far = all(1.0f) - all(2.0f) / (e + all(1.0f));
    const v8 signed_far = as_float(as_int(far) | (as_int(x) & (int32_t)0x80000000));
    const v8 series =
        fma8(fma8(fma8(square, all(-17.0f / 315.0f), all(2.0f / 15.0f)), square, all(-1.0f / 3.0f)), square, all(1.0f));
    return pick(a < all(0.1f), x * series, signed_far);
}

/* Φ(x) through erf: Abramowitz and Stegun 7.1.26, within 1.5e-7. */
INLINE v8 gaussian(v8 x) {
    const v8 z = magnitude(x) * all(0.70710678f), t = all(1.0f) / fma8(z, all(0.3275911f), all(1.0f));
    v8 p = all(1.061405429f);
    p = fma8(p, t, all(-1.453152027f));
    p = fma8(p, t, all(1.421413741f));
    p = fma8(p, t, all(-0.284496736f));
    p = fma8(p, t, all(0.254829592f));
    const v8 tail = all(0.5f) * p * t * exp8(-(z * z)); /* beyond |x| on one side */
    return pick(x < all(0.0f), tail, all(1.0f) - tail);
}

INLINE v8 act(const int kind, v8 x) {
    switch (kind) {
    case GELU: return x * gaussian(x);
    case GELU_TANH: /* (1 + tanh y) / 2 is sigmoid(2 y) */
        return x * sigmoid(all(1.59576912f) * fma8(all(0.044715f) * x * x, x, x));
    case SILU: return x * sigmoid(x);
    case RELU: return pick(x < all(0.0f), all(0.0f), x);
    case TANH: return tanh_of(x);
    default: return x;
    }
}

INLINE void finish_as(const int kind, const step *s, int64_t first, int64_t n, const float *x, float *out) {
    const float *bias = s->bias ? s->bias + first : 0, *gate_bias = s->gate_bias ? s->gate_bias + first : 0;
    for (int64_t i = 0; i < n; i += 8) {
        v8 y = load(x + i), z = load(out + i);
        if (bias) y += load(bias + i);
        if (gate_bias) z += load(gate_bias + i);
        store(out + i, s->gate ? act(kind, z) * y : s->add ? z + act(kind, y) : act(kind, y));
    }
}

/* What follows a product x, for numbers first … first+n-1 (whole groups) of a row: out = or += act(x + bias); or, where out
 * is the gate's product, out = act(out + its bias) ⊙ (x + bias). */
void NAME(finish)(const step *s, int64_t first, int64_t n, const float *x, float *out) {
    switch (s->activation) {
    case GELU: finish_as(GELU, s, first, n, x, out); break;
    case GELU_TANH: finish_as(GELU_TANH, s, first, n, x, out); break;
    case SILU: finish_as(SILU, s, first, n, x, out); break;
    case RELU: finish_as(RELU, s, first, n, x, out); break;
    case TANH: finish_as(TANH, s, first, n, x, out); break;
    default: finish_as(NO_ACTIVATION, s, first, n, x, out); break;
    }
}

/* Number k of row `row`, as `engine.h` lays it out. */
static float number(const matrix *W, int64_t row, int64_t k) {
    const uint8_t *group = W->data + row / 8 * W->group_bytes;
    const int64_t lane = row % 8, b = k / BLOCK, i = k % BLOCK;
    const uint16_t *halves = (const uint16_t *)group;
    switch (W->format) {
    case F32: return ((const float *)group)[8 * k + lane];
    case F16: return half_to_float(halves[8 * k + lane]);
    case BF16: {
        const uint32_t bits = (uint32_t)halves[8 * k + lane] << 16;
        float x;
        memcpy(&x, &bits, sizeof x);
        return x;
    }
    case Q8_0: {
        const uint8_t *block = group + 272 * b;
        return half_to_float(((const uint16_t *)block)[lane]) * (float)(int8_t)block[16 + 32 * (i / 4) + 4 * lane + i % 4];
    }
    default: {
        const int has_minimum = W->format == Q4_1, head = has_minimum ? 32 : 16;
        const uint8_t *block = group + (128 + head) * b;
        const uint8_t both = block[head + 32 * (i % 16 / 4) + 4 * lane + i % 4];
        const float q = (float)(i < 16 ? both & 15 : both >> 4), d = half_to_float(((const uint16_t *)block)[lane]);
        return has_minimum ? q * d + half_to_float(((const uint16_t *)block)[8 + lane]) : (q - 8.0f) * d;
    }
    }
}

void NAME(embed)(const matrix *W, int64_t row, float scale, const float *plus, float *out) {
    for (int64_t k = 0; k < W->columns; k++) out[k] = number(W, row, k) * scale + (plus ? plus[k] : 0.0f);
}

INLINE int any(v8i mask) { return sum8_int(mask) != 0; } /* lanes are 0 or -1 */

static float largest(const float *x, int64_t n) {
    v8 most = all(-INFINITY);
    v8i odd = {0};
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const v8 y = load(x + i);
        most = greatest(y, most);
        odd |= y != y;
    }
    float peak = max8(most);
    int trouble = any(odd);
    for (; i < n; i++) {
        peak = x[i] > peak ? x[i] : peak;
        trouble |= x[i] != x[i];
    }
    return trouble ? NAN : peak;
}

/* log Σ exp(x); NaN if a number is NaN or infinite, or all are -∞. */
float NAME(log_total)(const float *x, int64_t n) {
    const float peak = largest(x, n);
    double total = 0.0;
    int64_t i = 0;
    if (!(peak - peak == 0.0f)) return NAN;
    while (i + 8 <= n) { /* a stretch in floats, stretches in doubles */
        const int64_t end = i + 1024 < n ? i + 1024 : n;
        v8 sum = all(0.0f);
        for (; i + 8 <= end; i += 8) sum += exp8(load(x + i) - all(peak));
        total += (double)sum8(sum);
    }
    for (; i < n; i++) total += exp((double)(x[i] - peak));
    return peak + (float)log(total);
}

/* The list is kept in order; few numbers get past its last. */
int NAME(ranked)(const float *x, int64_t n, int64_t k, int64_t *ids, float *values) {
    int64_t have = 0;
    if (isnan(largest(x, n))) return 1;
    for (int64_t i = 0; i < n; i += 8) {
        const int64_t end = i + 8 < n ? i + 8 : n;
        if (have == k && end == i + 8 && !any(load(x + i) > all(values[k - 1]))) continue;
        for (int64_t j = i; j < end; j++) {
            if (have == k && !(x[j] > values[k - 1])) continue;
            int64_t place = have < k ? have++ : k - 1;
            for (; place > 0 && values[place - 1] < x[j]; place--) {
                values[place] = values[place - 1];
                ids[place] = ids[place - 1];
            }
            values[place] = x[j];
            ids[place] = j;
        }
    }
    return 0;
}
