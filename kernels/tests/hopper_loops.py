"""A kernel file's text in which plain loops do what TMA and wgmma do on sm_90a.

The CPU backend knows neither. With these it runs the way that a build for sm_90a takes: its rings
of stages, its barriers, what it asks of TMA and where wgmma reads, every access checked. What the
loops do is NVIDIA's: PTX ISA, "im2col mode" and "matrix descriptor"; CUDA driver API, "tensor
map", whose limits they check.
"""

import re

from helpers.base.machine import ROOT
from helpers.cuda_on_cpu.scanner import Source

# In the place of cuda.h.
DRIVER = """
using cuuint64_t = uint64_t;
using cuuint32_t = uint32_t;
enum { CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE };
enum { CU_TENSOR_MAP_DATA_TYPE_UINT16, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
       CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
       CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE };
struct TensorMap {
    const unsigned short* data;
    int64_t sizes[4], strides[4];  // numbers; the first stride is 1
    int before[2], behind[2];      // corners of the box, in columns and rows
    int rows;                      // that one copy brings
};
static bool set_map(TensorMap* map, int rank, void* data, const uint64_t* sizes,
                    const uint64_t* strides, const uint32_t* steps, int64_t rows) {
    *map = {static_cast<unsigned short*>(data), {1, 1, 1, 1}, {1}, {}, {}, int(rows)};
    bool fits = reinterpret_cast<uintptr_t>(data) % 16 == 0;
    for (int i = 0; i < rank; i++) {
        map->sizes[i] = sizes[i];
        fits = fits && sizes[i] > 0 && sizes[i] <= 1ull << 32 && steps[i] == 1;
        if (i == 0) continue;
        map->strides[i] = strides[i - 1] / 2;
        fits = fits && strides[i - 1] % 16 == 0 && strides[i - 1] < 1ull << 40;
    }
    return fits;
}
static int encode_tiled(TensorMap* map, int, int rank, void* data, const uint64_t* sizes,
                        const uint64_t* strides, const uint32_t* box, const uint32_t* steps, int,
                        int, int, int) {
    bool fits = set_map(map, rank, data, sizes, strides, steps, box[rank - 1]);
    for (int i = 0; i < rank; i++) fits = fits && box[i] > 0 && box[i] <= 256;
    fits = fits && box[0] == 64 && box[1] == 1;  // what load_weight below brings
    return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
static int encode_im2col(TensorMap* map, int, int rank, void* data, const uint64_t* sizes,
                         const uint64_t* strides, const int* before, const int* behind,
                         uint32_t channels, uint32_t pixels, const uint32_t* steps, int, int, int,
                         int) {
    bool fits = set_map(map, rank, data, sizes, strides, steps, pixels) && channels == 64 &&
                pixels <= 1024;
    for (int i = 0; i < 2; i++) {
        map->before[i] = before[i], map->behind[i] = behind[i];
        fits = fits && std::min(before[i], behind[i]) >= -128 &&
               std::max(before[i], behind[i]) < 128 &&
               before[i] <= int64_t(sizes[i + 1]) - 1 + behind[i];
    }
    return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
// A GPU that few tiles fill
static cudaError_t two_processors(int* value, cudaDeviceAttr which, int device) {
    cudaError_t error = cudaDeviceGetAttribute(value, which, device);
    if (which == cudaDevAttrMultiProcessorCount) *value = 2;
    return error;
}
#define cudaDeviceGetAttribute two_processors
// shared memory, its 16 bytes swizzled by bits of their address
static __device__ unsigned short* swizzled(unsigned at) {
    at ^= at >> 3 & 0x70;
    return static_cast<unsigned short*>(__cvta_shared_to_generic(at));
}
"""
# Bodies of functions, by their names.
BODIES = {
    "driver_function": """
    return strcmp(name, "TensorMapEncodeIm2col") ? reinterpret_cast<void*>(&encode_tiled)
                                                 : reinterpret_cast<void*>(&encode_im2col);
""",
    "arrive_and_expect": " left = bytes; ",
    "wait": """
    unsigned done = 0;
    while (!done) {
        asm volatile("{ .reg .pred p;\\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\\n"
                     "selp.u32 %0, 1, 0, p; }"
                     : "=r"(done) : "r"(shared_at(this)), "r"(phase) : "memory");
        if (!done) __nanosleep(1);
    }
""",
    "load_window": """
    for (int p = 0; p < map.rows; p++) {
        bool inside = x >= 0 && x < map.sizes[1] && y >= 0 && y < map.sizes[2] && n < map.sizes[3];
        int64_t from = x * map.strides[1] + y * map.strides[2] + n * map.strides[3];
        for (int e = 0; e < 64; e++)
            *swizzled(to + p * 128 + e * 2) =
                inside && c + e < map.sizes[0] ? map.data[from + c + e] : 0;
        if (++x < map.sizes[1] + map.behind[0]) continue;
        x = map.before[0];
        if (++y < map.sizes[2] + map.behind[1]) continue;
        y = map.before[1], n++;
    }
    full.came(map.rows * 128);
""",
    "load_weight": """
    for (int r = 0; r < map.rows; r++) {
        bool inside = tap < map.sizes[1] && filter + r < map.sizes[2];
        int64_t from = tap * map.strides[1] + (filter + r) * map.strides[2];
        for (int e = 0; e < 64; e++)
            *swizzled(to + r * 128 + e * 2) =
                inside && c + e < map.sizes[0] ? map.data[from + c + e] : 0;
    }
    full.came(map.rows * 128);
""",
    "multiply_tiles": """
    auto number = [](uint64_t told, bool across, int i, int k) {
        unsigned at = (told & 0x3fff) << 4, apart = (told >> 16 & 0x3fff) << 4;
        unsigned eight = (told >> 32 & 0x3fff) << 4;
        at += across ? i / 64 * apart + i % 64 * 2 + k / 8 * eight + k % 8 * 128
                     : i / 8 * eight + i % 8 * 128 + k * 2;
        return float(*reinterpret_cast<const T*>(swizzled(at)));
    };
    int lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
    float rows[2][16];
    for (int i = 0; i < 32; i++)
        rows[i / 16][i % 16] = number(a, A_ACROSS, warp * 16 + lane / 4 + i / 16 * 8, i % 16);
    for (int col = lane % 4 * 2; col < COLS; col += col % 2 ? 7 : 1)
        for (int k = 0; k < 16; k++) {
            float x = number(b, B_ACROSS, col, k);
            for (int h = 0; h < 2; h++) d[col / 8 * 4 + h * 2 + col % 2] += rows[h][k] * x;
        }
""",
}


# Words, in this order. wgmma ends for all of a warpgroup at once, of which one thread tells; loops
# do not, so that all threads tell.
WORDS = {
    "#ifdef __CUDACC_VER_MAJOR__": "#if 1",
    "#ifdef __CUDA_ARCH_FEAT_SM90_ALL": "#if 1",
    "#include <cuda.h>": "#include <cstring>" + DRIVER,
    "uint64_t state;": """uint64_t state;
    int left;
    __device__ void came(int bytes) { if (!(left -= bytes)) arrive(); }
""",
    "built.sharedSizeBytes == 0": "false",
    "bool tells = threadIdx.x % WARPGROUP == 0;": "bool tells = true;",
    "CONSUMERS : 1)": "CONSUMERS * 128 : 1)",
    "init(Of::CONSUMERS)": "init(Of::CONSUMERS * 128)",
    "CUtensorMap": "TensorMap",
    "cuTensorMap": "TensorMap",
    "decltype(&TensorMapEncodeIm2col)": "decltype(&encode_im2col)",
    "decltype(&TensorMapEncodeTiled)": "decltype(&encode_tiled)",
}
WAITS = r'asm volatile\("wgmma\.\w+\.sync[^;]*;"[^;]*\);'  # for products


def with_loops(op: str) -> str:
    """Return the text of kernels/<op>.cu for the CPU backend, as a build for sm_90a.

    It has to have what is replaced: the functions of BODIES, and WORDS.
    """
    text = re.sub(WAITS, "", (ROOT / "kernels" / f"{op}.cu").read_text())
    text = text.replace(" wgmma(", " multiply_tiles(").replace(" wgmma<", " multiply_tiles<")
    left = set(BODIES)
    for function in reversed(Source(text).functions):
        if function.body and function.name in BODIES:
            begin, end = function.body
            text = f"{text[: begin + 1]}{BODIES[function.name]}{text[end - 1 :]}"
            left.discard(function.name)
    assert not left, f"{op} lacks {left}"
    for word, other in WORDS.items():
        assert word in text, f"{op} lacks {word}"
        text = text.replace(word, other)
    return text
