// Shared by the kernels: the two storage types, sums over warps and blocks. Arithmetic is in f32.
#pragma once
#include <type_traits>
#ifdef __CUDACC__
#include <cstdint>
#define SHARED(type, name, count) __shared__ __align__(16) type name[count]
#define KERNEL(name, ...) extern "C" __global__ void name(__VA_ARGS__)
#define KERNEL_IN(bounds, name, ...) extern "C" __global__ void __launch_bounds__ bounds name(__VA_ARGS__)
#define INFINITE __int_as_float(0x7f800000)
#else
#include "host.h"
#define INFINITE HUGE_VALF
#endif

typedef float f32;
typedef long long int64;

struct bf16 {
    uint16_t bits;
};

__device__ __forceinline__ float widen(f32 x) { return x; }

__device__ __forceinline__ float widen(bf16 x) {
    uint32_t bits = uint32_t(x.bits) << 16;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

template <class T> __device__ __forceinline__ T narrow(float x);

template <> __device__ __forceinline__ f32 narrow<f32>(float x) { return x; }

// Rounds to nearest, ties to even.
template <> __device__ __forceinline__ bf16 narrow<bf16>(float x) {
    bf16 y;
#ifdef __CUDACC__
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
#else
    uint32_t bits;
    memcpy(&bits, &x, 4);
    y.bits = x != x ? 0x7fc0 : uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
#endif
    return y;
}

// A warp of 32 threads handles one row; a block handles ROWS of them.
constexpr int LANES = 32, ROWS = 8;
constexpr unsigned ALL = 0xffffffffu;

__device__ __forceinline__ float warp_sum(float x) {
    for (int offset = LANES / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(ALL, x, offset);
    return x;
}

// The sum over a block, returned to all its threads; `scratch` holds ROWS values.
template <class F> __device__ __forceinline__ float block_fold(float x, float *scratch, F fold) {
    for (int offset = LANES / 2; offset > 0; offset /= 2) x = fold(x, __shfl_xor_sync(ALL, x, offset));
    __syncthreads();
    scratch[threadIdx.x / LANES] = x; // every lane has the same
    __syncthreads();
    x = scratch[0];
    for (int i = 1; i < ROWS; ++i) x = fold(x, scratch[i]);
    return x;
}

struct Sum {
    __device__ float operator()(float a, float b) const { return a + b; }
};
struct Max {
    __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

// The bf16 values of a word: the first in memory is the low half.
__device__ __forceinline__ float low(uint32_t both) { return widen(bf16{uint16_t(both)}); }
__device__ __forceinline__ float high(uint32_t both) { return widen(bf16{uint16_t(both >> 16)}); }
__device__ __forceinline__ uint32_t both(float low, float high) {
#ifdef __CUDACC__
    uint32_t word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
#else
    return narrow<bf16>(low).bits | uint32_t(narrow<bf16>(high).bits) << 16;
#endif
}

// 2^x; 0 for denormal numbers.
__device__ __forceinline__ float power_of_two(float x) {
#ifdef __CUDACC__
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return exp2f(x);
#endif
}

// 1 / x; off by one unit in the last place.
__device__ __forceinline__ float reciprocal(float x) {
#ifdef __CUDACC__
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return 1 / x;
#endif
}

// N adjacent values, read and written at once.
template <class T, int N> struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Few {
    T of[N];

    // Use the longest possible words, which the compiler does not do for two-byte values.
    typedef typename std::conditional<sizeof(T) * N % 16 == 0, uint4, uint2>::type Word;
    __device__ __forceinline__ void load(const T *from) {
        for (int i = 0; i < int(sizeof(Few) / sizeof(Word)); ++i)
            reinterpret_cast<Word *>(of)[i] = reinterpret_cast<const Word *>(from)[i];
    }
    __device__ __forceinline__ void store(T *to) const {
        for (int i = 0; i < int(sizeof(Few) / sizeof(Word)); ++i)
            reinterpret_cast<Word *>(to)[i] = reinterpret_cast<const Word *>(of)[i];
    }
    __device__ static bool fits(const T *x) { return reinterpret_cast<uintptr_t>(x) % alignof(Few) == 0; }

    __device__ __forceinline__ void narrowed(const float (&x)[N]);
};

template <class T, int N> __device__ __forceinline__ void Few<T, N>::narrowed(const float (&x)[N]) {
    for (int j = 0; j < N; j += 2) {
        if constexpr (sizeof(T) == 2) {
            reinterpret_cast<uint32_t *>(of)[j / 2] = both(x[j], x[j + 1]);
        } else {
            of[j] = x[j], of[j + 1] = x[j + 1];
        }
    }
}

// Values of x (n) starting at `at`, a multiple of N; zeros beyond the end.
template <class T, int N> __device__ __forceinline__ void read(const T *x, int64 at, int64 n, float (&to)[N]) {
    Few<T, N> values;
    if (at + N <= n && values.fits(x)) values.load(x + at);
    else
        for (int j = 0; j < N; ++j) values.of[j] = at + j < n ? x[at + j] : narrow<T>(0);
    for (int j = 0; j < N; ++j) to[j] = widen(values.of[j]);
}

template <class T, int N> __device__ __forceinline__ void write(T *x, int64 at, int64 n, const float (&from)[N]) {
    Few<T, N> values;
    values.narrowed(from);
    if (at + N <= n && values.fits(x)) values.store(x + at);
    else
        for (int j = 0; j < N && at + j < n; ++j) x[at + j] = values.of[j];
}

// The first of the eight values of this thread.
__device__ __forceinline__ int64 first_of_eight() {
    return (int64(blockIdx.x) * blockDim.x + threadIdx.x) * 8;
}

// Adds a bias (d), which may be null, to eight values starting at `at`, in rows of d.
__device__ __forceinline__ void add_bias(float (&x)[8], const float *bias, int64 at, int d) {
    if (!bias) return;
    int column = at % d;
    for (int j = 0; j < 8; ++j) {
        x[j] += bias[column];
        if (++column == d) column = 0;
    }
}

// Multiplies eight of n values, starting at `at`, by the scales of samples of `size` values, if there are any.
__device__ __forceinline__ void scale(float (&x)[8], const float *scales, int64 at, int64 n, int size) {
    if (!scales) return;
    int64 sample = at / size;
    int inside = at % size;
    for (int j = 0; j < 8 && at + j < n; ++j) {
        x[j] *= scales[sample];
        if (++inside == size) inside = 0, ++sample;
    }
}

// Columns per block, when each thread has eight columns and each warp one row.
constexpr int WIDE = LANES * 8;

// Sums the eight columns over the warps, through `sum_of` (ROWS, WIDE), and writes parts (gridDim.y, d).
__device__ __forceinline__ void add_rows(const float (&sums)[8], float *sum_of, float *parts, int d) {
    for (int j = 0; j < 8; ++j) sum_of[threadIdx.x * 8 + j] = sums[j];
    __syncthreads();
    int column = blockIdx.x * WIDE + threadIdx.x; // as many threads as columns
    if (column >= d) return;
    float sum = 0;
    for (int i = 0; i < ROWS; ++i) sum += sum_of[i * WIDE + threadIdx.x];
    parts[int64(blockIdx.y) * d + column] = sum;
}
