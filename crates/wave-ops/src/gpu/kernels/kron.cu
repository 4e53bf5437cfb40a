// Blocks (L, r, c, t, t) of Kronecker sums to weights W (L, r t, c t) and back; the blocks are a matrix
// product, (L r c, N) x (N, t t).
//
//   tile:        W[l, a t + i, b t + j] = blocks[l, a, b, i, j]
//   interleave:  W[l, i r + a, j c + b] = blocks[l, a, b, i, j]
#pragma once
#include "common.h"

// The index in the blocks of value `at` of W.
__device__ __forceinline__ int64 place(int64 at, int r, int c, int t, int interleave) {
    int width = c * t, height = r * t;
    int x = at % width, y = at / width % height;
    int64 layer = at / width / height;
    int a = interleave ? y % r : y / t, i = interleave ? y / r : y % t;
    int b = interleave ? x % c : x / t, j = interleave ? x / c : x % t;
    return (((layer * r + a) * c + b) * t + i) * t + j;
}

KERNEL(kron_join, const float *blocks, float *w, int64 n, int r, int c, int t, int interleave) {
    int64 at = int64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (at < n) w[at] = blocks[place(at, r, c, t, interleave)];
}

KERNEL(kron_cut, const float *w, float *blocks, int64 n, int r, int c, int t, int interleave) {
    int64 at = int64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (at < n) blocks[place(at, r, c, t, interleave)] = w[at];
}

// Transposes every matrix of x (n / (rows cols), rows, cols): scalers by block, and their gradient back.
KERNEL(transpose_each, const float *x, float *y, int64 n, int rows, int cols) {
    int64 at = int64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (at >= n) return;
    int64 matrix = at / (int64(rows) * cols);
    int inside = at % (int64(rows) * cols);
    y[matrix * rows * cols + int64(inside % cols) * rows + inside / cols] = x[at];
}
