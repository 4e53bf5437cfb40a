// Sums of the rows of x (rows, d), in a fixed order: first over `count` rows each, parts (.., d), then
// over the parts. The gradients of biases, and the last step of layer norms' gradients.
#pragma once
#include "common.h"

// A thread has eight columns and every eighth row.
template <class T> __device__ void column_sums(const T *x, float *parts, int rows, int d, int count) {
    constexpr int WIDE = LANES * 8;
    SHARED(float, sum_of, ROWS *WIDE);
    int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, column = blockIdx.x * WIDE + lane * 8;
    int first = blockIdx.y * count, last = min(rows, first + count);
    float sums[8] = {};
    for (int row = first + warp; row < last && column < d; row += ROWS) {
        float values[8];
        read(x + int64(row) * d, column, d, values);
        for (int j = 0; j < 8; ++j) sums[j] += values[j];
    }
    for (int j = 0; j < 8; ++j) sum_of[warp * WIDE + lane * 8 + j] = sums[j];
    __syncthreads();
    column = blockIdx.x * WIDE + threadIdx.x; // as many threads as columns
    if (column >= d) return;
    float sum = 0;
    for (int i = 0; i < ROWS; ++i) sum += sum_of[i * WIDE + threadIdx.x];
    parts[int64(blockIdx.y) * d + column] = sum;
}

#define COLUMN_SUMS(T)                                                                                            \
    KERNEL(column_sums_##T, const T *x, float *parts, int rows, int d, int count) {                               \
        column_sums(x, parts, rows, d, count);                                                                    \
    }
COLUMN_SUMS(f32)
COLUMN_SUMS(bf16)

// sums (d) of parts (count, d), whose rows are `stride` apart. A thread has a column and every eighth part.
KERNEL(add_parts, const float *parts, float *sums, int count, int d, int stride) {
    SHARED(float, sum_of, ROWS *LANES);
    int lane = threadIdx.x % LANES, column = blockIdx.x * LANES + lane;
    float sum = 0;
    for (int part = threadIdx.x / LANES; part < count && column < d; part += ROWS)
        sum += parts[int64(part) * stride + column];
    sum_of[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x >= LANES || column >= d) return;
    for (int i = 1; i < ROWS; ++i) sum += sum_of[i * LANES + lane];
    sums[column] = sum;
}
