// All kernels as one source: PTX of a GPU's, or C++ of a processor's.
#include "adamw.cu"
#include "attention.cu"
#include "columns.cu"
#include "gelu.cu"
#include "kron.cu"
#include "layer_norm.cu"
#include "loss.cu"
#include "residual.cu"
