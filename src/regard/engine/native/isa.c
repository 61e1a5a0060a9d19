/* The table of one instruction set's kernels. */
#include "kernels.h"

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

void NAME(product)(const matrix *W, int64_t first, int64_t last, const input *x, float *out, int64_t stride, float *room) {
    if (W->format >= Q8_0) NAME(product_rounded)(W, first, last, x, out, stride, room);
    else NAME(product_float)(W, first, last, x, out, stride, room);
}

const kernels NAME(kernels) = {
    TEXT(ISA),   NAME(product), NAME(quantise), NAME(norm),  NAME(finish),    NAME(embed),
    NAME(store), NAME(whole),   NAME(part),     NAME(merge), NAME(log_total), NAME(ranked),
};
