// Memory that faults where an array ends. Reading or writing past the end of an array is the most
// common error of a kernel, and on a GPU it often goes unnoticed.
#pragma once
#include <cstddef>
#include <string>

namespace cuda_on_cpu {

// Whose guard an address lies in: "byte 208 of a tensor of 200 bytes: 8 bytes past its end"; or "".
std::string describe_overrun(const void* address);

}  // namespace cuda_on_cpu
