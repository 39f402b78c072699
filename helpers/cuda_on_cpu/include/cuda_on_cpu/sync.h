// Barriers of a block. Every thread of the block has to reach the same one.
#pragma once
#include "in_order.h"
#include "runtime.h"

// `line` also tells barriers of one line apart: see BARRIER_IN_LINE.

inline void __syncthreads(int line = __builtin_LINE()) {
    if (cuda_on_cpu::is_in_order(line)) cuda_on_cpu::hand_over();
    else cuda_on_cpu::wait_at_barrier(cuda_on_cpu::Barrier::block, 0, line);
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
