// Local variables without a value: each byte of the threads' stacks that belongs to one.
//
// A variable that is declared without a value is filled with UNSET and marked here. A write that
// the compiler tells of takes the mark away. Other writes, by code that is not checked, overwrite
// what it is filled with. So what has both has not been set.
#pragma once
#include <cstring>
#include <vector>

#include "../include/cuda_on_cpu/check.h"
#include "../include/cuda_on_cpu/limits.h"
#include "access.h"
#include "fiber.h"

namespace cuda_on_cpu {

class Locals {
public:
    explicit Locals(const Stacks& stacks) : stacks_(stacks) {}
    ~Locals();
    Locals(const Locals&) = delete;

    void begin_block();
    void declare(const DeclaredArray& variable, std::size_t number_bytes, unsigned thread);

    // Most accesses are found right here; the others are to be looked at by what follows.
    [[gnu::always_inline]] bool passes(std::uintptr_t address, unsigned bytes, AccessKind kind) {
        if (!marks_) return true;
        Mark* marks = marks_of(address);
        if (kind == AccessKind::store) std::memset(marks, 0, bytes);
        return kind == AccessKind::store || (kind == AccessKind::load && !any(marks, bytes));
    }
    // Whether all of it is unset or, of numbers in one access, any.
    bool is_unset(std::uintptr_t address, std::size_t bytes) const;
    bool is_structure(std::uintptr_t address) const {
        return *marks_of(address) == Mark::structure;
    }
    void set(std::uintptr_t address, std::size_t bytes);

    // The variable that lies there, as far as it is known.
    const DeclaredArray* find(std::uintptr_t address, unsigned thread) const;

private:
    enum class Mark : unsigned char { set, short_number, number, other, structure };

    bool is_in_stacks(std::uintptr_t address) const {
        return address - std::uintptr_t(stacks_.begin()) < stacks_.bytes();
    }
    Mark* marks_of(std::uintptr_t address) const {
        return marks_ + (address - std::uintptr_t(stacks_.begin()));
    }
    static bool any(const Mark* marks, unsigned bytes) {
        unsigned char found = 0;
        for (unsigned i = 0; i < bytes; i++) found |= (unsigned char)(marks[i]);
        return found;
    }

    const Stacks& stacks_;
    Mark* marks_ = nullptr;  // one for each byte; made when there is a first variable
    bool any_declared_ = false;  // in this block
    std::vector<DeclaredArray> declared_[MAX_THREADS];  // by each thread, the latest ones last
};

}  // namespace cuda_on_cpu
