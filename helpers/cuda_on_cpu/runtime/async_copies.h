// Copies to shared memory that their threads have not waited for yet.
#pragma once
#include <cstddef>
#include <vector>

namespace cuda_on_cpu {

class AsyncCopies {
public:
    void begin_block();
    // from: where the value was read, or null. code: of the copy
    void add(unsigned thread, void* to, const void* from, const void* value, std::size_t bytes,
             const void* code);
    void commit(unsigned thread);
    void wait(unsigned thread, unsigned groups);  // until at most so many are under way
    void wait_for_all(unsigned thread);
    void bind(unsigned thread, const void* barrier);
    void deliver_bound(const void* barrier);  // of all threads, as it opens

private:
    struct Copy {
        void* to;
        const void *from, *code;
        const void* barrier;  // whose opening stands for the copy, or null
        unsigned bytes, group;
        unsigned char value[16];
    };
    struct Queue {
        std::vector<Copy> copies;
        unsigned group = 0;  // that is open
    };

    Queue& queue(unsigned thread);
    template <class Which>
    void deliver(Queue& from, Which which);
    std::vector<Queue> of_thread_;
    bool used_ = false, bound_ = false;  // in this block
};

}  // namespace cuda_on_cpu
