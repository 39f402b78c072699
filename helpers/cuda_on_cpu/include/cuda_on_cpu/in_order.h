// Most barriers are reached by the threads of a block one after the other, and then most kernels are
// left so. As long as that holds, a thread hands over to the next one right here, in the kernel.
//
// To the compiler that is an instruction which leaves no register as it was, so that it saves on the
// thread's stack what is needed later, and no more. The runtime's own switch (fiber.cpp) is a call:
// it saves six registers, and the processor foresees where a call returns to only if its fibre made
// the latest one.
#pragma once
#include "runtime.h"

namespace cuda_on_cpu {

#if defined(__x86_64__) && !defined(CUDA_ON_CPU_CHECK)

// Whether all threads before the running one have come to the same place, and the next one may go
// on. If not, ask the runtime.
inline bool is_in_order(int where) {
    return where == position.where && position.thread + 1 < position.order_end;
}

// From here on the next thread counts as the running one.
inline Stopped* step_in_order() {
    unsigned thread = position.thread++;
    step(threadIdx);
    return position.stopped + thread;
}

// The next thread may begin to run (its code is then a function), which expects no AVX in use.
#if defined(__AVX__)
#define CUDA_ON_CPU_LEAVE_AVX "vzeroupper\n\t"
#else
#define CUDA_ON_CPU_LEAVE_AVX
#endif
#define CUDA_ON_CPU_GO_ON         \
    "movq 32(%%rax), %%rbp\n\t"   \
    "movq 24(%%rax), %%rsp\n\t"   \
    "jmpq *40(%%rax)\n"
static_assert(sizeof(Stopped) == 24, "the numbers above");

__attribute__((always_inline)) inline void hand_over() {
    Stopped* mine = step_in_order();
    __asm__ volatile(
        CUDA_ON_CPU_LEAVE_AVX
        "leaq 1f(%%rip), %%rcx\n\t"
        "movq %%rsp, (%%rax)\n\t"
        "movq %%rbp, 8(%%rax)\n\t"
        "movq %%rcx, 16(%%rax)\n\t"
        CUDA_ON_CPU_GO_ON
        "1:"
        : "+a"(mine)
        :
        : "rbx", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15",
          "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",
          "xmm11", "xmm12", "xmm13", "xmm14", "xmm15",
#if defined(__AVX512F__)
          "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24", "xmm25",
          "xmm26", "xmm27", "xmm28", "xmm29", "xmm30", "xmm31", "k1", "k2", "k3", "k4", "k5", "k6",
          "k7",
#endif
          "st", "st(1)", "st(2)", "st(3)", "st(4)", "st(5)", "st(6)", "st(7)", "memory", "cc");
}

// Likewise, by a thread that has returned.
[[noreturn]] __attribute__((always_inline)) inline void hand_over_for_good() {
    __asm__ volatile(CUDA_ON_CPU_LEAVE_AVX CUDA_ON_CPU_GO_ON : : "a"(step_in_order()) : "memory");
    __builtin_unreachable();
}

#undef CUDA_ON_CPU_LEAVE_AVX
#undef CUDA_ON_CPU_GO_ON

#else

inline bool is_in_order(int) { return false; }
inline void hand_over() {}
inline void hand_over_for_good() {}

#endif

}  // namespace cuda_on_cpu
