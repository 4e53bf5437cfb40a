// Multi-head self-attention: per sample and head, with q, k, v (n, h),
//
//   p = softmax(c q k^T),  c = 1 / sqrt(h);   o = p v
//   dv = p^T do;   dp = do v^T;   ds = c p (dp - delta),  delta = sum(do o) by row;   dq = ds k;   dk = ds^T q
//
// qkv (b, n, 3, heads, h) + bias (3, heads, h), which may be null; o (b, n, heads, h). No matrix (n, n) is
// stored in memory: a warp has 16 rows, and loops over the other side tile by tile. The forward pass keeps a
// running maximum and sum for each row (Milakov and Gimelshein 2018, Dao et al. 2022) and stores their
// logarithm lse (b, heads, n), to base 2. The backward pass recomputes p from it, once by queries and once by
// keys, so that every sum has one writer and one order.
//
// The bias of k adds the same to all scores of a row, which cancels in softmax, so it is left out. The bias of q is
// added to a block's own queries; with own keys, k bq is added to scores. The bias of v is added to o but not in
// delta.
//
// Sums and softmax are in f32. H is h, padded with zeros to 16, 32, 64 or 128. Scores are computed from operands
// in registers and stay there, as operands of the next product; see `Left`. While a block works on tiles of the
// other side, the next ones are being loaded.
#pragma once
#include "tiles.h"

template <class T, int H> struct Tile {
    // Left operands are in registers; f32 ones stay in shared memory, and scores pass through it.
    static constexpr bool HELD = sizeof(T) == 2;
    // Rows of the tiles that a block loops over, and columns of scores that a warp has at a time.
    static constexpr int OVER = HELD ? (H <= 64 ? 64 : 32) : (H <= 64 ? 32 : 16), STEP = H <= 64 ? 32 : 16;
    static constexpr int LD = H + PAD<T>, TILE = OVER * LD;
    // Maximum warps per block, and minimum blocks at once. The pass by keys has twice the sums.
    static constexpr int WARPS = HELD ? (H <= 64 ? 8 : 4) : OVER / 16, BLOCKS = HELD ? 2 : 1;
    static constexpr int KEY_WARPS = HELD ? (H <= 64 ? 4 : 2) : WARPS, KEY_BLOCKS = HELD ? (H <= 64 ? 3 : 2) : 1;
    static constexpr int SCRATCH = HELD ? 1 : WARPS * 16 * (STEP + PAD<T>);
};
constexpr float LOG2_E = 1.44269504f;

// The biases of q and v for this block's head, 0 if there are none.
template <int H>
__device__ __forceinline__ void read_biases(const float *bias, float *of_q, float *of_v, int heads, int h) {
    for (int i = threadIdx.x; i < H; i += blockDim.x) {
        bool there = bias && i < h;
        of_q[i] = there ? bias[blockIdx.y * h + i] : 0;
        of_v[i] = there ? bias[(2 * heads + blockIdx.y) * h + i] : 0;
    }
}

// Two pairs of tiles in shared memory: if a block's own rows are in registers, the second pair is for the rows that
// it loops over; otherwise its own rows stay there.
#define TILES(T, H)                                                                                               \
    SHARED(T, tiles, 4 * Z::TILE);                                                                                \
    SHARED(T, scratch, Z::SCRATCH);                                                                               \
    SHARED(float, bias_q, H);                                                                                     \
    SHARED(float, bias_v, H);                                                                                     \
    read_biases<H>(bias, bias_q, bias_v, heads, h);                                                               \
    T *own = tiles + 2 * Z::TILE;                                                                                 \
    T *mine = Z::HELD ? scratch : scratch + threadIdx.x / LANES * 16 * (Z::STEP + PAD<T>)

// A sample's head, and this warp's rows of it.
struct Rows {
    int first, row;      // of the block, of the warp
    int64 in, out, head; // where qkv, o and lse begin
    __device__ Rows(int n, int heads, int h)
        : first(blockIdx.x * (blockDim.x / 2)), row(first + threadIdx.x / LANES * 16),
          in(int64(blockIdx.z) * n * 3 * heads * h + blockIdx.y * h),
          out(int64(blockIdx.z) * n * heads * h + blockIdx.y * h),
          head((int64(blockIdx.z) * heads + blockIdx.y) * n) {}
};

// Loops over the rows of the other side: `load(start, to)` starts filling a pair of tiles with rows from `start` on
// (the first load is already in flight), and `work(start, pair)` reads it.
template <class T, int H, class L, class W>
__device__ __forceinline__ void go_over(T *tiles, int n, L load, W work) {
    typedef Tile<T, H> Z;
    for (int start = 0, pair = 0; start < n; start += Z::OVER) {
        arrive();
        __syncthreads();
        int next = start + Z::OVER, other = Z::HELD ? 2 * Z::TILE - pair : 0;
        if (Z::HELD && next < n) load(next, tiles + other);
        work(start, tiles + pair);
        if (!Z::HELD && next < n) {
            __syncthreads();
            load(next, tiles);
        }
        pair = other;
    }
}

// This warp's rows of a tile.
template <class T, int H> __device__ __forceinline__ T *own_rows(T *tile) {
    return tile + threadIdx.x / LANES * 16 * Tile<T, H>::LD;
}

// Masks scores beyond the first `left` columns.
template <int COUNT> __device__ __forceinline__ void mask(float (&s)[COUNT][4], int left) {
    if (left >= 8 * COUNT) return;
#pragma unroll
    for (int j = 0; j < COUNT; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e)
            if (column_of(j, e) >= left) s[j][e] = -INFINITE;
}

// The sum over the four lanes of a row.
__device__ __forceinline__ void row_sum(float &x) {
    x += __shfl_xor_sync(ALL, x, 1);
    x += __shfl_xor_sync(ALL, x, 2);
}

// Writes the warp's rows of x (n, h): scale[r] c + times[r] shift, the last (H) in shared memory, or null.
template <class T, int H>
__device__ __forceinline__ void write_rows(const float (&c)[H / 8][4], const float (&scale)[2], const float *shift,
                                           const float (&times)[2], T *x, int row, int n, int64 stride, int h,
                                           int wide) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        if (row + row_of(2 * r) >= n) continue;
        T *to = x + (row + row_of(2 * r)) * stride;
#pragma unroll
        for (int j = 0; j < H / 8; ++j) {
            int column = column_of(j, 0);
            float pair_of[2];
#pragma unroll
            for (int e = 0; e < 2; ++e)
                pair_of[e] = c[j][2 * r + e] * scale[r] + (shift ? times[r] * shift[column + e] : 0);
            if (wide && sizeof(T) == 2) {
                if (8 * j < h) *reinterpret_cast<uint32_t *>(to + column) = both(pair_of[0], pair_of[1]);
            } else {
                for (int e = 0; e < 2; ++e)
                    if (column + e < h) to[column + e] = narrow<T>(pair_of[e]);
            }
        }
    }
}

template <class T, int H>
__device__ void attention(const T *qkv, const float *bias, T *o, float *lse, int n, int heads, int h, int wide) {
    typedef Tile<T, H> Z;
    TILES(T, H);
    Rows at(n, heads, h);
    int d = heads * h;
    qkv += at.in;
    float scale = LOG2_E / sqrtf(float(h));
    auto load = [&](int start, T *to) {
        fill<T, H>(to, Z::OVER, qkv + d, start, n, 3 * d, h, wide);
        fill<T, H>(to + Z::TILE, Z::OVER, qkv + 2 * d, start, n, 3 * d, h, wide);
    };
    load(0, tiles);
    fill<T, H>(own, blockDim.x / 2, qkv, at.first, n, 3 * d, h, wide);
    arrive();
    __syncthreads();
    Left<T, H> q;
    q.load(own_rows<T, H>(own), Z::LD);
    q.map([&](int column, float x) { return x + bias_q[column]; });

    float out[H / 8][4] = {}, top[2] = {-INFINITE, -INFINITE}, sum[2] = {};
    go_over<T, H>(tiles, n, load, [&](int start, const T *k) {
        const T *v = k + Z::TILE;
        if (at.row >= n) return;
#pragma unroll 1
        for (int step = 0; step < Z::OVER && start + step < n; step += Z::STEP) {
            float s[Z::STEP / 8][4] = {};
            product<true>(s, q, k + step * Z::LD, Z::LD);
            mask(s, n - start - step);
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                float highest = top[r];
#pragma unroll
                for (int j = 0; j < Z::STEP / 8; ++j) highest = fmaxf(highest, fmaxf(s[j][2 * r], s[j][2 * r + 1]));
                // Four adjacent lanes share a row.
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
    });
    if (at.row >= n) return;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        row_sum(sum[r]);
        int row = at.row + row_of(2 * r);
        if (row < n && threadIdx.x % 4 == 0) lse[at.head + row] = top[r] * scale + log2f(sum[r]);
        sum[r] = 1 / sum[r];
    }
    write_rows<T, H>(out, sum, bias_v, {1, 1}, o + at.out, at.row, n, d, h, wide);
}

// dq of a block's own queries, and delta (b, heads, n) for the keys.
template <class T, int H>
__device__ void attention_queries(const T *qkv, const float *bias, const T *o, const T *d_o, const float *lse,
                                  float *delta, T *d_qkv, int n, int heads, int h, int wide) {
    typedef Tile<T, H> Z;
    TILES(T, H);
    Rows at(n, heads, h);
    int d = heads * h, rows = blockDim.x / 2;
    qkv += at.in;
    float scale = 1 / sqrtf(float(h));
    fill<T, H>(own, rows, d_o + at.out, at.first, n, d, h, wide);
    fill<T, H>(tiles, rows, o + at.out, at.first, n, d, h, wide);
    arrive();
    __syncthreads();
    Left<T, H> q, g;
    g.load(own_rows<T, H>(own), Z::LD);
    q.load(own_rows<T, H>(tiles), Z::LD); // o at first
    q.map([&](int column, float x) { return x - bias_v[column]; });
    float lse_of[2], delta_of[2] = {};
    q.dot(g, delta_of);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        row_sum(delta_of[r]);
        int row = at.row + row_of(2 * r);
        lse_of[r] = row < n ? lse[at.head + row] : INFINITE; // p is 0 where there is no query
        if (row < n && threadIdx.x % 4 == 0) delta[at.head + row] = delta_of[r];
    }
    __syncthreads(); // o and do have been read
    auto load = [&](int start, T *to) {
        fill<T, H>(to, Z::OVER, qkv + d, start, n, 3 * d, h, wide);
        fill<T, H>(to + Z::TILE, Z::OVER, qkv + 2 * d, start, n, 3 * d, h, wide);
    };
    T *own_2 = Z::HELD ? own : own + Z::TILE;
    load(0, tiles);
    fill<T, H>(own_2, rows, qkv, at.first, n, 3 * d, h, wide);
    arrive();
    __syncthreads();
    q.load(own_rows<T, H>(own_2), Z::LD);
    q.map([&](int column, float x) { return x + bias_q[column]; });

    float dq[H / 8][4] = {};
    go_over<T, H>(tiles, n, load, [&](int start, const T *k) {
        const T *v = k + Z::TILE;
        if (at.row >= n) return;
#pragma unroll 1
        for (int step = 0; step < Z::OVER && start + step < n; step += Z::STEP) {
            float s[Z::STEP / 8][4] = {}, ds[Z::STEP / 8][4] = {};
            product<true>(s, q, k + step * Z::LD, Z::LD);
            product<true>(ds, g, v + step * Z::LD, Z::LD);
            mask(s, n - start - step);
#pragma unroll
            for (int j = 0; j < Z::STEP / 8; ++j)
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                    float p = power_of_two(s[j][e] * (scale * LOG2_E) - lse_of[e / 2]);
                    ds[j][e] = p * (ds[j][e] - delta_of[e / 2]);
                }
            Left<T, Z::STEP> left;
            left.put(ds, mine);
            product<false>(dq, left, k + step * Z::LD, Z::LD);
        }
    });
    write_rows<T, H>(dq, {scale, scale}, nullptr, {}, d_qkv + at.in, at.row, n, 3 * d, h, wide);
}

// dk and dv of a block's own keys. Scores are transposed: each row belongs to a key.
template <class T, int H>
__device__ void attention_keys(const T *qkv, const float *bias, const T *d_o, const float *lse, const float *delta,
                               T *d_qkv, int n, int heads, int h, int wide) {
    typedef Tile<T, H> Z;
    TILES(T, H);
    SHARED(float, lse_of, 2 * Z::OVER);
    SHARED(float, delta_of, 2 * Z::OVER);
    Rows at(n, heads, h);
    int d = heads * h, rows = blockDim.x / 2;
    qkv += at.in;
    d_o += at.out;
    float scale = 1 / sqrtf(float(h));
    auto load = [&](int start, T *to) {
        fill<T, H>(to, Z::OVER, qkv, start, n, 3 * d, h, wide);
        fill<T, H>(to + Z::TILE, Z::OVER, d_o, start, n, d, h, wide);
        int pair = to == tiles ? 0 : Z::OVER;
        for (int i = threadIdx.x; i < Z::OVER; i += blockDim.x) { // p is 0 where there is no query
            lse_of[pair + i] = start + i < n ? lse[at.head + start + i] : INFINITE;
            delta_of[pair + i] = start + i < n ? delta[at.head + start + i] : 0;
        }
    };
    load(0, tiles);
    T *own_2 = own + Z::TILE;
    fill<T, H>(own, rows, qkv + d, at.first, n, 3 * d, h, wide);
    fill<T, H>(own_2, rows, qkv + 2 * d, at.first, n, 3 * d, h, wide);
    arrive();
    __syncthreads();
    Left<T, H> k, v;
    k.load(own_rows<T, H>(own), Z::LD);
    v.load(own_rows<T, H>(own_2), Z::LD);
    float of_bias[2] = {}; // k bq
    k.each([&](int r, int column, float x) { of_bias[r] += x * bias_q[column]; });
    for (int r = 0; r < 2; ++r) {
        row_sum(of_bias[r]);
        of_bias[r] *= scale * LOG2_E;
    }

    float dk[H / 8][4] = {}, dv[H / 8][4] = {}, sum[2] = {}; // of ds
    go_over<T, H>(tiles, n, load, [&](int start, const T *q) {
        const T *g = q + Z::TILE;
        int pair = q == tiles ? 0 : Z::OVER;
        if (at.row >= n) return;
#pragma unroll 1
        for (int step = 0; step < Z::OVER && start + step < n; step += Z::STEP) {
            float p[Z::STEP / 8][4] = {}, ds[Z::STEP / 8][4] = {};
            product<true>(p, k, q + step * Z::LD, Z::LD);
            product<true>(ds, v, g + step * Z::LD, Z::LD);
#pragma unroll
            for (int j = 0; j < Z::STEP / 8; ++j)
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                    int query = pair + step + column_of(j, e);
                    p[j][e] = power_of_two(p[j][e] * (scale * LOG2_E) + (of_bias[e / 2] - lse_of[query]));
                    ds[j][e] = p[j][e] * (ds[j][e] - delta_of[query]);
                    sum[e / 2] += ds[j][e];
                }
            Left<T, Z::STEP> left;
            left.put(p, mine);
            product<false>(dv, left, g + step * Z::LD, Z::LD);
            left.put(ds, mine);
            product<false>(dk, left, q + step * Z::LD, Z::LD);
        }
    });
    for (int r = 0; r < 2; ++r) {
        row_sum(sum[r]);
        sum[r] *= scale;
    }
    T *to = d_qkv + at.in;
    write_rows<T, H>(dk, {scale, scale}, bias_q, sum, to + d, at.row, n, 3 * d, h, wide);
    write_rows<T, H>(dv, {1, 1}, nullptr, {}, to + 2 * d, at.row, n, 3 * d, h, wide);
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
