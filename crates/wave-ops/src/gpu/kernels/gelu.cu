// The Gaussian error linear unit of x (n) = z + bias, rows of d:  y = x Phi(x),
// Phi(x) = (1 + erf(x / sqrt 2)) / 2;  dx = dy (Phi(x) + x phi(x)),  phi(x) = exp(-x^2 / 2) / sqrt(2 pi).
// `bias` may be null. The backward pass computes y again where it is wanted.
#pragma once
#include "common.h"

__device__ __forceinline__ float normal_share(float x) { return 0.5f * (1 + erff(x * 0.70710678f)); }

template <class T> __device__ void gelu(const T *z, const float *bias, T *y, int64 n, int d) {
    int64 i = int64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float x = widen(z[i]) + (bias ? bias[i % d] : 0);
    y[i] = narrow<T>(x * normal_share(x));
}

template <class T>
__device__ void gelu_backward(const T *z, const float *bias, const T *dy, T *dx, T *y, int64 n, int d) {
    int64 i = int64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float x = widen(z[i]) + (bias ? bias[i % d] : 0), share = normal_share(x);
    float slope = share + x * expf(-0.5f * x * x) * 0.39894228f;
    dx[i] = narrow<T>(widen(dy[i]) * slope);
    if (y) y[i] = narrow<T>(x * share);
}

#define GELU(T)                                                                                                   \
    KERNEL(gelu_##T, const T *z, const float *bias, T *y, int64 n, int d) { gelu(z, bias, y, n, d); }             \
    KERNEL(gelu_backward_##T, const T *z, const float *bias, const T *dy, T *dx, T *y, int64 n, int d) {          \
        gelu_backward(z, bias, dy, dx, y, n, d);                                                                  \
    }
GELU(f32)
GELU(bf16)
