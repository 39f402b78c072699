// kernels/philox.cu
// SPDX-License-Identifier: MIT
// Random numbers without a state, by Philox4x32-10: each is a function of the seed and
// of its place. philox_bits, _uniform in (0, 1], _normal: shape of `like`, any,
// contiguous; int32 and float32. philox_dropout: inp, float32, where a uniform number
// exceeds p, times 1 / (1 - p), else 0; its gradient is philox_dropout of dout. Writes
// 4 bytes an element, dropout reads 4 more. offset: numbers of a sequence to skip, a
// multiple of 4. sequences: element i is a number of sequence i % sequences, to the bit
// that of cuRAND's curand_init(seed, i % sequences, offset); dropout's has one. With as
// many as it has threads, torch.rand's and torch.randn's own (which turn 1 into 0).
// Scratch memory: none, but a copy of an inp that does not start at a multiple of 16
// bytes. Notebook: 12b_random_numbers_and_ready_parts. Own code; generator: J. Salmon
// and others, "Parallel random numbers: as easy as 1, 2, 3" (2011).
//
// from pathlib import Path
// from torch.utils.cpp_extension import load_inline
// names = ["philox_bits", "philox_uniform", "philox_normal"]
// philox = load_inline("philox", cuda_sources=Path("philox.cu").read_text(),
//     cpp_sources="torch::Tensor philox_dropout(torch::Tensor inp, double p, "
//         "int64_t seed, int64_t offset);" + "".join(f"torch::Tensor {name}("
//         "torch::Tensor like, int64_t seed, int64_t offset, int64_t sequences);"
//         for name in names), functions=[*names, "philox_dropout"])
#include <c10/cuda/CUDAGuard.h>  // and with it streams, and checks of launches
#include <torch/types.h>
using c10::cuda::CUDAGuard, c10::cuda::getCurrentCUDAStream, torch::Tensor;

constexpr int BLOCK_SIZE = 256, ROUNDS = 10;
constexpr int PLACES = 4;  // of a thread of philox_ordered_kernel

template <typename T> struct alignas(16) Pack {  // neighbours, moved by one instruction
    T at[4];
};

struct Keys {  // of the rounds, from the seed; an argument of a kernel: constants there
    unsigned at[ROUNDS][2];
    __host__ __device__ Keys(uint64_t seed) {
        for (int r = 0; r < ROUNDS; r++) {
            at[r][0] = unsigned(seed) + r * 0x9E3779B9;
            at[r][1] = unsigned(seed >> 32) + r * 0xBB67AE85;
        }
    }
};

// four words from 128 bits: a place in a sequence, and which sequence
static __device__ uint4 philox(uint64_t place, uint64_t sequence, const Keys& keys) {
    unsigned x = unsigned(place), y = place >> 32;
    unsigned z = unsigned(sequence), w = sequence >> 32;
#pragma unroll
    for (int r = 0; r < ROUNDS; r++) {
        uint64_t a = uint64_t(0xD2511F53) * x, b = uint64_t(0xCD9E8D57) * z;
        x = unsigned(b >> 32) ^ y ^ keys.at[r][0], y = unsigned(b);
        z = unsigned(a >> 32) ^ w ^ keys.at[r][1], w = unsigned(a);
    }
    return make_uint4(x, y, z, w);
}

struct Bits {
    __device__ Pack<int> operator()(uint4 x) const {
        return {int(x.x), int(x.y), int(x.z), int(x.w)};
    }
};

struct Uniform {  // (x + 1/2) / 2^32, rounded: from 2^-33 to 1
    __device__ float operator()(unsigned x) const {
        return fmaf(float(x), 0x1p-32f, 0x1p-33f);
    }
    __device__ Pack<float> operator()(uint4 x) const {
        return {(*this)(x.x), (*this)(x.y), (*this)(x.z), (*this)(x.w)};
    }
};

struct Normal {  // by Box and Muller: a point in the plane, by its radius and angle
    __device__ float2 operator()(unsigned x, unsigned y) const {
        constexpr float TURN = 0x1p-32f * 6.2831855f;
        float radius = sqrtf(-2.0f * logf(Uniform()(x))), sine, cosine;
        __sincosf(fmaf(float(y), TURN, TURN / 2), &sine, &cosine);
        return make_float2(sine * radius, cosine * radius);
    }
    __device__ Pack<float> operator()(uint4 x) const {
        float2 a = (*this)(x.x, x.y), b = (*this)(x.z, x.w);
        return {a.x, a.y, b.x, b.y};
    }
};

// out: (n), one sequence; four neighbours from each place
template <typename T, typename Make>
__global__ void philox_ordered_kernel(T* out, int64_t n, Keys keys, uint64_t first,
                                      Make make) {
    int64_t place = int64_t(blockIdx.x) * PLACES * BLOCK_SIZE + threadIdx.x;
#pragma unroll
    for (int p = 0; p < PLACES; p++, place += BLOCK_SIZE) {
        Pack<T> values = make(philox(first + place, 0, keys));
        if (place < n / 4) reinterpret_cast<Pack<T>*>(out)[place] = values;
        else
            for (int k = 0; k < 4; k++)
                if (place * 4 + k < n) out[place * 4 + k] = values.at[k];
    }
}

// out: (n); a thread has a sequence, of which every gridDim.y-th place, and writes its
// numbers `sequences` elements apart
template <typename T, typename Make>
__global__ void philox_strided_kernel(T* out, int64_t n, Keys keys, uint64_t first,
                                      int64_t sequences, Make make) {
    int64_t sequence = int64_t(blockIdx.x) * BLOCK_SIZE + threadIdx.x;
    if (sequence >= sequences) return;
    for (int64_t place = blockIdx.y;; place += gridDim.y) {
        int64_t i = place * 4 * sequences + sequence;
        if (i >= n) return;
        Pack<T> values = make(philox(first + place, sequence, keys));
#pragma unroll
        for (int k = 0; k < 4; k++, i += sequences)
            if (i < n) out[i] = values.at[k];
    }
}

// out, inp: (n); numbers as philox_ordered_kernel makes them
__global__ void philox_dropout_kernel(float* out, const float* inp, int64_t n, float p,
                                      float scale, Keys keys, uint64_t first) {
    int64_t place = int64_t(blockIdx.x) * BLOCK_SIZE + threadIdx.x;
    bool whole = place < n / 4;
    Pack<float> values = {}, random = Uniform()(philox(first + place, 0, keys));
    if (whole) values = reinterpret_cast<const Pack<float>*>(inp)[place];
    else
        for (int k = 0; k < 4; k++)
            if (place * 4 + k < n) values.at[k] = inp[place * 4 + k];
    for (int k = 0; k < 4; k++) values.at[k] *= random.at[k] > p ? scale : 0.0f;
    if (whole) reinterpret_cast<Pack<float>*>(out)[place] = values;
    else
        for (int k = 0; k < 4; k++)
            if (place * 4 + k < n) out[place * 4 + k] = values.at[k];
}

static void check_input(const char* name, Tensor x, torch::ScalarType type,
                        int64_t offset) {
    TORCH_CHECK(x.is_cuda() && x.scalar_type() == type && x.is_contiguous(), name,
                ": expected contiguous ", type == torch::kFloat32 ? "float32" : "int32",
                " on a CUDA device, got ",
                x.scalar_type(), " on ", x.device(), ", shape ", x.sizes(),
                ", strides ", x.strides());
    TORCH_CHECK(offset >= 0 && offset % 4 == 0,
                "offset: expected a multiple of 4, 0 or more, got ", offset);
}

static int64_t cdiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

template <typename T, typename Make>
static Tensor random_like(Tensor like, torch::ScalarType type, int64_t seed,
                          int64_t offset, int64_t sequences, Make make) {
    check_input("like", like, type, offset);
    TORCH_CHECK(sequences > 0 && sequences < int64_t(1) << 31,
                "sequences: expected 1 to 2^31 - 1, got ", sequences);
    CUDAGuard guard(like.device());
    Tensor out = torch::empty_like(like);
    int64_t n = like.numel();
    if (n == 0) return out;
    auto stream = getCurrentCUDAStream();
    if (sequences == 1) {
        philox_ordered_kernel<<<cdiv(n, PLACES * BLOCK_SIZE * 4), BLOCK_SIZE, 0,
                                stream>>>(out.data_ptr<T>(), n, Keys(seed), offset / 4,
                                          make);
    } else {
        int64_t places = std::min(cdiv(n, sequences * 4), int64_t(65535));
        dim3 grid(cdiv(std::min(sequences, n), BLOCK_SIZE), places);
        philox_strided_kernel<<<grid, BLOCK_SIZE, 0, stream>>>(
            out.data_ptr<T>(), n, Keys(seed), offset / 4, sequences, make);
    }
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}

Tensor philox_bits(Tensor like, int64_t seed, int64_t offset, int64_t sequences) {
    return random_like<int>(like, torch::kInt32, seed, offset, sequences, Bits());
}

Tensor philox_uniform(Tensor like, int64_t seed, int64_t offset, int64_t sequences) {
    return random_like<float>(like, torch::kFloat32, seed, offset, sequences,
                              Uniform());
}

Tensor philox_normal(Tensor like, int64_t seed, int64_t offset, int64_t sequences) {
    return random_like<float>(like, torch::kFloat32, seed, offset, sequences, Normal());
}

Tensor philox_dropout(Tensor inp, double p, int64_t seed, int64_t offset) {
    check_input("inp", inp, torch::kFloat32, offset);
    TORCH_CHECK(p >= 0 && p <= 1, "p: expected 0 to 1, got ", p);
    CUDAGuard guard(inp.device());
    Tensor out = torch::empty_like(inp);
    int64_t n = inp.numel();
    if (n == 0) return out;
    if (reinterpret_cast<uintptr_t>(inp.data_ptr()) % 16) inp = inp.clone();
    float scale = p < 1 ? 1 / (1 - p) : 0;
    philox_dropout_kernel<<<cdiv(n, BLOCK_SIZE * 4), BLOCK_SIZE, 0,
                            getCurrentCUDAStream()>>>(
        out.data_ptr<float>(), inp.data_ptr<float>(), n, p, scale, Keys(seed),
        offset / 4);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
