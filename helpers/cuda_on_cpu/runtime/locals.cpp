#include "locals.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "shadow.h"

namespace cuda_on_cpu {

Locals::~Locals() {
    if (marks_) munmap(marks_, stacks_.bytes());
}

void Locals::begin_block() {
    if (any_declared_)
        for (auto& declared : declared_) declared.clear();
    any_declared_ = false;
}

// A variable of a function that has returned lies below the running one, or where the new one is.
void Locals::declare(const DeclaredArray& variable, std::size_t number_bytes, unsigned thread) {
    auto begin = std::uintptr_t(variable.begin);
    if (!is_in_stacks(begin)) return;
    if (!marks_) marks_ = static_cast<Mark*>(map_zeros(stacks_.bytes()));
    auto is_over = [&](const DeclaredArray& other) {
        auto at = std::uintptr_t(other.begin);
        return at < std::uintptr_t(__builtin_frame_address(0)) ||
               (at < begin + variable.bytes && begin < at + other.bytes);
    };
    auto& declared = declared_[thread];
    declared.erase(std::remove_if(declared.begin(), declared.end(), is_over), declared.end());
    declared.push_back(variable);
    any_declared_ = true;
    std::memset(const_cast<void*>(variable.begin), UNSET, variable.bytes);
    Mark mark = number_bytes == 2  ? Mark::short_number
                : number_bytes > 2 ? Mark::number
                : number_bytes     ? Mark::other
                                   : Mark::structure;
    std::memset(marks_of(begin), int(mark), variable.bytes);
}

bool Locals::is_unset(std::uintptr_t address, std::size_t bytes) const {
    if (!marks_ || !is_in_stacks(address)) return false;
    constexpr std::size_t LARGEST_VECTOR = 16;
    auto* value = reinterpret_cast<const unsigned char*>(address);
    const Mark* marks = marks_of(address);
    bool is_short = std::find(marks, marks + bytes, Mark::short_number) != marks + bytes;
    std::size_t step = is_short ? 2 : 4;
    bool is_all = true, is_any = false;
    for (std::size_t at = 0; at < bytes; at += step) {
        bool is_unset = true;
        for (std::size_t i = at; i < std::min(at + step, bytes); i++)
            is_unset &= marks[i] != Mark::set && value[i] == UNSET;
        is_all &= is_unset;
        is_any |= is_unset && marks[at] < Mark::other;
    }
    return is_all || (is_any && bytes <= LARGEST_VECTOR);
}

void Locals::set(std::uintptr_t address, std::size_t bytes) {
    if (marks_ && is_in_stacks(address)) std::memset(marks_of(address), 0, bytes);
}

const DeclaredArray* Locals::find(std::uintptr_t address, unsigned thread) const {
    for (const DeclaredArray& variable : declared_[thread])
        if (address - std::uintptr_t(variable.begin) < variable.bytes) return &variable;
    return nullptr;
}

}  // namespace cuda_on_cpu
