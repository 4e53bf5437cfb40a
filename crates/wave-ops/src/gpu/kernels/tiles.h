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

// Values that rows of a tile are longer than its columns: 16 bytes, so that rows start in different banks.
template <class T> constexpr int PAD = 16 / sizeof(T);

#ifdef __CUDACC__
__device__ __forceinline__ void mma(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#endif

// Two neighbours.
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

// Right operands of two mma: B (16, 16), its first eight columns, and the others. Its rows are `ld` apart, or if
// `across` its columns.
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

// C += A B: A (16, K) with rows `lda` apart; B (K, 8 COUNT), or if `across` its transpose, rows `ldb` apart. Rows of bf16
// begin at multiples of 16 bytes.
template <int K, bool across, int COUNT>
__device__ __forceinline__ void product(float (&c)[COUNT][4], const f32 *a, int lda, const f32 *b, int ldb) {
    const float *a0 = a + group() * lda, *a1 = a0 + 8 * lda;
#pragma unroll 4
    for (int k = 0; k < K; ++k) {
        float x0 = a0[k], x1 = a1[k];
#pragma unroll
        for (int j = 0; j < COUNT; ++j) {
            int n = column_of(j, 0);
            float y0 = across ? b[n * ldb + k] : b[k * ldb + n];
            float y1 = across ? b[(n + 1) * ldb + k] : b[k * ldb + n + 1];
            c[j][0] += x0 * y0;
            c[j][1] += x0 * y1;
            c[j][2] += x1 * y0;
            c[j][3] += x1 * y1;
        }
    }
}

template <int K, bool across, int COUNT>
__device__ __forceinline__ void product(float (&c)[COUNT][4], const bf16 *a, int lda, const bf16 *b, int ldb) {
    static_assert(COUNT % 2 == 0, "columns in sixteens");
#pragma unroll
    for (int k = 0; k < K; k += 16) {
        uint32_t left[4];
        load_left(left, a + k, lda);
#pragma unroll
        for (int j = 0; j < COUNT; j += 2) {
            uint32_t right[2][2];
            load_right<across>(right, across ? b + 8 * j * ldb + k : b + k * ldb + 8 * j, ldb);
            mma(c[j], left, right[0]);
            mma(c[j + 1], left, right[1]);
        }
    }
}

// Writes C to a tile whose rows are `ld` apart.
template <class T, int COUNT> __device__ __forceinline__ void put(const float (&c)[COUNT][4], T *to, int ld) {
#pragma unroll
    for (int j = 0; j < COUNT; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) to[row_of(e) * ld + column_of(j, e)] = narrow<T>(c[j][e]);
}

// Fills a tile (ROWS, H), its rows H + PAD apart, with rows `first`.. of x (n, h), `stride` apart, and
// `bias` (h) if any added; zeros where there are none. `wide`: h and all places are multiples of 8 values.
template <class T, int ROWS, int H>
__device__ void fill(T *tile, const T *x, const float *bias, int first, int n, int64 stride, int h, int wide) {
    constexpr int LD = H + PAD<T>;
    if (wide) {
        for (int i = threadIdx.x; i < ROWS * H / 8; i += blockDim.x) {
            int row = i / (H / 8), column = i % (H / 8) * 8;
            Eight<T> values;
            for (int j = 0; j < 8; ++j) values.of[j] = narrow<T>(0);
            if (first + row < n && column < h) {
                copy<T>(&values, x + (first + row) * stride + column);
                if (bias)
                    for (int j = 0; j < 8; ++j) values.of[j] = narrow<T>(widen(values.of[j]) + bias[column + j]);
            }
            copy<T>(tile + row * LD + column, &values);
        }
    } else {
        for (int i = threadIdx.x; i < ROWS * H; i += blockDim.x) {
            int row = i / H, column = i % H;
            float value = 0;
            if (first + row < n && column < h)
                value = widen(x[(first + row) * stride + column]) + (bias ? bias[column] : 0);
            tile[row * LD + column] = narrow<T>(value);
        }
    }
}
