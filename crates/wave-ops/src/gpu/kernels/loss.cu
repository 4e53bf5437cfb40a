// Soft cross-entropy of logits z (rows, classes) with targets q:
//
//   loss of a row = sum of q (log sum exp(z) - z);   dz = scale (softmax(z) sum(q) - q)
//
// One row per block. The scale of the gradient is the gradient of the loss, which stays on the device, times a
// constant.
#pragma once
#include "common.h"

struct Normaliser {
    float max, sum; // of z, and of exp(z - max)
};

template <class T> __device__ Normaliser normaliser(const T *z, int classes, float *scratch) {
    float top = -INFINITE, sum = 0;
    for (int i = threadIdx.x; i < classes; i += blockDim.x) top = fmaxf(top, widen(z[i]));
    top = block_fold(top, scratch, Max());
    for (int i = threadIdx.x; i < classes; i += blockDim.x) sum += expf(widen(z[i]) - top);
    return {top, block_fold(sum, scratch, Sum())};
}

template <class T> __device__ void soft_cross_entropy(const T *z, const T *q, float *losses, int classes) {
    SHARED(float, scratch, ROWS);
    z += int64(blockIdx.x) * classes;
    q += int64(blockIdx.x) * classes;
    Normaliser of_z = normaliser(z, classes, scratch);
    float log_sum = of_z.max + logf(of_z.sum), loss = 0;
    for (int i = threadIdx.x; i < classes; i += blockDim.x) loss += widen(q[i]) * (log_sum - widen(z[i]));
    loss = block_fold(loss, scratch, Sum());
    if (threadIdx.x == 0) losses[blockIdx.x] = loss;
}

template <class T>
__device__ void soft_cross_entropy_backward(const T *z, const T *q, const float *d_loss, T *dz, int classes,
                                            float scale) {
    SHARED(float, scratch, ROWS);
    z += int64(blockIdx.x) * classes;
    q += int64(blockIdx.x) * classes;
    dz += int64(blockIdx.x) * classes;
    Normaliser of_z = normaliser(z, classes, scratch);
    float sum = 0;
    for (int i = threadIdx.x; i < classes; i += blockDim.x) sum += widen(q[i]);
    float mass = block_fold(sum, scratch, Sum());
    scale *= *d_loss;
    for (int i = threadIdx.x; i < classes; i += blockDim.x) {
        float share = expf(widen(z[i]) - of_z.max) / of_z.sum;
        dz[i] = narrow<T>(scale * (share * mass - widen(q[i])));
    }
}

#define LOSS(T)                                                                                                   \
    KERNEL(soft_cross_entropy_##T, const T *z, const T *q, float *losses, int classes) {                          \
        soft_cross_entropy(z, q, losses, classes);                                                                \
    }                                                                                                             \
    KERNEL(soft_cross_entropy_backward_##T, const T *z, const T *q, const float *d_loss, T *dz, int classes,      \
           float scale) {                                                                                         \
        soft_cross_entropy_backward(z, q, d_loss, dz, classes, scale);                                            \
    }
LOSS(f32)
LOSS(bf16)

// `scale` times the sum of x (n), by one block.
KERNEL(scaled_sum, const float *x, float *y, int n, float scale) {
    SHARED(float, scratch, ROWS);
    float sum = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) sum += x[i];
    sum = block_fold(sum, scratch, Sum());
    if (threadIdx.x == 0) *y = scale * sum;
}
