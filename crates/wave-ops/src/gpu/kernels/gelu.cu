// The Gaussian error linear unit of x = z + bias, rows of d:  y = x Phi(x), with Phi of the normal
// distribution; dx = dy (Phi(x) + x phi(x)),  phi(x) = exp(-x^2 / 2) / sqrt(2 pi). `bias` may be null.
//
// Phi(-|x|) = phi(x) times a polynomial of 1 / (1 + p |x|), with an error of at most 7.5e-8 (Abramowitz and
// Stegun 1964, 26.2.17).
#pragma once
#include "common.h"

struct Normal {
    float share, density; // Phi and phi
};

__device__ __forceinline__ Normal normal(float x) {
    float t = reciprocal(1 + 0.23164190f * fabsf(x));
    float density = 0.39894228f * power_of_two(x * x * -0.72134752f);
    float tail = ((((1.3302744f * t - 1.8212560f) * t + 1.7814779f) * t - 0.35656378f) * t + 0.31938153f) * t * density;
    return {x > 0 ? 1 - tail : tail, density};
}

// Turns dy into dx, and x into y.
__device__ __forceinline__ void gelu_gradient(float (&x)[8], float (&g)[8]) {
    for (int j = 0; j < 8; ++j) {
        Normal of = normal(x[j]);
        g[j] *= of.share + x[j] * of.density;
        x[j] *= of.share;
    }
}

template <class T> __device__ void gelu(const T *z, const float *bias, T *y, int64 n, int d) {
    int64 at = first_of_eight();
    if (at >= n) return;
    float x[8];
    read(z, at, n, x);
    add_bias(x, bias, at, d);
    for (int j = 0; j < 8; ++j) x[j] *= normal(x[j]).share;
    write(y, at, n, x);
}

template <class T> __device__ void gelu_backward(const T *z, const T *dy, T *dx, int64 n) {
    int64 at = first_of_eight();
    if (at >= n) return;
    float x[8], g[8];
    read(z, at, n, x);
    read(dy, at, n, g);
    gelu_gradient(x, g);
    write(dx, at, n, g);
}

// Turns g (rows, d) from dy into dx, writes y again, and sums dx over `count` rows each, parts (.., d): the gradient of
// the bias. A thread has eight columns and every eighth row.
template <class T>
__device__ void gelu_columns(const T *z, const float *bias, T *g, T *y, float *parts, int rows, int d, int count) {
    SHARED(float, sum_of, ROWS *WIDE);
    int column = blockIdx.x * WIDE + threadIdx.x % LANES * 8, first = blockIdx.y * count;
    int last = min(rows, first + count);
    float shift[8], sums[8] = {};
    read(bias, column, d, shift);
    for (int row = first + threadIdx.x / LANES; row < last && column < d; row += ROWS) {
        int64 at = int64(row) * d;
        float x[8], dx[8];
        read(z + at, column, d, x);
        read(g + at, column, d, dx);
        for (int j = 0; j < 8; ++j) x[j] += shift[j];
        gelu_gradient(x, dx);
        write(g + at, column, d, dx);
        write(y + at, column, d, x);
        for (int j = 0; j < 8; ++j) sums[j] += dx[j];
    }
    add_rows(sums, sum_of, parts, d);
}

#define GELU(T)                                                                                                   \
    KERNEL(gelu_##T, const T *z, const float *bias, T *y, int64 n, int d) { gelu(z, bias, y, n, d); }             \
    KERNEL(gelu_backward_##T, const T *z, const T *dy, T *dx, int64 n) { gelu_backward(z, dy, dx, n); }           \
    KERNEL(gelu_columns_##T, const T *z, const float *bias, T *g, T *y, float *parts, int rows, int d,            \
           int count) {                                                                                           \
        gelu_columns(z, bias, g, y, parts, rows, d, count);                                                       \
    }
GELU(f32)
GELU(bf16)
