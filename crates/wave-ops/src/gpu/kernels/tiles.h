// Matrix products of small tiles in shared memory, by warps: f32 by multiply-adds, bf16 by the tensor
// cores. Sums are f32, in registers, in the tensor cores' order: lane 4 g + t of a warp holds of every
// eight columns of C (16, 8 COUNT) rows g and g + 8, columns 2 t and 2 t + 1:
//
//   c[j][e] = C[g + 8 (e / 2)][8 j + 2 t + e % 2]
#pragma once
#include "common.h"

__device__ __forceinline__ int group() { return threadIdx.x % LANES / 4; }
__device__ __forceinline__ int pair() { return threadIdx.x % 4 * 2; }
__device__ __forceinline__ int row_of(int e) { return group() + e / 2 * 8; }
__device__ __forceinline__ int column_of(int j, int e) { return 8 * j + pair() + e % 2; }

// Padding of tile rows, in values: 16 bytes, so that rows start in different banks.
template <class T> constexpr int PAD = 16 / sizeof(T);

#ifdef __CUDACC__
__device__ __forceinline__ void mma(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#endif

// Two adjacent values.
__device__ __forceinline__ uint32_t both(const bf16 *x) { return *reinterpret_cast<const uint32_t *>(x); }
__device__ __forceinline__ uint32_t both(bf16 low, bf16 high) { return low.bits | uint32_t(high.bits) << 16; }

// Left operand of mma: 16 rows of A, `ld` apart, at columns 0 to 15.
__device__ __forceinline__ void load_left(uint32_t (&a)[4], const bf16 *tile, int ld) {
#ifdef __CUDACC__
    int lane = threadIdx.x % LANES;
    unsigned from = __cvta_generic_to_shared(tile + lane % 16 * ld + lane / 16 * 8);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
                 : "r"(from));
#else
    const bf16 *a0 = tile + group() * ld + pair(), *a1 = a0 + 8 * ld;
    a[0] = both(a0), a[1] = both(a1), a[2] = both(a0 + 8), a[3] = both(a1 + 8);
#endif
}

// Right operands of two mma: B (16, 16), its first eight columns, and the others. Its rows are `ld` apart, or
// its columns if `across`.
template <bool across>
__device__ __forceinline__ void load_right(uint32_t (&b)[2][2], const bf16 *tile, int ld) {
#ifdef __CUDACC__
    int lane = threadIdx.x % LANES;
    if constexpr (across) {
        unsigned from = __cvta_generic_to_shared(tile + (lane % 8 + lane / 16 * 8) * ld + lane / 8 % 2 * 8);
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(b[0][0]), "=r"(b[0][1]), "=r"(b[1][0]), "=r"(b[1][1])
                     : "r"(from));
    } else {
        unsigned from = __cvta_generic_to_shared(tile + lane % 16 * ld + lane / 16 * 8);
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(b[0][0]), "=r"(b[0][1]), "=r"(b[1][0]), "=r"(b[1][1])
                     : "r"(from));
    }
#else
    for (int j = 0; j < 2; ++j)
        for (int half = 0; half < 2; ++half) {
            int column = 8 * j + group(), row = 8 * half + pair();
            b[j][half] = across ? both(tile + column * ld + row)
                                : both(tile[row * ld + column], tile[(row + 1) * ld + column]);
        }
#endif
}

// Writes C to a tile whose rows are `ld` apart.
template <class T, int COUNT> __device__ __forceinline__ void put(const float (&c)[COUNT][4], T *to, int ld) {
#pragma unroll
    for (int j = 0; j < COUNT; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) to[row_of(e) * ld + column_of(j, e)] = narrow<T>(c[j][e]);
}

// Left operands of a warp, A (16, K): f32 stay in shared memory, bf16 are in registers in the layout of mma. `put`
// makes one from sums; f32 go through `scratch` (16, K + PAD), which no other warp may use.
template <class T, int K> struct Left;

template <int K> struct Left<f32, K> {
    const f32 *tile;
    int ld;

    __device__ __forceinline__ void load(const f32 *from, int rows_apart) { tile = from, ld = rows_apart; }

    __device__ __forceinline__ void put(const float (&c)[K / 8][4], f32 *scratch) {
        __syncwarp(); // the last ones have been read
        load(scratch, K + PAD<f32>);
        ::put(c, scratch, ld);
        __syncwarp();
    }

    // Calls f(r, column, value) with this lane's share of rows g (r = 0) and g + 8 (1).
    template <class F> __device__ __forceinline__ void each(F f) const {
        for (int i = threadIdx.x % 4; i < K; i += 4)
            for (int r = 0; r < 2; ++r) f(r, i, tile[(group() + 8 * r) * ld + i]);
    }

    // Adds to `sums` this lane's share of the products of rows g and g + 8 with those of another.
    __device__ __forceinline__ void dot(const Left &other, float (&sums)[2]) const {
        each([&](int r, int i, float x) { sums[r] += x * other.tile[(group() + 8 * r) * other.ld + i]; });
    }

    // Sets each value to f(column, value).
    template <class F> __device__ __forceinline__ void map(F f) {
        for (int i = threadIdx.x % 4; i < K; i += 4)
            for (int r = 0; r < 2; ++r) {
                f32 &value = const_cast<f32 *>(tile)[(group() + 8 * r) * ld + i];
                value = f(i, value);
            }
        __syncwarp();
    }
};

template <int K> struct Left<bf16, K> {
    uint32_t of[K / 16][4];

    __device__ __forceinline__ void load(const bf16 *from, int rows_apart) {
#pragma unroll
        for (int k = 0; k < K / 16; ++k) load_left(of[k], from + 16 * k, rows_apart);
    }

    // Lanes hold the same elements of sums as of a left operand.
    __device__ __forceinline__ void put(const float (&c)[K / 8][4], bf16 *) {
#pragma unroll
        for (int k = 0; k < K / 16; ++k)
#pragma unroll
            for (int i = 0; i < 4; ++i) of[k][i] = both(c[2 * k + i / 2][i % 2 * 2], c[2 * k + i / 2][i % 2 * 2 + 1]);
    }

    // The column of the low half of of[k][i]; its row is g or g + 8.
    __device__ static int column(int k, int i) { return 16 * k + i / 2 * 8 + pair(); }

    template <class F> __device__ __forceinline__ void each(F f) const {
#pragma unroll
        for (int k = 0; k < K / 16; ++k)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                f(i % 2, column(k, i), low(of[k][i]));
                f(i % 2, column(k, i) + 1, high(of[k][i]));
            }
    }

    __device__ __forceinline__ void dot(const Left &other, float (&sums)[2]) const {
#pragma unroll
        for (int k = 0; k < K / 16; ++k)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                sums[i % 2] += low(of[k][i]) * low(other.of[k][i]) + high(of[k][i]) * high(other.of[k][i]);
    }

    template <class F> __device__ __forceinline__ void map(F f) {
#pragma unroll
        for (int k = 0; k < K / 16; ++k)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                of[k][i] = both(f(column(k, i), low(of[k][i])), f(column(k, i) + 1, high(of[k][i])));
    }
};

// C += A B: B (K, 8 COUNT), or if `across` its transpose, rows `ld` apart. Rows of bf16 begin at multiples of 16 bytes.
template <bool across, int K, int COUNT>
__device__ __forceinline__ void product(float (&c)[COUNT][4], const Left<f32, K> &a, const f32 *b, int ld) {
    const float *a0 = a.tile + group() * a.ld, *a1 = a0 + 8 * a.ld;
#pragma unroll 4
    for (int k = 0; k < K; ++k) {
        float x0 = a0[k], x1 = a1[k];
#pragma unroll
        for (int j = 0; j < COUNT; ++j) {
            int n = column_of(j, 0);
            float y0 = across ? b[n * ld + k] : b[k * ld + n];
            float y1 = across ? b[(n + 1) * ld + k] : b[k * ld + n + 1];
            c[j][0] += x0 * y0;
            c[j][1] += x0 * y1;
            c[j][2] += x1 * y0;
            c[j][3] += x1 * y1;
        }
    }
}

template <bool across, int K, int COUNT>
__device__ __forceinline__ void product(float (&c)[COUNT][4], const Left<bf16, K> &a, const bf16 *b, int ld) {
    static_assert(COUNT % 2 == 0, "columns in sixteens");
#pragma unroll
    for (int k = 0; k < K; k += 16)
#pragma unroll
        for (int j = 0; j < COUNT; j += 2) {
            uint32_t right[2][2];
            load_right<across>(right, across ? b + 8 * j * ld + k : b + k * ld + 8 * j, ld);
            mma(c[j], a.of[k / 16], right[0]);
            mma(c[j + 1], a.of[k / 16], right[1]);
        }
}

// Starts copying 16 bytes to shared memory, or zeros. `arrive` waits for all copies that this thread has started.
__device__ __forceinline__ void fetch(void *to, const void *from, bool there) {
#ifdef __CUDACC__
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(unsigned(__cvta_generic_to_shared(to))), "l"(from), "r"(there ? 16 : 0)
                 : "memory");
#else
    if (there) memcpy(to, from, 16);
    else memset(to, 0, 16);
#endif
}

__device__ __forceinline__ void arrive() {
#ifdef __CUDACC__
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

// Starts filling a tile of `rows` rows, H + PAD apart, with rows `first`.. of x (n, h), `stride` apart; zeros where
// there are none. `wide`: h and all offsets are multiples of 8 values.
template <class T, int H>
__device__ __forceinline__ void fill(T *tile, int rows, const T *x, int first, int n, int64 stride, int h, int wide) {
    constexpr int LD = H + PAD<T>, PIECE = 16 / sizeof(T), ACROSS = H / PIECE;
    if (wide) {
        // A warp has whole rows, so a thread stays in its columns.
        int row = threadIdx.x / ACROSS, column = threadIdx.x % ACROSS * PIECE, more = blockDim.x / ACROSS;
        bool inside = column < h;
        const T *from = x + (first + row) * stride + column;
        for (T *to = tile + row * LD + column; row < rows; row += more, from += more * stride, to += more * LD) {
            bool there = inside && first + row < n;
            fetch(to, there ? from : x, there);
        }
    } else {
        for (int i = threadIdx.x; i < rows * H; i += blockDim.x) {
            int row = i / H, column = i % H;
            bool there = first + row < n && column < h;
            tile[row * LD + column] = there ? x[(first + row) * stride + column] : narrow<T>(0);
        }
    }
}
