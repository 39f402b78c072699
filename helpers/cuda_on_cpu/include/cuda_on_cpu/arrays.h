// CUDA arrays: the memory of textures and surfaces, of elements with 1, 2 or 4 numbers. On a GPU
// their layout is nobody's business; here it is row by row.
#pragma once
#include "host_memory.h"

enum cudaChannelFormatKind {
    cudaChannelFormatKindSigned,
    cudaChannelFormatKindUnsigned,
    cudaChannelFormatKindFloat,
    cudaChannelFormatKindNone,
};
struct cudaChannelFormatDesc {
    int x, y, z, w;  // bits of each number
    cudaChannelFormatKind f;
};

#define cudaArrayDefault 0
#define cudaArrayLayered 1
#define cudaArraySurfaceLoadStore 2
#define cudaArrayTextureGather 8

// ---------------------------------------------------------------- elements

namespace cuda_on_cpu {

// What a texture may consist of: COUNT numbers of a type; none where a GPU has no such texture.
template <class T>
struct Texel {
    typedef void Number;
    static constexpr unsigned COUNT = 0;
};
#define CUDA_ON_CPU_TEXEL(T, NUMBER, N)       \
    template <>                                 \
    struct Texel<T> {                         \
        typedef NUMBER Number;                  \
        static constexpr unsigned COUNT = N;    \
    };
#define CUDA_ON_CPU_TEXELS(NUMBER, NAME)      \
    CUDA_ON_CPU_TEXEL(NUMBER, NUMBER, 1)      \
    CUDA_ON_CPU_TEXEL(NAME##1, NUMBER, 1)     \
    CUDA_ON_CPU_TEXEL(NAME##2, NUMBER, 2)     \
    CUDA_ON_CPU_TEXEL(NAME##4, NUMBER, 4)
CUDA_ON_CPU_TEXEL(char, char, 1)
CUDA_ON_CPU_TEXELS(signed char, char)
CUDA_ON_CPU_TEXELS(unsigned char, uchar)
CUDA_ON_CPU_TEXELS(short, short)
CUDA_ON_CPU_TEXELS(unsigned short, ushort)
CUDA_ON_CPU_TEXELS(int, int)
CUDA_ON_CPU_TEXELS(unsigned, uint)
CUDA_ON_CPU_TEXELS(float, float)
#undef CUDA_ON_CPU_TEXELS
#undef CUDA_ON_CPU_TEXEL

}  // namespace cuda_on_cpu

inline cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w,
                                                   cudaChannelFormatKind kind) {
    return {x, y, z, w, kind};
}
// Of a type that is none of a texture, float3 say, the description is an empty one.
template <class T>
inline cudaChannelFormatDesc cudaCreateChannelDesc() {
    using Texel = cuda_on_cpu::Texel<T>;
    if constexpr (Texel::COUNT == 0) {
        return {0, 0, 0, 0, cudaChannelFormatKindNone};
    } else {
        using Number = typename Texel::Number;
        constexpr int BITS = 8 * sizeof(Number);
        return {BITS, Texel::COUNT > 1 ? BITS : 0, Texel::COUNT > 2 ? BITS : 0,
                Texel::COUNT > 2 ? BITS : 0,
                std::is_same<Number, float>::value ? cudaChannelFormatKindFloat
                : std::is_signed<Number>::value    ? cudaChannelFormatKindSigned
                                                   : cudaChannelFormatKindUnsigned};
    }
}
inline cudaChannelFormatDesc cudaCreateChannelDescHalf() {
    return {16, 0, 0, 0, cudaChannelFormatKindFloat};
}
inline cudaChannelFormatDesc cudaCreateChannelDescHalf1() { return cudaCreateChannelDescHalf(); }
inline cudaChannelFormatDesc cudaCreateChannelDescHalf2() {
    return {16, 16, 0, 0, cudaChannelFormatKindFloat};
}
inline cudaChannelFormatDesc cudaCreateChannelDescHalf4() {
    return {16, 16, 16, 16, cudaChannelFormatKindFloat};
}

// ---------------------------------------------------------------- arrays

namespace cuda_on_cpu {
// A call of the host that is about arrays, textures or surfaces. What is wrong throws in a checked
// string; else it is an error code.
struct TextureCall {
    const char* name;
    int line;
    bool checked = IS_CHECKED;
};
CUDA_ON_CPU_API cudaError_t make_array(const TextureCall&, cudaArray_t*,
                                       const cudaChannelFormatDesc*, cudaExtent, unsigned flags);
CUDA_ON_CPU_API cudaError_t free_array(const TextureCall&, cudaArray_t);
}  // namespace cuda_on_cpu

// extent: in elements, 0 for what the array does not have; depth: or layers.
inline cudaError_t cudaMalloc3DArray(cudaArray_t* array, const cudaChannelFormatDesc* element,
                                     cudaExtent extent, unsigned flags = 0, CUDA_ON_CPU_AT) {
    return cuda_on_cpu::make_array({"cudaMalloc3DArray", line}, array, element, extent, flags);
}
inline cudaError_t cudaMallocArray(cudaArray_t* array, const cudaChannelFormatDesc* element,
                                   std::size_t width, std::size_t height = 0, unsigned flags = 0,
                                   CUDA_ON_CPU_AT) {
    return cuda_on_cpu::make_array({"cudaMallocArray", line}, array, element, {width, height, 0},
                                   flags);
}
inline cudaError_t cudaFreeArray(cudaArray_t array, CUDA_ON_CPU_AT) {
    return cuda_on_cpu::free_array({"cudaFreeArray", line}, array);
}
CUDA_ON_CPU_API cudaError_t cudaArrayGetInfo(cudaChannelFormatDesc*, cudaExtent*, unsigned* flags,
                                             cudaArray_t);
CUDA_ON_CPU_API cudaError_t cudaGetChannelDesc(cudaChannelFormatDesc*, cudaArray_const_t);

// ---------------------------------------------------------------- copies

namespace cuda_on_cpu {
// Where a copy begins: x in bytes, y in rows; and, where its end is not an array, the pitch.
struct CopyEnd {
    cudaArray_t array;
    const void* pointer;
    std::size_t pitch, x, y;
};
CUDA_ON_CPU_API cudaError_t copy_rows(const MemoryCall&, const CopyEnd& to, const CopyEnd& from,
                                      std::size_t width, std::size_t rows, cudaMemcpyKind,
                                      cudaStream_t);
// `bytes` of an array in a row, from one of its rows to the next.
CUDA_ON_CPU_API cudaError_t copy_in_a_row(const MemoryCall&, const CopyEnd& to,
                                          const CopyEnd& from, std::size_t bytes, cudaMemcpyKind,
                                          cudaStream_t);
inline cudaArray_t changeable(cudaArray_const_t array) { return const_cast<cudaArray_t>(array); }
}  // namespace cuda_on_cpu

CUDA_ON_CPU_INLINE cudaError_t cudaMemcpy2DToArrayAsync(
    cudaArray_t to, std::size_t x, std::size_t y, const void* from, std::size_t from_pitch,
    std::size_t width, std::size_t rows, cudaMemcpyKind kind, cudaStream_t stream = nullptr,
    CUDA_ON_CPU_AT) {
    using namespace cuda_on_cpu;
    return copy_rows(memory_call("cudaMemcpy2DToArray", line, nullptr, from),
                     {to, nullptr, 0, x, y}, {nullptr, from, from_pitch, 0, 0}, width, rows, kind,
                     stream);
}
CUDA_ON_CPU_INLINE cudaError_t cudaMemcpy2DToArray(cudaArray_t to, std::size_t x, std::size_t y,
                                                   const void* from, std::size_t from_pitch,
                                                   std::size_t width, std::size_t rows,
                                                   cudaMemcpyKind kind, CUDA_ON_CPU_AT) {
    return cudaMemcpy2DToArrayAsync(to, x, y, from, from_pitch, width, rows, kind, nullptr, line);
}
CUDA_ON_CPU_INLINE cudaError_t cudaMemcpy2DFromArrayAsync(
    void* to, std::size_t to_pitch, cudaArray_const_t from, std::size_t x, std::size_t y,
    std::size_t width, std::size_t rows, cudaMemcpyKind kind, cudaStream_t stream = nullptr,
    CUDA_ON_CPU_AT) {
    using namespace cuda_on_cpu;
    return copy_rows(memory_call("cudaMemcpy2DFromArray", line, to, nullptr),
                     {nullptr, to, to_pitch, 0, 0}, {changeable(from), nullptr, 0, x, y}, width,
                     rows, kind, stream);
}
CUDA_ON_CPU_INLINE cudaError_t cudaMemcpy2DFromArray(void* to, std::size_t to_pitch,
                                                     cudaArray_const_t from, std::size_t x,
                                                     std::size_t y, std::size_t width,
                                                     std::size_t rows, cudaMemcpyKind kind,
                                                     CUDA_ON_CPU_AT) {
    return cudaMemcpy2DFromArrayAsync(to, to_pitch, from, x, y, width, rows, kind, nullptr, line);
}
inline cudaError_t cudaMemcpy2DArrayToArray(cudaArray_t to, std::size_t to_x, std::size_t to_y,
                                            cudaArray_const_t from, std::size_t from_x,
                                            std::size_t from_y, std::size_t width,
                                            std::size_t rows,
                                            cudaMemcpyKind kind = cudaMemcpyDeviceToDevice,
                                            CUDA_ON_CPU_AT) {
    using namespace cuda_on_cpu;
    return copy_rows(memory_call("cudaMemcpy2DArrayToArray", line, nullptr, nullptr),
                     {to, nullptr, 0, to_x, to_y}, {changeable(from), nullptr, 0, from_x, from_y},
                     width, rows, kind, nullptr);
}
// CUDA 13 still has these two, and warns of them.
CUDA_ON_CPU_INLINE cudaError_t cudaMemcpyToArray(cudaArray_t to, std::size_t x, std::size_t y,
                                                 const void* from, std::size_t bytes,
                                                 cudaMemcpyKind kind, CUDA_ON_CPU_AT) {
    using namespace cuda_on_cpu;
    return copy_in_a_row(memory_call("cudaMemcpyToArray", line, nullptr, from),
                         {to, nullptr, 0, x, y}, {nullptr, from, 0, 0, 0}, bytes, kind, nullptr);
}
CUDA_ON_CPU_INLINE cudaError_t cudaMemcpyFromArray(void* to, cudaArray_const_t from, std::size_t x,
                                                   std::size_t y, std::size_t bytes,
                                                   cudaMemcpyKind kind, CUDA_ON_CPU_AT) {
    using namespace cuda_on_cpu;
    return copy_in_a_row(memory_call("cudaMemcpyFromArray", line, to, nullptr),
                         {nullptr, to, 0, 0, 0}, {changeable(from), nullptr, 0, x, y}, bytes, kind,
                         nullptr);
}
