// AdamW on all tensors in one launch, and the squared norm of all gradients. A table lists the tensors;
// each block handles CHUNK values of one tensor, which it finds by its block index.
//
//   m = b1 m + (1 - b1) g     v = b2 v + (1 - b2) g^2      g scaled first
//   p = p (1 - lr wd) - lr (m c1) / (sqrt(v c2) + eps)
#pragma once
#include "common.h"

constexpr int CHUNK = 4096;

struct Moved {
    float *p;
    const float *g;
    float *m, *v;
    int64 n;
    int64 first; // block
    float learning_rate, weight_decay;
};

// The tensor that this block works on, and the range of its values.
__device__ __forceinline__ const Moved &moved(const Moved *table, int tensors, int64 &from, int64 &to) {
    int low = 0, high = tensors; // the last one whose first block is not above this one
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (table[middle].first <= int64(blockIdx.x)) low = middle;
        else high = middle;
    }
    from = (int64(blockIdx.x) - table[low].first) * CHUNK;
    to = from + CHUNK < table[low].n ? from + CHUNK : table[low].n;
    return table[low];
}

KERNEL(adamw, const Moved *table, int tensors, float beta1, float beta2, float eps, float c1, float c2,
       float scale) {
    int64 from, to;
    const Moved &t = moved(table, tensors, from, to);
    for (int64 i = from + threadIdx.x; i < to; i += blockDim.x) {
        float lr = t.learning_rate, g = t.g[i] * scale;
        float m = beta1 * t.m[i] + (1 - beta1) * g, v = beta2 * t.v[i] + (1 - beta2) * g * g;
        float p = t.p[i] * (1 - lr * t.weight_decay) - lr * (m * c1) / (sqrtf(v * c2) + eps);
        t.m[i] = m;
        t.v[i] = v;
        t.p[i] = p;
    }
}

// Sums of squares of every block's values, in double precision and in a fixed order.
KERNEL(squares, const Moved *table, int tensors, double *parts) {
    SHARED(double, scratch, ROWS);
    int64 from, to;
    const Moved &t = moved(table, tensors, from, to);
    double sum = 0;
    for (int64 i = from + threadIdx.x; i < to; i += blockDim.x) sum += double(t.g[i]) * t.g[i];
    for (int offset = LANES / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(ALL, sum, offset);
    if (threadIdx.x % LANES == 0) scratch[threadIdx.x / LANES] = sum;
    __syncthreads();
    if (threadIdx.x) return;
    for (int i = 1; i < ROWS; ++i) sum += scratch[i];
    parts[blockIdx.x] = sum;
}

// The sum of parts (n), by a single thread, since there are few.
KERNEL(add_squares, const double *parts, double *sum, int n) {
    SHARED(double, scratch, ROWS);
    double s = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) s += parts[i];
    for (int offset = LANES / 2; offset > 0; offset /= 2) s += __shfl_xor_sync(ALL, s, offset);
    if (threadIdx.x % LANES == 0) scratch[threadIdx.x / LANES] = s;
    __syncthreads();
    if (threadIdx.x) return;
    for (int i = 1; i < ROWS; ++i) s += scratch[i];
    *sum = s;
}
