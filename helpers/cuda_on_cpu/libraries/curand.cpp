// cuRAND's generators. On a GPU many threads share the work, and the numbers come in their order:
// thread t's are those of curand_init(seed, t, 0), as include/curand_kernel.h has them.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_sobol_engine_initialize_state_ops.h>
#include <ATen/ops/special_ndtri_ops.h>

#include <vector>

#define LIBRARY "cuRAND"
#include "common.h"

#include "../include/curand.h"
#include "../include/curand_kernel.h"

using namespace cuda_on_cpu::libraries;
using u64 = std::uint64_t;

#define REQUIRE(condition, status) \
    if (!(condition)) return CURAND_STATUS_##status

static bool is_even(u64 n) { return n % 2 == 0; }

// Numbers of one sequence, from where the last call ended.
struct curandGenerator_st {
    cudaStream_t stream = nullptr;
    virtual ~curandGenerator_st() = default;
    virtual bool is_quasi() const { return false; }
    virtual curandStatus_t seed(u64) { return CURAND_STATUS_TYPE_ERROR; }
    virtual void go_to(u64 offset) = 0;
    virtual bool can_make_normals(u64) const { return true; }
    virtual bool can_make(u64) const { return true; }
    virtual void words(unsigned* out, u64 n) = 0;
    virtual void uniform(double* out, u64 n) = 0;
    virtual void normal(float* out, u64 n) = 0;
    virtual void normal(double* out, u64 n) = 0;
};

namespace {

// 4096 threads take turns; each makes what an element or a pair of normal numbers needs.
struct Xorwow : curandGenerator_st {
    static constexpr unsigned THREADS = 4096;
    u64 start = 0, next = 0;  // next: whose turn it is
    std::vector<curandState> threads;

    curandStatus_t seed(u64 value) override {
        start = value;
        go_to(0);
        return CURAND_STATUS_SUCCESS;
    }
    void go_to(u64 offset) override {
        next = offset;
        threads.resize(THREADS);
        for (unsigned t = 0; t < THREADS; t++)
            curand_init(start, t, (offset + THREADS - 1 - t) / THREADS, &threads[t]);
    }
    curandState* turn() {
        if (threads.empty()) go_to(0);
        return &threads[next++ % THREADS];
    }
    bool can_make_normals(u64 n) const override { return is_even(n); }
    void words(unsigned* out, u64 n) override {
        for (u64 i = 0; i < n; i++) out[i] = curand(turn());
    }
    void uniform(double* out, u64 n) override {
        for (u64 i = 0; i < n; i++) out[i] = curand_uniform_double(turn());
    }
    void normal(float* out, u64 n) override {
        for (u64 i = 0; i < n; i += 2) {
            float2 pair = curand_normal2(turn());
            out[i] = pair.x, out[i + 1] = pair.y;
        }
    }
    void normal(double* out, u64 n) override {
        for (u64 i = 0; i < n; i += 2) {
            double2 pair = curand_normal2_double(turn());
            out[i] = pair.x, out[i + 1] = pair.y;
        }
    }
};

// 65536 threads make four numbers each in turn: element i is found without those before it.
struct Philox : curandGenerator_st {
    static constexpr u64 THREADS = 65536;
    u64 start = 0, next = 0;

    curandStatus_t seed(u64 value) override {
        start = value, next = 0;
        return CURAND_STATUS_SUCCESS;
    }
    void go_to(u64 offset) override { next = offset; }

    // Of `counters` for each turn of a thread, the one for the four numbers `four`.
    uint4 block(u64 four, u64 counters, u64 which) const {
        u64 counter = four / THREADS * counters + which;
        uint4 place{unsigned(counter), unsigned(counter >> 32), unsigned(four % THREADS), 0};
        return cuda_on_cpu::philox_4x32_10(place, {unsigned(start), unsigned(start >> 32)});
    }
    template <class T, class Make>
    void each(T* out, u64 n, Make make) {
        for (u64 i = 0; i < n; i++, next++) out[i] = make(next / 4, next % 4);
    }
    void words(unsigned* out, u64 n) override {
        each(out, n, [&](u64 four, u64 i) {
            uint4 x = block(four, 1, 0);
            return i == 0 ? x.x : i == 1 ? x.y : i == 2 ? x.z : x.w;
        });
    }
    void uniform(double* out, u64 n) override {
        each(out, n, [&](u64 four, u64 i) {
            uint4 x = block(four, 2, i / 2);
            return i % 2 ? cuda_on_cpu::uniform(x.z, x.w) : cuda_on_cpu::uniform(x.x, x.y);
        });
    }
    void normal(float* out, u64 n) override {
        each(out, n, [&](u64 four, u64 i) {
            uint4 x = block(four, 1, 0);
            float2 pair = i < 2 ? cuda_on_cpu::normal_pair(x.x, x.y)
                                : cuda_on_cpu::normal_pair(x.z, x.w);
            return i % 2 ? pair.y : pair.x;
        });
    }
    void normal(double* out, u64 n) override {
        each(out, n, [&](u64 four, u64 i) {
            double2 pair = cuda_on_cpu::normal_pair(block(four, 2, i / 2));
            return i % 2 ? pair.y : pair.x;
        });
    }
};

// Sobol's points in the order of Gray's code: all of the first dimension, then of the second ...
struct Sobol : curandGenerator_st {
    u64 next = 0;
    std::int64_t dimensions = 1;
    at::Tensor directions;  // (dimensions, 30), of Joe and Kuo, as PyTorch has them

    bool is_quasi() const override { return true; }
    void go_to(u64 offset) override { next = offset; }
    bool can_make(u64 n) const override { return n % dimensions == 0; }
    bool can_make_normals(u64 n) const override { return can_make(n); }
    void words(unsigned* out, u64 n) override {
        if (!directions.defined() || directions.size(0) != dimensions) {
            directions = zeros({dimensions, 30}, at::kLong);
            ops::_sobol_engine_initialize_state_::call(directions, dimensions);
        }
        u64 points = n / dimensions;
        for (std::int64_t d = 0; d < dimensions; d++) {
            const std::int64_t* direction = directions.data_ptr<std::int64_t>() + d * 30;
            for (u64 i = 0; i < points; i++) {
                u64 gray = (next + i) ^ (next + i) >> 1;
                unsigned x = 0;
                for (unsigned bit = 0; bit < 30; bit++)
                    if (gray >> bit & 1) x ^= unsigned(direction[bit]) << 2;
                out[d * points + i] = x;
            }
        }
        next += points;
    }
    void uniform(double* out, u64 n) override {
        std::vector<unsigned> x(n);
        words(x.data(), n);
        for (u64 i = 0; i < n; i++) out[i] = x[i] * 0x1p-32 + 0x1p-32;
    }
    void normal(double* out, u64 n) override {
        uniform(out, n);
        for (u64 i = 0; i < n; i++) out[i] -= 0x1p-33;
        at::Tensor all = tensor(out, {std::int64_t(n)}, {1}, at::kDouble);
        all.copy_(ops::special_ndtri::call(all));
    }
    void normal(float* out, u64 n) override {
        std::vector<double> x(n);
        normal(x.data(), n);
        for (u64 i = 0; i < n; i++) out[i] = float(x[i]);
    }
};

}  // namespace

// ---------------------------------------------------------------- calls

curandStatus_t curandGetVersion(int* version) {
    REQUIRE(version, OUT_OF_RANGE);
    *version = CURAND_VERSION;
    return CURAND_STATUS_SUCCESS;
}

curandStatus_t curandCreateGenerator(curandGenerator_t* made, curandRngType_t type) {
    REQUIRE(made, NOT_INITIALIZED);
    switch (type) {
        case CURAND_RNG_PSEUDO_DEFAULT: case CURAND_RNG_PSEUDO_XORWOW: *made = new Xorwow; break;
        case CURAND_RNG_PSEUDO_PHILOX4_32_10: *made = new Philox; break;
        case CURAND_RNG_QUASI_DEFAULT: case CURAND_RNG_QUASI_SOBOL32: *made = new Sobol; break;
        default: return CURAND_STATUS_TYPE_ERROR;
    }
    return CURAND_STATUS_SUCCESS;
}

curandStatus_t curandCreateGeneratorHost(curandGenerator_t* made, curandRngType_t type) {
    return curandCreateGenerator(made, type);
}

curandStatus_t curandDestroyGenerator(curandGenerator_t old) {
    REQUIRE(old, NOT_INITIALIZED);
    delete old;
    return CURAND_STATUS_SUCCESS;
}

curandStatus_t curandSetStream(curandGenerator_t made, cudaStream_t stream) {
    REQUIRE(made, NOT_INITIALIZED);
    made->stream = stream;
    return CURAND_STATUS_SUCCESS;
}

curandStatus_t curandSetPseudoRandomGeneratorSeed(curandGenerator_t made, unsigned long long seed) {
    REQUIRE(made, NOT_INITIALIZED);
    return made->seed(seed);
}

curandStatus_t curandSetGeneratorOffset(curandGenerator_t made, unsigned long long offset) {
    REQUIRE(made, NOT_INITIALIZED);
    made->go_to(offset);
    return CURAND_STATUS_SUCCESS;
}

// The orders that there are here are one and the same.
curandStatus_t curandSetGeneratorOrdering(curandGenerator_t made, curandOrdering_t order) {
    REQUIRE(made, NOT_INITIALIZED);
    bool is_pseudo = order == CURAND_ORDERING_PSEUDO_BEST ||
                     order == CURAND_ORDERING_PSEUDO_DEFAULT ||
                     order == CURAND_ORDERING_PSEUDO_LEGACY;
    REQUIRE(made->is_quasi() ? order == CURAND_ORDERING_QUASI_DEFAULT : is_pseudo, OUT_OF_RANGE);
    return CURAND_STATUS_SUCCESS;
}

curandStatus_t curandSetQuasiRandomGeneratorDimensions(curandGenerator_t made, unsigned dimensions) {
    REQUIRE(made, NOT_INITIALIZED);
    REQUIRE(made->is_quasi(), TYPE_ERROR);
    REQUIRE(dimensions >= 1 && dimensions <= 20000, OUT_OF_RANGE);
    static_cast<Sobol*>(made)->dimensions = dimensions;
    return CURAND_STATUS_SUCCESS;
}

curandStatus_t curandGenerateSeeds(curandGenerator_t made) {
    REQUIRE(made, NOT_INITIALIZED);
    return CURAND_STATUS_SUCCESS;
}

template <class T>
static curandStatus_t run(curandGenerator_t made, T* out, std::size_t n, std::function<void()> work) {
    cuda_on_cpu::check_library_access(LIBRARY, out, n * sizeof(T));
    return do_in_stream(made->stream, std::move(work)) ? CURAND_STATUS_SUCCESS
                                                       : CURAND_STATUS_LAUNCH_FAILURE;
}

curandStatus_t curandGenerate(curandGenerator_t made, unsigned* out, std::size_t n) {
    REQUIRE(made, NOT_INITIALIZED);
    REQUIRE(made->can_make(n), LENGTH_NOT_MULTIPLE);
    return run(made, out, n, [=] { made->words(out, n); });
}

// For generators of 64 bits, of which there is none here.
curandStatus_t curandGenerateLongLong(curandGenerator_t made, unsigned long long*, std::size_t) {
    REQUIRE(made, NOT_INITIALIZED);
    return CURAND_STATUS_TYPE_ERROR;
}

curandStatus_t curandGenerateUniform(curandGenerator_t made, float* out, std::size_t n) {
    REQUIRE(made, NOT_INITIALIZED);
    REQUIRE(made->can_make(n), LENGTH_NOT_MULTIPLE);
    return run(made, out, n, [=] {
        std::vector<unsigned> x(n);
        made->words(x.data(), n);
        for (std::size_t i = 0; i < n; i++) out[i] = cuda_on_cpu::uniform(x[i]);
    });
}

curandStatus_t curandGenerateUniformDouble(curandGenerator_t made, double* out, std::size_t n) {
    REQUIRE(made, NOT_INITIALIZED);
    REQUIRE(made->can_make(n), LENGTH_NOT_MULTIPLE);
    return run(made, out, n, [=] { made->uniform(out, n); });
}

template <class T>
static curandStatus_t normal(curandGenerator_t made, T* out, std::size_t n, T mean, T deviation,
                             bool is_logarithm) {
    REQUIRE(made, NOT_INITIALIZED);
    REQUIRE(made->can_make_normals(n), LENGTH_NOT_MULTIPLE);
    return run(made, out, n, [=] {
        made->normal(out, n);
        for (std::size_t i = 0; i < n; i++) {
            T x = mean + deviation * out[i];
            out[i] = is_logarithm ? std::exp(x) : x;
        }
    });
}

curandStatus_t curandGenerateNormal(curandGenerator_t made, float* out, std::size_t n, float mean,
                                    float deviation) {
    return normal(made, out, n, mean, deviation, false);
}
curandStatus_t curandGenerateNormalDouble(curandGenerator_t made, double* out, std::size_t n,
                                          double mean, double deviation) {
    return normal(made, out, n, mean, deviation, false);
}
curandStatus_t curandGenerateLogNormal(curandGenerator_t made, float* out, std::size_t n,
                                       float mean, float deviation) {
    return normal(made, out, n, mean, deviation, true);
}
curandStatus_t curandGenerateLogNormalDouble(curandGenerator_t made, double* out, std::size_t n,
                                             double mean, double deviation) {
    return normal(made, out, n, mean, deviation, true);
}
