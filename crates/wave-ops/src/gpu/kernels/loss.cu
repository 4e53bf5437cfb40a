// Soft cross-entropy of logits z (rows, classes) at inverse temperature c = 1 / T:
//
//   loss of a row = sum of q (log sum exp(c z) - c z);   dz = scale c (softmax(c z) sum(q) - q)
//
// q is given, or softmax(c a) of an ancestor's logits a (`of_logits`): then the loss is the
// Kullback-Leibler divergence, up to the entropy of q. One row per block. The scale of the gradient is
// the gradient of the loss, which stays on the device, times a constant.
#pragma once
#include "common.h"

struct Normaliser {
    float max, sum; // of c z, and of exp(c z - max)
};

template <class T> __device__ Normaliser normaliser(const T *z, int classes, float c, float *scratch) {
    float top = -INFINITE, sum = 0;
    for (int i = threadIdx.x; i < classes; i += blockDim.x) top = fmaxf(top, c * widen(z[i]));
    top = block_fold(top, scratch, Max());
    for (int i = threadIdx.x; i < classes; i += blockDim.x) sum += expf(c * widen(z[i]) - top);
    return {top, block_fold(sum, scratch, Sum())};
}

template <class T>
__device__ void soft_cross_entropy(const T *z, const T *q, float *losses, int classes, float c, int of_logits) {
    SHARED(float, scratch, ROWS);
    z += int64(blockIdx.x) * classes;
    q += int64(blockIdx.x) * classes;
    Normaliser of_z = normaliser(z, classes, c, scratch), of_q = {0, 1};
    if (of_logits) of_q = normaliser(q, classes, c, scratch);
    float log_sum = of_z.max + logf(of_z.sum), loss = 0;
    for (int i = threadIdx.x; i < classes; i += blockDim.x) {
        float share = of_logits ? expf(c * widen(q[i]) - of_q.max) / of_q.sum : widen(q[i]);
        loss += share * (log_sum - c * widen(z[i]));
    }
    loss = block_fold(loss, scratch, Sum());
    if (threadIdx.x == 0) losses[blockIdx.x] = loss;
}

template <class T>
__device__ void soft_cross_entropy_backward(const T *z, const T *q, const float *d_loss, T *dz, int classes,
                                            float c, int of_logits, float scale) {
    SHARED(float, scratch, ROWS);
    z += int64(blockIdx.x) * classes;
    q += int64(blockIdx.x) * classes;
    dz += int64(blockIdx.x) * classes;
    Normaliser of_z = normaliser(z, classes, c, scratch), of_q = {0, 1};
    float mass = 1;
    if (of_logits) {
        of_q = normaliser(q, classes, c, scratch);
    } else {
        float sum = 0;
        for (int i = threadIdx.x; i < classes; i += blockDim.x) sum += widen(q[i]);
        mass = block_fold(sum, scratch, Sum());
    }
    scale *= *d_loss * c;
    for (int i = threadIdx.x; i < classes; i += blockDim.x) {
        float share = of_logits ? expf(c * widen(q[i]) - of_q.max) / of_q.sum : widen(q[i]);
        dz[i] = narrow<T>(scale * (expf(c * widen(z[i]) - of_z.max) / of_z.sum * mass - share));
    }
}

#define LOSS(T)                                                                                                   \
    KERNEL(soft_cross_entropy_##T, const T *z, const T *q, float *losses, int classes, float c, int of_logits) {  \
        soft_cross_entropy(z, q, losses, classes, c, of_logits);                                                  \
    }                                                                                                             \
    KERNEL(soft_cross_entropy_backward_##T, const T *z, const T *q, const float *d_loss, T *dz, int classes,      \
           float c, int of_logits, float scale) {                                                                 \
        soft_cross_entropy_backward(z, q, d_loss, dz, classes, c, of_logits, scale);                              \
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
