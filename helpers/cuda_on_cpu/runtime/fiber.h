// A fibre: a stack of its own that code runs on until it hands over to another fibre by itself.
// A CUDA thread that waits at a barrier is a fibre that has handed over. Nothing happens behind
// the code's back, so there are no races inside a block, and the order is the same in every run.
#pragma once
#include <cstddef>

#include "../include/cuda_on_cpu/runtime.h"

#if defined(CUDA_ON_CPU_UCONTEXT) || !(defined(__x86_64__) || defined(__aarch64__))
#define CUDA_ON_CPU_PORTABLE_SWITCH 1
#if defined(__APPLE__)
#define _XOPEN_SOURCE 600  // or there is no ucontext
#endif
#include <ucontext.h>
#endif

class Fiber {
public:
    // Makes a fibre that will run entry() on the given stack. entry must never return.
    void prepare(char* stack, std::size_t bytes, void (*entry)());

    // Stops the code that runs on this fibre and goes on where `to` stopped.
    void switch_to(Fiber& to);

private:
#if defined(CUDA_ON_CPU_PORTABLE_SWITCH)
    ucontext_t context_;
#elif defined(__x86_64__)
#define CUDA_ON_CPU_STOPS_IN_KERNEL 1
    cuda_on_cpu::Stopped stopped_{};

public:
    cuda_on_cpu::Stopped* stopped() { return &stopped_; }
#else
    void* stack_pointer_ = nullptr;  // the registers to restore lie on the stack, from here up
#endif
};

constexpr std::size_t STACK_BYTES = 256 * 1024;  // of address space; memory only where touched

// Address space for the stacks of `count` fibres, each with unreadable memory below it, so that
// a stack that overflows faults instead of running into its neighbour.
class Stacks {
public:
    explicit Stacks(std::size_t count);
    ~Stacks();
    char* usable(std::size_t i, std::size_t* bytes);    // guards what is below on first use
    bool contains(const void* address) const;
    std::size_t index(const void* address) const;       // of the stack that it lies in
    const char* begin() const { return base_; }
    std::size_t bytes() const { return count_ * stride_; }

private:
    char* base_;
    std::size_t guard_, stride_, count_, guarded_ = 0;
};
