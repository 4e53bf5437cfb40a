// Layer norm of rows x (rows, d):  y = w x^ + b,  x^ = (x - mean) r,  r = 1 / sqrt(var + eps).
//
//   g = dy w;   dx = r (g - mean(g) - x^ mean(g x^));   dw = sum of rows dy x^;   db = sum of rows dy
//
// x, w, b and their gradients are f32; y and dy are f32 or bf16. A warp has a row; the row is read again
// from the nearest cache instead of being kept. Column sums are taken in parts (columns.cu adds them).
#pragma once
#include "common.h"

struct Statistics {
    float mean, r;
};

__device__ __forceinline__ Statistics statistics(const float *x, int d, float eps) {
    int lane = threadIdx.x % LANES;
    float sum = 0, squares = 0;
    for (int i = lane; i < d; i += LANES) sum += x[i];
    float mean = warp_sum(sum) / d;
    for (int i = lane; i < d; i += LANES) squares += (x[i] - mean) * (x[i] - mean);
    return {mean, 1 / sqrtf(warp_sum(squares) / d + eps)};
}

template <class T>
__device__ void layer_norm(const float *x, const float *w, const float *b, T *y, int rows, int d, float eps) {
    int row = blockIdx.x * ROWS + threadIdx.x / LANES;
    if (row >= rows) return; // whole warps
    x += int64(row) * d;
    y += int64(row) * d;
    Statistics s = statistics(x, d, eps);
    for (int i = threadIdx.x % LANES; i < d; i += LANES) y[i] = narrow<T>((x[i] - s.mean) * s.r * w[i] + b[i]);
}

// dx, added to its former values if `add`; statistics (rows, 2) for the sums over columns.
template <class T>
__device__ void layer_norm_rows(const float *x, const float *w, const T *dy, float *dx, float *statistics_out,
                                int rows, int d, float eps, int add) {
    int row = blockIdx.x * ROWS + threadIdx.x / LANES, lane = threadIdx.x % LANES;
    if (row >= rows) return; // whole warps
    x += int64(row) * d;
    dy += int64(row) * d;
    dx += int64(row) * d;
    Statistics s = statistics(x, d, eps);
    float sum = 0, product = 0;
    for (int i = lane; i < d; i += LANES) {
        float g = widen(dy[i]) * w[i];
        sum += g;
        product += g * (x[i] - s.mean) * s.r;
    }
    float g_mean = warp_sum(sum) / d, gx_mean = warp_sum(product) / d;
    for (int i = lane; i < d; i += LANES) {
        float g = widen(dy[i]) * w[i];
        float value = s.r * (g - g_mean - (x[i] - s.mean) * s.r * gx_mean);
        dx[i] = add ? dx[i] + value : value;
    }
    if (lane == 0) {
        statistics_out[2 * row] = s.mean;
        statistics_out[2 * row + 1] = s.r;
    }
}

// Sums over `count` rows each: parts (.., 2, d) of dw and db. A thread has a column and every eighth row.
template <class T>
__device__ void layer_norm_columns(const float *x, const T *dy, const float *statistics, float *parts, int rows,
                                   int d, int count) {
    SHARED(float, dw_of, ROWS * LANES);
    SHARED(float, db_of, ROWS * LANES);
    int lane = threadIdx.x % LANES, column = blockIdx.x * LANES + lane, first = blockIdx.y * count;
    int last = min(rows, first + count);
    float dw = 0, db = 0;
    for (int row = first + threadIdx.x / LANES; row < last && column < d; row += ROWS) {
        float g = widen(dy[int64(row) * d + column]);
        dw += g * (x[int64(row) * d + column] - statistics[2 * row]) * statistics[2 * row + 1];
        db += g;
    }
    dw_of[threadIdx.x] = dw;
    db_of[threadIdx.x] = db;
    __syncthreads();
    if (threadIdx.x >= LANES || column >= d) return;
    for (int i = 1; i < ROWS; ++i) {
        dw += dw_of[i * LANES + lane];
        db += db_of[i * LANES + lane];
    }
    parts[int64(2 * blockIdx.y) * d + column] = dw;
    parts[int64(2 * blockIdx.y + 1) * d + column] = db;
}

#define LAYER_NORM(T)                                                                                             \
    KERNEL(layer_norm_##T, const float *x, const float *w, const float *b, T *y, int rows, int d, float eps) {    \
        layer_norm(x, w, b, y, rows, d, eps);                                                                     \
    }                                                                                                             \
    KERNEL(layer_norm_rows_##T, const float *x, const float *w, const T *dy, float *dx, float *statistics,        \
           int rows, int d, float eps, int add) {                                                                 \
        layer_norm_rows(x, w, dy, dx, statistics, rows, d, eps, add);                                             \
    }                                                                                                             \
    KERNEL(layer_norm_columns_##T, const float *x, const T *dy, const float *statistics, float *parts, int rows,  \
           int d, int count) {                                                                                    \
        layer_norm_columns(x, dy, statistics, parts, rows, d, count);                                             \
    }
LAYER_NORM(f32)
LAYER_NORM(bf16)
