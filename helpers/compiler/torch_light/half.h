// tensor.h for strings that name at::Half or at::BFloat16: their headers cost another second.
#pragma once

#include "tensor.h"

// Without the processor's own conversion, whose header is the longest of all.
#pragma push_macro("__F16C__")
#undef __F16C__
#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>
#pragma pop_macro("__F16C__")

namespace torch_light {
TORCH_LIGHT_ELEMENT(c10::Half, Half)
TORCH_LIGHT_ELEMENT(c10::BFloat16, BFloat16)
inline Message& operator<<(Message& m, c10::Half x) { return m << double(float(x)); }
inline Message& operator<<(Message& m, c10::BFloat16 x) { return m << double(float(x)); }
}  // namespace torch_light

namespace at { using c10::BFloat16; using c10::Half; }
namespace torch { using c10::BFloat16; using c10::Half; }
