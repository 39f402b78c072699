// Barriers of a block. Every thread of the block has to reach the same one.
#pragma once
#include "runtime.h"

namespace cuda_on_cpu {

// Most barriers are reached by all threads of a block one after the other. Then a thread hands over
// to the next one right here: to the compiler that is an instruction which leaves no register as it
// was, so that it saves on the thread's stack what is needed later, and no more.
#if defined(__x86_64__) && !defined(CUDA_ON_CPU_CHECK)
__attribute__((always_inline)) inline void go_on_with_next(Stopped* mine) {
    static_assert(sizeof(Stopped) == 24, "the numbers below");
    __asm__ volatile(
#if defined(__AVX__)
        "vzeroupper\n\t"  // the next thread may begin in the runtime, which has no AVX
#endif
        "leaq 1f(%%rip), %%rcx\n\t"
        "movq %%rsp, (%%rax)\n\t"
        "movq %%rbp, 8(%%rax)\n\t"
        "movq %%rcx, 16(%%rax)\n\t"
        "movq 32(%%rax), %%rbp\n\t"
        "movq 24(%%rax), %%rsp\n\t"
        "jmpq *40(%%rax)\n"
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

inline bool wait_in_order(int line) {
    unsigned thread = position.thread;
    if (line != position.barrier_line || thread + 1 >= position.barrier_end) return false;
    position.thread = thread + 1;
    step(threadIdx);
    go_on_with_next(position.stopped + thread);
    return true;
}
#else
inline bool wait_in_order(int) { return false; }
#endif

}  // namespace cuda_on_cpu

// `line` also tells barriers of one line apart: see BARRIER_IN_LINE.

inline void __syncthreads(int line = __builtin_LINE()) {
    if (!cuda_on_cpu::wait_in_order(line))
        cuda_on_cpu::wait_at_barrier(cuda_on_cpu::Barrier::block, 0, line);
}
// These three also tell each thread about the predicates of all: how many hold, whether all, any.
inline int __syncthreads_count(int predicate, int line = __builtin_LINE()) {
    return cuda_on_cpu::wait_at_barrier(cuda_on_cpu::Barrier::count, predicate, line);
}
inline int __syncthreads_and(int predicate, int line = __builtin_LINE()) {
    return cuda_on_cpu::wait_at_barrier(cuda_on_cpu::Barrier::all, predicate, line);
}
inline int __syncthreads_or(int predicate, int line = __builtin_LINE()) {
    return cuda_on_cpu::wait_at_barrier(cuda_on_cpu::Barrier::any, predicate, line);
}
