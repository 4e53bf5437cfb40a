// The Gaussian error linear unit of x (n) = z + bias, rows of d:  y = x Phi(x),
// Phi(x) = (1 + erf(x / sqrt 2)) / 2;  dx = dy (Phi(x) + x phi(x)),  phi(x) = exp(-x^2 / 2) / sqrt(2 pi).
// `bias` may be null. The backward pass computes y again where it is wanted.
#pragma once
#include "common.h"

__device__ __forceinline__ float normal_share(float x) { return 0.5f * (1 + erff(x * 0.70710678f)); }

template <class T> __device__ void gelu(const T *z, const float *bias, T *y, int64 n, int d) {
    int64 at = first_of_eight();
    if (at >= n) return;
    float x[8];
    read(z, at, n, x);
    add_bias(x, bias, at, d);
    for (int j = 0; j < 8; ++j) x[j] *= normal_share(x[j]);
    write(y, at, n, x);
}

// dx may be dy.
template <class T>
__device__ void gelu_backward(const T *z, const float *bias, const T *dy, T *dx, T *y, int64 n, int d) {
    int64 at = first_of_eight();
    if (at >= n) return;
    float x[8], g[8];
    read(z, at, n, x);
    read(dy, at, n, g);
    add_bias(x, bias, at, d);
    for (int j = 0; j < 8; ++j) {
        float share = normal_share(x[j]);
        g[j] *= share + x[j] * expf(-0.5f * x[j] * x[j]) * 0.39894228f;
        x[j] *= share;
    }
    write(dx, at, n, g);
    if (y) write(y, at, n, x);
}

#define GELU(T)                                                                                                   \
    KERNEL(gelu_##T, const T *z, const float *bias, T *y, int64 n, int d) { gelu(z, bias, y, n, d); }             \
    KERNEL(gelu_backward_##T, const T *z, const float *bias, const T *dy, T *dx, T *y, int64 n, int d) {          \
        gelu_backward(z, bias, dy, dx, y, n, d);                                                                  \
    }
GELU(f32)
GELU(bf16)
