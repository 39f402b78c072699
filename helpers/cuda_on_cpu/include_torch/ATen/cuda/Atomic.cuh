#pragma once
#include <torch_light/atomic.h>
