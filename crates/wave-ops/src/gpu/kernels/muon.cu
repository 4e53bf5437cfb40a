// Muon's momentum of matrices g (count, n), and Newton-Schulz between matrix products; see `muon.rs`.
//
//   m = b m + (1 - b) s g;   u = b m + (1 - b) s g;   x = u / |u|;   P = a I + b S + c S S
//
// A matrix without any gradient keeps its momentum, and its u is 0. A block handles one of gridDim.x parts of
// matrix blockIdx.y; sums of squares are computed per part, in a fixed order.
#pragma once
#include "common.h"

// The sum over this matrix's parts.
__device__ __forceinline__ float sum_of_parts(const float *parts) {
    float sum = 0;
    for (unsigned i = 0; i < gridDim.x; ++i) sum += parts[blockIdx.y * gridDim.x + i];
    return sum;
}

__device__ __forceinline__ int64 first_of_part() { return int64(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ __forceinline__ int64 part_stride() { return int64(gridDim.x) * blockDim.x; }

KERNEL(muon_squares, const float *g, float *parts, int64 n) {
    SHARED(float, scratch, ROWS);
    g += blockIdx.y * n;
    float sum = 0;
    for (int64 i = first_of_part(); i < n; i += part_stride()) sum += g[i] * g[i];
    sum = block_fold(sum, scratch, Sum());
    if (threadIdx.x == 0) parts[blockIdx.y * gridDim.x + blockIdx.x] = sum;
}

// `scale` is s (1 - b). `squares` holds the sums of g by part; those of u are written to `parts`.
KERNEL(muon_momentum, const float *g, const float *squares, float *m, float *u, float *parts, int64 n, float b,
       float scale) {
    SHARED(float, scratch, ROWS);
    g += blockIdx.y * n, m += blockIdx.y * n, u += blockIdx.y * n;
    bool used = sum_of_parts(squares) != 0;
    float sum = 0;
    for (int64 i = first_of_part(); i < n; i += part_stride()) {
        float now = 0;
        if (used) {
            float add = scale * g[i];
            m[i] = b * m[i] + add;
            now = b * m[i] + add;
        }
        u[i] = now;
        sum += now * now;
    }
    sum = block_fold(sum, scratch, Sum());
    if (threadIdx.x == 0) parts[blockIdx.y * gridDim.x + blockIdx.x] = sum;
}

KERNEL(muon_normalise, float *u, const float *squares, int64 n) {
    u += blockIdx.y * n;
    float scale = 1 / (sqrtf(sum_of_parts(squares)) + 1e-12f);
    for (int64 i = first_of_part(); i < n; i += part_stride()) u[i] *= scale;
}

// P of s (count, k, k), overwriting ss.
KERNEL(muon_polynomial, const float *s, float *ss, int64 n, int k, float a, float b, float c) {
    s += blockIdx.y * n, ss += blockIdx.y * n;
    for (int64 i = first_of_part(); i < n; i += part_stride())
        ss[i] = (i / k == i % k ? a : 0) + b * s[i] + c * ss[i];
}

// p = p (1 - lr decay) - lr size x, over all n values.
KERNEL(muon_step, float *p, const float *x, int64 n, float lr, float decay, float size) {
    for (int64 i = first_of_part(); i < n; i += part_stride())
        p[i] = p[i] * (1 - lr * decay) - lr * size * x[i];
}
