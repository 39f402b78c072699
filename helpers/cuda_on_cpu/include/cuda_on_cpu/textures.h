// Texture and surface objects: what the host makes, and how a kernel reads and writes through them.
// What a fetch does is in runtime/texture_fetch.cpp.
#pragma once
#include "arrays.h"

// ---------------------------------------------------------------- the host's side

#define cudaTextureType1D 0x01
#define cudaTextureType2D 0x02
#define cudaTextureType3D 0x03
#define cudaTextureType1DLayered 0xf1
#define cudaTextureType2DLayered 0xf2
#define cudaSurfaceType1D 0x01
#define cudaSurfaceType2D 0x02
#define cudaSurfaceType3D 0x03
#define cudaSurfaceType1DLayered 0xf1
#define cudaSurfaceType2DLayered 0xf2

enum cudaTextureAddressMode {
    cudaAddressModeWrap,
    cudaAddressModeClamp,
    cudaAddressModeMirror,
    cudaAddressModeBorder,
};
enum cudaTextureFilterMode { cudaFilterModePoint, cudaFilterModeLinear };
enum cudaTextureReadMode { cudaReadModeElementType, cudaReadModeNormalizedFloat };
enum cudaSurfaceBoundaryMode { cudaBoundaryModeZero, cudaBoundaryModeClamp, cudaBoundaryModeTrap };
enum cudaResourceType {
    cudaResourceTypeArray,
    cudaResourceTypeMipmappedArray,
    cudaResourceTypeLinear,
    cudaResourceTypePitch2D,
};
enum cudaResourceViewFormat { cudaResViewFormatNone };

struct cudaMipmappedArray;
typedef cudaMipmappedArray* cudaMipmappedArray_t;
struct cudaResourceDesc {
    cudaResourceType resType;
    union {
        struct {
            cudaArray_t array;
        } array;
        struct {
            cudaMipmappedArray_t mipmap;
        } mipmap;
        struct {
            void* devPtr;
            cudaChannelFormatDesc desc;
            std::size_t sizeInBytes;
        } linear;
        struct {
            void* devPtr;
            cudaChannelFormatDesc desc;
            std::size_t width, height, pitchInBytes;  // elements, rows
        } pitch2D;
        struct {
            int reserved[32];
        } reserved;
    } res;
    unsigned flags;
};
struct cudaTextureDesc {
    cudaTextureAddressMode addressMode[3];
    cudaTextureFilterMode filterMode;
    cudaTextureReadMode readMode;
    int sRGB;
    float borderColor[4];
    int normalizedCoords;
    unsigned maxAnisotropy;
    cudaTextureFilterMode mipmapFilterMode;
    float mipmapLevelBias, minMipmapLevelClamp, maxMipmapLevelClamp;
    int disableTrilinearOptimization, seamlessCubemap;
};
struct cudaResourceViewDesc {
    cudaResourceViewFormat format;
    std::size_t width, height, depth;
    unsigned firstMipmapLevel, lastMipmapLevel, firstLayer, lastLayer, reserved[16];
};
typedef unsigned long long cudaTextureObject_t;
typedef unsigned long long cudaSurfaceObject_t;

namespace cuda_on_cpu {
CUDA_ON_CPU_API cudaError_t make_texture(const TextureCall&, cudaTextureObject_t*,
                                         const cudaResourceDesc*, const cudaTextureDesc*,
                                         const cudaResourceViewDesc*);
CUDA_ON_CPU_API cudaError_t make_surface(const TextureCall&, cudaSurfaceObject_t*,
                                         const cudaResourceDesc*);
CUDA_ON_CPU_API cudaError_t destroy_object(const TextureCall&, unsigned long long object,
                                           bool is_surface);
}  // namespace cuda_on_cpu

inline cudaError_t cudaCreateTextureObject(cudaTextureObject_t* texture,
                                           const cudaResourceDesc* resource,
                                           const cudaTextureDesc* how,
                                           const cudaResourceViewDesc* view, CUDA_ON_CPU_AT) {
    return cuda_on_cpu::make_texture({"cudaCreateTextureObject", line}, texture, resource, how,
                                     view);
}
inline cudaError_t cudaDestroyTextureObject(cudaTextureObject_t texture, CUDA_ON_CPU_AT) {
    return cuda_on_cpu::destroy_object({"cudaDestroyTextureObject", line}, texture, false);
}
inline cudaError_t cudaCreateSurfaceObject(cudaSurfaceObject_t* surface,
                                           const cudaResourceDesc* resource, CUDA_ON_CPU_AT) {
    return cuda_on_cpu::make_surface({"cudaCreateSurfaceObject", line}, surface, resource);
}
inline cudaError_t cudaDestroySurfaceObject(cudaSurfaceObject_t surface, CUDA_ON_CPU_AT) {
    return cuda_on_cpu::destroy_object({"cudaDestroySurfaceObject", line}, surface, true);
}
CUDA_ON_CPU_API cudaError_t cudaGetTextureObjectResourceDesc(cudaResourceDesc*,
                                                             cudaTextureObject_t);
CUDA_ON_CPU_API cudaError_t cudaGetTextureObjectTextureDesc(cudaTextureDesc*, cudaTextureObject_t);
CUDA_ON_CPU_API cudaError_t cudaGetTextureObjectResourceViewDesc(cudaResourceViewDesc*,
                                                                 cudaTextureObject_t);
CUDA_ON_CPU_API cudaError_t cudaGetSurfaceObjectResourceDesc(cudaResourceDesc*,
                                                             cudaSurfaceObject_t);
CUDA_ON_CPU_API cudaError_t cudaDeviceGetTexture1DLinearMaxWidth(std::size_t* elements,
                                                                 const cudaChannelFormatDesc*,
                                                                 int device);

// ---------------------------------------------------------------- the kernel's side

namespace cuda_on_cpu {

// What the memory of a texture or surface is laid out as.
enum class Shape : unsigned char { linear, one, two, three, one_layered, two_layered };

// What a fetch wants: `count` numbers, of float or (in the lowest bits) of an integer.
struct Wanted {
    Shape shape;
    unsigned count;
    bool floats;
};
struct TexturePlace {
    float x, y = 0, z = 0;
    int layer = 0;
};
CUDA_ON_CPU_API void fetch(unsigned* numbers, cudaTextureObject_t, Wanted, TexturePlace);
CUDA_ON_CPU_API void fetch_linear(unsigned* numbers, cudaTextureObject_t, Wanted, int x);
// The same number of the four elements that linear filtering would mix.
CUDA_ON_CPU_API void gather(unsigned* numbers, cudaTextureObject_t, Wanted, TexturePlace,
                            int number);

struct SurfacePlace {
    int x, y = 0, z = 0;  // x: bytes. z: or a layer
};
CUDA_ON_CPU_API void read_surface(void* value, unsigned bytes, cudaSurfaceObject_t, Shape,
                                  SurfacePlace, cudaSurfaceBoundaryMode);
CUDA_ON_CPU_API void write_surface(const void* value, unsigned bytes, cudaSurfaceObject_t, Shape,
                                   SurfacePlace, cudaSurfaceBoundaryMode);

// Inlined, so that an error has the line that fetches.
#define CUDA_ON_CPU_FETCH inline __attribute__((always_inline))

template <class T>
CUDA_ON_CPU_FETCH Wanted wanted(Shape shape) {
    static_assert(Texel<T>::COUNT != 0,
                  "a texture is read as float, or as an integer of 8, 16 or 32 bits, or as a "
                  "vector of 2 or 4 of these");
    return {shape, Texel<T>::COUNT, std::is_same<typename Texel<T>::Number, float>::value};
}
template <class T>
CUDA_ON_CPU_FETCH T element_of(const unsigned* numbers) {
    using Number = typename Texel<T>::Number;
    T element;
    if constexpr (sizeof(Number) == sizeof *numbers) {
        __builtin_memcpy(&element, numbers, sizeof element);
    } else {
        Number lowest[Texel<T>::COUNT];
        for (unsigned i = 0; i < Texel<T>::COUNT; i++) lowest[i] = Number(numbers[i]);
        __builtin_memcpy(&element, lowest, sizeof element);
    }
    return element;
}
template <class T>
CUDA_ON_CPU_FETCH T fetched(cudaTextureObject_t texture, Shape shape, TexturePlace place) {
    unsigned numbers[4];
    fetch(numbers, texture, wanted<T>(shape), place);
    return element_of<T>(numbers);
}

// A surface takes bytes as they are, so 64-bit integers as well.
template <class T>
constexpr bool IS_OF_SURFACE = Texel<T>::COUNT != 0;
#define CUDA_ON_CPU_OF_SURFACE(T) \
    template <>                   \
    inline constexpr bool IS_OF_SURFACE<T> = true;
CUDA_ON_CPU_OF_SURFACE(long long)
CUDA_ON_CPU_OF_SURFACE(longlong1)
CUDA_ON_CPU_OF_SURFACE(longlong2)
CUDA_ON_CPU_OF_SURFACE(unsigned long long)
CUDA_ON_CPU_OF_SURFACE(ulonglong1)
CUDA_ON_CPU_OF_SURFACE(ulonglong2)
#undef CUDA_ON_CPU_OF_SURFACE
#define CUDA_ON_CPU_CHECK_SURFACE(T)                                                              \
    static_assert(cuda_on_cpu::IS_OF_SURFACE<T>,                                                  \
                  "a surface is read and written as float, or as an integer of 8 to 64 bits, or " \
                  "as a vector of 2 or 4 of these, of 16 bytes at most")

}  // namespace cuda_on_cpu

// NAME<T>(texture, ...) and NAME(T* value, texture, ...). PLACE: in parentheses.
#define CUDA_ON_CPU_TEXTURE(NAME, SHAPE, PLACE, ...)                                             \
    template <class T>                                                                           \
    CUDA_ON_CPU_FETCH T NAME(cudaTextureObject_t texture, __VA_ARGS__) {                         \
        using namespace cuda_on_cpu;                                                             \
        return fetched<T>(texture, Shape::SHAPE, CUDA_ON_CPU_BRACED PLACE);                      \
    }                                                                                            \
    template <class T>                                                                           \
    CUDA_ON_CPU_FETCH void NAME(T* value, cudaTextureObject_t texture, __VA_ARGS__) {            \
        using namespace cuda_on_cpu;                                                             \
        *value = fetched<T>(texture, Shape::SHAPE, CUDA_ON_CPU_BRACED PLACE);                    \
    }
#define CUDA_ON_CPU_BRACED(...) {__VA_ARGS__}
// There are no mipmaps: whatever the level or the gradients, it is the array's one level.
#define CUDA_ON_CPU_TEXTURES(NAME, GRADIENT, SHAPE, PLACE, ...)                                  \
    CUDA_ON_CPU_TEXTURE(NAME, SHAPE, PLACE, __VA_ARGS__)                                         \
    CUDA_ON_CPU_TEXTURE(NAME##Lod, SHAPE, PLACE, __VA_ARGS__, float)                             \
    CUDA_ON_CPU_TEXTURE(NAME##Grad, SHAPE, PLACE, __VA_ARGS__, GRADIENT, GRADIENT)
CUDA_ON_CPU_TEXTURES(tex1D, float, one, (x), float x)
CUDA_ON_CPU_TEXTURES(tex2D, float2, two, (x, y), float x, float y)
CUDA_ON_CPU_TEXTURES(tex3D, float4, three, (x, y, z), float x, float y, float z)
CUDA_ON_CPU_TEXTURES(tex1DLayered, float, one_layered, (x, 0, 0, layer), float x, int layer)
CUDA_ON_CPU_TEXTURES(tex2DLayered, float2, two_layered, (x, y, 0, layer), float x, float y,
                     int layer)
#undef CUDA_ON_CPU_TEXTURES
#undef CUDA_ON_CPU_TEXTURE

template <class T>
CUDA_ON_CPU_FETCH T tex1Dfetch(cudaTextureObject_t texture, int x) {
    using namespace cuda_on_cpu;
    unsigned numbers[4];
    fetch_linear(numbers, texture, wanted<T>(Shape::linear), x);
    return element_of<T>(numbers);
}
template <class T>
CUDA_ON_CPU_FETCH void tex1Dfetch(T* value, cudaTextureObject_t texture, int x) {
    *value = tex1Dfetch<T>(texture, x);
}
template <class T>
CUDA_ON_CPU_FETCH T tex2Dgather(cudaTextureObject_t texture, float x, float y, int number = 0) {
    using namespace cuda_on_cpu;
    unsigned numbers[4];
    gather(numbers, texture, wanted<T>(Shape::two), {x, y}, number);
    return element_of<T>(numbers);
}
template <class T>
CUDA_ON_CPU_FETCH void tex2Dgather(T* value, cudaTextureObject_t texture, float x, float y,
                                   int number = 0) {
    *value = tex2Dgather<T>(texture, x, y, number);
}

// NAMEread<T>(surface, ...), NAMEread(T* value, surface, ...), NAMEwrite(value, surface, ...)
#define CUDA_ON_CPU_SURFACE(NAME, SHAPE, PLACE, ...)                                             \
    template <class T>                                                                           \
    CUDA_ON_CPU_FETCH T NAME##read(cudaSurfaceObject_t surface, __VA_ARGS__,                     \
                                   cudaSurfaceBoundaryMode mode = cudaBoundaryModeTrap) {        \
        CUDA_ON_CPU_CHECK_SURFACE(T);                                                            \
        T value;                                                                                 \
        cuda_on_cpu::read_surface(&value, sizeof value, surface, cuda_on_cpu::Shape::SHAPE,      \
                                  CUDA_ON_CPU_BRACED PLACE, mode);                               \
        return value;                                                                            \
    }                                                                                            \
    template <class T>                                                                           \
    CUDA_ON_CPU_FETCH void NAME##read(T* value, cudaSurfaceObject_t surface, __VA_ARGS__,        \
                                      cudaSurfaceBoundaryMode mode = cudaBoundaryModeTrap) {     \
        CUDA_ON_CPU_CHECK_SURFACE(T);                                                            \
        T read;                                                                                  \
        cuda_on_cpu::read_surface(&read, sizeof read, surface, cuda_on_cpu::Shape::SHAPE,        \
                                  CUDA_ON_CPU_BRACED PLACE, mode);                               \
        *value = read;                                                                           \
    }                                                                                            \
    template <class T>                                                                           \
    CUDA_ON_CPU_FETCH void NAME##write(T value, cudaSurfaceObject_t surface, __VA_ARGS__,        \
                                       cudaSurfaceBoundaryMode mode = cudaBoundaryModeTrap) {    \
        CUDA_ON_CPU_CHECK_SURFACE(T);                                                            \
        cuda_on_cpu::write_surface(&value, sizeof value, surface, cuda_on_cpu::Shape::SHAPE,     \
                                   CUDA_ON_CPU_BRACED PLACE, mode);                              \
    }
CUDA_ON_CPU_SURFACE(surf1D, one, (x), int x)
CUDA_ON_CPU_SURFACE(surf2D, two, (x, y), int x, int y)
CUDA_ON_CPU_SURFACE(surf3D, three, (x, y, z), int x, int y, int z)
CUDA_ON_CPU_SURFACE(surf1DLayered, one_layered, (x, 0, layer), int x, int layer)
CUDA_ON_CPU_SURFACE(surf2DLayered, two_layered, (x, y, layer), int x, int y, int layer)
#undef CUDA_ON_CPU_SURFACE
#undef CUDA_ON_CPU_CHECK_SURFACE
#undef CUDA_ON_CPU_BRACED
#undef CUDA_ON_CPU_FETCH
