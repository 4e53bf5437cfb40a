// A residual connection and the layer norm after it, in rows of d, and their gradients:
//
//   y = x + s (a + bias);   z = w y^ + b,  y^ = (y - mean) r,  r = 1 / sqrt(var + eps)
//   q = dz w;   dy += r (q - mean(q) - y^ mean(q y^));   dw = sum of rows dz y^;   db = sum of rows dz
//   da = s dy;   dbias = sum of rows da
//
// s are the drop-path scales of samples of `size` rows each, 1 if null. Without a, y is x; without z, there is no
// norm. x, y, dy and parameters are f32; a, z and their gradients are f32 or bf16.
//
// A warp has a row, in registers: of every 4 LANES columns, lane l holds columns 4 l to 4 l + 3, J times. Sums over
// rows are computed in parts (columns.cu adds them).
#pragma once
#include "common.h"

__device__ __forceinline__ int column(int j) { return 4 * (j * LANES + threadIdx.x % LANES); }

template <int J, class T> __device__ __forceinline__ void read_row(const T *x, int d, float (&to)[J][4]) {
#pragma unroll
    for (int j = 0; j < J; ++j) read(x, column(j), d, to[j]);
}

template <int J, class T> __device__ __forceinline__ void write_row(T *x, int d, const float (&from)[J][4]) {
#pragma unroll
    for (int j = 0; j < J; ++j) write(x, column(j), d, from[j]);
}

struct Statistics {
    float mean, r;
};

// For a row that is 0 beyond its end.
template <int J> __device__ __forceinline__ Statistics statistics(const float (&y)[J][4], int d, float eps) {
    float sum = 0, squares = 0;
#pragma unroll
    for (int j = 0; j < J; ++j)
        for (int e = 0; e < 4; ++e) sum += y[j][e];
    float mean = warp_sum(sum) / d;
#pragma unroll
    for (int j = 0; j < J; ++j)
        for (int e = 0; e < 4; ++e)
            if (column(j) + e < d) squares += (y[j][e] - mean) * (y[j][e] - mean);
    return {mean, 1 / sqrtf(warp_sum(squares) / d + eps)};
}

template <int J, class T>
__device__ void norm(const float *x, const T *a, const float *bias, const float *scales, float *y, const float *w,
                     const float *b, T *z, int rows, int d, int size, float eps) {
    int row = blockIdx.x * ROWS + threadIdx.x / LANES;
    if (row >= rows) return; // whole warps
    int64 at = int64(row) * d;
    float values[J][4], other[J][4];
    read_row(x + at, d, values);
    if (a) {
        float s = scales ? scales[row / size] : 1;
        read_row(a + at, d, other);
#pragma unroll
        for (int j = 0; j < J; ++j) {
            float shift[4];
            read(bias, column(j), d, shift);
            for (int e = 0; e < 4; ++e) values[j][e] += s * (other[j][e] + shift[e]);
        }
        write_row(y + at, d, values);
    }
    if (!z) return;
    Statistics s = statistics(values, d, eps);
#pragma unroll
    for (int j = 0; j < J; ++j) {
        float weight[4], shift[4];
        read(w, column(j), d, weight);
        read(b, column(j), d, shift);
        for (int e = 0; e < 4; ++e) values[j][e] = (values[j][e] - s.mean) * s.r * weight[e] + shift[e];
    }
    write_row(z + at, d, values);
}

// dy is written, and read first if `add`. da may be null. A block has `count` rows, and their sums are
// written as parts (.., 3, d): of dw, db and dbias.
template <int J, class T>
__device__ void norm_backward(const float *y, const float *w, const T *dz, float *dy, const float *scales, T *da,
                              float *parts, int rows, int d, int size, int count, float eps, int add) {
    SHARED(float, sum_of, ROWS * LANES * 4);
    int warp = threadIdx.x / LANES, first = blockIdx.x * count, last = min(rows, first + count);
    // The next row is loaded while the current one is processed, if registers have room for both.
    constexpr bool AHEAD = J <= 3;
    float sums[3][J][4] = {}, x_next[J][4], g_next[J][4];
    auto read_next = [&](int row) {
        read_row(y + int64(row) * d, d, x_next);
        read_row(dz + int64(row) * d, d, g_next);
    };
    if (AHEAD && first + warp < last) read_next(first + warp);
    for (int row = first + warp; row < last; row += ROWS) {
        int64 at = int64(row) * d;
        float x[J][4], g[J][4];
        if (!AHEAD) read_next(row);
#pragma unroll
        for (int j = 0; j < J; ++j)
            for (int e = 0; e < 4; ++e) x[j][e] = x_next[j][e], g[j][e] = g_next[j][e];
        if (AHEAD && row + ROWS < last) read_next(row + ROWS);
        Statistics s = statistics(x, d, eps);
        float sum = 0, product = 0;
#pragma unroll
        for (int j = 0; j < J; ++j) {
            float weight[4];
            read(w, column(j), d, weight);
            for (int e = 0; e < 4; ++e) {
                x[j][e] = (x[j][e] - s.mean) * s.r;
                sums[0][j][e] += g[j][e] * x[j][e];
                sums[1][j][e] += g[j][e];
                g[j][e] *= weight[e];
                sum += g[j][e];
                product += g[j][e] * x[j][e];
            }
        }
        sum = warp_sum(sum) / d, product = warp_sum(product) / d;
        float scale = scales ? scales[row / size] : 1;
#pragma unroll
        for (int j = 0; j < J; ++j) {
            float before[4] = {};
            if (add) read(dy + at, column(j), d, before);
            for (int e = 0; e < 4; ++e) g[j][e] = before[e] + s.r * (g[j][e] - sum - x[j][e] * product);
            write(dy + at, column(j), d, g[j]);
            if (!da) continue;
            for (int e = 0; e < 4; ++e) sums[2][j][e] += g[j][e] *= scale;
            write(da + at, column(j), d, g[j]);
        }
    }
    parts += int64(blockIdx.x) * 3 * d;
#pragma unroll(J <= 8 ? 3 : 1)
    for (int i = 0; i < 3; ++i)
#pragma unroll
        for (int j = 0; j < J; ++j) {
            __syncthreads(); // the last sums have been read
#pragma unroll
            for (int e = 0; e < 4; ++e) sum_of[4 * threadIdx.x + e] = sums[i][j][e];
            __syncthreads();
            int to = j * 4 * LANES + threadIdx.x;
            if (threadIdx.x >= 4 * LANES || to >= d || (i == 2 && !da)) continue;
            float sum = 0;
            for (int k = 0; k < ROWS; ++k) sum += sum_of[k * 4 * LANES + threadIdx.x];
            parts[int64(i) * d + to] = sum;
        }
}

// Converts a to another type, times the scales of samples of `size` values.
template <class T> __device__ void branch(const float *a, const float *scales, T *to, int64 n, int size) {
    int64 at = first_of_eight();
    if (at >= n) return;
    float x[8];
    read(a, at, n, x);
    scale(x, scales, at, n, size);
    write(to, at, n, x);
}

#define NORM_OF(T, J)                                                                                             \
    KERNEL(norm_##T##_##J, const float *x, const T *a, const float *bias, const float *scales, float *y,          \
           const float *w, const float *b, T *z, int rows, int d, int size, float eps) {                          \
        norm<J>(x, a, bias, scales, y, w, b, z, rows, d, size, eps);                                              \
    }                                                                                                             \
    KERNEL_IN((ROWS * LANES), norm_backward_##T##_##J, const float *y, const float *w, const T *dz, float *dy,    \
              const float *scales, T *da, float *parts, int rows, int d, int size, int count, float eps,          \
              int add) {                                                                                          \
        norm_backward<J>(y, w, dz, dy, scales, da, parts, rows, d, size, count, eps, add);                        \
    }
// J takes the values of `NORMS` in kernels.rs.
#define NORM(T)                                                                                                   \
    NORM_OF(T, 1)                                                                                                 \
    NORM_OF(T, 2)                                                                                                 \
    NORM_OF(T, 3)                                                                                                 \
    NORM_OF(T, 4)                                                                                                 \
    NORM_OF(T, 6)                                                                                                 \
    NORM_OF(T, 8)                                                                                                 \
    NORM_OF(T, 16)                                                                                                \
    KERNEL(branch_##T, const float *a, const float *scales, T *to, int64 n, int size) {                           \
        branch(a, scales, to, n, size);                                                                           \
    }
NORM(f32)
NORM(bf16)
