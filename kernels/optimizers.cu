// kernels/optimizers.cu
// SPDX-License-Identifier: MIT
// A step of AdamW, or of SGD with momentum, for a whole list of parameters in one
// launch (100 tensors a launch; longer lists take several). Each tensor any shape,
// contiguous, float32; params and the optimizer's memory change in place. As
// torch.optim.AdamW and torch.optim.SGD, without amsgrad, nesterov and dampening;
// memory begins as zeros; `step` counts from 1. AdamW moves 28 bytes an element, SGD
// 20; no scratch memory. `step` is a number: a CUDA graph would replay one step of
// AdamW. Notebook: 14c_optimizers. Own code; one launch for a list: NVIDIA Apex,
// "multi_tensor_apply" (BSD 3-Clause).
//
// from pathlib import Path
// from torch.utils.cpp_extension import load_inline
// LIST = "std::vector<torch::Tensor>"
// optimizers = load_inline("optimizers",
//     cuda_sources=Path("optimizers.cu").read_text(),
//     cpp_sources=f"void adamw_step({LIST} params, {LIST} grads, {LIST} exp_avgs, "
//         f"{LIST} exp_avg_sqs, int64_t step, double lr, double beta1, double beta2, "
//         f"double eps, double weight_decay);"
//         f"void sgd_momentum_step({LIST} params, {LIST} grads, "
//         f"{LIST} momentum_buffers, double lr, double momentum, "
//         f"double weight_decay);",
//     functions=["adamw_step", "sgd_momentum_step"])
#include <c10/cuda/CUDAGuard.h>  // and with it streams, and checks of launches
#include <torch/types.h>
#include <vector>
using c10::cuda::getCurrentCUDAStream, torch::Tensor;
using List = std::vector<Tensor>;

constexpr int BLOCK_SIZE = 256;           // threads per block
constexpr int WIDTH = 4;                  // elements per thread
constexpr int TILE = BLOCK_SIZE * WIDTH;  // elements per block, all of one tensor
constexpr int MOST_TENSORS = 100;         // per launch: arguments end at 4,096 bytes
constexpr int64_t LONGEST = 1 << 30;      // elements of an entry

struct Entry {  // a tensor, or a part of it
    float *param, *first, *second;  // what the optimizer remembers; SGD: no second
    const float* grad;
    int n, first_block;
};

struct Entries {
    Entry at[MOST_TENSORS];
    int count;
};

struct AdamW {  // first, second: moving means of the gradient and of its square
    float decay, step_size, beta1, rest1, beta2, rest2, root_of_correction, eps;
    static constexpr bool HAS_SECOND = true;
    __device__ void update(float& param, float grad, float& first,
                           float& second) const {
        first = beta1 * first + rest1 * grad;
        second = beta2 * second + rest2 * grad * grad;
        param = decay * param -
                step_size * first / (sqrtf(second) / root_of_correction + eps);
    }
};

struct SGD {  // first: the momentum
    float lr, momentum, weight_decay;
    static constexpr bool HAS_SECOND = false;
    __device__ void update(float& param, float grad, float& first, float&) const {
        first = momentum * first + (grad + weight_decay * param);
        param -= lr * first;
    }
};

struct alignas(16) Pack { float at[WIDTH]; };  // neighbours, moved by one instruction

static __device__ Pack load(const float* from) {
    return *reinterpret_cast<const Pack*>(from);
}
static __device__ void store(float* to, const Pack& values) {
    *reinterpret_cast<Pack*>(to) = values;
}

// one block per TILE elements of an entry
template <typename Rule>
__global__ void step_kernel(const __grid_constant__ Entries entries,
                            const __grid_constant__ Rule rule) {
    int low = 0, high = entries.count;  // the last entry that begins here or before
    while (high - low > 1) {
        int middle = (low + high) / 2;
        (entries.at[middle].first_block <= blockIdx.x ? low : high) = middle;
    }
    const Entry& e = entries.at[low];
    int i = (blockIdx.x - e.first_block) * TILE + threadIdx.x * WIDTH;
    uintptr_t places = reinterpret_cast<uintptr_t>(e.param) |
                       reinterpret_cast<uintptr_t>(e.first) |
                       reinterpret_cast<uintptr_t>(e.second) |
                       reinterpret_cast<uintptr_t>(e.grad);
    if (places % 16 == 0 && i + WIDTH <= e.n) {
        Pack param = load(e.param + i), grad = load(e.grad + i);
        Pack first = load(e.first + i), second = {};
        if (Rule::HAS_SECOND) second = load(e.second + i);
#pragma unroll
        for (int k = 0; k < WIDTH; k++)
            rule.update(param.at[k], grad.at[k], first.at[k], second.at[k]);
        store(e.param + i, param);
        store(e.first + i, first);
        if (Rule::HAS_SECOND) store(e.second + i, second);
    } else {  // the end, or a view that starts between two multiples of 16 bytes
        float none;
        for (int j = i; j < i + WIDTH && j < e.n; j++)
            rule.update(e.param[j], e.grad[j], e.first[j],
                        Rule::HAS_SECOND ? e.second[j] : none);
    }
}

// list has to be as long as params, each tensor contiguous float32, of the shape of its
// parameter, and all on the GPU of the first
static void check_list(const char* name, const List& list, const List& params) {
    TORCH_CHECK(list.size() == params.size(), name, ": expected as many tensors as in "
                "params, ", params.size(), ", got ", list.size());
    for (size_t i = 0; i < list.size(); i++) {
        const Tensor &x = list[i], &like = params[i];
        TORCH_CHECK(x.scalar_type() == torch::kFloat32 && x.is_contiguous() &&
                    x.is_cuda() && x.device() == params[0].device() &&
                    x.sizes() == like.sizes(), name, ": expected contiguous float32 "
                    "on one CUDA device, shape ", like.sizes(), ", got ",
                    x.scalar_type(), " on ", x.device(), ", shape ", x.sizes(),
                    ", strides ", x.strides(), ", in place ", i);
    }
}

// as many launches as the lists fill
template <typename Rule>
static void launch(Rule rule, const List& params, const List& grads, const List& firsts,
                   const List& seconds) {
    Entries entries;
    int blocks = 0;
    entries.count = 0;
    auto flush = [&] {
        if (blocks > 0)
            step_kernel<<<blocks, BLOCK_SIZE, 0, getCurrentCUDAStream()>>>(entries,
                                                                           rule);
        C10_CUDA_KERNEL_LAUNCH_CHECK();
        entries.count = blocks = 0;
    };
    for (size_t i = 0; i < params.size(); i++)
        for (int64_t begin = 0; begin < params[i].numel(); begin += LONGEST) {
            int n = std::min(LONGEST, params[i].numel() - begin);
            auto part = [&](const Tensor& x) { return x.data_ptr<float>() + begin; };
            float* second = Rule::HAS_SECOND ? part(seconds[i]) : nullptr;
            entries.at[entries.count++] = {part(params[i]), part(firsts[i]), second,
                                           part(grads[i]), n, blocks};
            blocks += (n + TILE - 1) / TILE;
            if (entries.count == MOST_TENSORS) flush();
        }
    flush();
}

void adamw_step(std::vector<Tensor> params, std::vector<Tensor> grads,
                std::vector<Tensor> exp_avgs, std::vector<Tensor> exp_avg_sqs,
                int64_t step, double lr, double beta1, double beta2, double eps,
                double weight_decay) {
    check_list("params", params, params);
    check_list("grads", grads, params);
    check_list("exp_avgs", exp_avgs, params);
    check_list("exp_avg_sqs", exp_avg_sqs, params);
    TORCH_CHECK(step >= 1, "step: expected 1 or more, got ", step);
    if (params.empty()) return;
    c10::cuda::CUDAGuard guard(params[0].device());
    double correction1 = 1 - pow(beta1, step), correction2 = 1 - pow(beta2, step);
    AdamW rule = {float(1 - lr * weight_decay), float(lr / correction1), float(beta1),
                  float(1 - beta1), float(beta2), float(1 - beta2),
                  float(sqrt(correction2)), float(eps)};
    launch(rule, params, grads, exp_avgs, exp_avg_sqs);
}

void sgd_momentum_step(std::vector<Tensor> params, std::vector<Tensor> grads,
                       std::vector<Tensor> momentum_buffers, double lr,
                       double momentum, double weight_decay) {
    check_list("params", params, params);
    check_list("grads", grads, params);
    check_list("momentum_buffers", momentum_buffers, params);
    if (params.empty()) return;
    c10::cuda::CUDAGuard guard(params[0].device());
    SGD rule = {float(lr), float(momentum), float(weight_decay)};
    launch(rule, params, grads, momentum_buffers, {});
}
