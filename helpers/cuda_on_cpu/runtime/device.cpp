// The device: checks a launch and hands out its blocks to the multiprocessors.
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <thread>
#include <tuple>

#include "counter.h"
#include "checker.h"
#include "faults.h"
#include "host_calls.h"
#include "memory.h"
#include "multiprocessor.h"
#include "streams.h"

namespace cuda_on_cpu {

constexpr int DEEPEST_LAUNCH = 24;  // kernels launched by kernels

// Runs blocks of the grid on this thread; for lack of memory they are given up as by a fault.
static void run_blocks(Grid& grid, std::uint64_t chunk, std::uint64_t chunks) {
    try {
        Multiprocessor::mine().run_blocks(grid, chunk, chunks);
    } catch (const std::bad_alloc&) {
        grid.stop({grid.launch.kernel, 0, {}, "no memory for its threads' stacks."});
    }
}

// Operating-system threads that help the launching one. They sleep between launches.
class Crew {
public:
    // Lets so many others run blocks of the grid as well; wait() returns when they have stopped.
    void help(Grid& grid, unsigned helpers, std::uint64_t chunk, std::uint64_t chunks) {
        {
            std::lock_guard<std::mutex> lock(mutex_);
            grid_ = &grid;
            chunk_ = chunk;
            chunks_ = chunks;
            wanted_ += helpers;
            busy_ += helpers;
            for (; size_ < busy_; size_++) start();
        }
        wake_.notify_all();
    }
    void wait() {
        std::unique_lock<std::mutex> lock(mutex_);
        finished_.wait(lock, [&] { return busy_ == 0; });
    }

private:
    void start() {
        std::thread([this] {
            std::unique_lock<std::mutex> lock(mutex_);
            for (;;) {
                wake_.wait(lock, [&] { return wanted_ != 0; });
                wanted_--;
                Grid& grid = *grid_;
                std::uint64_t chunk = chunk_, chunks = chunks_;
                lock.unlock();
                run_blocks(grid, chunk, chunks);
                lock.lock();
                if (--busy_ == 0) finished_.notify_one();
            }
        }).detach();
    }

    std::mutex mutex_;
    std::condition_variable wake_, finished_;
    unsigned size_ = 0, wanted_ = 0, busy_ = 0;  // threads: all, yet to begin, yet to end
    std::uint64_t chunk_ = 0, chunks_ = 0;
    Grid* grid_ = nullptr;
};

// How much dynamic shared memory a launch may ask for. CUDA keeps this for each kernel; here one
// request counts for all, because a launch does not know its kernel's address.
static std::atomic<std::size_t> shared_limit{SHARED_WITHOUT_REQUEST};

// Never destroyed: its threads outlive main(). A forked child has none of them and starts afresh.
static Crew* crew = nullptr;
static std::recursive_mutex* one_launch_at_a_time = nullptr;  // a grid's launches follow in it

static void start_afresh() {
    crew = new Crew;
    one_launch_at_a_time = new std::recursive_mutex;
}

static unsigned cores() {
    static const unsigned count = std::max(1u, std::thread::hardware_concurrency());
    return count;
}

static std::string describe(const Fault& fault) {
    int line = fault.line;
    for (void* code : fault.code)
        if (!line) line = source_line(code);
    std::string at_line = line ? ", line " + std::to_string(line) : "";
    return fault.where + at_line + ": " + fault.sentence;
}

// gridDim, blockDim, blockIdx, threadIdx of the thread that the last launch was stopped at.
static thread_local std::optional<std::array<uint3, 4>> stopped_at;

extern "C" CUDA_ON_CPU_API bool cuda_on_cpu_stopped_at(uint3* four) {
    if (stopped_at) std::copy(stopped_at->begin(), stopped_at->end(), four);
    return stopped_at.has_value();
}

struct Refused : std::runtime_error {
    cudaError_t error;
    Refused(cudaError_t error, const std::string& sentence)
        : std::runtime_error(sentence), error(error) {}
};

static void check(const Launch& launch, std::uint64_t threads) {
    const uint3 &grid = launch.grid, &block = launch.block;
    auto refuse = [&](const std::string& sentence,
                      cudaError_t error = cudaErrorInvalidConfiguration) {
        throw Refused(error, text(launch) + ": " + sentence);
    };
    if (threads == 0 || threads > MAX_THREADS || block.z > MAX_BLOCK_Z)
        refuse("a block of " + text(block) + " is " + std::to_string(threads) +
               " threads; it must be 1 to " + std::to_string(MAX_THREADS) +
               " (" + std::to_string(MAX_BLOCK_Z) + " at most in z).");
    if (launch.most_threads && threads > launch.most_threads)
        refuse("a block of " + std::to_string(threads) + " threads, and its __launch_bounds__ says " +
               std::to_string(launch.most_threads) + " at most.", cudaErrorInvalidValue);
    if (!grid.x || !grid.y || !grid.z || grid.x > MAX_GRID_X || grid.y > MAX_GRID_YZ ||
        grid.z > MAX_GRID_YZ)
        refuse("the grid " + text(grid) +
               " must have at least one block and at most (2147483647,65535,65535).");
    std::string shared = std::to_string(launch.shared_bytes) + " bytes of dynamic shared memory ";
    if (launch.shared_bytes > MAX_SHARED_ON_REQUEST)
        refuse(shared + "are too many: a block has at most " +
               std::to_string(MAX_SHARED_ON_REQUEST) + ".", cudaErrorInvalidValue);
    if (launch.shared_bytes > shared_limit)
        refuse(shared + "need cudaFuncSetAttribute(kernel, "
               "cudaFuncAttributeMaxDynamicSharedMemorySize, bytes) before the launch: without it "
               "a block has at most " + std::to_string(shared_limit) + ".", cudaErrorInvalidValue);
    if (launch.cooperative &&
        std::uint64_t{launch.grid.x} * launch.grid.y * launch.grid.z > blocks_at_once(launch))
        refuse("a cooperative launch needs all its blocks alive at once; at most " +
               std::to_string(blocks_at_once(launch)) +
               " blocks of this size are (ask cudaOccupancyMaxActiveBlocksPerMultiprocessor).",
               cudaErrorCooperativeLaunchTooLarge);
}

void allow_dynamic_shared(std::size_t bytes) {
    if (bytes > shared_limit) shared_limit = bytes;
}

std::size_t dynamic_shared_limit() { return shared_limit; }

int blocks_per_multiprocessor(std::uint64_t threads, std::size_t shared_bytes) {
    std::uint64_t warps = (threads + WARP_SIZE - 1) / WARP_SIZE;
    std::uint64_t blocks = std::min<std::uint64_t>(BLOCKS_PER_MULTIPROCESSOR, MAX_WARPS / warps);
    if (shared_bytes) blocks = std::min<std::uint64_t>(blocks, MAX_SHARED_ON_REQUEST / shared_bytes);
    return int(blocks);
}

std::uint64_t blocks_at_once(const Launch& launch) {
    std::uint64_t threads = std::uint64_t{launch.block.x} * launch.block.y * launch.block.z;
    return std::uint64_t{MULTIPROCESSORS} * blocks_per_multiprocessor(threads, launch.shared_bytes);
}

// Waking the other cores takes some microseconds, so the first block tells whether it is worth it.
static void run(Grid& grid) {
    using Clock = std::chrono::steady_clock;
    constexpr double WORTH_WAKING = 40e-6;  // seconds
    auto start = Clock::now();
    run_blocks(grid, 1, 1);
    std::uint64_t left = grid.blocks - std::min(grid.blocks, grid.next_block.load());
    std::chrono::duration<double> first = Clock::now() - start;
    if (cores() == 1 || first.count() * double(left) < WORTH_WAKING) {
        run_blocks(grid, grid.blocks, 1);
    } else {
        unsigned helpers = unsigned(std::min<std::uint64_t>(cores() - 1, left));
        std::uint64_t chunk = std::max<std::uint64_t>(1, left / (16 * (helpers + 1)));
        {
            std::lock_guard<std::mutex> lock(grid.mutex);
            grid.helpers += helpers;
        }
        crew->help(grid, helpers, chunk, grid.blocks);
        run_blocks(grid, chunk, grid.blocks);
    }
    crew->wait();
    while (!grid.given_back.empty() && !grid.stopped) {
        run_blocks(grid, 1, grid.blocks);
        crew->wait();
    }
}

void begin_more_blocks(Grid& grid) {
    std::uint64_t at_once = blocks_at_once(grid.launch), more;
    {
        std::lock_guard<std::mutex> lock(grid.mutex);
        std::uint64_t left = grid.blocks - std::min(grid.blocks, grid.next_block.load());
        for (const auto& [first, end] : grid.given_back) left += end - first;
        std::uint64_t running = grid.working.size();
        if (grid.helpers + 1 > running || running >= at_once) return;  // let all begin first
        more = std::min({running, left, at_once - running});
        grid.helpers += more;
    }
    crew->help(grid, unsigned(more), 1, grid.blocks);
}

// grid.sync() needs all blocks at once: each gets an operating-system thread and runs there.
static void run_cooperatively(Grid& grid) {
    crew->help(grid, unsigned(grid.blocks - 1), 1, 1);
    run_blocks(grid, 1, 1);
    crew->wait();
}

// A write to the few bytes behind an array that belong to its last page: no fault tells of it.
// Any of the arguments' words may be a pointer.
static std::string written_padding(const Launch& launch) {
    auto* words = static_cast<void* const*>(launch.arguments);
    for (std::size_t i = 0; i < launch.argument_bytes / sizeof *words; i++) {
        std::string sentence = describe_written_padding(words[i], launch);
        if (!sentence.empty()) return sentence;
    }
    return "";
}

// What the kernel of a grid launched, once the grid has ended.
static void run_later(std::vector<Later>& later) {
    static thread_local int depth = 0;
    struct Deeper {
        Deeper() { depth++; }
        ~Deeper() { depth--; }
    } deeper;
    if (depth > DEEPEST_LAUNCH)
        throw std::runtime_error("kernels that launch kernels are nested more than " +
                                 std::to_string(DEEPEST_LAUNCH) + " deep.");
    std::stable_sort(later.begin(), later.end(), [](const Later& a, const Later& b) {
        return std::tie(a.is_tail, a.block) < std::tie(b.is_tail, b.block);
    });
    for (Later& one : later) result(one.work());
}

static void run_to_the_end(const Launch& launch, bool in_stream) {
    static const int once = (start_afresh(), pthread_atfork(nullptr, nullptr, start_afresh));
    (void)once;

    std::lock_guard<std::recursive_mutex> lock(*one_launch_at_a_time);
    catch_faults();
    guard_ends_again();
    std::size_t first_array = arrays_made();
    Grid grid(launch, std::uint64_t{launch.grid.x} * launch.grid.y * launch.grid.z);
    std::unique_ptr<Checks> checks(launch.checked ? new Checks(launch) : nullptr);
    grid.checks = checks.get();
    {
        Watched watched(grid);
        launch.cooperative ? run_cooperatively(grid) : run(grid);
    }
    if (Counter::is_on()) end_counted_launch(launch);
    if (checks)
        for (Multiprocessor* multiprocessor : grid.working)
            if (multiprocessor->checker()) multiprocessor->checker()->end_launch();
    std::string written = written_padding(launch);
    if (!written.empty()) grid.stop({text(launch), 0, {}, written});
    std::fflush(stdout);  // what the kernel printed shows before the cell ends
    stopped_at.reset();
    if (grid.stopped) {
        note_failed_kernel();
        release_newer_of_kernels(first_array);
        const Fault& fault = grid.fault;
        if (fault.of_thread) stopped_at = {launch.grid, launch.block, fault.block, fault.thread};
        throw std::runtime_error(describe(fault));
    }
    if (checks) checks->note_end();
    if (checks && in_stream && checks->keeps_reads())
        note_work(launch.stream, text(launch), checks->touched());
    if (!grid.later.empty()) run_later(grid.later);
}

static std::atomic<bool> told_of_fault{false};

// Whether a kernel of a program was at fault, whatever the program made of its error codes.
extern "C" CUDA_ON_CPU_API bool cuda_on_cpu_told_of_fault() { return told_of_fault; }

// A fault in a kernel of a program ends the program, if that looks at its error codes.
// in_stream: it is done as it is asked for, not later as a part of other work.
static cudaError_t run_or_tell(const Launch& launch, bool in_stream) {
    if (fault != cudaSuccess) return result(fault);
    try {
        run_to_the_end(launch, in_stream);
        return cudaSuccess;
    } catch (const std::runtime_error& error) {
        if (!launch.in_program) throw;
        std::fprintf(stderr, "%s\n", error.what());
        told_of_fault = true;
        bool by_assert = std::strstr(error.what(), ": assertion failed: ");
        fault = by_assert ? cudaErrorAssert : cudaErrorLaunchFailure;
        return result(fault);
    }
}

// A launch with copies of what it points to, so that it can be run later, and more than once.
class KeptLaunch {
public:
    explicit KeptLaunch(const Launch& given)
        : launch_(given), parameters_(given.parameters, given.parameters + given.parameter_count) {
        launch_.parameters = parameters_.data();
        launch_.stream = nullptr;
        if (given.copy_arguments) {
            launch_.arguments = given.copy_arguments(given.arguments);
        } else {
            launch_.arguments = ::operator new(given.argument_bytes);
            std::memcpy(launch_.arguments, given.arguments, given.argument_bytes);
        }
    }
    ~KeptLaunch() {
        if (launch_.destroy_arguments)
            launch_.destroy_arguments(launch_.arguments);
        else
            ::operator delete(launch_.arguments);
    }
    KeptLaunch(const KeptLaunch&) = delete;
    cudaError_t run() const { return run_or_tell(launch_, false); }

private:
    Launch launch_;
    std::vector<Parameter> parameters_;
};

// A kernel that a kernel launches sees global memory only.
static void refuse_own_memory(Multiprocessor& parent, const Launch& launch) {
    auto* shared = static_cast<const char*>(position.dynamic_shared);
    Region statics = thread_local_memory(reinterpret_cast<void*>(launch.run_threads));
    for (unsigned i = 0; i < launch.parameter_count; i++) {
        auto* pointer = static_cast<const char*>(launch.parameters[i].pointer);
        bool is_shared = statics.contains(std::uintptr_t(pointer)) ||
                         (shared && pointer >= shared &&
                          pointer < shared + parent.launch().shared_bytes);
        if (is_shared || parent.in_stacks(pointer))
            parent.fail_at(launch.line, {},
                           "passes " + std::string(is_shared ? "shared" : "local") +
                               " memory to " + launch.kernel +
                               ", but a kernel that a kernel launches sees global memory only.");
    }
}

cudaError_t launch(const Launch& launch) {
    try {
        check(launch, std::uint64_t{launch.block.x} * launch.block.y * launch.block.z);
    } catch (const Refused& refused) {
        if (!launch.in_program) throw;
        std::fprintf(stderr, "%s\n", refused.what());
        return result(refused.error);
    }
    if (!is_put_off(launch.stream)) return run_or_tell(launch, true);
    if (Multiprocessor* here = Multiprocessor::running()) refuse_own_memory(*here, launch);
    auto kept = std::make_shared<KeptLaunch>(launch);
    return do_in_stream(launch.stream, cudaGraphNodeTypeKernel, [=] { return kept->run(); });
}

}  // namespace cuda_on_cpu
