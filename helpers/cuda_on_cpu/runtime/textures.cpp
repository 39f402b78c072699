#include "textures.h"

#include <dlfcn.h>

#include <array>
#include <cstring>
#include <deque>
#include <mutex>
#include <stdexcept>
#include <unordered_map>

#include "host_calls.h"
#include "host_memory.h"
#include "memory.h"
#include "multiprocessor.h"

namespace cuda_on_cpu {

// A handle is the number of a place in the table and, above that, how often the place was taken.
constexpr std::size_t PLACES = 1 << 16;
// The first handles begin here, far from the sizes that kernels are given.
constexpr unsigned long long FIRST = 1ull << 40;

struct Textures {
    std::mutex mutex;
    std::unordered_map<const cudaArray*, std::shared_ptr<cudaArray>> arrays;
    std::size_t places = 0;
    std::deque<std::size_t> free_places;  // the one that has been free for longest first
    std::string refused;                  // why the latest call has made none; "" if it has
};
static Textures& textures() {
    static auto* textures = new Textures;
    return *textures;
}
using TexturesLock = std::lock_guard<std::mutex>;

static std::array<std::atomic<TextureObject*>, PLACES> objects;

// ---------------------------------------------------------------- what is refused

static std::string place(const char* name, int line) {
    return std::string(name) + " in line " + std::to_string(line) + ": ";
}

static cudaError_t refuse(const TextureCall& call, cudaError_t error, const std::string& sentence) {
    std::string all = place(call.name, call.line) + sentence;
    if (call.checked) throw std::runtime_error(all);
    TexturesLock lock(textures().mutex);
    textures().refused = all;
    return result(error);
}

static std::string product(std::size_t width, std::size_t height, std::size_t depth) {
    std::string text = std::to_string(width);
    if (height) text += " x " + std::to_string(height);
    if (depth) text += " x " + std::to_string(depth);
    return text;
}

std::string text(const Format& format) {
    std::string kind = format.is_float()    ? "floating-point"
                       : format.is_signed() ? "signed"
                                            : "unsigned";
    return std::to_string(format.count) + " " + kind +
           (format.count == 1 ? " number of " : " numbers of ") + std::to_string(format.bits) +
           " bits";
}

// A sentence if a GPU has no such elements.
static std::string read_format(const cudaChannelFormatDesc& given, Format* format) {
    const int bits[] = {given.x, given.y, given.z, given.w};
    unsigned count = 0;
    while (count < 4 && bits[count] > 0) count++;
    *format = {given, unsigned(bits[0]), count};
    if (!count || unsigned(given.f) >= cudaChannelFormatKindNone)
        return "the cudaChannelFormatDesc describes no element: cudaCreateChannelDesc<T>() takes a "
               "T of 1, 2 or 4 numbers of 8, 16 or 32 bits.";
    if (count == 3)
        return "an element of 3 numbers: textures and surfaces have 1, 2 or 4. With a fourth one "
               "that nobody reads (float4 for float3) it is right.";
    bool are_equal = true;
    for (unsigned i = 0; i < 4; i++) are_equal &= bits[i] == (i < count ? bits[0] : 0);
    if (!are_equal || (bits[0] != 8 && bits[0] != 16 && bits[0] != 32) ||
        (format->is_float() && bits[0] == 8))
        return "the numbers of an element have 8, 16 or 32 bits (floating-point ones 16 or 32), "
               "all of them the same.";
    return "";
}

// ---------------------------------------------------------------- arrays

static std::shared_ptr<cudaArray> find_array(const cudaArray* array) {
    TexturesLock lock(textures().mutex);
    auto found = textures().arrays.find(array);
    return found == textures().arrays.end() ? nullptr : found->second;
}

static const char NO_ARRAY[] =
    "is given an array that has been freed, or was never made by cudaMallocArray.";

// A sentence if a GPU has no array of these extents.
static std::string read_shape(const cudaExtent& extent, unsigned flags, Shape* shape) {
    using namespace texture_limits;
    auto [width, height, depth] = extent;
    bool has_layers = flags & cudaArrayLayered;
    std::size_t most[] = {ONE, 0, 0};
    if (has_layers) {
        *shape = height ? Shape::two_layered : Shape::one_layered;
        most[0] = LAYERED, most[1] = height ? LAYERED : 0, most[2] = LAYERS;
        if (!depth) return "an array of layers has a depth: the number of its layers.";
    } else if (depth) {
        *shape = Shape::three;
        if (!height) return "an array that has a depth has a height as well.";
        most[0] = THREE[0], most[1] = THREE[1], most[2] = THREE[2];
    } else if (height) {
        *shape = Shape::two;
        most[0] = TWO[0], most[1] = TWO[1];
        if (flags & cudaArrayTextureGather) most[0] = most[1] = GATHER;
    } else {
        *shape = Shape::one;
    }
    if (!width) return "an array has a width.";
    if ((flags & cudaArrayTextureGather) && *shape != Shape::two)
        return "cudaArrayTextureGather is for arrays of two dimensions.";
    if (width > most[0] || height > most[1] || depth > most[2])
        return "an array of " + product(width, height, depth) + " elements: a GPU has at most " +
               product(most[0], most[1], most[2]) + ".";
    return "";
}

cudaError_t make_array(const TextureCall& call, cudaArray_t* array,
                       const cudaChannelFormatDesc* element, cudaExtent extent, unsigned flags) {
    constexpr unsigned KNOWN =
        cudaArrayLayered | cudaArraySurfaceLoadStore | cudaArrayTextureGather;
    if (!array || !element) return result(cudaErrorInvalidValue);
    auto made = std::make_shared<cudaArray>(cudaArray{{}, extent, flags});
    Grid3& grid = made->grid;
    if (flags & ~KNOWN)
        return refuse(call, cudaErrorNotSupported,
                      "CUDA has cubemaps, sparse arrays and arrays of graphics libraries, the CPU "
                      "backend does not: of the flags it knows cudaArrayLayered, "
                      "cudaArraySurfaceLoadStore and cudaArrayTextureGather.");
    std::string fault = read_format(*element, &grid.format);
    if (!fault.empty()) return refuse(call, cudaErrorInvalidChannelDescriptor, fault);
    fault = read_shape(extent, flags, &grid.shape);
    if (!fault.empty()) return refuse(call, cudaErrorInvalidValue, fault);
    const std::size_t sizes[] = {extent.width, extent.height, extent.depth};
    for (unsigned i = 0; i < 3; i++) grid.size[i] = sizes[i] ? int(sizes[i]) : 1;
    grid.pitch = extent.width * grid.format.bytes();
    std::size_t bytes = grid.bytes();
    if (bytes <= memory_bytes(false))
        grid.data = static_cast<char*>(allocate(bytes, "an array from cudaMallocArray"));
    if (!grid.data) return result(cudaErrorMemoryAllocation);
    note_allocation(grid.data);
    TexturesLock lock(textures().mutex);
    textures().arrays[made.get()] = made;
    *array = made.get();
    return cudaSuccess;
}

static void release_array(cudaArray& array) {
    release(array.grid.data);
    array.grid.data = nullptr;
}

cudaError_t free_array(const TextureCall& call, cudaArray_t array) {
    if (!array) return cudaSuccess;
    std::shared_ptr<cudaArray> found = find_array(array);
    if (!found) return refuse(call, cudaErrorInvalidValue, NO_ARRAY);
    TexturesLock lock(textures().mutex);
    release_array(*found);
    textures().arrays.erase(array);
    return cudaSuccess;
}

bool release_array(void* data) {
    TexturesLock lock(textures().mutex);
    for (auto& [pointer, array] : textures().arrays)
        if (array->grid.data == data) {
            release_array(*array);
            textures().arrays.erase(pointer);
            return true;
        }
    return false;
}

// ---------------------------------------------------------------- copies

static cudaError_t refuse(const MemoryCall& call, cudaError_t error, const std::string& sentence) {
    if (!call.checked) return error;
    throw std::runtime_error(place(call.name, call.line) + sentence);
}

// One end of a copy. width: bytes.
static cudaError_t resolve_end(const MemoryCall& call, cudaArray_t* array, cudaPos* first,
                               cudaPitchedPtr* pointer, const cudaExtent& extent) {
    std::size_t pitch = pointer->pitch;
    bool has_rows = extent.height * extent.depth > 1;
    if (!*array && has_rows && extent.width <= pitch && extent.width + first->x > pitch)
        return refuse(call, cudaErrorInvalidValue,
                      std::to_string(extent.width) + " bytes from " + std::to_string(first->x) +
                          " on do not lie in rows of " + std::to_string(pitch) +
                          ". Where an array is copied, a place in memory counts elements as well.");
    if (!*array) return cudaSuccess;
    std::shared_ptr<cudaArray> found = find_array(*array);
    if (!found) return refuse(call, cudaErrorInvalidValue, NO_ARRAY);
    const Grid3& grid = found->grid;
    auto fits = [](std::size_t begin, std::size_t count, std::size_t size) {
        return begin <= size && count <= size - begin;
    };
    auto rows = std::size_t(grid.size[1]), planes = std::size_t(grid.size[2]);
    if (!fits(first->x, extent.width, grid.pitch) || !fits(first->y, extent.height, rows) ||
        !fits(first->z, extent.depth, planes))
        return refuse(call, cudaErrorInvalidValue,
                      product(extent.width, extent.height, extent.depth) +
                          " bytes, rows and planes from " + std::to_string(first->x) + ", " +
                          std::to_string(first->y) + ", " + std::to_string(first->z) +
                          " on do not lie in an array of " + product(grid.pitch, rows, planes) +
                          ".");
    *pointer = {grid.data, grid.pitch, grid.pitch, rows};
    *array = nullptr;
    return cudaSuccess;
}

static cudaError_t check_direction(const MemoryCall& call, bool to_array, bool from_array,
                                   cudaMemcpyKind kind, cudaError_t error) {
    bool to_host = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyHostToHost;
    bool from_host = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyHostToHost;
    if (!(to_array && to_host) && !(from_array && from_host)) return cudaSuccess;
    return refuse(call, error,
                  "an array lies on the device, but its direction says on the host.");
}

static cudaError_t resolve_ends(const MemoryCall& call, cudaMemcpy3DParms* how,
                                cudaError_t wrong_direction) {
    if (cudaError_t error =
            check_direction(call, how->dstArray, how->srcArray, how->kind, wrong_direction))
        return error;
    const cudaExtent& extent = how->extent;
    if (cudaError_t error = resolve_end(call, &how->dstArray, &how->dstPos, &how->dstPtr, extent))
        return error;
    return resolve_end(call, &how->srcArray, &how->srcPos, &how->srcPtr, extent);
}

// With an array in the copy, extents and places count its elements, also where memory is the other
// end: so an H100 does it. (The documentation says bytes there.)
cudaError_t resolve_arrays(const MemoryCall& call, cudaMemcpy3DParms* how) {
    std::size_t element_bytes = 0;
    for (cudaArray_t array : {how->dstArray, how->srcArray})
        if (array) {
            std::shared_ptr<cudaArray> found = find_array(array);
            if (!found) return refuse(call, cudaErrorInvalidValue, NO_ARRAY);
            std::size_t bytes = found->grid.format.bytes();
            if (element_bytes && element_bytes != bytes)
                return refuse(call, cudaErrorInvalidValue,
                              "the two arrays have elements of " + std::to_string(element_bytes) +
                                  " and " + std::to_string(bytes) + " bytes.");
            element_bytes = bytes;
        }
    if (!element_bytes) return cudaSuccess;
    for (std::size_t* count : {&how->extent.width, &how->dstPos.x, &how->srcPos.x})
        *count *= element_bytes;
    return resolve_ends(call, how, cudaErrorInvalidValue);
}

static void put(const CopyEnd& end, std::size_t width, std::size_t rows, cudaArray_t* array,
                cudaPos* first, cudaPitchedPtr* pointer) {
    *array = end.array;
    *first = {end.x, end.y, 0};
    *pointer = {const_cast<void*>(end.pointer), rows > 1 ? end.pitch : width, width, rows};
}

cudaError_t copy_rows(const MemoryCall& call, const CopyEnd& to, const CopyEnd& from,
                      std::size_t width, std::size_t rows, cudaMemcpyKind kind,
                      cudaStream_t stream) {
    cudaMemcpy3DParms how{};
    put(to, width, rows, &how.dstArray, &how.dstPos, &how.dstPtr);
    put(from, width, rows, &how.srcArray, &how.srcPos, &how.srcPtr);
    how.extent = {width, rows, 1};
    how.kind = kind;
    if (cudaError_t error = resolve_ends(call, &how, cudaErrorInvalidMemcpyDirection))
        return result(error);
    return copy(call, &how, stream);
}

cudaError_t copy_in_a_row(const MemoryCall& call, const CopyEnd& to, const CopyEnd& from,
                          std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
    const CopyEnd& end = to.array ? to : from;
    std::shared_ptr<cudaArray> array = find_array(end.array);
    if (!array) return result(refuse(call, cudaErrorInvalidValue, NO_ARRAY));
    const Grid3& grid = array->grid;
    std::size_t first = end.y * grid.pitch + end.x;
    if (grid.shape == Shape::three || grid.has_layers() || first + bytes > grid.bytes())
        return result(refuse(call, cudaErrorInvalidValue,
                             std::to_string(bytes) + " bytes from byte " + std::to_string(first) +
                                 " on do not lie in an array of one or two dimensions that has " +
                                 std::to_string(grid.bytes()) + "."));
    if (cudaError_t error = check_direction(call, to.array, from.array, kind,
                                            cudaErrorInvalidMemcpyDirection))
        return result(error);
    bool is_to = to.array;
    return copy(call, is_to ? grid.data + first : const_cast<void*>(to.pointer),
                is_to ? from.pointer : grid.data + first, bytes, kind, stream);
}

// ---------------------------------------------------------------- objects

const Grid3& TextureObject::grid() const { return array ? array->grid : memory; }

TextureObject* find_object(unsigned long long handle) {
    TextureObject* object = objects[handle % PLACES].load(std::memory_order_acquire);
    return handle && object && object->handle.load(std::memory_order_acquire) == handle ? object
                                                                                       : nullptr;
}

std::string describe_missing(unsigned long long handle) {
    TexturesLock lock(textures().mutex);
    const TextureObject* object = objects[handle % PLACES];
    if (object && handle >= FIRST + PLACES && handle <= object->latest)
        return std::string(object->is_surface ? "a surface" : "a texture") +
               " object that has been destroyed.";
    std::string why = textures().refused.empty() ? "" : " " + textures().refused;
    return std::to_string(handle) + ", which is no object that was created." + why;
}

template <class Fill>
static cudaError_t make_object(unsigned long long* handle, Fill fill) {
    TexturesLock lock(textures().mutex);
    Textures& all = textures();
    std::size_t place = all.places;
    if (place == PLACES) {
        if (all.free_places.empty()) return cudaErrorMemoryAllocation;
        place = all.free_places.front();
        all.free_places.pop_front();
    } else {
        all.places++;
        objects[place] = new TextureObject;
        objects[place].load()->latest = FIRST + place;
    }
    TextureObject& object = *objects[place].load();
    fill(object);
    object.latest += PLACES;
    object.handle.store(object.latest, std::memory_order_release);
    all.refused.clear();
    *handle = object.latest;
    return cudaSuccess;
}

cudaError_t destroy_object(const TextureCall& call, unsigned long long handle, bool is_surface) {
    if (!handle) return cudaSuccess;
    TextureObject* object = find_object(handle);
    if (!object || object->is_surface != is_surface) {
        if (!call.checked) return cudaSuccess;  // as a GPU's driver does
        return refuse(call, cudaErrorInvalidValue,
                      "is given " +
                          (object ? "the other kind of object." : describe_missing(handle)));
    }
    TexturesLock lock(textures().mutex);
    object->handle = 0;
    object->array.reset();
    textures().free_places.push_back(handle % PLACES);
    return cudaSuccess;
}

// Memory of the device that begins where a texture may begin; or a sentence that is refused.
static cudaError_t check_linear(const TextureCall& call, const void* start, std::size_t bytes) {
    MemoryFound found;
    bool is_known = find_memory(start, &found);
    Dl_info module;
    if (!is_known && !dladdr(start, &module))
        return refuse(call, cudaErrorInvalidValue,
                      "is given a pointer to no memory of the device: it takes an array from "
                      "cudaMalloc, or a tensor.");
    if (is_known && !stays_inside(start, bytes, 0))
        return refuse(call, cudaErrorInvalidValue,
                      std::to_string(bytes) + " bytes from " +
                          describe_place(std::uintptr_t(start)) + " on: they do not lie in it.");
    std::size_t offset = is_known ? std::uintptr_t(start) - found.begin : 0;
    if (offset % texture_limits::ALIGNMENT)
        return refuse(call, cudaErrorInvalidValue,
                      "begins at byte " + std::to_string(offset) +
                          " of its memory, which is no multiple of " +
                          std::to_string(texture_limits::ALIGNMENT) + " (textureAlignment).");
    return cudaSuccess;
}

static cudaError_t read_resource(const TextureCall& call, const cudaResourceDesc& given,
                                 std::shared_ptr<cudaArray>* array, Grid3* grid) {
    using namespace texture_limits;
    if (given.flags)
        return refuse(call, cudaErrorInvalidValue,
                      "the flags of a cudaResourceDesc are 0: begin with cudaResourceDesc r = {};");
    if (given.resType == cudaResourceTypeMipmappedArray)
        return refuse(call, cudaErrorNotSupported,
                      "CUDA has mipmapped arrays, the CPU backend does not: make a texture of each "
                      "level, of an array from cudaMallocArray.");
    if (given.resType == cudaResourceTypeArray) {
        *array = find_array(given.res.array.array);
        cudaError_t error =
            given.res.array.array ? cudaErrorInvalidValue : cudaErrorInvalidResourceHandle;
        return *array ? cudaSuccess : refuse(call, error, NO_ARRAY);
    }
    bool is_linear = given.resType == cudaResourceTypeLinear;
    if (!is_linear && given.resType != cudaResourceTypePitch2D)
        return refuse(call, cudaErrorInvalidValue, "the resType is none that CUDA has.");
    const auto& linear = given.res.linear;
    const auto& pitched = given.res.pitch2D;
    std::string fault = read_format(is_linear ? linear.desc : pitched.desc, &grid->format);
    if (!fault.empty()) return refuse(call, cudaErrorInvalidChannelDescriptor, fault);
    std::size_t bytes = grid->format.bytes();
    std::size_t width = is_linear ? linear.sizeInBytes / bytes : pitched.width;
    std::size_t height = is_linear ? 1 : pitched.height;
    const std::size_t most[] = {is_linear ? LINEAR : PITCH_2D[0], is_linear ? 1 : PITCH_2D[1]};
    if (!width || !height || width > most[0] || height > most[1])
        return refuse(call, cudaErrorInvalidValue,
                      product(width, height, 0) + " elements: a texture of such memory has from 1 "
                          "to " + product(most[0], most[1], 0) + ".");
    *grid = {is_linear ? Shape::linear : Shape::two, grid->format, {int(width), int(height), 1},
             is_linear ? width * bytes : pitched.pitchInBytes,
             static_cast<char*>(is_linear ? linear.devPtr : pitched.devPtr)};
    if (!is_linear && (grid->pitch % PITCH_ALIGNMENT || grid->pitch < width * bytes))
        return refuse(call, cudaErrorInvalidValue,
                      "a pitch of " + std::to_string(grid->pitch) +
                          " bytes: it takes a multiple of " + std::to_string(PITCH_ALIGNMENT) +
                          " (texturePitchAlignment), and " +
                          std::to_string(width * bytes) + " at least. cudaMallocPitch gives one.");
    return check_linear(call, grid->data, grid->bytes());
}

static bool is_whole(const cudaResourceViewDesc& view, const Grid3& grid) {
    bool all_layers = !view.firstLayer && (!grid.has_layers() || !view.lastLayer ||
                                           int(view.lastLayer) == grid.size[2] - 1);
    return view.format == cudaResViewFormatNone && all_layers && !view.firstMipmapLevel &&
           !view.lastMipmapLevel;
}

cudaError_t make_texture(const TextureCall& call, cudaTextureObject_t* texture,
                         const cudaResourceDesc* resource, const cudaTextureDesc* how,
                         const cudaResourceViewDesc* view) {
    if (!texture || !resource || !how) return result(cudaErrorInvalidValue);
    std::shared_ptr<cudaArray> array;
    Grid3 memory{};
    if (cudaError_t error = read_resource(call, *resource, &array, &memory)) return error;
    const Grid3& grid = array ? array->grid : memory;
    if (view && !is_whole(*view, grid))
        return refuse(call, cudaErrorNotSupported,
                      "CUDA has views of a part of an array, or of another format, the CPU backend "
                      "does not: give a null pointer, and the array that is meant.");
    bool normalizes = how->readMode == cudaReadModeNormalizedFloat;
    bool may_normalize = !grid.format.is_float() && grid.format.bits < 32;
    if (how->filterMode == cudaFilterModeLinear && !grid.format.is_float() &&
        !(normalizes && may_normalize))
        return refuse(call, cudaErrorInvalidFilterSetting,
                      "linear filtering gives floats, but an element is " + text(grid.format) +
                          (grid.format.bits < 32
                               ? ", and not read as fractions: cudaReadModeNormalizedFloat."
                               : ": take floats, or cudaFilterModePoint."));
    if (normalizes && !may_normalize)
        return refuse(call, cudaErrorInvalidNormSetting,
                      "cudaReadModeNormalizedFloat reads integers of 8 or 16 bits as fractions, but "
                      "an element is " + text(grid.format) + ": cudaReadModeElementType.");
    cudaError_t error = make_object(texture, [&](TextureObject& object) {
        object.is_surface = false;
        object.memory = memory;
        object.array = array;
        object.resource = *resource;
        object.how = *how;
        object.view = view ? *view : cudaResourceViewDesc{};
        for (unsigned axis = 0; axis < 3; axis++) {
            cudaTextureAddressMode mode = how->addressMode[axis];
            bool repeats = mode == cudaAddressModeWrap || mode == cudaAddressModeMirror;
            object.modes[axis] = repeats && !how->normalizedCoords ? cudaAddressModeClamp : mode;
        }
    });
    return result(error);
}

cudaError_t make_surface(const TextureCall& call, cudaSurfaceObject_t* surface,
                         const cudaResourceDesc* resource) {
    if (!surface || !resource) return result(cudaErrorInvalidValue);
    std::shared_ptr<cudaArray> array;
    Grid3 none{};
    if (resource->resType != cudaResourceTypeArray)
        return refuse(call, cudaErrorInvalidValue,
                      "a surface is one of an array from cudaMallocArray (cudaResourceTypeArray).");
    if (cudaError_t error = read_resource(call, *resource, &array, &none)) return error;
    if (!(array->flags & cudaArraySurfaceLoadStore))
        return refuse(call, cudaErrorInvalidValue,
                      "the array was made without cudaArraySurfaceLoadStore: give cudaMallocArray "
                      "that flag.");
    return result(make_object(surface, [&](TextureObject& object) {
        object.is_surface = true;
        object.array = array;
        object.resource = *resource;
    }));
}

}  // namespace cuda_on_cpu

using namespace cuda_on_cpu;

cudaError_t cudaArrayGetInfo(cudaChannelFormatDesc* element, cudaExtent* extent, unsigned* flags,
                             cudaArray_t array) {
    std::shared_ptr<cudaArray> found = find_array(array);
    if (!found) return result(cudaErrorInvalidValue);
    if (element) *element = found->grid.format.description;
    if (extent) *extent = found->extent;
    if (flags) *flags = found->flags;
    return cudaSuccess;
}

cudaError_t cudaGetChannelDesc(cudaChannelFormatDesc* element, cudaArray_const_t array) {
    return cudaArrayGetInfo(element, nullptr, nullptr, const_cast<cudaArray_t>(array));
}

template <class T>
static cudaError_t answer(T* given, unsigned long long handle, bool is_surface,
                          T TextureObject::*what) {
    TextureObject* object = find_object(handle);
    if (!given || !object || object->is_surface != is_surface) return result(cudaErrorInvalidValue);
    *given = object->*what;
    return cudaSuccess;
}

cudaError_t cudaGetTextureObjectResourceDesc(cudaResourceDesc* resource,
                                             cudaTextureObject_t texture) {
    return answer(resource, texture, false, &TextureObject::resource);
}

cudaError_t cudaGetTextureObjectTextureDesc(cudaTextureDesc* how, cudaTextureObject_t texture) {
    return answer(how, texture, false, &TextureObject::how);
}

cudaError_t cudaGetTextureObjectResourceViewDesc(cudaResourceViewDesc* view,
                                                 cudaTextureObject_t texture) {
    return answer(view, texture, false, &TextureObject::view);
}

cudaError_t cudaGetSurfaceObjectResourceDesc(cudaResourceDesc* resource,
                                             cudaSurfaceObject_t surface) {
    return answer(resource, surface, true, &TextureObject::resource);
}

cudaError_t cudaDeviceGetTexture1DLinearMaxWidth(std::size_t* elements,
                                                 const cudaChannelFormatDesc* element, int) {
    if (!elements || !element) return result(cudaErrorInvalidValue);
    *elements = texture_limits::LINEAR;
    return cudaSuccess;
}
