// What a kernel reads through a texture, and reads and writes through a surface.
//
// The formulas are those of CUDA's programming guide, "Texture Fetching". Where it is silent, what
// the project pantheonsim has measured on an RTX 3060 holds (its nvidia/docs/textures.md): how
// fractions and weights are rounded, what is mixed as integers, what becomes of a border's color,
// which layer a negative index means. Left out of it: a float far smaller than another one of a
// mixture loses its last digits there, sRGB is a table, and the smallest floats are 0.
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>

#include "checker.h"
#include "textures.h"

#define CALLER __builtin_return_address(0)

namespace cuda_on_cpu {

// What all of one access share, for its errors, checks and counts.
struct Fetch {
    const char* function;
    const void* code;  // that it returns to
    unsigned long long handle;
    std::uintptr_t texels[8] = {};  // that were told
    unsigned count = 0;

    [[noreturn, gnu::cold, gnu::noinline]] void fail(const std::string& sentence) const;
    const TextureObject& find(bool is_surface, Shape shape) const;
    void check_numbers(const TextureObject& texture, Wanted wanted) const;
    [[noreturn, gnu::cold, gnu::noinline]] void fail_for_numbers(const TextureObject& texture,
                                                                 Wanted wanted) const;
    void tell(const TextureObject& object, const void* at, std::size_t bytes, AccessKind kind);
    void end(const TextureObject& object, std::size_t bytes, AccessKind kind) const;
};

void Fetch::fail(const std::string& sentence) const {
    Quiet quiet;
    std::string all = std::string(function) + " " + sentence;
    Multiprocessor* here = Multiprocessor::running();
    if (!here) throw std::runtime_error(all);
    here->fail_at(Checks::line(code), {}, all);
}

static const char* const TEXTURE_FUNCTIONS[] = {"tex1Dfetch", "tex1D",        "tex2D",
                                                "tex3D",      "tex1DLayered", "tex2DLayered"};

static const char* const SURFACE_FUNCTIONS[][2] = {
    {"", ""},
    {"surf1Dread", "surf1Dwrite"},
    {"surf2Dread", "surf2Dwrite"},
    {"surf3Dread", "surf3Dwrite"},
    {"surf1DLayeredread", "surf1DLayeredwrite"},
    {"surf2DLayeredread", "surf2DLayeredwrite"},
};

static const char* describe(Shape shape) {
    static const char* const texts[] = {"linear memory",  "an array of one dimension",
                                        "two dimensions", "an array of three dimensions",
                                        "1D layers",      "2D layers"};
    return texts[unsigned(shape)];
}

const TextureObject& Fetch::find(bool is_surface, Shape shape) const {
    if (!Multiprocessor::running()) fail("is a function of kernels: the host cannot call it.");
    const TextureObject* object = find_object(handle);
    if (!object) fail("is given " + describe_missing(handle));
    if (object->is_surface != is_surface)
        fail(is_surface ? "is given a texture object; it takes a surface object."
                        : "is given a surface object; it takes a texture object.");
    const Grid3& grid = object->grid();
    if (!grid.data) fail("is given an object of an array that has been freed.");
    // NVIDIA's samples make tables of one row with a height of 1, and read them by tex1D.
    bool is_row = shape == Shape::one && grid.shape == Shape::two && grid.size[1] == 1;
    if (grid.shape != shape && !is_row)
        fail("is for " + std::string(describe(shape)) + ", but the " +
             (is_surface ? "surface" : "texture") + " is one of " + describe(grid.shape) + ": " +
             (is_surface ? SURFACE_FUNCTIONS[unsigned(grid.shape)][0]
                         : TEXTURE_FUNCTIONS[unsigned(grid.shape)]) +
             ".");
    return *object;
}

void Fetch::check_numbers(const TextureObject& texture, Wanted wanted) const {
    bool is_right = wanted.floats == texture.gives_floats();
    if (!is_right || wanted.count > texture.grid().format.count) fail_for_numbers(texture, wanted);
}

void Fetch::fail_for_numbers(const TextureObject& texture, Wanted wanted) const {
    const Format& format = texture.grid().format;
    std::string is = ", but an element of the texture is " + text(format) + ".";
    if (wanted.floats == texture.gives_floats())
        fail("reads " + std::to_string(wanted.count) + " numbers" + is);
    if (wanted.floats && format.bits < 32)
        fail("reads floats" + is + " With cudaReadModeNormalizedFloat it is a fraction.");
    if (texture.is_normalized())
        fail("reads integers, but cudaReadModeNormalizedFloat gives floats.");
    fail((wanted.floats ? "reads floats" : "reads integers") + is);
}

static KernelArray memory_of(const TextureObject& object) {
    const Grid3& grid = object.grid();
    auto begin = std::uintptr_t(grid.data);
    std::size_t element_bytes = grid.format.bytes();
    KernelArray memory{begin, grid.bytes(), false, "", begin, element_bytes, 1, {}, true};
    if (object.array) {
        memory.name = "the CUDA array";
        for (unsigned axis = 0; axis < 3; axis++)
            if (grid.size[axis] > 1 || axis == 0) memory.rank = axis + 1;
        for (unsigned i = 0; i < memory.rank; i++)
            memory.extents[i] = std::size_t(grid.size[memory.rank - 1 - i]);
    }
    return memory;
}

void Fetch::tell(const TextureObject& object, const void* at, std::size_t bytes, AccessKind kind) {
    Checker* checker = checker_here;
    if (!checker) return;
    texels[count++] = std::uintptr_t(at);
    checker->access_texture(memory_of(object), std::uintptr_t(at), unsigned(bytes), kind, code,
                            object.is_surface ? "a surface" : "a texture");
}

// All texels have been told.
void Fetch::end(const TextureObject& object, std::size_t bytes, AccessKind kind) const {
    Checker* checker = checker_here;
    if (!checker || !checker->counts()) return;
    checker->count_texture(memory_of(object), texels, count, unsigned(bytes), kind, code,
                           object.is_surface ? MemorySpace::surface : MemorySpace::texture, handle);
}

// ---------------------------------------------------------------- elements

static unsigned bits_of(float x) {
    unsigned bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}
static float float_of(unsigned bits) {
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}
// Of 16 bits: a sign, 5 of the exponent, 10 of the mantissa.
static float half_of(unsigned bits) {
    unsigned sign = (bits & 0x8000) << 16, exponent = bits >> 10 & 31, mantissa = bits & 0x3ff;
    if (exponent == 31) return float_of(sign | 0x7f800000 | mantissa << 13);
    if (exponent == 0) return (sign ? -0x1p-24f : 0x1p-24f) * float(mantissa);
    return float_of(sign | (exponent + 112) << 23 | mantissa << 13);
}

// Rounded to the nearest, ties away from 0, as all that textures round.
static float to_float(double x) {
    constexpr std::uint64_t DROPPED = 29;  // digits
    if (!(std::fabs(x) >= FLT_MIN && std::fabs(x) <= FLT_MAX)) return float(x);
    std::uint64_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    bits = (bits + (1ull << (DROPPED - 1))) >> DROPPED << DROPPED;
    std::memcpy(&x, &bits, sizeof bits);
    return float(x);
}
static float to_half(double x) {
    constexpr int DIGITS = 11, LEAST = -14;  // exponent
    if (!std::isfinite(x) || x == 0) return float(x);
    double unit = std::ldexp(1.0, std::max(std::ilogb(x), LEAST) - DIGITS + 1);
    return float(std::round(x / unit) * unit);
}

// The border's color as a number of the texture: an integer has the lowest bits of the float.
static int border_code(const TextureObject& texture, unsigned i) {
    const Format& format = texture.grid().format;
    float color = texture.how.borderColor[i];
    if (!texture.is_normalized()) return int(bits_of(color));
    unsigned magnitude = format.bits - format.is_signed(), digits = magnitude + 4;
    float least = format.is_signed() ? -1.0f : 0.0f;
    float clamped = color > least ? std::fmin(color, 1.0f) : std::isnan(color) ? 0 : least;
    auto fixed = std::int64_t(std::ldexp(std::fabs(double(clamped)), int(digits)));
    std::int64_t largest = (std::int64_t{1} << magnitude) - 1, half = std::int64_t{8} << magnitude;
    auto code = int((fixed * largest + half - 1) >> digits);
    return clamped < 0 ? -code : code;
}

// Number i of an element, or of the border (null), as it is stored: an integer, or a float's bits.
static int code_at(const TextureObject& texture, const char* element, unsigned i) {
    const Format& format = texture.grid().format;
    int code = 0;
    if (element)
        std::memcpy(&code, element + i * format.bits / 8, format.bits / 8);
    else
        code = border_code(texture, i);
    if (format.bits == 32 || format.is_float()) return code;
    unsigned unused = 32 - format.bits;
    return format.is_signed() ? int(unsigned(code) << unused) >> unused
                              : int(unsigned(code) << unused >> unused);
}

static double float_at(const TextureObject& texture, const char* element, unsigned i) {
    const Format& format = texture.grid().format;
    if (!element && format.bits == 16) {  // towards 0
        double color = texture.how.borderColor[i], rounded = to_half(color);
        constexpr double LARGEST = 65504, DIGIT = 0x1p-11;
        if (std::fabs(rounded) > std::fabs(color)) rounded = to_half(color * (1 - DIGIT));
        return std::isinf(color) ? color : std::fmax(std::fmin(rounded, LARGEST), -LARGEST);
    }
    int code = code_at(texture, element, i);
    return format.bits == 16 ? half_of(unsigned(code)) : float_of(unsigned(code));
}

// sRGB is the encoding of colors, not of the fourth number.
static bool is_encoded(const TextureObject& texture, unsigned i) {
    const Format& format = texture.grid().format;
    return texture.how.sRGB && format.bits == 8 && !format.is_signed() && i < 3;
}

static double fraction_at(const TextureObject& texture, const char* element, unsigned i) {
    const Format& format = texture.grid().format;
    double largest = double((1u << (format.bits - format.is_signed())) - 1);
    double fraction = std::fmax(code_at(texture, element, i) / largest, -1);  // of -128, say
    if (!is_encoded(texture, i)) return fraction;
    return fraction <= 0.04045 ? fraction / 12.92 : std::pow((fraction + 0.055) / 1.055, 2.4);
}

// As a fetch gives it: a float's bits, or an integer.
static unsigned number_at(const TextureObject& texture, const char* element, unsigned i) {
    if (texture.is_normalized()) return bits_of(float(fraction_at(texture, element, i)));
    if (texture.grid().format.is_float()) return bits_of(float(float_at(texture, element, i)));
    return unsigned(code_at(texture, element, i));
}

// ---------------------------------------------------------------- places

// A coordinate that no int holds is far outside all the same. (The C library's floor() is a call.)
static int floor_of(float x) {
    constexpr float FAR = 1 << 30;
    if (!(x > -FAR)) return x < 0 ? -int(FAR) : 0;
    if (x > FAR) return int(FAR);
    int cut = int(x);
    return cut - (float(cut) > x);
}

constexpr int OUTSIDE = -1;

static int index_of(int i, int size, cudaTextureAddressMode mode) {
    if (i >= 0 && i < size) return i;
    switch (mode) {
        case cudaAddressModeBorder: return OUTSIDE;
        case cudaAddressModeWrap: return (i % size + size) % size;
        case cudaAddressModeMirror: {
            int at = (i % (2 * size) + 2 * size) % (2 * size);
            return at < size ? at : 2 * size - 1 - at;
        }
        default: return i < 0 ? 0 : size - 1;
    }
}

// The elements along one axis that a fetch mixes, and what of 256 the second one has.
struct Taps {
    int index[2] = {0, 0};
    int upper = 0;
};
constexpr int WHOLE = 256;

// x in elements, from where the first one begins.
static float in_elements(const TextureObject& texture, unsigned axis, float x) {
    if (!texture.how.normalizedCoords) return x;
    int whole = floor_of(x);
    cudaTextureAddressMode mode = texture.modes[axis];
    if (mode == cudaAddressModeWrap || mode == cudaAddressModeMirror) x -= float(whole);
    if (mode == cudaAddressModeMirror && whole % 2) x = 1 - x;
    return x * float(texture.grid().size[axis]);
}

enum class Reads { one, mixture, four };  // elements: of four, none is left out

static Taps taps_of(const TextureObject& texture, unsigned axis, float x, Reads reads) {
    x = in_elements(texture, axis, x);
    int size = texture.grid().size[axis];
    cudaTextureAddressMode mode = texture.modes[axis];
    if (reads == Reads::one) return {{index_of(floor_of(x), size, mode), 0}};
    if (mode == cudaAddressModeClamp && reads == Reads::mixture)
        x = x > 0.5f ? std::fmin(x, float(size) - 0.5f) : 0.5f;
    x -= 0.5f;
    int first = floor_of(x);
    float fraction = x - float(first);
    int upper = fraction >= 0 && fraction <= 1 ? int(double(fraction) * WHOLE + 0.5) : 0;
    if (upper == WHOLE) first++, upper = 0;
    return {{index_of(first, size, mode), index_of(first + 1, size, mode)}, upper};
}

// What a fetch reads: z is the layer where there are layers.
struct Footprint {
    Taps x, y, z;

    Footprint(const TextureObject& texture, Shape shape, const TexturePlace& place, Reads reads)
        : x(taps_of(texture, 0, place.x, reads)) {
        const Grid3& grid = texture.grid();
        // One dimension is a row, whose y is 0: half of that is a border's, if y has one.
        bool is_row = shape == Shape::one;
        bool has_rows = shape != Shape::one_layered && !(is_row && reads == Reads::one);
        if (has_rows) y = taps_of(texture, 1, is_row ? 0 : place.y, reads);
        if (shape == Shape::three) z = taps_of(texture, 2, place.z, reads);
        if (grid.has_layers())
            z.index[0] = int(std::min(unsigned(place.layer), unsigned(grid.size[2] - 1)));
    }
};

// The eight weights, x running fastest: integers that are 256 together, split axis by axis.
static void split(const Footprint& at, int (&weights)[8]) {
    auto share = [](int weight, int part) { return (weight * part + WHOLE / 2) / WHOLE; };
    for (int z = 0; z < 2; z++) {
        int* plane = weights + 4 * z;
        int all = z ? at.z.upper : WHOLE - at.z.upper;
        int right = share(all, at.x.upper), left = all - right;
        plane[3] = share(right, at.y.upper);
        plane[1] = right - plane[3];
        plane[0] = share(left, WHOLE - at.y.upper);
        plane[2] = left - plane[0];
    }
}

// Null: the border.
static const char* element_at(Fetch& fetch, const TextureObject& texture, int x, int y,
                              int z) {
    if (x == OUTSIDE || y == OUTSIDE || z == OUTSIDE) return nullptr;
    const Grid3& grid = texture.grid();
    const char* element = grid.at(x, y, z);
    fetch.tell(texture, element, grid.format.bytes(), AccessKind::load);
    return element;
}

// ---------------------------------------------------------------- fetches

// Elements with their weights, of which there are `count`.
struct Mixed {
    const char* element[8];
    int weight[8];
    unsigned count;
};

// Fractions are mixed as integers of 16 bits.
static float mix_integers(const TextureObject& texture, const Mixed& mixed, unsigned i) {
    const Format& format = texture.grid().format;
    int sum = 0;
    for (unsigned k = 0; k < mixed.count; k++)
        sum += mixed.weight[k] * code_at(texture, mixed.element[k], i);
    if (!format.is_signed()) {
        if (format.bits == 8) sum *= 257;
        return float(((sum + WHOLE / 2) >> 8) / 65535.0);
    }
    int whole = format.bits == 8 ? sum + ((257 * (sum >> 4) + 1024) >> 11) : (sum + WHOLE / 2) >> 8;
    return float(std::max(whole, -32767) / 32767.0);
}

static float mix_floats(const TextureObject& texture, const Mixed& mixed, unsigned i) {
    bool are_fractions = texture.is_normalized();
    double sum = 0;
    for (unsigned k = 0; k < mixed.count; k++)
        sum += mixed.weight[k] * (are_fractions ? fraction_at(texture, mixed.element[k], i)
                                                : float_at(texture, mixed.element[k], i));
    bool are_halves = !are_fractions && texture.grid().format.bits == 16;
    return are_halves ? to_half(sum / WHOLE) : to_float(sum / WHOLE);
}

void fetch(unsigned* numbers, cudaTextureObject_t handle, Wanted wanted, TexturePlace place) {
    Fetch fetch{TEXTURE_FUNCTIONS[unsigned(wanted.shape)], CALLER, handle};
    const TextureObject& texture = fetch.find(false, wanted.shape);
    fetch.check_numbers(texture, wanted);
    Reads reads = texture.is_linear() ? Reads::mixture : Reads::one;
    Footprint at(texture, wanted.shape, place, reads);
    if (reads == Reads::one) {
        const char* element =
            element_at(fetch, texture, at.x.index[0], at.y.index[0], at.z.index[0]);
        for (unsigned i = 0; i < wanted.count; i++) numbers[i] = number_at(texture, element, i);
        return fetch.end(texture, texture.grid().format.bytes(), AccessKind::load);
    }
    int weights[8];
    split(at, weights);
    Mixed mixed{{}, {}, 0};
    for (unsigned tap = 0; tap < 8; tap++) {
        if (!weights[tap]) continue;  // an element that counts for nothing is not read
        mixed.weight[mixed.count] = weights[tap];
        mixed.element[mixed.count++] =
            element_at(fetch, texture, at.x.index[tap & 1], at.y.index[tap >> 1 & 1],
                       at.z.index[tap >> 2]);
    }
    for (unsigned i = 0; i < wanted.count; i++) {
        bool as_integers = texture.is_normalized() && !is_encoded(texture, i);
        numbers[i] = bits_of(as_integers ? mix_integers(texture, mixed, i)
                                         : mix_floats(texture, mixed, i));
    }
    fetch.end(texture, texture.grid().format.bytes(), AccessKind::load);
}

// Behind the end there are zeros.
void fetch_linear(unsigned* numbers, cudaTextureObject_t handle, Wanted wanted, int x) {
    Fetch fetch{TEXTURE_FUNCTIONS[unsigned(Shape::linear)], CALLER, handle};
    const TextureObject& texture = fetch.find(false, Shape::linear);
    fetch.check_numbers(texture, wanted);
    bool is_inside = x >= 0 && x < texture.grid().size[0];
    const char* element = is_inside ? element_at(fetch, texture, x, 0, 0) : nullptr;
    for (unsigned i = 0; i < wanted.count; i++)
        numbers[i] = element ? number_at(texture, element, i) : 0;
    fetch.end(texture, texture.grid().format.bytes(), AccessKind::load);
}

// Against the clock from the lower left one, y pointing down: the order of PTX's tld4.
void gather(unsigned* numbers, cudaTextureObject_t handle, Wanted wanted, TexturePlace place,
            int number) {
    Fetch fetch{"tex2Dgather", CALLER, handle};
    const TextureObject& texture = fetch.find(false, Shape::two);
    bool is_allowed = texture.array && texture.array->flags & cudaArrayTextureGather;
    if (!is_allowed) fetch.fail("is for an array that was made with cudaArrayTextureGather.");
    fetch.check_numbers(texture, {wanted.shape, 1, wanted.floats});
    if (unsigned(number) >= texture.grid().format.count)
        fetch.fail("is asked for number " + std::to_string(number) + " of an element, which is " +
                   text(texture.grid().format) + ".");
    Footprint at(texture, Shape::two, place, Reads::four);
    constexpr unsigned ORDER[4][2] = {{0, 1}, {1, 1}, {1, 0}, {0, 0}};
    for (unsigned i = 0; i < wanted.count; i++) {
        const char* element = element_at(fetch, texture, at.x.index[ORDER[i][0]],
                                         at.y.index[ORDER[i][1]], 0);
        numbers[i] = number_at(texture, element, unsigned(number));
    }
    fetch.end(texture, texture.grid().format.bytes(), AccessKind::load);
}

// ---------------------------------------------------------------- surfaces

// Null: outside, where a read gives 0 and a write is none.
static char* find_in_surface(Fetch& fetch, unsigned bytes, Shape shape, SurfacePlace place,
                             cudaSurfaceBoundaryMode mode, AccessKind kind) {
    const TextureObject& surface = fetch.find(true, shape);
    const Grid3& grid = surface.grid();
    int row_bytes = int(grid.pitch);
    if (place.x % int(bytes))
        fetch.fail("is given x = " + std::to_string(place.x) + ", which counts bytes and is no "
                   "multiple of the " + std::to_string(bytes) + " of its type: x * sizeof(T).");
    int fitting = row_bytes / int(bytes) * int(bytes) - int(bytes);
    int last[] = {fitting, grid.size[1] - 1, grid.size[2] - 1};
    int at[] = {place.x, place.y, place.z};
    for (unsigned axis = 0; axis < 3; axis++) {
        if (at[axis] >= 0 && at[axis] <= last[axis]) continue;
        if (mode == cudaBoundaryModeZero || last[axis] < 0) {
            fetch.end(surface, bytes, kind);
            return nullptr;
        }
        if (mode != cudaBoundaryModeClamp)
            fetch.fail("is given " + std::string(1, "xyz"[axis]) + " = " +
                       std::to_string(at[axis]) + ", but " +
                       (axis ? "there it ends at " + std::to_string(last[axis]) + "."
                             : "x counts bytes, and a row has " + std::to_string(row_bytes) +
                                   " of them."));
        bool is_layer = axis == 2 && grid.has_layers();  // counted without a sign
        at[axis] = at[axis] < 0 && !is_layer ? 0 : last[axis];
    }
    char* found = grid.at(0, at[1], at[2]) + at[0];
    fetch.tell(surface, found, bytes, kind);
    fetch.end(surface, bytes, kind);
    return found;
}

void read_surface(void* value, unsigned bytes, cudaSurfaceObject_t handle, Shape shape,
                  SurfacePlace place, cudaSurfaceBoundaryMode mode) {
    Fetch fetch{SURFACE_FUNCTIONS[unsigned(shape)][0], CALLER, handle};
    const char* from = find_in_surface(fetch, bytes, shape, place, mode, AccessKind::load);
    from ? std::memcpy(value, from, bytes) : std::memset(value, 0, bytes);
}

void write_surface(const void* value, unsigned bytes, cudaSurfaceObject_t handle, Shape shape,
                   SurfacePlace place, cudaSurfaceBoundaryMode mode) {
    Fetch fetch{SURFACE_FUNCTIONS[unsigned(shape)][1], CALLER, handle};
    char* to = find_in_surface(fetch, bytes, shape, place, mode, AccessKind::store);
    if (to) std::memcpy(to, value, bytes);
}

}  // namespace cuda_on_cpu
