// A residual connection over n values, rows of d:  y = x + s (a + bias), with the drop-path scales s of
// samples of `size` values each, 1 where null. x and y are f32, the branch a is f32 or bf16.
//
// The gradient of the branch is s g; without scales that is a copy in another type.
#pragma once
#include "common.h"

template <class T>
__device__ void residual(const float *x, const T *a, const float *bias, const float *scales, float *y, int64 n,
                         int d, int size) {
    int64 at = first_of_eight();
    if (at >= n) return;
    float sum[8], branch[8];
    read(x, at, n, sum);
    read(a, at, n, branch);
    add_bias(branch, bias, at, d);
    scale(branch, scales, at, n, size);
    for (int j = 0; j < 8; ++j) sum[j] += branch[j];
    write(y, at, n, sum);
}

template <class T> __device__ void branch(const float *g, const float *scales, T *d_a, int64 n, int size) {
    int64 at = first_of_eight();
    if (at >= n) return;
    float x[8];
    read(g, at, n, x);
    scale(x, scales, at, n, size);
    write(d_a, at, n, x);
}

#define RESIDUAL(T)                                                                                               \
    KERNEL(residual_##T, const float *x, const T *a, const float *bias, const float *scales, float *y, int64 n,   \
           int d, int size) {                                                                                     \
        residual(x, a, bias, scales, y, n, d, size);                                                              \
    }                                                                                                             \
    KERNEL(branch_##T, const float *g, const float *scales, T *d_a, int64 n, int size) {                          \
        branch(g, scales, d_a, n, size);                                                                          \
    }
RESIDUAL(f32)
RESIDUAL(bf16)
