// Shared by the kernels: the two types of storage, sums over warps and blocks. Arithmetic is in f32.
#pragma once
#ifdef __CUDACC__
#include <cstdint>
#define SHARED(type, name, count) __shared__ __align__(16) type name[count]
#define KERNEL(name, ...) extern "C" __global__ void name(__VA_ARGS__)
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

// To the nearest, of two the even one.
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

// A warp of 32 threads has one row; a block is ROWS of them.
constexpr int LANES = 32, ROWS = 8;
constexpr unsigned ALL = 0xffffffffu;

__device__ __forceinline__ float warp_sum(float x) {
    for (int offset = LANES / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(ALL, x, offset);
    return x;
}

__device__ __forceinline__ float warp_max(float x) {
    for (int offset = LANES / 2; offset > 0; offset /= 2) x = fmaxf(x, __shfl_xor_sync(ALL, x, offset));
    return x;
}

// Neighbours that are read and written at once, in 16 bytes each time.
template <class T> struct alignas(16) Eight {
    T of[8];
};

// Sixteen bytes at a time, which the compiler does not find in values of two.
template <class T> __device__ __forceinline__ void copy(void *to, const void *from) {
    for (int i = 0; i < int(sizeof(Eight<T>) / sizeof(uint4)); ++i)
        static_cast<uint4 *>(to)[i] = static_cast<const uint4 *>(from)[i];
}

__device__ __forceinline__ bool aligned(const void *x) { return reinterpret_cast<uintptr_t>(x) % 16 == 0; }

// Eight values of x (n) from `at` on, a multiple of eight; zeros beyond its end.
template <class T> __device__ __forceinline__ void read(const T *x, int64 at, int64 n, float (&to)[8]) {
    Eight<T> values;
    if (at + 8 <= n && aligned(x)) copy<T>(&values, x + at);
    else
        for (int j = 0; j < 8; ++j) values.of[j] = at + j < n ? x[at + j] : narrow<T>(0);
    for (int j = 0; j < 8; ++j) to[j] = widen(values.of[j]);
}

template <class T> __device__ __forceinline__ void write(T *x, int64 at, int64 n, const float (&from)[8]) {
    Eight<T> values;
    for (int j = 0; j < 8; ++j) values.of[j] = narrow<T>(from[j]);
    if (at + 8 <= n && aligned(x)) copy<T>(x + at, &values);
    else
        for (int j = 0; j < 8 && at + j < n; ++j) x[at + j] = values.of[j];
}

// The first of the eight values of this thread.
__device__ __forceinline__ int64 first_of_eight() {
    return (int64(blockIdx.x) * blockDim.x + threadIdx.x) * 8;
}

// Adds a bias (d), which may be null, to eight values from `at` on of rows of d.
__device__ __forceinline__ void add_bias(float (&x)[8], const float *bias, int64 at, int d) {
    if (!bias) return;
    int column = at % d;
    for (int j = 0; j < 8; ++j) {
        x[j] += bias[column];
        if (++column == d) column = 0;
    }
}

// Multiplies eight values from `at` on of n by the scales of samples of `size` values, if there are any.
__device__ __forceinline__ void scale(float (&x)[8], const float *scales, int64 at, int64 n, int size) {
    if (!scales) return;
    int64 sample = at / size;
    int inside = at % size;
    for (int j = 0; j < 8 && at + j < n; ++j) {
        x[j] *= scales[sample];
        if (++inside == size) inside = 0, ++sample;
    }
}
