// What the kernels share: the two types of storage, sums over warps and blocks. Arithmetic is in f32.
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
