// All kernels as one source: PTX of a GPU's, or C++ of a processor's.
#include "adamw.cu"
#include "attention.cu"
#include "columns.cu"
#include "gelu.cu"
#include "kron.cu"
#include "loss.cu"
#include "muon.cu"
#include "norm.cu"
