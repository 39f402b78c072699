// <cmath> without C++17's special functions (std::beta, Bessel's and the like): to have them costs
// every string 50 ms of g++, a quarter of the smallest build. A string that names one gets them.
#pragma once

#include <limits>  // comes with them, and PyTorch's Half relies on that

#undef _GLIBCXX_USE_STD_SPEC_FUNCS  // libstdc++'s
