#include "host_calls.h"

#include "../include/cuda_on_cpu/host_calls.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <setjmp.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <exception>
#include <stdexcept>

#include "host_memory.h"

namespace cuda_on_cpu {

struct Running {
    Running* const outer;
    const void* const function;
    jmp_buf leave{};
    Death death{};
    void* code_address = nullptr;  // where it was left
    Calls calls{};                 // and what it was called by
    std::vector<void*> allocated{};
    bool kernel_failed = false;
};
static CUDA_ON_CPU_THREAD_LOCAL Running* innermost = nullptr;
static std::atomic<const void*> latest_function{nullptr};

// "twice, line 12": the innermost function of the string; "" if unknown.
static std::string place(const void* function, const Calls& calls, void* code_address) {
    Calls all = calls;
    all.insert(all.begin(), code_address);
    for (void* code : calls_in_library_of(function, all, code_address)) {
        SourcePlace found = source_place(code);
        std::string line = "line " + std::to_string(found.line);
        if (found.line) return found.function.empty() ? line : found.function + ", " + line;
    }
    return "a function of the host";
}

static std::string describe_host(const Death& death) {
    if (death.near_stack)
        return "stack overflow: does this recursion never end, or are its local arrays too large?";
    return describe(death, Launch{});
}

static void write_error(const char* text) {
    if (write(STDERR_FILENO, text, std::strlen(text)) < 0) return;
}

// Whether memory can be had: not where the C library was left while it held its locks. A child
// process finds out, with no copy but of this thread.
static bool memory_still_works() {
#if defined(__linux__)
    constexpr unsigned SECONDS = 2;
    long child = syscall(SYS_clone, 0, 0, 0, 0, 0);
    if (child == 0) {
        signal(SIGALRM, SIG_DFL);
        for (int number : {SIGSEGV, SIGBUS, SIGABRT}) signal(number, SIG_DFL);
        sigset_t all;
        sigfillset(&all);
        sigprocmask(SIG_UNBLOCK, &all, nullptr);
        alarm(SECONDS);
        for (std::size_t bytes = 16; bytes < (4 << 20); bytes *= 2) {
            void* volatile memory = std::malloc(bytes);
            std::free(memory);
        }
        _exit(0);
    }
    int status = 0;
    if (child < 0 || waitpid(pid_t(child), &status, __WALL) != child) return false;
    return WIFEXITED(status);
#else
    return true;
#endif
}

[[noreturn]] static void leave(Running& call, const Death& death, void* code_address) {
    call.death = death;
    call.code_address = code_address;
    call.calls = running_calls();
    longjmp(call.leave, 1);
}

// What a process says that ends. There is no memory for more than it has.
static struct {
    Death death;
    void* code_address;
    void* frames[MOST_CALLS];
    int count;
} last;

static void say_last_words() {
    Calls calls(last.frames, last.frames + last.count);
    std::string where = place(latest_function, calls, last.code_address);
    write_error((where + ": " + describe_host(last.death) + "\n").c_str());
}

void leave_host_call(const Death& death, void* code_address) {
    constexpr double SECONDS = 2;
    bool in_call = innermost;
    if (in_call && memory_still_works()) leave(*innermost, death, code_address);
    // The process ends. A thread that the string has started can be told by where it stands.
    Dl_info function, here;
    if (!in_call && (!latest_function || !dladdr(latest_function, &function) ||
                     !dladdr(code_address, &here) || here.dli_fbase != function.dli_fbase))
        return;
    last.death = death;
    last.code_address = code_address;
    last.count = running_calls(last.frames);
    write_error("A function of the host ends the process, ");
    write_error(in_call ? "since it has spoiled the memory that is malloc's: "
                        : "in another thread: ");
    in_call ? let_watchdog_do(&say_last_words, SECONDS) : say_last_words();
}

bool leave_host_call_if_possible(void* code_address) {
    Dl_info function, here;
    if (!innermost || !is_interrupted() || !dladdr(innermost->function, &function)) return false;
    if (dladdr(code_address, &here) && here.dli_fbase == function.dli_fbase)
        leave(*innermost, {SIGINT, nullptr, ""}, code_address);
    return true;
}

void note_allocation(void* array) {
    if (innermost) innermost->allocated.push_back(array);
}

void note_failed_kernel() {
    if (innermost) innermost->kernel_failed = true;
}

static void free_arrays(const Running& call) {
    for (void* array : call.allocated) release_now(array);  // or it has been freed
}

// The exceptions that the code which was left had caught, or died of.
static std::string drop_exceptions(const std::exception_ptr& before) {
    std::string what;
    for (;;) {
        std::exception_ptr now = std::current_exception();
        if (!now || now == before) return what;
        try {
            std::rethrow_exception(now);
        } catch (const std::exception& error) {
            what = error.what();
        } catch (...) {
            what = "of an unknown type";
        }
        __cxxabiv1::__cxa_end_catch();
    }
}

static void prepare_thread() {
    static CUDA_ON_CPU_THREAD_LOCAL bool is_prepared = false;
    catch_faults();
    if (is_prepared) return;
    is_prepared = true;
    prepare_fault_stack();
    running_calls();  // the first call loads a library, which takes memory
}

static constexpr char LEFT[] =
    "\nThis is code of the host. It was left where it stood: memory and locks that it had may stay "
    "taken until the notebook's kernel is restarted.";

void call_host(void (*work)(void*), void* argument) {
    prepare_thread();
    std::exception_ptr before = std::current_exception();
    Running call{innermost, reinterpret_cast<void*>(work)};
    struct Scope {
        ~Scope() { innermost = outer; }
        Running* outer;
    } scope{call.outer};
    latest_function = call.function;
    innermost = &call;
    WatchedHost watched(!call.outer);
    if (!setjmp(call.leave)) {
        try {
            return work(argument);
        } catch (...) {
            if (call.kernel_failed) free_arrays(call);
            throw;
        }
    }
    innermost = call.outer;
    bool interrupted = call.death.number == SIGINT;
    watched.end(interrupted);
    std::string exception = drop_exceptions(before);
    free_arrays(call);
    std::string where = place(call.function, call.calls, call.code_address) + ": ";
    if (interrupted) throw std::runtime_error(where + "interrupted.");
    std::string sentence = describe_host(call.death);
    if (call.death.number == SIGABRT && !exception.empty())
        sentence = "an exception cannot leave a noexcept function or a destructor: " + exception;
    throw std::runtime_error(where + sentence + LEFT);
}

}  // namespace cuda_on_cpu
