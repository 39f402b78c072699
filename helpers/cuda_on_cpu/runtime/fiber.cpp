#include "fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <new>

#if defined(CUDA_ON_CPU_PORTABLE_SWITCH)

// Works wherever there is POSIX, but swapcontext also saves the signal mask: two system calls a
// switch, some twenty times the cost of the versions below.
void Fiber::prepare(char* stack, std::size_t bytes, void (*entry)()) {
    getcontext(&context_);
    context_.uc_stack.ss_sp = stack;
    context_.uc_stack.ss_size = bytes;
    context_.uc_link = nullptr;
    makecontext(&context_, entry, 0);
}

void Fiber::switch_to(Fiber& to) { swapcontext(&context_, &to.context_); }

#else

// To the compiler a switch is a function call, so only the registers that a call preserves need
// saving. They go onto the old stack; the stack pointer changes; the new stack gives back its own.
#if defined(__APPLE__)
#define FUNCTION(NAME) ".text\n.p2align 4\n.private_extern " NAME "\n" NAME ":\n"
#else
#define FUNCTION(NAME) \
    ".text\n.p2align 4\n.globl " NAME "\n.hidden " NAME "\n" NAME ":\n"
#endif

#if defined(__x86_64__)

extern "C" void switch_stacks(cuda_on_cpu::Stopped* old, const cuda_on_cpu::Stopped* to) __asm__(
    "cuda_on_cpu_switch_stacks");
// A thread stops here or in a kernel (in_order.h), and goes on from there, whoever resumes it.
__asm__(FUNCTION("cuda_on_cpu_switch_stacks") R"(
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    leaq 1f(%rip), %rax
    movq %rsp, (%rdi)
    movq %rbp, 8(%rdi)
    movq %rax, 16(%rdi)
    movq 8(%rsi), %rbp
    movq (%rsi), %rsp
    jmpq *16(%rsi)
1:
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    ret
)");

void Fiber::prepare(char* stack, std::size_t bytes, void (*entry)()) {
    auto* top = reinterpret_cast<std::uintptr_t*>(
        reinterpret_cast<std::uintptr_t>(stack + bytes) & ~std::uintptr_t{15});
    *--top = 0;  // entry's return address: none; it also aligns the stack as a call would
    stopped_ = {top, nullptr, reinterpret_cast<void*>(entry)};
}

void Fiber::switch_to(Fiber& to) { switch_stacks(&stopped_, &to.stopped_); }

#elif defined(__aarch64__)

extern "C" void switch_stacks(void** old_pointer, void* new_pointer) __asm__(
    "cuda_on_cpu_switch_stacks");
extern "C" void begin_on_stack() __asm__("cuda_on_cpu_begin_on_stack");
constexpr int SAVED_WORDS = 20, X19 = 0, LINK_REGISTER = 11;
__asm__(FUNCTION("cuda_on_cpu_switch_stacks") R"(
    sub sp, sp, #160
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp, #0]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
)" FUNCTION("cuda_on_cpu_begin_on_stack") R"(
    mov x16, x19
    mov x30, xzr
    br x16
)");

void Fiber::prepare(char* stack, std::size_t bytes, void (*entry)()) {
    auto* top = reinterpret_cast<std::uintptr_t*>(
        reinterpret_cast<std::uintptr_t>(stack + bytes) & ~std::uintptr_t{15});
    top -= SAVED_WORDS;
    for (int i = 0; i < SAVED_WORDS; i++) top[i] = 0;
    // The `ret` goes to begin_on_stack, and that to entry, whose return address is none.
    top[LINK_REGISTER] = reinterpret_cast<std::uintptr_t>(&begin_on_stack);
    top[X19] = reinterpret_cast<std::uintptr_t>(entry);
    stack_pointer_ = top;
}

void Fiber::switch_to(Fiber& to) { switch_stacks(&stack_pointer_, to.stack_pointer_); }

#endif

#endif

// Linux allows a process some 65,000 mappings, and a guarded stack takes two of them. Past this
// many stacks (16 cores with full blocks) go without a guard.
static std::atomic<long> guards_left{16 * 1024};

// What a function may leave untouched below the stack pointer, also where the compiler sees to it
// that none jumps over a guard (-fstack-clash-protection).
#if defined(__aarch64__)
constexpr std::size_t UNTOUCHED = 64 * 1024;
#else
constexpr std::size_t UNTOUCHED = 1;  // page, whatever its size
#endif

static std::size_t guard_bytes() {
    auto page = std::size_t(sysconf(_SC_PAGESIZE));
    return ((UNTOUCHED + page - 1) / page | 1) * page;
}

// With its guard a stack takes an odd number of pages. Were it a power of two, all stacks would
// compete for a few entries of the address-translation buffer: a third of the speed.
Stacks::Stacks(std::size_t count)
    : guard_(guard_bytes()), stride_(STACK_BYTES + guard_), count_(count) {
    void* memory = mmap(nullptr, count * stride_, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    base_ = static_cast<char*>(memory);
}

Stacks::~Stacks() {
    munmap(base_, count_ * stride_);
    guards_left += long(guarded_);
}

char* Stacks::usable(std::size_t i, std::size_t* bytes) {
    for (; guarded_ <= i; guarded_++)
        if (guards_left.fetch_sub(1) > 0) mprotect(base_ + guarded_ * stride_, guard_, PROT_NONE);
    // Likewise, stacks that all started at the same offset in a page would share cache lines. A
    // line further each: the innermost frames of 256 threads, a line each, have room in L1.
    *bytes = STACK_BYTES - i % 64 * 64;
    return base_ + i * stride_ + guard_;
}

bool Stacks::contains(const void* address) const {
    return std::size_t(static_cast<const char*>(address) - base_) < count_ * stride_;
}

std::size_t Stacks::index(const void* address) const {
    return std::size_t(static_cast<const char*>(address) - base_) / stride_;
}
