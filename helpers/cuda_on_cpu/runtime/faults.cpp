#include "faults.h"

#include <dlfcn.h>
#if defined(__GLIBC__) || defined(__APPLE__)
#include <execinfo.h>
#endif
#include <pthread.h>
#include <signal.h>
#include <time.h>
#if defined(__linux__)
#include <ucontext.h>
#endif

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "memory.h"

namespace cuda_on_cpu {

constexpr int CAUGHT[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, STOP_SIGNAL};
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

// "accesses " where the hardware does not tell.
static const char* access_kind(void* context) {
#if defined(__linux__) && defined(__x86_64__)
    constexpr long long WRITE = 2;  // a bit of the page fault's error code
    auto* registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
    return registers[REG_ERR] & WRITE ? "writes " : READS;
#else
    (void)context;
    return "accesses ";
#endif
}

static std::string describe_fault(int number, const siginfo_t* info, void* context,
                                  const Multiprocessor& multiprocessor) {
    switch (number) {
        case SIGFPE: return "integer division by zero.";
        case SIGILL:
        case SIGTRAP: return "a trap instruction: code that must not be reached was reached.";
    }
    if (multiprocessor.in_stacks(info->si_addr))
        return "stack overflow: a thread has " + std::to_string(STACK_BYTES / 1024) +
               " KB for its local arrays and calls.";
    std::string overrun = describe_overrun(info->si_addr, multiprocessor.launch());
    if (!overrun.empty()) return access_kind(context) + overrun + ".";
#if defined(SI_KERNEL)
    // x86 does not tell the address of a vector access that is not aligned to the vector's size.
    if (info->si_code == SI_KERNEL)
        return "accesses a misaligned address (or one that cannot exist).";
#endif
    if (std::size_t(info->si_addr) < 4096)
        return std::string(access_kind(context)) + "through a null pointer" +
               (multiprocessor.launch().shared_bytes
                    ? "."
                    : ", or shared memory that the launch did not ask for (its third argument).");
    char address[32];
    std::snprintf(address, sizeof address, "%p", info->si_addr);
    return std::string(access_kind(context)) + "address " + address + ", where there is no memory.";
}

Calls running_calls() {
#if defined(__GLIBC__) || defined(__APPLE__)
    void* frames[64];
    return Calls(frames, frames + backtrace(frames, 64));
#else
    return {};
#endif
}

// Where the thread that the signal came to stands in the kernel's library, the innermost first: it
// may be in a table of jumps to other libraries, which is of no line.
static Calls code_of_kernel(const Multiprocessor& here, void* context) {
    Calls code;
    Dl_info kernel, frame;
    if (!dladdr(reinterpret_cast<void*>(here.launch().run_threads), &kernel)) return code;
    for (void* at : running_calls()) {
        if (!dladdr(at, &frame) || frame.dli_fbase != kernel.dli_fbase) continue;
        bool is_call = at != code_address(context);  // it returns to behind the call
        code.push_back(static_cast<char*>(at) - is_call);
    }
    return code;
}

// Runs on the thread's fault stack. It never returns to a kernel that has faulted: it leaves the
// block for the scheduler, as a kernel that waits would. SA_NODEFER makes that legal, since the
// signal is then not blocked while its handler runs.
static void handle(int number, siginfo_t* info, void* context) {
    Multiprocessor* here = Multiprocessor::running();
    if (number == STOP_SIGNAL) {
        // It may stand between two threads, where no line can be told: the watchdog comes again.
        constexpr int TRIES = 8;
        static thread_local int tries;
        if (!here || !here->is_expelled()) return;
        if (const char* why = here->why_expelled()) {
            Calls code = code_of_kernel(*here, context);
            if (code.empty() && ++tries < TRIES) return;
            tries = 0;
            here->fail_at(0, code, why);
        }
        here->abandon();
    }
    if (here)
        here->fail_at(0, {code_address(context)}, describe_fault(number, info, context, *here));
    if (number == SIGSEGV && access_kind(context) == READS && let_read_past_the_end(info->si_addr))
        return;
    // Not ours: the same instruction faults once more, into the handler that was there before us.
    if (passed_on[number])
        signal(number, SIG_DFL);
    else
        sigaction(number, &previous[number], nullptr);
    passed_on[number] = true;
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
    Clock::time_point begun;
    bool catches_interrupts = false;
    bool asleep = false;  // nothing to watch for a while
    char why[160] = "";   // of a kernel that does not end
    std::condition_variable wake;
};
static Watchdog* watchdog = nullptr;  // never destroyed: its thread outlives main()

static std::atomic<double> time_limit{30};  // seconds of processor time
static volatile sig_atomic_t interrupted = 0;
static struct sigaction interrupt_before;

extern "C" CUDA_ON_CPU_API void cuda_on_cpu_set_time_limit(double seconds) { time_limit = seconds; }

static void handle_interrupt(int) { interrupted = 1; }

// Looks at the grid a few times a second.
static void watch(Watchdog& dog) {
    constexpr std::chrono::milliseconds PERIOD(100);
    constexpr double GRACE = 1;  // seconds, for the other blocks once the grid is stopped
    std::unique_lock<std::mutex> lock(dog.mutex);
    for (;;) {
        lock.unlock();
        std::this_thread::sleep_for(PERIOD);
        lock.lock();
        Grid* grid = dog.grid;
        Clock::time_point now = Clock::now();
        if (!grid && now - dog.begun > 10 * PERIOD) {
            dog.asleep = true;
            dog.wake.wait(lock, [&] { return !dog.asleep; });
        }
        if (!grid || now - dog.begun < PERIOD) continue;
        if (!dog.catches_interrupts) {
            struct sigaction ours {};
            ours.sa_handler = handle_interrupt;
            ours.sa_flags = SA_ONSTACK | SA_RESTART;
            sigemptyset(&ours.sa_mask);
            interrupted = 0;
            sigaction(SIGINT, &ours, &interrupt_before);
            dog.catches_interrupts = true;
        }
        if (interrupted) grid->stop({grid->launch.kernel, 0, {}, "interrupted."});
        for (Multiprocessor* multiprocessor : grid->multiprocessors()) {
            double idle = multiprocessor->seconds_without_progress();
            if (interrupted || (grid->stopped && idle > GRACE)) {
                multiprocessor->expel();
            } else if (idle > time_limit) {
                std::snprintf(dog.why, sizeof dog.why,
                              "no thread of the block has come to an end for %g s. Does this loop "
                              "never end, or wait for a thread that cannot run?",
                              time_limit.load());
                multiprocessor->expel(dog.why);
            }
        }
    }
}

Watched::Watched(Grid& grid) {
    if (!watchdog) {
        watchdog = new Watchdog;
        std::thread([] { watch(*watchdog); }).detach();
    }
    std::lock_guard<std::mutex> lock(watchdog->mutex);
    watchdog->grid = &grid;
    watchdog->begun = Clock::now();
    if (watchdog->asleep) {
        watchdog->asleep = false;
        watchdog->wake.notify_one();
    }
}

Watched::~Watched() {
    std::lock_guard<std::mutex> lock(watchdog->mutex);
    bool stopped = watchdog->grid->stopped;
    watchdog->grid = nullptr;
    if (!watchdog->catches_interrupts) return;
    watchdog->catches_interrupts = false;
    sigaction(SIGINT, &interrupt_before, nullptr);
    if (interrupted && !stopped) raise(SIGINT);  // it came too late for the grid
}

void forget_watchdog() { watchdog = nullptr; }

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

// addr2line comes with the linker. Of the frames that were inlined into one, the innermost that
// is not one of ours is the learner's.
int source_line(void* code_address) {
    Dl_info module;
    if (!code_address || !dladdr(code_address, &module)) return 0;
    char command[4096];
    auto offset = static_cast<char*>(code_address) - static_cast<char*>(module.dli_fbase);
    int length = std::snprintf(command, sizeof command, "addr2line -i -e %s 0x%zx 2>/dev/null",
                               quoted(file_of(code_address, module)).c_str(), std::size_t(offset));
    if (length >= int(sizeof command)) return 0;
    FILE* output = popen(command, "r");
    if (!output) return 0;
    char text[4096];
    int line = 0;
    while (std::fgets(text, sizeof text, output)) {
        std::string frame = text;
        std::size_t colon = frame.rfind(':');
        if (colon == std::string::npos || line) continue;
        if (frame.find("/cuda_on_cpu/") != std::string::npos || frame[0] == '?') continue;
        if (frame.compare(0, 5, "/usr/") == 0) continue;
        line = std::atoi(frame.c_str() + colon + 1);
    }
    pclose(output);
    return line;
}

}  // namespace cuda_on_cpu
