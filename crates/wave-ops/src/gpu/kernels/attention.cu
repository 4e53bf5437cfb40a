// Multi-head self-attention: per sample and head, with q, k, v (n, h),
//
//   p = softmax(c q k^T),  c = 1 / sqrt(h);   o = p v
//   dv = p^T do;   dp = do v^T;   ds = c p (dp - delta),  delta = sum(do o) by row;   dq = ds k;   dk = ds^T q
//
// qkv (b, n, 3, heads, h) + bias (3, heads, h), which may be null; o (b, n, heads, h). No matrix (n, n) is in
// memory: a warp has 16 rows, and goes over the other side tile by tile. Forward it keeps the largest score
// and the sum of a row so far (Milakov and Gimelshein 2018, Dao et al. 2022) and leaves their logarithm
// lse (b, heads, n), to base 2. Backward p is computed again from it, once by queries and once by keys, so
// that every sum has one writer and one order.
//
// Sums and softmax are in f32. H is h, filled up with zeros to 16, 32, 64 or 128.
#pragma once
#include "tiles.h"

// Rows of a block's own tile, 16 for each warp, and of the tiles that it goes over: all tiles of the
// backward pass fit into 48 KiB.
template <class T, int H> struct Tile;
template <int H> struct Tile<f32, H> {
    static constexpr int OWN = H <= 64 ? 32 : 16, OVER = OWN;
};
template <int H> struct Tile<bf16, H> {
    static constexpr int OWN = H <= 64 ? 64 : 32, OVER = 32;
};

constexpr float LOG2_E = 1.44269504f;

template <class T, int H>
__device__ void attention(const T *qkv, const float *bias, T *o, float *lse, int n, int heads, int h, int wide) {
    constexpr int OWN = Tile<T, H>::OWN, OVER = Tile<T, H>::OVER, LD = H + PAD<T>, LP = OVER + PAD<T>;
    SHARED(T, q, OWN *LD);
    SHARED(T, k, OVER *LD);
    SHARED(T, v, OVER *LD);
    SHARED(T, p, OWN *LP);
    int head = blockIdx.y, sample = blockIdx.z, first = blockIdx.x * OWN, mine = threadIdx.x / LANES * 16;
    int d = heads * h;
    const T *from = qkv + int64(sample) * n * 3 * d + head * h;
    const float *shift = bias ? bias + head * h : nullptr;
    float scale = LOG2_E / sqrtf(float(h));

    fill<T, OWN, H>(q, from, shift, first, n, 3 * d, h, wide);
    float out[H / 8][4] = {}, top[2] = {-INFINITE, -INFINITE}, sum[2] = {};
    for (int start = 0; start < n; start += OVER) {
        __syncthreads(); // the last tiles have been read
        fill<T, OVER, H>(k, from + d, bias ? shift + d : nullptr, start, n, 3 * d, h, wide);
        fill<T, OVER, H>(v, from + 2 * d, bias ? shift + 2 * d : nullptr, start, n, 3 * d, h, wide);
        __syncthreads();
        float s[OVER / 8][4] = {};
        product<H, true>(s, q + mine * LD, LD, k, LD);
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            float highest = top[r];
#pragma unroll
            for (int j = 0; j < OVER / 8; ++j)
#pragma unroll
                for (int e = 2 * r; e < 2 * r + 2; ++e) {
                    s[j][e] = start + column_of(j, e) < n ? s[j][e] * scale : -INFINITE;
                    highest = fmaxf(highest, s[j][e]);
                }
            // Four neighbouring lanes have a row.
            highest = fmaxf(highest, __shfl_xor_sync(ALL, highest, 1));
            highest = fmaxf(highest, __shfl_xor_sync(ALL, highest, 2));
            float shrink = exp2f(top[r] - highest); // 0 for the first tile
            top[r] = highest;
            sum[r] *= shrink;
#pragma unroll
            for (int j = 0; j < H / 8; ++j) {
                out[j][2 * r] *= shrink;
                out[j][2 * r + 1] *= shrink;
            }
#pragma unroll
            for (int j = 0; j < OVER / 8; ++j)
#pragma unroll
                for (int e = 2 * r; e < 2 * r + 2; ++e) {
                    s[j][e] = exp2f(s[j][e] - highest);
                    sum[r] += s[j][e];
                }
        }
        put(s, p + mine * LP, LP);
        __syncwarp();
        product<OVER, false>(out, p + mine * LP, LP, v, LD);
        __syncwarp();
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        sum[r] += __shfl_xor_sync(ALL, sum[r], 1);
        sum[r] += __shfl_xor_sync(ALL, sum[r], 2);
        int row = first + mine + row_of(2 * r);
        if (row >= n) continue;
        if (threadIdx.x % 4 == 0) lse[(int64(sample) * heads + head) * n + row] = top[r] + log2f(sum[r]);
        T *to = o + (int64(sample) * n + row) * d + head * h;
#pragma unroll
        for (int j = 0; j < H / 8; ++j)
#pragma unroll
            for (int e = 2 * r; e < 2 * r + 2; ++e)
                if (column_of(j, e) < h) to[column_of(j, e)] = narrow<T>(out[j][e] / sum[r]);
    }
}

// delta (b, heads, n): a warp for each token and head.
template <class T>
__device__ void attention_delta(const T *o, const T *d_o, float *delta, int samples, int n, int heads, int h) {
    int64 i = int64(blockIdx.x) * ROWS + threadIdx.x / LANES; // (sample, token, head)
    if (i >= int64(samples) * n * heads) return;              // whole warps
    float sum = 0;
    for (int j = threadIdx.x % LANES; j < h; j += LANES) sum += widen(o[i * h + j]) * widen(d_o[i * h + j]);
    sum = warp_sum(sum);
    int64 head = i % heads, token = i / heads % n, sample = i / heads / n;
    if (threadIdx.x % LANES == 0) delta[(sample * heads + head) * n + token] = sum;
}

// dk and dv of a block's own rows if they are keys, dq if they are queries. Scores are transposed where keys
// are rows.
template <class T, int H, bool keys>
__device__ void attention_backward(const T *qkv, const float *bias, const T *d_o, const float *lse,
                                   const float *delta, T *d_qkv, int n, int heads, int h, int wide) {
    constexpr int OWN = Tile<T, H>::OWN, OVER = Tile<T, H>::OVER, LD = H + PAD<T>, LP = OVER + PAD<T>;
    SHARED(T, own, OWN *LD);    // k or q
    SHARED(T, own_2, OWN *LD);  // v or do
    SHARED(T, over, OVER *LD);  // q or k
    SHARED(T, over_2, OVER *LD); // do or v
    SHARED(T, p, OWN *LP);
    int head = blockIdx.y, sample = blockIdx.z, first = blockIdx.x * OWN, mine = threadIdx.x / LANES * 16;
    int d = heads * h;
    const T *from = qkv + int64(sample) * n * 3 * d + head * h;
    const float *shift = bias ? bias + head * h : nullptr;
    const float *shift_k = bias ? shift + d : nullptr, *shift_v = bias ? shift + 2 * d : nullptr;
    const T *from_o = d_o + int64(sample) * n * d + head * h;
    float scale = 1 / sqrtf(float(h));
    lse += (int64(sample) * heads + head) * n;
    delta += (int64(sample) * heads + head) * n;

    if (keys) {
        fill<T, OWN, H>(own, from + d, shift_k, first, n, 3 * d, h, wide);
        fill<T, OWN, H>(own_2, from + 2 * d, shift_v, first, n, 3 * d, h, wide);
    } else {
        fill<T, OWN, H>(own, from, shift, first, n, 3 * d, h, wide);
        fill<T, OWN, H>(own_2, from_o, nullptr, first, n, d, h, wide);
    }
    float out[H / 8][4] = {}, out_2[keys ? H / 8 : 1][4] = {}; // dk and dv, or dq
    for (int start = 0; start < n; start += OVER) {
        __syncthreads(); // the last tiles have been read
        if (keys) {
            fill<T, OVER, H>(over, from, shift, start, n, 3 * d, h, wide);
            fill<T, OVER, H>(over_2, from_o, nullptr, start, n, d, h, wide);
        } else {
            fill<T, OVER, H>(over, from + d, shift_k, start, n, 3 * d, h, wide);
            fill<T, OVER, H>(over_2, from + 2 * d, shift_v, start, n, 3 * d, h, wide);
        }
        __syncthreads();
        float s[OVER / 8][4] = {}, ds[OVER / 8][4] = {};
        product<H, true>(s, own + mine * LD, LD, over, LD);
        product<H, true>(ds, own_2 + mine * LD, LD, over_2, LD);
#pragma unroll
        for (int j = 0; j < OVER / 8; ++j)
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                int row = first + mine + row_of(e), column = start + column_of(j, e);
                int query = keys ? column : row;
                bool there = row < n && column < n;
                s[j][e] = there ? exp2f(s[j][e] * (scale * LOG2_E) - lse[query]) : 0;
                ds[j][e] = there ? s[j][e] * (ds[j][e] - delta[query]) * scale : 0;
            }
        if constexpr (keys) {
            put(s, p + mine * LP, LP);
            __syncwarp();
            product<OVER, false>(out_2, p + mine * LP, LP, over_2, LD);
            __syncwarp();
        }
        put(ds, p + mine * LP, LP);
        __syncwarp();
        product<OVER, false>(out, p + mine * LP, LP, over, LD);
        __syncwarp();
    }
#pragma unroll
    for (int e = 0; e < 4; ++e) {
        int row = first + mine + row_of(e);
        if (row >= n) continue;
        T *to = d_qkv + (int64(sample) * n + row) * 3 * d + head * h;
#pragma unroll
        for (int j = 0; j < H / 8; ++j) {
            int column = column_of(j, e);
            if (column >= h) continue;
            if constexpr (keys) {
                to[d + column] = narrow<T>(out[j][e]);
                to[2 * d + column] = narrow<T>(out_2[j][e]);
            } else {
                to[column] = narrow<T>(out[j][e]);
            }
        }
    }
}

#define ATTENTION_OF(T, H)                                                                                        \
    KERNEL(attention_##T##_##H, const T *qkv, const float *bias, T *o, float *lse, int n, int heads, int h,       \
           int wide) {                                                                                            \
        attention<T, H>(qkv, bias, o, lse, n, heads, h, wide);                                                    \
    }                                                                                                             \
    KERNEL(attention_keys_##T##_##H, const T *qkv, const float *bias, const T *d_o, const float *lse,             \
           const float *delta, T *d_qkv, int n, int heads, int h, int wide) {                                     \
        attention_backward<T, H, true>(qkv, bias, d_o, lse, delta, d_qkv, n, heads, h, wide);                     \
    }                                                                                                             \
    KERNEL(attention_queries_##T##_##H, const T *qkv, const float *bias, const T *d_o, const float *lse,          \
           const float *delta, T *d_qkv, int n, int heads, int h, int wide) {                                     \
        attention_backward<T, H, false>(qkv, bias, d_o, lse, delta, d_qkv, n, heads, h, wide);                    \
    }
#define ATTENTION(T)                                                                                              \
    KERNEL(attention_delta_##T, const T *o, const T *d_o, float *delta, int samples, int n, int heads, int h) {   \
        attention_delta(o, d_o, delta, samples, n, heads, h);                                                     \
    }                                                                                                             \
    ATTENTION_OF(T, 16)                                                                                           \
    ATTENTION_OF(T, 32)                                                                                           \
    ATTENTION_OF(T, 64)                                                                                           \
    ATTENTION_OF(T, 128)
ATTENTION(f32)
ATTENTION(bf16)
