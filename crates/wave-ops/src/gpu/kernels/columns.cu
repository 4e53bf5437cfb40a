// Sums of the rows of x (rows, d), in a fixed order: first over `count` rows each, parts (.., d), then
// over the parts. The gradients of biases, and of layer norms' parameters.
#pragma once
#include "common.h"

template <class T> __device__ void column_sums(const T *x, float *parts, int rows, int d, int count) {
    SHARED(float, sum_of, ROWS *WIDE);
    int column = blockIdx.x * WIDE + threadIdx.x % LANES * 8, first = blockIdx.y * count;
    int last = min(rows, first + count);
    float sums[8] = {};
    for (int row = first + threadIdx.x / LANES; row < last && column < d; row += ROWS) {
        float values[8];
        read(x + int64(row) * d, column, d, values);
        for (int j = 0; j < 8; ++j) sums[j] += values[j];
    }
    add_rows(sums, sum_of, parts, d);
}

#define COLUMN_SUMS(T)                                                                                            \
    KERNEL(column_sums_##T, const T *x, float *parts, int rows, int d, int count) {                               \
        column_sums(x, parts, rows, d, count);                                                                    \
    }
COLUMN_SUMS(f32)
COLUMN_SUMS(bf16)

// Sums a, b and c (d) of parts (count, 3 or fewer, d), rows `stride` apart. A thread has one column and every eighth
// part.
KERNEL(add_parts, const float *parts, float *a, float *b, float *c, int count, int d, int stride) {
    SHARED(float, sum_of, ROWS *LANES);
    int lane = threadIdx.x % LANES, column = blockIdx.x * LANES + lane;
    parts += blockIdx.y * d + column;
    float sum = 0;
    for (int part = threadIdx.x / LANES; part < count && column < d; part += 8 * ROWS) {
        float values[8]; // on their way at the same time
#pragma unroll
        for (int j = 0; j < 8; ++j)
            values[j] = part + j * ROWS < count ? parts[int64(part + j * ROWS) * stride] : 0;
#pragma unroll
        for (int j = 0; j < 8; ++j) sum += values[j];
    }
    sum_of[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x >= LANES || column >= d) return;
    for (int i = 1; i < ROWS; ++i) sum += sum_of[i * LANES + lane];
    (blockIdx.y == 0 ? a : blockIdx.y == 1 ? b : c)[column] = sum;
}
