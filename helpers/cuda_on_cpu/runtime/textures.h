// CUDA arrays, and the table of texture and surface objects.
#pragma once
#include <atomic>
#include <memory>
#include <string>

#include "../include/cuda_on_cpu/textures.h"
#include "access.h"

namespace cuda_on_cpu {

// What a GPU of ARCHITECTURE takes at most, in elements (CUDA's programming guide, "Technical
// specifications per compute capability"). Pitches and alignments: bytes.
namespace texture_limits {
constexpr std::size_t ONE = 131072, TWO[] = {131072, 65536}, THREE[] = {16384, 16384, 16384},
                      LAYERED = 32768, LAYERS = 2048, GATHER = 32768,
                      LINEAR = std::size_t{1} << 28, PITCH_2D[] = {131072, 65000},
                      ALIGNMENT = 512, PITCH_ALIGNMENT = 32;
}

// What an element is: `count` numbers of `bits` each.
struct Format {
    cudaChannelFormatDesc description;
    unsigned bits, count;

    std::size_t bytes() const { return bits / 8 * count; }
    bool is_float() const { return description.f == cudaChannelFormatKindFloat; }
    bool is_signed() const { return description.f == cudaChannelFormatKindSigned; }
};

// Memory as a texture or surface sees it.
struct Grid3 {
    Shape shape;
    Format format;
    int size[3];        // elements in a row, rows, planes or layers; 1 where there are none
    std::size_t pitch;  // bytes from row to row
    char* data;         // null: it has been freed

    bool has_layers() const { return shape == Shape::one_layered || shape == Shape::two_layered; }
    char* at(int x, int y, int z) const {
        return data + (std::size_t(z) * std::size_t(size[1]) + std::size_t(y)) * pitch +
               std::size_t(x) * format.bytes();
    }
    std::size_t bytes() const {
        std::size_t rows = std::size_t(size[1]) * std::size_t(size[2]);
        return (rows - 1) * pitch + std::size_t(size[0]) * format.bytes();
    }
};

struct TextureObject {
    std::atomic<unsigned long long> handle{0};  // 0: it has been destroyed
    unsigned long long latest = 0;              // its handle before that
    bool is_surface = false;
    Grid3 memory{};                             // of no array
    std::shared_ptr<cudaArray> array;
    cudaResourceDesc resource{};
    cudaTextureDesc how{};                      // as it was given
    cudaTextureAddressMode modes[3]{};          // of the axes
    cudaResourceViewDesc view{};

    const Grid3& grid() const;
    // Numbers of integers are read as fractions of the largest one.
    bool is_normalized() const { return how.readMode == cudaReadModeNormalizedFloat; }
    bool gives_floats() const { return grid().format.is_float() || is_normalized(); }
    bool is_linear() const { return how.filterMode == cudaFilterModeLinear; }
};

// The object of a handle; null if there is none. It stays where it is when it is destroyed.
TextureObject* find_object(unsigned long long handle);
// Why there is none: "... that has been destroyed."
std::string describe_missing(unsigned long long handle);

// Puts the memory of arrays in their place, in bytes; or an error, or a sentence that is thrown.
cudaError_t resolve_arrays(const MemoryCall&, cudaMemcpy3DParms*);

bool release_array(void* data);  // of a function of the host that has failed

std::string text(const Format&);  // "4 unsigned numbers of 8 bits"

}  // namespace cuda_on_cpu

struct cudaArray {
    cuda_on_cpu::Grid3 grid;
    cudaExtent extent;  // as it was asked for
    unsigned flags;
};
