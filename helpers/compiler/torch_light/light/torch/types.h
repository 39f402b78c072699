// torch::Tensor, as far as the light headers have it. For PyTorch's own: <torch/extension.h>.
#pragma once
#include <torch_light/tensor.h>
