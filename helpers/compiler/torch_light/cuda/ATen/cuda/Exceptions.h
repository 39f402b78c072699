// AT_CUDA_CHECK, as in PyTorch's header of this name.
#pragma once

#include <c10/cuda/CUDAException.h>
