// Operations of a warp: each lane lays down a value and waits; the last lane to come works out
// the results of all, and they go on.
#include <utility>

#include "checker.h"
#include "multiprocessor.h"

namespace cuda_on_cpu {

// What a shuffle gives for a lane that its mask leaves out: CUDA promises nothing. All bits set
// is a NaN in every floating type, so that a result which depends on it shows.
constexpr std::uint64_t UNDEFINED = ~std::uint64_t{0};

static Together& together(const WarpRequest& request) {
    return *reinterpret_cast<Together*>(request.value);
}

std::uint64_t Multiprocessor::warp_operation(WarpOperation operation, std::uint32_t mask,
                                             std::uint64_t value, int source, int line) {
    leave_order();
    unsigned thread = position.thread, w = thread / WARP_SIZE, lane = thread % WARP_SIZE;
    Warp& warp = warp_[w];
    Thread& self = thread_[thread];
    self.line = line;
    self.request = {operation, mask, source, value, 0};
    warp.waiting |= 1u << lane;
    if (operation == WarpOperation::converge) {
        warp.converging = true;
    } else {
        if (!(mask >> lane & 1)) report_mask(thread);
        std::uint32_t group = mask & warp.lanes & ~warp.returned;
        if ((warp.waiting & group) == group) complete_group(w, group);
    }
    switch_away(fiber_[thread]);
    return self.request.result;
}

// A lane has returned: the others need not wait for it any longer.
void Multiprocessor::complete_warp_groups(unsigned w) {
    Warp& warp = warp_[w];
    for (std::uint32_t pending = warp.waiting; pending;) {
        unsigned lane = __builtin_ctz(pending);
        const WarpRequest& request = thread_[w * WARP_SIZE + lane].request;
        std::uint32_t group = request.mask & warp.lanes & ~warp.returned;
        if ((warp.waiting & group) == group) complete_group(w, group);
        pending &= ~(group | 1u << lane);
    }
}

// All lanes of the group wait. If they agree on what they wait for, they get their results.
void Multiprocessor::complete_group(unsigned w, std::uint32_t group) {
    Brought brought;
    if (!lanes_agree(w, group, &brought)) return;
    WarpOperation operation = thread_[w * WARP_SIZE + __builtin_ctz(group)].request.operation;
    if (operation == WarpOperation::together) work_together(w, group);
    if (grid_->checks) checker_->lanes_meet(w, group, operation == WarpOperation::sync);
    if (operation != WarpOperation::together) {
        std::uint32_t undefined = give_results(w, group, brought);
        if (operation == WarpOperation::shuffle && grid_->checks) follow_undefined(w, group, undefined);
    }
    warp_[w].waiting &= ~group;
    warp_[w].ready |= group;
}

// Takes what the lanes have laid down; false if one of them waits for __activemask() to end first.
bool Multiprocessor::lanes_agree(unsigned w, std::uint32_t group, Brought* brought) {
    Thread* lanes = &thread_[w * WARP_SIZE];
    const WarpRequest& first = lanes[__builtin_ctz(group)].request;
    *brought = {0, first.value};
    for (std::uint32_t rest = group; rest; rest &= rest - 1) {
        unsigned lane = __builtin_ctz(rest);
        const WarpRequest& request = lanes[lane].request;
        if (request.operation == WarpOperation::converge) return false;
        if (request.operation != first.operation || request.mask != first.mask ||
            (request.operation == WarpOperation::together &&
             together(request).work != together(first).work))
            report_disagreement(w * WARP_SIZE + __builtin_ctz(group), w * WARP_SIZE + lane);
        if (request.value) brought->ballot |= 1u << lane;
        if (&request != &first)
            brought->combined = combine(first.operation, brought->combined, request.value);
    }
    return true;
}

// What a whole warp does at once: together.h.
void Multiprocessor::work_together(unsigned w, std::uint32_t group) {
    Thread* lanes = &thread_[w * WARP_SIZE];
    const WarpRequest& first = lanes[__builtin_ctz(group)].request;
    if (group != first.mask) report_short_warp(w * WARP_SIZE, __builtin_popcount(group));
    Together* brought[WARP_SIZE];
    for (unsigned lane = 0; lane < WARP_SIZE; lane++) brought[lane] = &together(lanes[lane].request);
    // Its accesses are those of an instruction to registers, its lanes' own.
    Checker* checker = std::exchange(checker_here, nullptr);
    together(first).work(brought);
    checker_here = checker;
}

// Returns the lanes that read one outside the group.
std::uint32_t Multiprocessor::give_results(unsigned w, std::uint32_t group, const Brought& brought) {
    std::uint32_t undefined = 0;
    for (std::uint32_t rest = group; rest; rest &= rest - 1) {
        unsigned lane = __builtin_ctz(rest);
        WarpRequest& request = thread_[w * WARP_SIZE + lane].request;
        switch (request.operation) {
            case WarpOperation::shuffle: undefined |= give_shuffled(w, group, lane); break;
            case WarpOperation::ballot: request.result = brought.ballot; break;
            case WarpOperation::any: request.result = brought.ballot != 0; break;
            case WarpOperation::all: request.result = brought.ballot == group; break;
            case WarpOperation::match_any:
                request.result = lanes_with_equal(w, group, request.value);
                break;
            case WarpOperation::match_all: {
                std::uint32_t same = lanes_with_equal(w, group, request.value);
                request.result = same == group ? same : 0;
                break;
            }
            default: request.result = brought.combined;
        }
    }
    return undefined;
}

// Returns the lane's bit, if it reads one outside the group.
std::uint32_t Multiprocessor::give_shuffled(unsigned w, std::uint32_t group, unsigned lane) {
    Thread* lanes = &thread_[w * WARP_SIZE];
    WarpRequest& request = lanes[lane].request;
    if (group >> request.source & 1) {
        request.result = lanes[request.source].request.value;
        return 0;
    }
    if (request.mask & warp_[w].returned & 1u << request.source) report_left_lane(w * WARP_SIZE + lane);
    request.result = UNDEFINED;
    return 1u << lane;
}

std::uint32_t Multiprocessor::lanes_with_equal(unsigned w, std::uint32_t group,
                                               std::uint64_t value) const {
    std::uint32_t same = 0;
    for (std::uint32_t others = group; others; others &= others - 1) {
        unsigned other = __builtin_ctz(others);
        if (thread_[w * WARP_SIZE + other].request.value == value) same |= 1u << other;
    }
    return same;
}

// In a sum over a warp by __shfl_down_sync, lanes at the end read beyond it, and nobody uses what
// they get; with it, others must not use what those got. So an undefined value is an error for the
// lane that a sum ends in, the first of the group, and if the lanes do not read upwards in step.
void Multiprocessor::follow_undefined(unsigned w, std::uint32_t group, std::uint32_t undefined) {
    Thread* lanes = &thread_[w * WARP_SIZE];
    Warp& warp = warp_[w];
    int delta = 0;
    bool in_step = true;
    for (std::uint32_t rest = group; rest; rest &= rest - 1) {
        int lane = __builtin_ctz(rest), source = lanes[lane].request.source;
        if (source == lane) continue;
        in_step &= source > lane && (!delta || source - lane == delta);
        delta = source - lane;
    }
    if (!in_step || delta >= warp.undefined_delta) warp.undefined = 0;  // another sum
    warp.undefined_delta = delta;
    std::uint32_t passed_on = 0;
    for (std::uint32_t rest = group; rest; rest &= rest - 1) {
        int lane = __builtin_ctz(rest), source = lanes[lane].request.source;
        if (group & warp.undefined & 1u << source) passed_on |= 1u << lane;
    }
    warp.undefined |= undefined | passed_on;
    unsigned first = unsigned(__builtin_ctz(group));
    std::uint32_t wrong = in_step ? warp.undefined & 1u << first : undefined;
    if (wrong) report_undefined(w * WARP_SIZE + unsigned(__builtin_ctz(wrong)), group);
}

// __activemask() tells which lanes run together. Here lanes run one by one, so it waits until
// every other lane of the warp waits or has returned; the lanes that came to the same line then
// run together. That is the largest group a GPU could report. True if any lane may now go on.
bool Multiprocessor::complete_convergence(unsigned w) {
    Warp& warp = warp_[w];
    bool all_started = started_ == threads_ || started_ >= (w + 1) * WARP_SIZE;
    if (!warp.converging || !all_started) return false;
    Thread* lanes = &thread_[w * WARP_SIZE];
    std::uint32_t group = 0, others = 0;
    int line = 0;
    for (std::uint32_t rest = warp.waiting; rest; rest &= rest - 1) {
        unsigned lane = __builtin_ctz(rest);
        if (lanes[lane].request.operation != WarpOperation::converge) continue;
        if (!group) line = lanes[lane].line;
        (lanes[lane].line == line ? group : others) |= 1u << lane;
    }
    for (std::uint32_t rest = group; rest; rest &= rest - 1)
        lanes[__builtin_ctz(rest)].request.result = group;
    warp.waiting &= ~group;
    warp.ready |= group;
    warp.converging = others != 0;
    return group != 0;
}

void Multiprocessor::report_mask(unsigned thread) {
    Quiet quiet;
    fail("thread " + index_text(thread) + " calls " + operation_name(thread) + " in line " +
         std::to_string(thread_[thread].line) + " with a mask that leaves out its own lane " +
         std::to_string(thread % WARP_SIZE) + " (" + hexadecimal(thread_[thread].request.mask) +
         ").");
}

void Multiprocessor::report_disagreement(unsigned one, unsigned other) {
    Quiet quiet;
    auto describe = [&](unsigned thread) {
        return "thread " + index_text(thread) + " at " + operation_name(thread) + " in line " +
               std::to_string(thread_[thread].line) + " with mask " +
               hexadecimal(thread_[thread].request.mask);
    };
    fail("lanes of a warp wait for each other at different operations: " + describe(one) + ", " +
         describe(other) + ".");
}

void Multiprocessor::report_undefined(unsigned thread, std::uint32_t group) {
    Quiet quiet;
    unsigned w = thread / WARP_SIZE;
    const WarpRequest& request = thread_[thread].request;
    std::string lane = "lane " + std::to_string(request.source), sentence = "reads " + lane;
    if (group >> request.source & 1)
        sentence += ", whose value comes from a lane that does not take part in the shuffles.";
    else if (!(warp_[w].lanes >> request.source & 1))
        sentence += " in a shuffle, but the block has only " +
                    std::to_string(__builtin_popcount(warp_[w].lanes)) + " threads in this warp.";
    else
        sentence += " in a shuffle, but the mask " + hexadecimal(request.mask) + " leaves " + lane +
                    " out.";
    stop(thread, thread_[thread].line, sentence);
    abandon();
}

void Multiprocessor::report_left_lane(unsigned thread) {
    Quiet quiet;
    fail("thread " + index_text(thread) + " reads lane " +
         std::to_string(thread_[thread].request.source) + " in the shuffle of line " +
         std::to_string(thread_[thread].line) + ", but that lane has left the kernel.");
}

void Multiprocessor::report_short_warp(unsigned thread, unsigned lanes) {
    fail(operation_name(thread) + " in line " + std::to_string(thread_[thread].line) +
         " needs all 32 lanes of the warp; here " + std::to_string(lanes) +
         (lanes == 1 ? " is" : " are") + " in the kernel.");
}

std::string Multiprocessor::operation_name(unsigned thread) const {
    if (warp_[thread / WARP_SIZE].parked >> thread % WARP_SIZE & 1)
        return reinterpret_cast<const char*>(thread_[thread].request.result);
    switch (thread_[thread].request.operation) {
        case WarpOperation::sync: return "__syncwarp";
        case WarpOperation::shuffle: return "a shuffle";
        case WarpOperation::ballot: return "__ballot_sync";
        case WarpOperation::all: return "__all_sync";
        case WarpOperation::any: return "__any_sync";
        case WarpOperation::match_any: return "__match_any_sync";
        case WarpOperation::match_all: return "__match_all_sync";
        case WarpOperation::together: return together(thread_[thread].request).name;
        case WarpOperation::converge: return "__activemask";
        default: return "a warp reduction";
    }
}

std::uint64_t combine(WarpOperation operation, std::uint64_t a, std::uint64_t b) {
    auto x = std::uint32_t(a), y = std::uint32_t(b);
    auto signed_x = std::int32_t(x), signed_y = std::int32_t(y);
    switch (operation) {
        case WarpOperation::add: return x + y;
        case WarpOperation::min_signed: return std::uint32_t(std::min(signed_x, signed_y));
        case WarpOperation::max_signed: return std::uint32_t(std::max(signed_x, signed_y));
        case WarpOperation::min_unsigned: return std::min(x, y);
        case WarpOperation::max_unsigned: return std::max(x, y);
        case WarpOperation::bit_and: return x & y;
        case WarpOperation::bit_or: return x | y;
        case WarpOperation::bit_xor: return x ^ y;
        default: return 0;
    }
}

std::string hexadecimal(std::uint32_t mask) {
    char digits[11];
    std::snprintf(digits, sizeof digits, "0x%08x", mask);
    return digits;
}

}  // namespace cuda_on_cpu
