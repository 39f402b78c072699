// For strings that name std::string, std::vector, std::optional or std::tuple: their headers are two
// fifths of what nvcc reads for a small kernel. Stands before tensor.h, which then has what is made
// of them; no class differs in what it holds.
#pragma once

#define TORCH_LIGHT_STD

#include <iosfwd>
#include <optional>
#include <string>
#include <tuple>
#include <vector>
