#include "async_copies.h"

#include <cstring>

#include "../include/cuda_on_cpu/async_copy.h"
#include "multiprocessor.h"

namespace cuda_on_cpu {

void AsyncCopies::begin_block() {
    if (!used_) return;
    used_ = false;
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

void AsyncCopies::add(unsigned thread, void* to, const void* value, std::size_t bytes) {
    Queue& its = queue(thread);
    Copy copy{to, unsigned(bytes), its.group, {}};
    std::memcpy(copy.value, value, bytes);
    its.copies.push_back(copy);
}

void AsyncCopies::commit(unsigned thread) { queue(thread).group++; }

void AsyncCopies::wait(unsigned thread, unsigned groups) {
    Queue& its = queue(thread);
    if (its.group > groups) deliver(its, its.group - groups);
}

void AsyncCopies::wait_for_all(unsigned thread) {
    Queue& its = queue(thread);
    deliver(its, its.group + 1);
}

void AsyncCopies::deliver(Queue& queue, unsigned end) {
    auto copy = queue.copies.begin();
    for (; copy != queue.copies.end() && copy->group < end; ++copy)
        std::memcpy(copy->to, copy->value, copy->bytes);
    queue.copies.erase(queue.copies.begin(), copy);
}

// ---------------------------------------------------------------- entry points

void deliver_later(void* to, const void* value, std::size_t bytes) {
    in_kernel("an asynchronous copy").copies().add(position.thread, to, value, bytes);
}
void commit_copies() { in_kernel("an asynchronous copy").copies().commit(position.thread); }
void wait_for_copies(unsigned groups) {
    in_kernel("an asynchronous copy").copies().wait(position.thread, groups);
}
void wait_for_all_copies() {
    in_kernel("an asynchronous copy").copies().wait_for_all(position.thread);
}

}  // namespace cuda_on_cpu
