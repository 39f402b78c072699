// The host's side of CUDA.
#pragma once
#include "device_properties.h"
#include "errors.h"
#include "graphs.h"
#include "host_memory.h"
#include "kernel_calls.h"
#include "streams.h"
#include "textures.h"
