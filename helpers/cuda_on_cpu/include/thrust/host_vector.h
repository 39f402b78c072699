#pragma once
#include "detail/vector.h"
#include "detail/algorithms.h"
