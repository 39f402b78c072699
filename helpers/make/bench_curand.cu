// cuRAND's uniform and normal numbers by Philox, for `make bench` to compare with.
#include <c10/cuda/CUDAStream.h>
#include <curand.h>
#include <torch/types.h>
using torch::Tensor;

static void ok(curandStatus_t status) {
    TORCH_CHECK(status == CURAND_STATUS_SUCCESS, "cuRAND: status ", int(status));
}

struct Generator {
    curandGenerator_t handle;
    Generator() { ok(curandCreateGenerator(&handle, CURAND_RNG_PSEUDO_PHILOX4_32_10)); }
};

static curandGenerator_t generator() {  // made once
    static Generator made;
    ok(curandSetStream(made.handle, c10::cuda::getCurrentCUDAStream()));
    return made.handle;
}

Tensor curand_uniform(Tensor like) {
    Tensor out = torch::empty_like(like);
    ok(curandGenerateUniform(generator(), out.data_ptr<float>(), out.numel()));
    return out;
}

Tensor curand_normal(Tensor like) {
    Tensor out = torch::empty_like(like);
    ok(curandGenerateNormal(generator(), out.data_ptr<float>(), out.numel(), 0.0f, 1.0f));
    return out;
}
