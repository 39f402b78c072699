// CUB's reductions, scans, sorts, loads and stores of warps, blocks and the device, for the CPU
// backend.
#pragma once
#include "block/block_load.cuh"
#include "block/block_radix_sort.cuh"
#include "block/block_reduce.cuh"
#include "block/block_scan.cuh"
#include "block/block_store.cuh"
#include "device/device_histogram.cuh"
#include "device/device_radix_sort.cuh"
#include "device/device_reduce.cuh"
#include "device/device_scan.cuh"
#include "device/device_select.cuh"
#include "warp/warp_reduce.cuh"
#include "warp/warp_scan.cuh"
