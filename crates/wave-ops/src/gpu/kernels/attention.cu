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
// Sums and softmax are in f32. H is h, filled up with zeros to 16, 32, 64 or 128. Scores are computed from
// operands in registers and stay there, as operands of the next product; see `Left`.
#pragma once
#include "tiles.h"

template <class T, int H> struct Tile {
    // Rows of the tiles that a block goes over, and of those the columns of scores that a warp has at a time.
    static constexpr int OVER = sizeof(T) == 2 ? 64 : H <= 64 ? 32 : 16, STEP = H <= 64 ? 32 : 16;
    static constexpr int LD = H + PAD<T>, TILE = OVER * LD;
    // f32 of the block's own rows stay in shared memory, and scores pass through it.
    static constexpr bool HELD = sizeof(T) == 2;
    // Warps of a block at most, and blocks at once at least. The pass by keys has twice the sums.
    static constexpr int WARPS = HELD ? (H <= 64 ? 8 : 4) : OVER / 16, BLOCKS = HELD ? 2 : 1;
    static constexpr int KEY_WARPS = HELD ? 4 : WARPS, KEY_BLOCKS = HELD ? (H <= 64 ? 3 : 2) : 1;
    static constexpr int OWN = HELD ? 0 : TILE, SCRATCH = HELD ? 1 : WARPS * 16 * (STEP + PAD<T>);
};
constexpr float LOG2_E = 1.44269504f;

// A sample's head, and this warp's rows of it.
struct Rows {
    int first, row; // of the block, of the warp
    int64 in, out, head; // where qkv, o and lse begin
    __device__ Rows(int n, int heads, int h)
        : first(blockIdx.x * (blockDim.x / 2)), row(first + threadIdx.x / LANES * 16),
          in(int64(blockIdx.z) * n * 3 * heads * h + blockIdx.y * h),
          out(int64(blockIdx.z) * n * heads * h + blockIdx.y * h),
          head((int64(blockIdx.z) * heads + blockIdx.y) * n) {}
};

// The warp's own rows of x as a left operand, through `tile`.
template <class T, int H>
__device__ __forceinline__ void own_rows(Left<T, H> &own, T *tile, const T *x, const float *bias, int first, int n,
                                         int64 stride, int h, int wide) {
    __syncthreads(); // what was in the tile has been read
    fill<T, H>(tile, blockDim.x / 2, x, bias, first, n, stride, h, wide);
    __syncthreads();
    own.load(tile + threadIdx.x / LANES * 16 * Tile<T, H>::LD, Tile<T, H>::LD);
}

// Writes the warp's rows from `row` on of x (n, h).
template <class T, int H>
__device__ __forceinline__ void write_rows(const float (&c)[H / 8][4], float scale_0, float scale_1, T *x, int row, int n,
                                           int64 stride, int h, int wide) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        if (row + row_of(2 * r) >= n) continue;
        T *to = x + (row + row_of(2 * r)) * stride;
        float scale = r ? scale_1 : scale_0;
#pragma unroll
        for (int j = 0; j < H / 8; ++j) {
            int column = column_of(j, 0);
            float pair[2] = {c[j][2 * r] * scale, c[j][2 * r + 1] * scale};
            if (wide && column < h) {
                if constexpr (sizeof(T) == 2) *reinterpret_cast<uint32_t *>(to + column) = both(pair[0], pair[1]);
                else *reinterpret_cast<uint2 *>(to + column) = *reinterpret_cast<uint2 *>(pair);
            } else {
                for (int e = 0; e < 2 && column + e < h; ++e) to[column + e] = narrow<T>(pair[e]);
            }
        }
    }
}

template <class T, int H>
__device__ void attention(const T *qkv, const float *bias, T *o, float *lse, int n, int heads, int h, int wide) {
    typedef Tile<T, H> Z;
    SHARED(T, tiles, 2 * Z::TILE + Z::OWN);
    SHARED(T, scratch, Z::SCRATCH);
    T *k = tiles, *v = tiles + Z::TILE, *own = Z::HELD ? tiles : tiles + 2 * Z::TILE;
    T *mine = Z::HELD ? scratch : scratch + threadIdx.x / LANES * 16 * (Z::STEP + PAD<T>);
    Rows at(n, heads, h);
    int d = heads * h;
    qkv += at.in;
    const float *shift = bias ? bias + blockIdx.y * h : nullptr;
    const float *shift_k = bias ? shift + d : nullptr, *shift_v = bias ? shift + 2 * d : nullptr;
    float scale = LOG2_E / sqrtf(float(h));

    Left<T, H> q;
    own_rows<T, H>(q, own, qkv, shift, at.first, n, 3 * d, h, wide);
    float out[H / 8][4] = {}, top[2] = {-INFINITE, -INFINITE}, sum[2] = {};
    for (int start = 0; start < n; start += Z::OVER) {
        __syncthreads(); // the last tiles have been read
        fill<T, H>(k, Z::OVER, qkv + d, shift_k, start, n, 3 * d, h, wide);
        fill<T, H>(v, Z::OVER, qkv + 2 * d, shift_v, start, n, 3 * d, h, wide);
        __syncthreads();
        if (at.row >= n) continue;
#pragma unroll 1
        for (int step = 0; step < Z::OVER && start + step < n; step += Z::STEP) {
            float s[Z::STEP / 8][4] = {};
            product<true>(s, q, k + step * Z::LD, Z::LD);
            if (start + step + Z::STEP > n) {
#pragma unroll
                for (int j = 0; j < Z::STEP / 8; ++j)
#pragma unroll
                    for (int e = 0; e < 4; ++e)
                        if (start + step + column_of(j, e) >= n) s[j][e] = -INFINITE;
            }
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                float highest = top[r];
#pragma unroll
                for (int j = 0; j < Z::STEP / 8; ++j) highest = fmaxf(highest, fmaxf(s[j][2 * r], s[j][2 * r + 1]));
                // Four neighbouring lanes have a row.
                highest = fmaxf(highest, __shfl_xor_sync(ALL, highest, 1));
                highest = fmaxf(highest, __shfl_xor_sync(ALL, highest, 2));
                float shrink = power_of_two((top[r] - highest) * scale); // 0 for the first tile
                top[r] = highest;
                sum[r] *= shrink;
#pragma unroll
                for (int j = 0; j < H / 8; ++j) {
                    out[j][2 * r] *= shrink;
                    out[j][2 * r + 1] *= shrink;
                }
#pragma unroll
                for (int j = 0; j < Z::STEP / 8; ++j)
#pragma unroll
                    for (int e = 2 * r; e < 2 * r + 2; ++e) {
                        s[j][e] = power_of_two(s[j][e] * scale - highest * scale);
                        sum[r] += s[j][e];
                    }
            }
            Left<T, Z::STEP> p;
            p.put(s, mine);
            product<false>(out, p, v + step * Z::LD, Z::LD);
        }
    }
    if (at.row >= n) return;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        sum[r] += __shfl_xor_sync(ALL, sum[r], 1);
        sum[r] += __shfl_xor_sync(ALL, sum[r], 2);
        int row = at.row + row_of(2 * r);
        if (row < n && threadIdx.x % 4 == 0) lse[at.head + row] = top[r] * scale + log2f(sum[r]);
    }
    write_rows<T, H>(out, 1 / sum[0], 1 / sum[1], o + at.out, at.row, n, d, h, wide);
}

// dq of a block's own queries, and delta (b, heads, n) for the keys.
template <class T, int H>
__device__ void attention_queries(const T *qkv, const float *bias, const T *o, const T *d_o, const float *lse,
                                  float *delta, T *d_qkv, int n, int heads, int h, int wide) {
    typedef Tile<T, H> Z;
    SHARED(T, tiles, 2 * Z::TILE + 2 * Z::OWN);
    SHARED(T, scratch, Z::SCRATCH);
    T *k = tiles, *v = tiles + Z::TILE;
    T *own = Z::HELD ? tiles : tiles + 2 * Z::TILE, *own_2 = Z::HELD ? tiles : own + Z::OWN;
    T *mine = Z::HELD ? scratch : scratch + threadIdx.x / LANES * 16 * (Z::STEP + PAD<T>);
    Rows at(n, heads, h);
    int d = heads * h;
    qkv += at.in;
    const float *shift = bias ? bias + blockIdx.y * h : nullptr;
    const float *shift_k = bias ? shift + d : nullptr, *shift_v = bias ? shift + 2 * d : nullptr;
    float scale = 1 / sqrtf(float(h));

    Left<T, H> q, g;
    float lse_of[2], delta_of[2] = {};
    own_rows<T, H>(g, own_2, d_o + at.out, nullptr, at.first, n, d, h, wide);
    own_rows<T, H>(q, own, o + at.out, nullptr, at.first, n, d, h, wide);
    q.dot(g, delta_of);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        delta_of[r] += __shfl_xor_sync(ALL, delta_of[r], 1);
        delta_of[r] += __shfl_xor_sync(ALL, delta_of[r], 2);
        int row = at.row + row_of(2 * r);
        lse_of[r] = row < n ? lse[at.head + row] : INFINITE;
        if (row < n && threadIdx.x % 4 == 0) delta[at.head + row] = delta_of[r];
    }
    own_rows<T, H>(q, own, qkv, shift, at.first, n, 3 * d, h, wide);
    float dq[H / 8][4] = {};
    for (int start = 0; start < n; start += Z::OVER) {
        __syncthreads(); // the last tiles have been read
        fill<T, H>(k, Z::OVER, qkv + d, shift_k, start, n, 3 * d, h, wide);
        fill<T, H>(v, Z::OVER, qkv + 2 * d, shift_v, start, n, 3 * d, h, wide);
        __syncthreads();
        if (at.row >= n) continue;
#pragma unroll 1
        for (int step = 0; step < Z::OVER && start + step < n; step += Z::STEP) {
            float s[Z::STEP / 8][4] = {}, ds[Z::STEP / 8][4] = {};
            product<true>(s, q, k + step * Z::LD, Z::LD);
            product<true>(ds, g, v + step * Z::LD, Z::LD);
#pragma unroll
            for (int j = 0; j < Z::STEP / 8; ++j)
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                    float p = power_of_two(s[j][e] * (scale * LOG2_E) - lse_of[e / 2]);
                    ds[j][e] = start + step + column_of(j, e) < n ? p * (ds[j][e] - delta_of[e / 2]) : 0;
                }
            Left<T, Z::STEP> left;
            left.put(ds, mine);
            product<false>(dq, left, k + step * Z::LD, Z::LD);
        }
    }
    write_rows<T, H>(dq, scale, scale, d_qkv + at.in, at.row, n, 3 * d, h, wide);
}

// dk and dv of a block's own keys. Scores are transposed: a row is a key's.
template <class T, int H>
__device__ void attention_keys(const T *qkv, const float *bias, const T *d_o, const float *lse, const float *delta,
                               T *d_qkv, int n, int heads, int h, int wide) {
    typedef Tile<T, H> Z;
    SHARED(T, tiles, 2 * Z::TILE + 2 * Z::OWN);
    SHARED(T, scratch, Z::SCRATCH);
    SHARED(float, lse_of, Z::OVER);
    SHARED(float, delta_of, Z::OVER);
    T *q = tiles, *g = tiles + Z::TILE;
    T *own = Z::HELD ? tiles : tiles + 2 * Z::TILE, *own_2 = Z::HELD ? tiles : own + Z::OWN;
    T *mine = Z::HELD ? scratch : scratch + threadIdx.x / LANES * 16 * (Z::STEP + PAD<T>);
    Rows at(n, heads, h);
    int d = heads * h;
    qkv += at.in;
    d_o += at.out;
    const float *shift = bias ? bias + blockIdx.y * h : nullptr;
    const float *shift_k = bias ? shift + d : nullptr, *shift_v = bias ? shift + 2 * d : nullptr;
    float scale = 1 / sqrtf(float(h));

    Left<T, H> k, v;
    own_rows<T, H>(k, own, qkv + d, shift_k, at.first, n, 3 * d, h, wide);
    own_rows<T, H>(v, own_2, qkv + 2 * d, shift_v, at.first, n, 3 * d, h, wide);
    float dk[H / 8][4] = {}, dv[H / 8][4] = {};
    for (int start = 0; start < n; start += Z::OVER) {
        __syncthreads(); // the last tiles have been read
        fill<T, H>(q, Z::OVER, qkv, shift, start, n, 3 * d, h, wide);
        fill<T, H>(g, Z::OVER, d_o, nullptr, start, n, d, h, wide);
        for (int i = threadIdx.x; i < Z::OVER; i += blockDim.x) { // p is 0 where there is no query
            lse_of[i] = start + i < n ? lse[at.head + start + i] : INFINITE;
            delta_of[i] = start + i < n ? delta[at.head + start + i] : 0;
        }
        __syncthreads();
        if (at.row >= n) continue;
#pragma unroll 1
        for (int step = 0; step < Z::OVER && start + step < n; step += Z::STEP) {
            float p[Z::STEP / 8][4] = {}, ds[Z::STEP / 8][4] = {};
            product<true>(p, k, q + step * Z::LD, Z::LD);
            product<true>(ds, v, g + step * Z::LD, Z::LD);
#pragma unroll
            for (int j = 0; j < Z::STEP / 8; ++j)
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                    int query = step + column_of(j, e);
                    p[j][e] = power_of_two(p[j][e] * (scale * LOG2_E) - lse_of[query]);
                    ds[j][e] = p[j][e] * (ds[j][e] - delta_of[query]);
                }
            Left<T, Z::STEP> left;
            left.put(p, mine);
            product<false>(dv, left, g + step * Z::LD, Z::LD);
            left.put(ds, mine);
            product<false>(dk, left, q + step * Z::LD, Z::LD);
        }
    }
    write_rows<T, H>(dk, scale, scale, d_qkv + at.in + d, at.row, n, 3 * d, h, wide);
    write_rows<T, H>(dv, 1, 1, d_qkv + at.in + 2 * d, at.row, n, 3 * d, h, wide);
}

#define ATTENTION_OF(T, H)                                                                                        \
    KERNEL_IN((Tile<T, H>::WARPS * LANES, Tile<T, H>::BLOCKS), attention_##T##_##H, const T *qkv,                 \
              const float *bias, T *o, float *lse, int n, int heads, int h, int wide) {                           \
        attention<T, H>(qkv, bias, o, lse, n, heads, h, wide);                                                    \
    }                                                                                                             \
    KERNEL_IN((Tile<T, H>::WARPS * LANES, Tile<T, H>::BLOCKS), attention_queries_##T##_##H, const T *qkv,         \
              const float *bias, const T *o, const T *d_o, const float *lse, float *delta, T *d_qkv, int n,       \
              int heads, int h, int wide) {                                                                       \
        attention_queries<T, H>(qkv, bias, o, d_o, lse, delta, d_qkv, n, heads, h, wide);                         \
    }                                                                                                             \
    KERNEL_IN((Tile<T, H>::KEY_WARPS * LANES, Tile<T, H>::KEY_BLOCKS), attention_keys_##T##_##H, const T *qkv,    \
              const float *bias, const T *d_o, const float *lse, const float *delta, T *d_qkv, int n, int heads,  \
              int h, int wide) {                                                                                  \
        attention_keys<T, H>(qkv, bias, d_o, lse, delta, d_qkv, n, heads, h, wide);                               \
    }
#define ATTENTION(T)                                                                                              \
    ATTENTION_OF(T, 16)                                                                                           \
    ATTENTION_OF(T, 32)                                                                                           \
    ATTENTION_OF(T, 64)                                                                                           \
    ATTENTION_OF(T, 128)
ATTENTION(f32)
ATTENTION(bf16)
