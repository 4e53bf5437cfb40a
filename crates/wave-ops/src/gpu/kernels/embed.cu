// The patch embedding: images x (b, c, h, w) to patches (b, (h / p) (w / p), c p p); their products with the weight,
// y (b, n, d), to tokens (b, first + n, d) = table (first + n, d) + y, no y in the first rows of a sample; and back.
#pragma once
#include "common.h"

// One patch per block.
KERNEL(patchify, const float *x, float *patches, int channels, int h, int w, int p) {
    int across = w / p, down = h / p, size = channels * p * p, patch = blockIdx.x;
    int column = patch % across, row = patch / across % down, sample = patch / across / down;
    x += int64(sample) * channels * h * w + int64(row) * p * w + column * p;
    for (int i = threadIdx.x; i < size; i += blockDim.x) {
        int line = i / p; // of all channels
        patches[int64(patch) * size + i] = x[(int64(line / p) * h + line % p) * w + i % p];
    }
}

// One token per warp.
template <class T>
__device__ void embed(const T *y, const float *table, float *tokens, int rows, int d, int first, int n) {
    int row = blockIdx.x * ROWS + threadIdx.x / LANES;
    if (row >= rows) return; // whole warps
    int sample = row / (first + n), token = row % (first + n);
    y += (int64(sample) * n + token - first) * d;
    for (int i = threadIdx.x % LANES * 4; i < d; i += LANES * 4) {
        float sum[4], add[4];
        read(table + int64(token) * d, i, d, sum);
        if (token >= first) {
            read(y, i, d, add);
            for (int j = 0; j < 4; ++j) sum[j] += add[j];
        }
        write(tokens + int64(row) * d, i, d, sum);
    }
}

// dy (b n, d) from the gradient of the tokens; one patch per warp.
template <class T> __device__ void embed_backward(const float *d_tokens, T *dy, int rows, int d, int first, int n) {
    int row = blockIdx.x * ROWS + threadIdx.x / LANES;
    if (row >= rows) return; // whole warps
    d_tokens += (int64(row / n) * (first + n) + first + row % n) * d;
    for (int i = threadIdx.x % LANES * 4; i < d; i += LANES * 4) {
        float values[4];
        read(d_tokens, i, d, values);
        write(dy + int64(row) * d, i, d, values);
    }
}

#define EMBED(T)                                                                                                  \
    KERNEL(embed_##T, const T *y, const float *table, float *tokens, int rows, int d, int first, int n) {         \
        embed(y, table, tokens, rows, d, first, n);                                                               \
    }                                                                                                             \
    KERNEL(embed_backward_##T, const float *d_tokens, T *dy, int rows, int d, int first, int n) {                 \
        embed_backward(d_tokens, dy, rows, d, first, n);                                                          \
    }
EMBED(f32)
EMBED(bf16)
