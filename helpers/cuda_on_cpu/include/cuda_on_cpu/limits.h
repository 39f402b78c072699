// CUDA's facts as this package knows them, each once: sizes, limits of a launch, and the device
// that a CUDA string sees.
#pragma once
#include <cstddef>

namespace cuda_on_cpu {

// The same on every GPU.
constexpr unsigned WARP_SIZE = 32;
constexpr unsigned SECTOR_BYTES = 32;  // of global memory, moved at a time
constexpr unsigned BANKS = 32;         // of shared memory
constexpr unsigned WORD_BYTES = 4;     // what one bank delivers in one wavefront
constexpr unsigned WIDEST_ACCESS = 16;  // bytes that one lane moves
constexpr unsigned MAX_THREADS = 1024;  // of a block
constexpr unsigned MAX_BLOCK_Z = 64;
constexpr unsigned MAX_GRID_X = 0x7fffffff, MAX_GRID_YZ = 65535;
constexpr std::size_t SHARED_WITHOUT_REQUEST = 48 * 1024;  // of a block
constexpr int REGISTERS_PER_MULTIPROCESSOR = 64 * 1024;
constexpr std::size_t CONSTANT_BYTES = 64 * 1024;
constexpr std::size_t ARGUMENT_BYTES = 32764;  // of a launch, from CUDA 12.1 and Volta on

// The device is the same on every machine, so that a kernel which sizes its grid by it computes
// the same everywhere; the blocks run on the cores there are.
constexpr int ARCHITECTURE = 800;  // __CUDA_ARCH__: compute capability 8.0; the sizes are a T4's
constexpr int MULTIPROCESSORS = 8;
constexpr int THREADS_PER_MULTIPROCESSOR = 1024;
constexpr int BLOCKS_PER_MULTIPROCESSOR = 16;
constexpr std::size_t MAX_SHARED_ON_REQUEST = 227 * 1024;  // as a large chip, so that tiles fit

}  // namespace cuda_on_cpu
