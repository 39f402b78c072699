// Gives PyTorch's CPU tensors guarded memory, so that a kernel that overruns one is found out.
// A library of its own: it needs PyTorch's headers, the runtime does not.
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <cstdlib>

#include "../include/cuda_on_cpu/runtime.h"

namespace {

struct GuardedAllocator final : c10::Allocator {
    c10::DataPtr allocate(std::size_t bytes) override {
        std::size_t alignment = cuda_on_cpu::alignment_of_arrays();
        void* tensor = cuda_on_cpu::allocate(bytes, "a tensor", alignment);
        TORCH_CHECK(tensor || bytes == 0, "out of memory: a tensor of ", bytes, " bytes, and ",
                    cuda_on_cpu::available_bytes(), " are free");
        return {tensor, tensor, &cuda_on_cpu::release, c10::Device(c10::DeviceType::CPU)};
    }
    c10::DeleterFnPtr raw_deleter() const override { return &cuda_on_cpu::release; }
    void copy_data(void* to, const void* from, std::size_t bytes) const override {
        default_copy_data(to, from, bytes);
    }
};

}  // namespace

// Tensors made before keep their memory, and the way to free it.
extern "C" CUDA_ON_CPU_API void cuda_on_cpu_install_allocator() {
    cuda_on_cpu::catch_faults();
    static auto* allocator = new GuardedAllocator;
    c10::SetCPUAllocator(allocator, 255);  // of all that ask to be it, the highest number wins
}
