// A residual connection over n values, rows of d:  y = x + s (a + bias), with the drop-path scales s of
// samples of `size` values each, 1 where null. x and y are f32, the branch a is f32 or bf16.
//
// The gradient of the branch is s g; without scales that is a copy in another type.
#pragma once
#include "common.h"

template <class T>
__device__ void residual(const float *x, const T *a, const float *bias, const float *scales, float *y, int64 n,
                         int d, int size) {
    int64 i = int64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= n) return;
    y[i] = x[i] + (scales ? scales[i / size] : 1) * (widen(a[i]) + bias[i % d]);
}

template <class T> __device__ void branch(const float *g, const float *scales, T *d_a, int64 n, int size) {
    int64 i = int64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= n) return;
    d_a[i] = narrow<T>((scales ? scales[i / size] : 1) * g[i]);
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
