#include "async_copies.h"

#include <cstring>

#include "../include/cuda_on_cpu/async_copy.h"
#include "checker.h"
#include "multiprocessor.h"

namespace cuda_on_cpu {

void AsyncCopies::begin_block() {
    if (!used_) return;
    used_ = bound_ = false;
    for (Queue& queue : of_thread_) {
        queue.copies.clear();
        queue.group = 0;
    }
}

AsyncCopies::Queue& AsyncCopies::queue(unsigned thread) {
    used_ = true;
    if (of_thread_.empty()) of_thread_.resize(MAX_THREADS);
    return of_thread_[thread];
}

void AsyncCopies::add(unsigned thread, void* to, const void* from, const void* value,
                      std::size_t bytes, const void* code) {
    Queue& its = queue(thread);
    Copy copy{to, from, code, nullptr, unsigned(bytes), its.group, {}};
    std::memcpy(copy.value, value, bytes);
    its.copies.push_back(copy);
    if (checker_here) checker_here->begin_copy(std::uintptr_t(to), copy.bytes);
}

void AsyncCopies::commit(unsigned thread) { queue(thread).group++; }

void AsyncCopies::wait(unsigned thread, unsigned groups) {
    Queue& its = queue(thread);
    unsigned open = its.group;
    deliver(its, [=](const Copy& copy) { return !copy.barrier && copy.group + groups < open; });
}

void AsyncCopies::wait_for_all(unsigned thread) {
    deliver(queue(thread), [](const Copy& copy) { return !copy.barrier; });
}

void AsyncCopies::bind(unsigned thread, const void* barrier) {
    Queue& its = queue(thread);
    bound_ = true;
    for (Copy& copy : its.copies)
        if (!copy.barrier && copy.group == its.group) copy.barrier = barrier;
}

void AsyncCopies::deliver_bound(const void* barrier) {
    if (!bound_) return;
    for (Queue& queue : of_thread_)
        deliver(queue, [=](const Copy& copy) { return copy.barrier == barrier; });
}

template <class Which>
void AsyncCopies::deliver(Queue& from, Which which) {
    std::vector<Copy>& copies = from.copies;
    std::size_t kept = 0;
    for (const Copy& copy : copies) {
        if (!which(copy)) {
            copies[kept++] = copy;
            continue;
        }
        if (checker_here) {
            auto thread = unsigned(&from - of_thread_.data());
            if (copy.from)
                checker_here->end_read(thread, copy.from, copy.value, copy.bytes, copy.code,
                                       copy.barrier);
            checker_here->end_copy(std::uintptr_t(copy.to), copy.bytes, copy.barrier);
        }
        std::memcpy(copy.to, copy.value, copy.bytes);
    }
    copies.resize(kept);
}

// ---------------------------------------------------------------- entry points

void deliver_later(void* to, const void* from, const void* value, std::size_t bytes) {
    in_kernel("an asynchronous copy")
        .copies()
        .add(position.thread, to, from, value, bytes, __builtin_return_address(0));
}
void commit_copies() { in_kernel("an asynchronous copy").copies().commit(position.thread); }
void wait_for_copies(unsigned groups) {
    in_kernel("an asynchronous copy").copies().wait(position.thread, groups);
}
void wait_for_all_copies() {
    in_kernel("an asynchronous copy").copies().wait_for_all(position.thread);
}
void bind_copies(const void* barrier) {
    in_kernel("an asynchronous copy").copies().bind(position.thread, barrier);
}

}  // namespace cuda_on_cpu
