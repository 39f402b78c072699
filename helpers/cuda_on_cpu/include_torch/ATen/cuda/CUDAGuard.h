#include "../../c10/cuda/CUDAGuard.h"
