// Sums of the rows of x (rows, d), in a fixed order: first over `count` rows each, parts (.., d), then
// over the parts. The gradients of biases, and the last step of those of layer norms.
#pragma once
#include "common.h"

template <class T> __device__ void column_sums(const T *x, float *parts, int rows, int d, int count) {
    SHARED(float, sum_of, ROWS * LANES);
    int lane = threadIdx.x % LANES, column = blockIdx.x * LANES + lane, first = blockIdx.y * count;
    int last = min(rows, first + count);
    float sum = 0;
    for (int row = first + threadIdx.x / LANES; row < last && column < d; row += ROWS)
        sum += widen(x[int64(row) * d + column]);
    sum_of[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x >= LANES || column >= d) return;
    for (int i = 1; i < ROWS; ++i) sum += sum_of[i * LANES + lane];
    parts[int64(blockIdx.y) * d + column] = sum;
}

#define COLUMN_SUMS(T)                                                                                            \
    KERNEL(column_sums_##T, const T *x, float *parts, int rows, int d, int count) {                               \
        column_sums(x, parts, rows, d, count);                                                                    \
    }
COLUMN_SUMS(f32)
COLUMN_SUMS(bf16)

// sums (d) of parts (count, d), whose rows are `stride` apart.
KERNEL(add_parts, const float *parts, float *sums, int count, int d, int stride) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= d) return;
    float sum = 0;
    for (int part = 0; part < count; ++part) sum += parts[int64(part) * stride + i];
    sums[i] = sum;
}
