// cuFFT over PyTorch's operators: what a plan says becomes the sizes and strides of tensors.
#include "../include/cufft.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/_fft_c2c_ops.h>
#include <ATen/ops/_fft_c2r_ops.h>
#include <ATen/ops/_fft_r2c_ops.h>

#include <map>
#include <mutex>
#include <vector>

#define LIBRARY "cuFFT"
#include "common.h"

using namespace cuda_on_cpu::libraries;
using Sizes = std::vector<std::int64_t>;

#define REQUIRE(condition, status) \
    if (!(condition)) return CUFFT_##status

namespace {

// Where the elements of one side lie: as the caller said, or one after the other.
struct Layout {
    bool is_given = false;
    Sizes extents;  // of the array that the transform's data is part of
    std::int64_t step, distance;
};

struct Plan {
    cudaStream_t stream = nullptr;
    cufftType type{};
    Sizes n;  // empty: not made yet
    std::int64_t batch = 1;
    Layout in, out;
};

std::mutex plans_mutex;
std::map<cufftHandle, Plan> plans;
cufftHandle last_handle = 0;

Plan* find(cufftHandle handle) {
    std::lock_guard<std::mutex> lock(plans_mutex);
    auto found = plans.find(handle);
    return found == plans.end() ? nullptr : &found->second;
}

bool is_double(cufftType type) { return type >= CUFFT_Z2Z; }

// Elements of the last dimension, where half of a spectrum is left out.
Sizes halved(Sizes n) {
    n.back() = n.back() / 2 + 1;
    return n;
}

// Data of `batch` transforms with `sizes` each; dense rows of real data have room for the spectrum
// where it takes their place.
at::Tensor laid_out(const Plan& plan, const Layout& layout, const void* data, const Sizes& sizes,
                    at::ScalarType type, bool has_room) {
    Sizes extents = layout.is_given ? layout.extents : sizes;
    if (!layout.is_given && has_room) extents.back() = 2 * halved(plan.n).back();
    Sizes strides(sizes.size());
    std::int64_t step = layout.is_given ? layout.step : 1;
    for (std::size_t d = sizes.size(); d-- > 0; step *= extents[d]) strides[d] = step;
    strides.insert(strides.begin(), layout.is_given ? layout.distance : step);
    Sizes all = sizes;
    all.insert(all.begin(), plan.batch);
    return tensor(data, all, strides, type);
}

cufftResult run(cufftHandle handle, cufftType type, void* in, void* out, int direction) {
    Plan* plan = find(handle);
    REQUIRE(plan && !plan->n.empty(), INVALID_PLAN);
    REQUIRE(plan->type == type, INVALID_TYPE);
    REQUIRE(in && out && (direction == CUFFT_FORWARD || direction == CUFFT_INVERSE), INVALID_VALUE);
    auto real = is_double(type) ? at::kDouble : at::kFloat;
    auto complex = is_double(type) ? at::kComplexDouble : at::kComplexFloat;
    bool to_half = type == CUFFT_R2C || type == CUFFT_D2Z;
    bool from_half = type == CUFFT_C2R || type == CUFFT_Z2D;
    auto work = [=, plan = *plan] {
        at::Tensor from = laid_out(plan, plan.in, in, from_half ? halved(plan.n) : plan.n,
                                   to_half ? real : complex, to_half && in == out);
        at::Tensor to = laid_out(plan, plan.out, out, to_half ? halved(plan.n) : plan.n,
                                 from_half ? real : complex, from_half && in == out);
        Sizes dims(plan.n.size());
        for (std::size_t d = 0; d < dims.size(); d++) dims[d] = d + 1;
        from = from.contiguous();
        if (to_half) to.copy_(ops::_fft_r2c::call(from, dims, 0, true));
        else if (from_half) to.copy_(ops::_fft_c2r::call(from, dims, 0, plan.n.back()));
        else to.copy_(ops::_fft_c2c::call(from, symbolic(dims), 0, direction == CUFFT_FORWARD));
    };
    return do_in_stream(plan->stream, work) ? CUFFT_SUCCESS : CUFFT_EXEC_FAILED;
}

cufftResult make(cufftHandle handle, Sizes n, Layout in, Layout out, cufftType type, int batch) {
    Plan* plan = find(handle);
    REQUIRE(plan && plan->n.empty(), INVALID_PLAN);
    bool is_known = type == CUFFT_C2C || type == CUFFT_R2C || type == CUFFT_C2R ||
                    type == CUFFT_Z2Z || type == CUFFT_D2Z || type == CUFFT_Z2D;
    REQUIRE(is_known, INVALID_TYPE);
    for (std::int64_t size : n) REQUIRE(size > 0, INVALID_SIZE);
    REQUIRE(batch > 0, INVALID_SIZE);
    plan->type = type;
    plan->n = std::move(n);
    plan->batch = batch;
    plan->in = std::move(in);
    plan->out = std::move(out);
    return CUFFT_SUCCESS;
}

// Of a handle that the call makes itself, and takes back if the plan is refused.
template <class Make>
cufftResult made(cufftHandle* handle, Make make_plan) {
    if (cufftResult failed = cufftCreate(handle)) return failed;
    cufftResult result = make_plan(*handle);
    if (result) cufftDestroy(*handle);
    return result;
}

}  // namespace

cufftResult cufftGetVersion(int* version) {
    REQUIRE(version, INVALID_VALUE);
    *version = CUFFT_VERSION;
    return CUFFT_SUCCESS;
}

cufftResult cufftCreate(cufftHandle* handle) {
    REQUIRE(handle, INVALID_VALUE);
    std::lock_guard<std::mutex> lock(plans_mutex);
    *handle = ++last_handle;
    plans[*handle];
    return CUFFT_SUCCESS;
}

cufftResult cufftDestroy(cufftHandle handle) {
    std::lock_guard<std::mutex> lock(plans_mutex);
    return plans.erase(handle) ? CUFFT_SUCCESS : CUFFT_INVALID_PLAN;
}

cufftResult cufftSetStream(cufftHandle handle, cudaStream_t stream) {
    Plan* plan = find(handle);
    REQUIRE(plan, INVALID_PLAN);
    plan->stream = stream;
    return CUFFT_SUCCESS;
}

// ---------------------------------------------------------------- plans

static cufftResult without_workspace(cufftResult result, std::size_t* work_bytes) {
    if (!result && work_bytes) *work_bytes = 0;
    return result;
}

cufftResult cufftMakePlan1d(cufftHandle handle, int nx, cufftType type, int batch,
                            std::size_t* work_bytes) {
    return without_workspace(make(handle, {nx}, {}, {}, type, batch), work_bytes);
}
cufftResult cufftMakePlan2d(cufftHandle handle, int nx, int ny, cufftType type,
                            std::size_t* work_bytes) {
    return without_workspace(make(handle, {nx, ny}, {}, {}, type, 1), work_bytes);
}
cufftResult cufftMakePlan3d(cufftHandle handle, int nx, int ny, int nz, cufftType type,
                            std::size_t* work_bytes) {
    return without_workspace(make(handle, {nx, ny, nz}, {}, {}, type, 1), work_bytes);
}
// Without extents (null) the steps and distances are not looked at either.
cufftResult cufftMakePlanMany(cufftHandle handle, int rank, int* n, int* inembed, int istride,
                              int idist, int* onembed, int ostride, int odist, cufftType type,
                              int batch, std::size_t* work_bytes) {
    REQUIRE(rank >= 1 && rank <= 3 && n, INVALID_VALUE);
    Layout in, out;
    if (inembed && onembed) {
        in = {true, Sizes(inembed, inembed + rank), istride, idist};
        out = {true, Sizes(onembed, onembed + rank), ostride, odist};
    }
    return without_workspace(make(handle, Sizes(n, n + rank), in, out, type, batch), work_bytes);
}

cufftResult cufftPlan1d(cufftHandle* handle, int nx, cufftType type, int batch) {
    return made(handle, [=](auto h) { return cufftMakePlan1d(h, nx, type, batch, nullptr); });
}
cufftResult cufftPlan2d(cufftHandle* handle, int nx, int ny, cufftType type) {
    return made(handle, [=](auto h) { return cufftMakePlan2d(h, nx, ny, type, nullptr); });
}
cufftResult cufftPlan3d(cufftHandle* handle, int nx, int ny, int nz, cufftType type) {
    return made(handle, [=](auto h) { return cufftMakePlan3d(h, nx, ny, nz, type, nullptr); });
}
cufftResult cufftPlanMany(cufftHandle* handle, int rank, int* n, int* inembed, int istride,
                          int idist, int* onembed, int ostride, int odist, cufftType type,
                          int batch) {
    return made(handle, [=](auto h) {
        return cufftMakePlanMany(h, rank, n, inembed, istride, idist, onembed, ostride, odist, type,
                                 batch, nullptr);
    });
}

cufftResult cufftGetSize(cufftHandle handle, std::size_t* work_bytes) {
    REQUIRE(find(handle), INVALID_PLAN);
    REQUIRE(work_bytes, INVALID_VALUE);
    *work_bytes = 0;
    return CUFFT_SUCCESS;
}
cufftResult cufftSetAutoAllocation(cufftHandle handle, int) {
    REQUIRE(find(handle), INVALID_PLAN);
    return CUFFT_SUCCESS;
}
cufftResult cufftSetWorkArea(cufftHandle handle, void*) {
    REQUIRE(find(handle), INVALID_PLAN);
    return CUFFT_SUCCESS;
}

// ---------------------------------------------------------------- transforms

cufftResult cufftExecC2C(cufftHandle handle, cufftComplex* in, cufftComplex* out, int direction) {
    return run(handle, CUFFT_C2C, in, out, direction);
}
cufftResult cufftExecR2C(cufftHandle handle, cufftReal* in, cufftComplex* out) {
    return run(handle, CUFFT_R2C, in, out, CUFFT_FORWARD);
}
cufftResult cufftExecC2R(cufftHandle handle, cufftComplex* in, cufftReal* out) {
    return run(handle, CUFFT_C2R, in, out, CUFFT_INVERSE);
}
cufftResult cufftExecZ2Z(cufftHandle handle, cufftDoubleComplex* in, cufftDoubleComplex* out,
                         int direction) {
    return run(handle, CUFFT_Z2Z, in, out, direction);
}
cufftResult cufftExecD2Z(cufftHandle handle, cufftDoubleReal* in, cufftDoubleComplex* out) {
    return run(handle, CUFFT_D2Z, in, out, CUFFT_FORWARD);
}
cufftResult cufftExecZ2D(cufftHandle handle, cufftDoubleComplex* in, cufftDoubleReal* out) {
    return run(handle, CUFFT_Z2D, in, out, CUFFT_INVERSE);
}
