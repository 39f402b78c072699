// What stands for a kernel file's part on wgmma and TMA where the CPU backend runs it:
// see hopper.py. Products that are started are made as late as they may be, when they
// are waited for: what is overwritten too early, or read, shows in the result.
#include <functional>
#include <vector>

constexpr int WARPGROUP = 128, LINE = 128;

static __device__ unsigned shared_at(const void* p) {
    return __cvta_generic_to_shared(p);
}

// where the 128-byte swizzle puts two bytes
static __device__ unsigned short* swizzled(unsigned at) {
    at ^= at >> 3 & 0x70;
    return static_cast<unsigned short*>(__cvta_shared_to_generic(at));
}

struct FlashBarrier {
    uint64_t state;
    int expected;  // bytes: their last brings the arrival
    __device__ void init(int threads) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
                     :: "r"(shared_at(this)), "r"(threads));
    }
    __device__ void arrive() {
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];"
                     :: "r"(shared_at(this)) : "memory");
    }
    __device__ void arrive_by_warp() {
        if (threadIdx.x % 32 == 0) arrive();
    }
    __device__ void arrive_and_expect(int bytes) { expected = bytes; }
    __device__ void wait(int phase) {
        asm volatile("{ .reg .pred done;\nAGAIN:\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                     "@!done bra AGAIN; }"
                     :: "r"(shared_at(this)), "r"(phase) : "memory");
    }
};

static __device__ void show_barriers() {}

struct FlashTurn {
    int stage = 0, phase = 0;
    __device__ void next(int stages) {
        if (++stage == stages) stage = 0, phase ^= 1;
    }
};

struct BoxMap {
    const unsigned short* numbers;
    int64_t heads, rows, columns;
    int box_rows;
};

static __device__ void load_box(unsigned to, const BoxMap& map, FlashBarrier& full,
                                int column, int row, int head) {
    for (int i = 0; i < map.box_rows * 64; i++) {
        int64_t y = row + i / 64, x = column + i % 64;
        bool inside = y >= 0 && y < map.rows && x < map.columns && head < map.heads;
        int64_t at = (head * map.rows + y) * map.columns + x;
        *swizzled(to + i * 2) = inside ? map.numbers[at] : 0;
    }
    full.expected -= map.box_rows * LINE;
    if (full.expected < 0) __trap();  // more than was told of
    if (full.expected == 0) full.arrive();
}

static __device__ void load_bytes(unsigned to, const void* from, FlashBarrier& full,
                                  int bytes) {
    if (to % 16 || bytes % 16 || reinterpret_cast<uintptr_t>(from) % 16) __trap();
    memcpy(__cvta_shared_to_generic(to), from, bytes);
    full.expected -= bytes;
    if (full.expected < 0) __trap();
    if (full.expected == 0) full.arrive();
}

static __device__ void add_four(float4* to, const float* x) {
    atomicAdd(&to->x, x[0]), atomicAdd(&to->y, x[1]);
    atomicAdd(&to->z, x[2]), atomicAdd(&to->w, x[3]);
}

// a descriptor, as wgmma reads it
template <bool ALONG, int ROWS> __device__ uint64_t describe(unsigned at) {
    return (at & 0x3ffff) >> 4 | uint64_t(ALONG ? 1 : ROWS * LINE >> 4) << 16 |
           uint64_t(1024 >> 4) << 32 | uint64_t(1) << 62;
}

template <typename T, bool ALONG>
__device__ float number(uint64_t described, int row, int k) {
    unsigned at = (described & 0x3fff) << 4, box = (described >> 16 & 0x3fff) << 4;
    unsigned eight = (described >> 32 & 0x3fff) << 4;
    at += ALONG ? row / 8 * eight + row % 8 * LINE + k * 2
                : row / 64 * box + row % 64 * 2 + k / 8 * eight + k % 8 * LINE;
    return float(*reinterpret_cast<T*>(swizzled(at)));
}

// what a thread has started, group by group; the last one is not ended
using Groups = std::vector<std::vector<std::function<void()>>>;
static __device__ Groups& groups() {
    static Groups of_all[64][1024];
    unsigned multiprocessor;
    asm("mov.u32 %0, %smid;" : "=r"(multiprocessor));
    return of_all[multiprocessor][threadIdx.x];
}

static __device__ void begin_products() {
    if (groups().empty()) groups().emplace_back();
}
static __device__ void end_products() { groups().emplace_back(); }

template <int COUNT> __device__ void wait_for_all_but() {
    Groups& mine = groups();
    if (threadIdx.x % WARPGROUP == 0) __nanosleep(1);  // others overwrite what they may
    while (mine.size() > COUNT + 1) {
        for (auto& product : mine[0]) product();
        mine.erase(mine.begin());
    }
    __syncwarp();
}

template <int COUNT> __device__ void hold(float (&x)[COUNT]) {}
template <int COUNT> __device__ void hold(unsigned (&x)[COUNT]) {}

template <typename T, bool B_ALONG, int COUNT>
__device__ void multiply_row(float (&d)[COUNT], int h, const float (&a)[16], uint64_t b,
                             bool add) {
    for (int i = 0; i < COUNT / 2; i++) {
        float& sum = d[i / 2 * 4 + 2 * h + i % 2];
        if (!add) sum = 0.0f;
        for (int k = 0; k < 16; k++)
            sum += a[k] * number<T, B_ALONG>(
                              b, i / 2 * 8 + threadIdx.x % 4 * 2 + i % 2, k);
    }
}

template <typename T, bool A_ALONG, bool B_ALONG, int COUNT>
__device__ void wgmma(float (&d)[COUNT], uint64_t a, uint64_t b, bool add) {
    groups().back().push_back([&d, a, b, add] {
        for (int h = 0; h < 2; h++) {
            float row[16];
            for (int k = 0; k < 16; k++)
                row[k] = number<T, A_ALONG>(
                    a, threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4 + 8 * h, k);
            multiply_row<T, B_ALONG>(d, h, row, b, add);
        }
    });
}

template <typename T, bool B_ALONG, int COUNT>
__device__ void wgmma(float (&d)[COUNT], const unsigned* a, uint64_t b, bool add) {
    groups().back().push_back([&d, a, b, add] {
        for (int h = 0; h < 2; h++) {
            float row[16];
            for (int k = 0; k < 16; k++) {
                int of = threadIdx.x % 32 / 4 * 4 + k % 8 / 2;
                unsigned two = __shfl_sync(0xffffffff, a[k / 8 * 2 + h], of);
                unsigned short one = two >> k % 2 * 16;
                row[k] = float(reinterpret_cast<T&>(one));
            }
            multiply_row<T, B_ALONG>(d, h, row, b, add);
        }
    });
}

template <typename T>
static BoxMap map_of(const Tensor& x, int64_t heads, int64_t rows, int64_t columns,
                     int box_rows) {
    TORCH_CHECK(reinterpret_cast<uintptr_t>(x.data_ptr()) % 16 == 0 && columns % 8 == 0,
                "a tensor map: expected rows that begin at multiples of 16 bytes");
    return {reinterpret_cast<const unsigned short*>(x.data_ptr()), heads, rows, columns,
            box_rows};
}

static int attribute(cudaDeviceAttr which, const Tensor& x) {
    int value = 0;
    C10_CUDA_CHECK(cudaDeviceGetAttribute(&value, which, x.get_device()));
    return value;
}

template <typename Kernel> static bool has_wgmma(Kernel kernel, const Tensor& x) {
    return true;
}
