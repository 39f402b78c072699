#include "faults.h"

#include <dlfcn.h>
#if defined(__GLIBC__) || defined(__APPLE__)
#include <execinfo.h>
#endif
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>
#if defined(__linux__)
#include <ucontext.h>
#if defined(__aarch64__)
#include <asm/sigcontext.h>
#endif
#endif

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "host_calls.h"
#include "memory.h"

namespace cuda_on_cpu {

constexpr int CAUGHT[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, STOP_SIGNAL};
static struct sigaction previous[64];
static bool passed_on[64];

static constexpr char READS[] = "reads ";

static void* code_address(void* context) {
#if defined(__linux__) && defined(__x86_64__)
    return reinterpret_cast<void*>(static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP]);
#elif defined(__linux__) && defined(__aarch64__)
    return reinterpret_cast<void*>(static_cast<ucontext_t*>(context)->uc_mcontext.pc);
#else
    (void)context;
    return nullptr;
#endif
}

static char* stack_pointer(void* context) {
#if defined(__linux__) && defined(__x86_64__)
    return reinterpret_cast<char*>(static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RSP]);
#elif defined(__linux__) && defined(__aarch64__)
    return reinterpret_cast<char*>(static_cast<ucontext_t*>(context)->uc_mcontext.sp);
#else
    (void)context;
    return nullptr;
#endif
}

// What called a function where there is none; null where that cannot be told.
static void* caller_of_nowhere(int number, const siginfo_t* info, void* context) {
#if defined(__linux__) && defined(__x86_64__)
    if (number == SIGSEGV && info->si_addr == code_address(context))
        return *reinterpret_cast<char**>(stack_pointer(context)) - 1;
#elif defined(__linux__) && defined(__aarch64__)
    constexpr unsigned LINK = 30;  // the register with the address that a call returns to
    if (number == SIGSEGV && info->si_addr == code_address(context))
        return reinterpret_cast<char*>(static_cast<ucontext_t*>(context)->uc_mcontext.regs[LINK]) -
               1;
#else
    (void)number, (void)info, (void)context;
#endif
    return nullptr;
}

#if defined(__linux__) && defined(__aarch64__)
// The processor's words on the fault, as Linux adds them to the registers; 0 if it does not.
static std::uint64_t syndrome(void* context) {
    const auto* at = static_cast<ucontext_t*>(context)->uc_mcontext.__reserved;
    for (;;) {
        auto* record = reinterpret_cast<const _aarch64_ctx*>(at);
        if (record->magic == ESR_MAGIC) return reinterpret_cast<const esr_context*>(at)->esr;
        if (!record->magic || !record->size) return 0;
        at += record->size;
    }
}
#endif

// "accesses " where the hardware does not tell.
static const char* access_kind(void* context) {
#if defined(__linux__) && defined(__x86_64__)
    constexpr long long WRITE = 2;  // a bit of the page fault's error code
    auto* registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
    return registers[REG_ERR] & WRITE ? "writes " : READS;
#elif defined(__linux__) && defined(__aarch64__)
    // Classes 0x24 and 0x25, in bits 26 to 31, are about data; bit 6: a write.
    constexpr std::uint64_t DATA = 0x24, WRITE = 1 << 6;
    std::uint64_t said = syndrome(context);
    return (said >> 26 & 0x3e) != DATA ? "accesses " : said & WRITE ? "writes " : READS;
#else
    (void)context;
    return "accesses ";
#endif
}

Death death_by(int number, const siginfo_t* info, void* context) {
    Death death{number, info->si_addr, access_kind(context)};
#if defined(SI_KERNEL)
    // x86 does not tell the address of a vector access that is not aligned to the vector's size.
    death.has_address = info->si_code != SI_KERNEL;
#endif
    if (number == SIGBUS && info->si_code == BUS_ADRALN) death.has_address = false;
    // A stack grows downwards, and -fstack-clash-protection lets it miss no page.
    constexpr std::ptrdiff_t NEAR = 64 * 1024;
    char *top = stack_pointer(context), *at = static_cast<char*>(info->si_addr);
    death.near_stack = top && number != SIGABRT && std::abs(at - top) < NEAR;
    return death;
}

std::string describe(const Death& death, const Launch& launch) {
    switch (death.number) {
        case SIGFPE: return "integer division by zero.";
        case SIGILL:
        case SIGTRAP: return "a trap instruction: code that must not be reached was reached.";
        case SIGABRT: return "abort() is called, as the C library does itself when memory is freed "
                             "twice or spoiled, or when an exception leaves a noexcept function.";
    }
    std::string overrun = describe_overrun(death.address, launch);
    if (!overrun.empty()) return death.access + overrun + ".";
    if (!death.has_address) return "accesses a misaligned address (or one that cannot exist).";
    if (std::size_t(death.address) < 4096)
        return std::string(death.access) + "through a null pointer" +
               (launch.shared_bytes || !launch.run_threads
                    ? "."
                    : ", or shared memory that the launch did not ask for (its third argument).");
    char address[32];
    std::snprintf(address, sizeof address, "%p", death.address);
    return std::string(death.access) + "address " + address + ", where there is no memory.";
}

static std::string describe_fault(const Death& death, const Multiprocessor& multiprocessor) {
    if (multiprocessor.in_stacks(death.address))
        return "stack overflow: a thread has " + std::to_string(STACK_BYTES / 1024) +
               " KB for its local arrays and calls.";
    return describe(death, multiprocessor.launch());
}

int running_calls(void* (&frames)[MOST_CALLS]) {
#if defined(__GLIBC__) || defined(__APPLE__)
    return backtrace(frames, MOST_CALLS);
#else
    (void)frames;
    return 0;
#endif
}

Calls running_calls() {
    void* frames[MOST_CALLS];
    return Calls(frames, frames + running_calls(frames));
}

// Where the thread that the signal came to stands in the kernel's library: it may be in a table of
// jumps to other libraries, which is of no line.
static Calls code_of_kernel(const Multiprocessor& here, void* context) {
    auto* kernel = reinterpret_cast<void*>(here.launch().run_threads);
    return calls_in_library_of(kernel, running_calls(), code_address(context));
}

volatile int& InLoader::depth() {
    static thread_local volatile int depth;
    return depth;
}

bool find_module(const void* address, Dl_info* module) {
    InLoader here;
    return dladdr(address, module);
}

Calls calls_in_library_of(const void* function, const Calls& calls, const void* innermost) {
    Calls code;
    Dl_info library, frame;
    if (!find_module(function, &library)) return code;
    for (void* at : calls) {
        if (!find_module(at, &frame) || frame.dli_fbase != library.dli_fbase) continue;
        bool is_call = at != innermost;  // it returns to behind the call
        code.push_back(static_cast<char*>(at) - is_call);
    }
    return code;
}

// What is left in the middle is left where its own code stands, not amid the runtime's or the C
// library's, which may hold a lock: from there the thread goes on by single instructions for a
// while. It may come from a short call, as in a loop around usleep() or atomicAdd().
constexpr int STEPS = 20'000;
static thread_local int steps_left;
#if defined(__linux__) && defined(__x86_64__)
constexpr bool CAN_STEP = true;
#else
constexpr bool CAN_STEP = false;
#endif

static void step_by_step(void* context, bool on) {
#if defined(__linux__) && defined(__x86_64__)
    constexpr long long TRAP = 0x100;  // a bit of the flags: a SIGTRAP after each instruction
    auto& flags = static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_EFL];
    flags = on ? flags | TRAP : flags & ~TRAP;
#else
    (void)context, (void)on;
#endif
}

static bool in_library_of(const void* function, void* code) {
    Dl_info its, here;
    return find_module(function, &its) && find_module(code, &here) &&
           its.dli_fbase == here.dli_fbase;
}

// Leaves a block that was expelled, if its own code stands there. Else returns whether it shall be
// tried again.
static bool leave_block_if_possible(Multiprocessor& here, void* context) {
    constexpr int TRIES = 8;  // of the watchdog, where there are no single instructions
    static thread_local int tries;
    if (!here.is_expelled()) return false;
    if (InLoader::is_here()) return true;
    auto* kernel = reinterpret_cast<void*>(here.launch().run_threads);
    bool is_own = in_library_of(kernel, code_address(context));
    if (!is_own && (CAN_STEP || ++tries < TRIES)) return true;
    tries = 0;
    if (const char* why = here.why_expelled()) here.fail_at(0, code_of_kernel(here, context), why);
    here.abandon();
}

static bool a_grid_runs();

// Runs on the thread's fault stack. It never returns to a kernel that has faulted: it leaves the
// block for the scheduler, as a kernel that waits would. SA_NODEFER makes that legal, since the
// signal is then not blocked while its handler runs.
static void handle(int number, siginfo_t* info, void* context) {
    Multiprocessor* here = Multiprocessor::running();
    // The two signals come in each other's handler too: a step is known by its code, as steps_left
    // may be 0 for the moment.
    bool is_step = CAN_STEP && number == SIGTRAP && info->si_code == TRAP_TRACE;
    if (is_step || number == STOP_SIGNAL) {
        int left = is_step ? std::max(steps_left - 1, 0) : STEPS;
        steps_left = 0;  // and so it stays if what follows does not return
        // A grid that runs is the watchdog's to stop: other threads use what its launch has here.
        bool goes_on = here ? leave_block_if_possible(*here, context)
                            : !a_grid_runs() && leave_host_call_if_possible(code_address(context));
        if (goes_on) steps_left = left;
        return step_by_step(context, steps_left);
    }
    Death death = death_by(number, info, context);
    void* code = code_address(context);
    if (void* caller = caller_of_nowhere(number, info, context)) {
        death.access = "calls a function ";
        code = caller;
    }
    if (here) here->fail_at(0, {code}, describe_fault(death, *here));
    if (number == SIGSEGV && access_kind(context) == READS && let_read_past_the_end(info->si_addr))
        return;
    leave_host_call(death, code);
    // Not ours: the same instruction faults once more, into the handler that was there before us.
    if (passed_on[number])
        signal(number, SIG_DFL);
    else
        sigaction(number, &previous[number], nullptr);
    passed_on[number] = true;
    if (number == SIGABRT) raise(number);  // no instruction's
}

void catch_faults() {
    struct sigaction now;
    sigaction(SIGSEGV, nullptr, &now);
    if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == handle) return;
    struct sigaction ours {};
    ours.sa_sigaction = handle;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigemptyset(&ours.sa_mask);
    for (int number : CAUGHT) {
        sigaction(number, &ours, &now);
        if (!(now.sa_flags & SA_SIGINFO) || now.sa_sigaction != handle) previous[number] = now;
    }
}

// A fault may be a stack overflow, so its handler cannot use the stack that faulted.
void prepare_fault_stack() {
    constexpr std::size_t ENOUGH = 16 * 1024, BYTES = 64 * 1024;
    stack_t stack{};
    sigaltstack(nullptr, &stack);
    if (!(stack.ss_flags & SS_DISABLE) && stack.ss_size >= ENOUGH) return;
    stack = {};
    stack.ss_sp = std::malloc(BYTES);
    stack.ss_size = BYTES;
    sigaltstack(&stack, nullptr);
}

// ---------------------------------------------------------------- the watchdog

using Clock = std::chrono::steady_clock;

struct Watchdog {
    std::mutex mutex;
    Grid* grid = nullptr;
    const pthread_t* host = nullptr;  // the thread that is in a function of the host
    Clock::time_point begun;          // the first of the two
    bool catches_interrupts = false;
    bool asleep = false;  // nothing to watch for a while
    char why[320] = "";   // of a kernel that does not end
    std::atomic<void (*)()> errand{nullptr};
    std::condition_variable wake;
};
static Watchdog* watchdog = nullptr;  // never destroyed: its thread outlives main()

static bool a_grid_runs() { return watchdog && watchdog->grid; }

static std::atomic<double> time_limit{30};  // seconds of processor time
static volatile sig_atomic_t interrupted = 0;
static struct sigaction interrupt_before;

extern "C" CUDA_ON_CPU_API void cuda_on_cpu_set_time_limit(double seconds) { time_limit = seconds; }

static void handle_interrupt(int) { interrupted = 1; }

static constexpr char TOO_MANY_BLOCKS[] =
    " A GPU does not run so many blocks at once, and in any order: none can wait for one that has "
    "not begun. A cooperative launch sees to that.";

// Looks at the grid a few times a second; more often at a function that is to be left.
static void watch(Watchdog& dog) {
    constexpr std::chrono::milliseconds PERIOD(100), SOON(5);
    constexpr double GRACE = 1;  // seconds, for the other blocks once the grid is stopped
    std::unique_lock<std::mutex> lock(dog.mutex);
    for (;;) {
        bool leaves_host = interrupted && dog.host && !dog.grid;
        lock.unlock();
        std::this_thread::sleep_for(leaves_host ? SOON : PERIOD);
        lock.lock();
        Grid* grid = dog.grid;
        Clock::time_point now = Clock::now();
        if (!grid && !dog.host && now - dog.begun > 10 * PERIOD) {
            dog.asleep = true;
            dog.wake.wait(lock, [&] { return !dog.asleep; });
        }
        if ((!grid && !dog.host) || now - dog.begun < PERIOD) continue;
        if (!dog.catches_interrupts) {
            struct sigaction ours {};
            ours.sa_handler = handle_interrupt;
            ours.sa_flags = SA_ONSTACK | SA_RESTART;
            sigemptyset(&ours.sa_mask);
            interrupted = 0;
            sigaction(SIGINT, &ours, &interrupt_before);
            dog.catches_interrupts = true;
        }
        if (auto errand = dog.errand.load()) {
            errand();
            dog.errand = nullptr;
        }
        if (!grid) {
            if (interrupted) pthread_kill(*dog.host, STOP_SIGNAL);
            continue;
        }
        bool ends = interrupted;  // read once: a block is expelled only when its grid was stopped
        if (ends) grid->stop({grid->launch.kernel, 0, {}, "interrupted."});
        for (Multiprocessor* multiprocessor : grid->multiprocessors()) {
            double idle = multiprocessor->seconds_without_progress();
            if (ends || (grid->stopped && idle > GRACE)) {
                multiprocessor->expel();
            } else if (idle > time_limit) {
                std::snprintf(dog.why, sizeof dog.why,
                              "no thread of the block has come to an end for %g s. Does this loop "
                              "never end, or wait for a thread that cannot run?%s",
                              time_limit.load(),
                              grid->blocks > blocks_at_once(grid->launch) ? TOO_MANY_BLOCKS : "");
                multiprocessor->expel(dog.why);
            }
        }
    }
}

// Lets the watchdog see a grid or a function of the host.
template <class Seen>
static void begin_to_watch(Seen* Watchdog::*what, Seen* it) {
    // A forked child has none of its threads.
    static const int once = pthread_atfork(nullptr, nullptr, [] { watchdog = nullptr; });
    (void)once;
    if (!watchdog) {
        watchdog = new Watchdog;
        std::thread([dog = watchdog] { watch(*dog); }).detach();
    }
    std::lock_guard<std::mutex> lock(watchdog->mutex);
    if (!watchdog->grid && !watchdog->host) watchdog->begun = Clock::now();
    watchdog->*what = it;
    if (watchdog->asleep) {
        watchdog->asleep = false;
        watchdog->wake.notify_one();
    }
}

// The watchdog's mutex is locked. has_stopped: an interrupt has done its work.
static void stop_watching(bool has_stopped) {
    if (has_stopped) interrupted = 0;
    if (!watchdog->catches_interrupts || watchdog->grid || watchdog->host) return;
    watchdog->catches_interrupts = false;
    sigaction(SIGINT, &interrupt_before, nullptr);
    if (interrupted) raise(SIGINT);  // it came too late
    interrupted = 0;
}

Watched::Watched(Grid& grid) { begin_to_watch(&Watchdog::grid, &grid); }

Watched::~Watched() {
    std::lock_guard<std::mutex> lock(watchdog->mutex);
    bool stopped = watchdog->grid->stopped;
    watchdog->grid = nullptr;
    stop_watching(stopped);
}

// Python learns of Ctrl-C on its main thread.
static bool is_main_thread() {
#if defined(__APPLE__)
    return pthread_main_np();
#else
    return gettid() == getpid();
#endif
}

WatchedHost::WatchedHost(bool is_outermost)
    : thread_(pthread_self()), is_watched_(is_outermost && is_main_thread()) {
    if (is_watched_) begin_to_watch(&Watchdog::host, &thread_);
}

void WatchedHost::end(bool was_interrupted) {
    // A child of a fork has no watchdog.
    if (!std::exchange(is_watched_, false) || !watchdog) return;
    std::lock_guard<std::mutex> lock(watchdog->mutex);
    if (watchdog->host != &thread_) return;
    watchdog->host = nullptr;
    stop_watching(was_interrupted);
}

void let_watchdog_do(void (*errand)(), double seconds) {
    constexpr double PERIOD = 0.01;
    if (!watchdog || !watchdog->host) return;
    watchdog->errand = errand;
    for (; seconds > 0 && watchdog->errand.load(); seconds -= PERIOD) usleep(unsigned(PERIOD * 1e6));
}

bool is_interrupted() { return interrupted; }

// ---------------------------------------------------------------- lines

// The loader remembers the name that the file had then; Linux also knows the one it has now.
std::string file_of(void* code_address, const Dl_info& module) {
    if (FILE* maps = std::fopen("/proc/self/maps", "r")) {
        char line[4096];
        std::string found;
        while (found.empty() && std::fgets(line, sizeof line, maps)) {
            std::size_t first, end;
            const char* path = std::strchr(line, '/');
            if (path && std::sscanf(line, "%zx-%zx", &first, &end) == 2 &&
                std::size_t(code_address) - first < end - first)
                found.assign(path, std::strcspn(path, "\n"));
        }
        std::fclose(maps);
        if (!found.empty()) return found;
    }
    return module.dli_fname ? module.dli_fname : "";
}

// A word of a shell's command, whatever stands in it.
static std::string quoted(const std::string& word) {
    std::string text = "'";
    for (char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return text + "'";
}

static bool is_of_ours(const std::string& file) {
    for (const char* folder : {"/cuda_on_cpu/", "/torch_light/", "/torch/include/"})
        if (file.find(folder) != std::string::npos) return true;
    return file.compare(0, 5, "/usr/") == 0 || file[0] == '?';
}

// addr2line comes with the linker. Of the frames that were inlined into one, the innermost that
// is not one of ours is the learner's: two lines each, a function and a place.
SourcePlace source_place(void* code_address) {
    Dl_info module;
    SourcePlace place;
    if (!code_address || !dladdr(code_address, &module)) return place;
    char command[4096];
    auto offset = static_cast<char*>(code_address) - static_cast<char*>(module.dli_fbase);
    int length = std::snprintf(command, sizeof command, "addr2line -fCi -e %s 0x%zx 2>/dev/null",
                               quoted(file_of(code_address, module)).c_str(), std::size_t(offset));
    if (length >= int(sizeof command)) return place;
    FILE* output = popen(command, "r");
    if (!output) return place;
    char text[4096];
    while (std::fgets(text, sizeof text, output)) {
        std::string function(text, std::strcspn(text, "(\n"));
        bool of_lambda = function.compare(0, 5, "std::") == 0 || function == "operator";
        if (of_lambda) function = "";
        if (!std::fgets(text, sizeof text, output)) break;
        std::string frame = text;
        std::size_t colon = frame.rfind(':');
        if (colon == std::string::npos || place.line || is_of_ours(frame)) continue;
        place = {function, std::atoi(frame.c_str() + colon + 1)};
    }
    pclose(output);
    return place;
}

int source_line(void* code_address) { return source_place(code_address).line; }

}  // namespace cuda_on_cpu
