// What a string that includes <torch/extension.h> gets of the standard library beside PyTorch.
#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <numeric>
#include <sstream>
#include <stdexcept>
#include <unordered_map>

#include "tensor.h"
