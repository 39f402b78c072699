#include "checker.h"

#include <dlfcn.h>

#include <algorithm>

#include "faults.h"
#include "memory.h"

namespace cuda_on_cpu {

CUDA_ON_CPU_THREAD_LOCAL Checker* checker_here = nullptr;

// ---------------------------------------------------------------- launches, blocks, order

void Checker::begin_launch(Checks& checks, const Launch& launch) {
    if (launch_number_ == checks.number) return;  // it goes on with more blocks
    launch_number_ = checks.number;
    checks_ = &checks;
    shared_.clear();
    static_shared_ = {};
    std::memset(recent_, 0, sizeof recent_);
    order_.begin_launch(checks.addresses, launch.block.x * launch.block.y * launch.block.z);
    counting_ = looks_closely_ = Counter::is_on();
}

void Checker::end_launch() {
    counting_ = false;
    shared_.clear();
}

void Checker::begin_block(std::uint64_t block, uint3 index) {
    // The marks in shared memory tell blocks apart by their number's last bits.
    if (block / Mark::BLOCKS != block_ / Mark::BLOCKS)
        for (KnownArray& array : shared_) array.shadow->forget();
    block_ = block;
    clocks_.begin_block(block);
    locals_.begin_block();
    order_.begin_block(unsigned(block % Mark::BLOCKS));
    if (any_swapped_) std::memset(swapped_, 0, sizeof swapped_);
    any_swapped_ = false;
    if (!counting_) return;
    std::fill(std::begin(path_), std::end(path_), Path{1, 0});
    counter_.begin_block(index);
}

void Checker::end_block() {
    if (!multiprocessor_.grid().stopped) {
        settle(false);
        check_rereads(false);
    }
    forget_unsettled();
    rereads_.clear();
    if (counting_) counter_.end_block();
}

void Checker::barrier() {
    settle(true);
    check_rereads(true);
    order_.barrier();
    clocks_.barrier();
    if (counting_) counter_.barrier();
}

void Checker::order(std::uintptr_t address, How how) {
    bool loads = how.kind == AccessKind::load, stores = how.kind == AccessKind::store;
    bool updates = !loads && !stores && how.atomic == AtomicKind::update;
    Word word{!loads, !stores, !loads && !updates, !stores && !updates};
    order_.note_word(position.thread, address, word, clocks_);
    order_.note_address(position.thread, address, how.scope, loads);
    if (word.writes) order_.release(position.thread, address, how.scope);
}

// ---------------------------------------------------------------- arrays

void Checker::name_array(DeclaredArray array) {
    bool dynamic = !array.begin;
    if (dynamic) {
        array.begin = position.dynamic_shared;
        array.bytes = multiprocessor_.launch().shared_bytes;
        if (!array.bytes) return;
    }
    auto begin = std::uintptr_t(array.begin);
    for (const KnownArray& known : shared_)
        if (known.begin == begin) return;
    shared_.emplace_back(known_as(array, true));
    if (dynamic || !array.others_have_names) return;
    may_have_guards_ = !array.others_are_numbers;
    constexpr std::size_t BESIDE = 4096;  // bytes that an array at the edge may be left by
    static_shared_ = thread_local_memory(
        reinterpret_cast<void*>(multiprocessor_.launch().run_threads));
    if (!KNOWS_MODULES) return;
    static_shared_.begin -= BESIDE;
    static_shared_.bytes += 2 * BESIDE;
}

void Checker::forget(std::uintptr_t begin) {
    checks_->forget(begin);
    for (Recent& recent : recent_)
        if (recent.begin == begin) recent = Recent{};
}

const KnownArray* Checker::nearest_static_shared(std::uintptr_t address) const {
    const KnownArray* nearest = nullptr;
    std::uintptr_t distance = ~std::uintptr_t{0};
    for (const KnownArray& shared : shared_) {
        std::uintptr_t gap = address < shared.begin ? shared.begin - address
                                                    : address - shared.begin - shared.bytes;
        if (static_shared_.contains(shared.begin) && gap < distance)
            nearest = &shared, distance = gap;
    }
    return nearest;  // static_shared_ is known from one of them
}

// The compiler keeps a byte that tells whether a shared variable of a class has been constructed.
bool Checker::is_guard(std::uintptr_t address, unsigned bytes) const {
    return bytes == 1 && address % 8 == 0 && may_have_guards_;
}

// Which array of the kernel an address belongs to that lies in none, but in an array's guard or in
// an array that the kernel has no pointer to; null for any other address.
const KnownArray* Checker::array_left_at(const Recent& recent, std::uintptr_t address,
                                         unsigned bytes, const void* code) const {
    MemoryFound found;
    if (!find_memory(reinterpret_cast<void*>(address), &found)) return nullptr;
    for (const KnownArray& shared : shared_)
        if (shared.begin == found.begin) return &shared;
    if (const KnownArray* known = checks_->find(found.begin, bytes)) return known;
    return recent.code == code && recent.array ? recent.array : checks_->nearest_tensor(address);
}

// Whether a kernel can reach nothing at an address that lies in no array. (The hardware tells of
// null pointers.)
// An instruction that was in an array before means no library's data, which may lie around it.
bool Checker::is_astray(std::uintptr_t address, bool was_in_array) const {
    constexpr std::uintptr_t NEAR_NULL = 4096;
    auto* code = reinterpret_cast<void*>(multiprocessor_.launch().run_threads);
    Dl_info module;
    return KNOWS_MODULES && address >= NEAR_NULL && !thread_local_memory(code).contains(address) &&
           (was_in_array || !find_module(reinterpret_cast<void*>(address), &module));
}

static Region built_in_variables() {
    const std::uintptr_t addresses[] = {std::uintptr_t(&threadIdx), std::uintptr_t(&blockIdx),
                                        std::uintptr_t(&blockDim), std::uintptr_t(&gridDim),
                                        std::uintptr_t(&position)};
    auto ends = std::minmax_element(std::begin(addresses), std::end(addresses));
    return {*ends.first, *ends.second - *ends.first + sizeof(Position)};
}

void Checker::find(Recent& recent, std::uintptr_t address, unsigned bytes, AccessKind kind,
                   const void* code) {
    KnownArray* array = nullptr;
    for (KnownArray& shared : shared_)
        if (shared.contains(address)) array = &shared;
    if (!array) array = checks_->find(address, bytes);
    if (array) {
        bool has_site = recent.code == code && recent.array;
        unsigned site = has_site ? Mark{recent.mark}.site() : checks_->site(code);
        unsigned cell_bytes = array->shadow->cell_bytes();
        recent = {code, array->begin, array->bytes, array->bytes - bytes, array,
                  array->shadow->cells(),
                  std::uint32_t(Mark::of_site(site).with_bytes((1u << cell_bytes) - 1).bits),
                  (unsigned char)cell_bytes, array->shared, array->constant,
                  array->constant || (array->only_read && !checks_->keeps_reads())};
        return;
    }
    const Stacks& stacks = multiprocessor_.stacks();
    Region region{std::uintptr_t(stacks.begin()), stacks.bytes()};
    bool was_in_array = recent.code == code && recent.array;
    if (!region.contains(address)) region = built_in_variables();
    constexpr std::size_t BEHIND = 64;  // bytes between the variables of a module
    bool boring = region.contains(address) || checks_->is_of_no_interest(address, &region);
    if (boring && was_in_array && address - recent.begin - recent.bytes < BEHIND)
        report_range(*recent.array, address, bytes, kind, code);
    if (!boring) {
        if (const KnownArray* meant = array_left_at(recent, address, bytes, code))
            report_range(*meant, address, bytes, kind, code);
        if (static_shared_.contains(address) && !is_guard(address, bytes))
            report_range(*nearest_static_shared(address), address, bytes, kind, code);
        if (is_astray(address, was_in_array)) {
            if (was_in_array && !checks_->pointing_nowhere(address))
                report_range(*recent.array, address, bytes, kind, code);
            report_nowhere(address, kind, code);
        }
        region = {address, 1};
    } else if (stacks.contains(reinterpret_cast<void*>(address)) && !in_own_stack(address)) {
        // An index far away may land in the stack of another thread.
        if (was_in_array) report_range(*recent.array, address, bytes, kind, code);
        report_local_of_another(kind, code);
    }
    recent = {code, region.begin, region.bytes, region.bytes - bytes, nullptr, {}, 0, 0,
              false, false, false};
}

// ---------------------------------------------------------------- one access

void Checker::access_other(std::uintptr_t address, unsigned bytes, How how, const void* code) {
    const Recent& recent = recent_[slot(code)];
    bool is_right;
    if (!recent.array)
        is_right = recent.bytes == multiprocessor_.stacks().bytes() && in_own_stack(address) &&
                   locals_.passes(address, bytes, how.kind);
    else if (how.kind == AccessKind::load && !recent.shared && seems_filled(address, bytes, 1))
        is_right = false;
    else
        is_right = (how.kind == AccessKind::load && recent.free_to_read) ||
                   passes(recent, address, bytes, how.kind);
    if (!is_right) look_at(address, bytes, how, code);
}

bool Checker::passes(const Recent& recent, std::uintptr_t address, unsigned bytes,
                     AccessKind kind) {
    std::size_t offset = address - recent.begin;
    if ((offset | bytes) & (recent.cell_bytes - 1u)) return false;
    unsigned shift = unsigned(__builtin_ctz(recent.cell_bytes));  // to divide is slow
    Mark mine = mark(recent);
    for (std::size_t i = offset >> shift, end = i + (bytes >> shift); i < end; i++)
        if (!passes(recent.cells[i], mine, kind, recent.shared)) return false;
    return true;
}

// clang may copy a structure member by member, and a copy needs no values.
#if defined(__clang__)
static constexpr bool COPIES_MEMBERS = true;
#else
static constexpr bool COPIES_MEMBERS = false;
#endif

void Checker::look_at(std::uintptr_t address, unsigned bytes, How how, const void* code) {
    if (address % how.alignment) misaligned(address, bytes, how.kind, code);
    settle(true);
    AccessKind kind = how.kind;
    if (how.orders) order(address, how);
    Recent& recent = recent_[slot(code)];
    if (recent.code != code || address - recent.begin >= recent.bytes)
        find(recent, address, bytes, kind, code);
    bool reads = kind == AccessKind::load ||
                 (kind == AccessKind::atomic && how.atomic != AtomicKind::exchange);
    if (!recent.array) {
        if (recent.bytes != multiprocessor_.stacks().bytes()) return;
        if (!in_own_stack(address)) find(recent, address, bytes, kind, code);
        bool is_unset = reads && locals_.is_unset(address, bytes);
        if (is_unset && !(COPIES_MEMBERS && locals_.is_structure(address)))
            report_unset(address, bytes, code);
        if (kind != AccessKind::load) locals_.set(address, bytes);
        return;
    }
    std::size_t offset = address - recent.begin;
    if (offset + bytes > recent.bytes) report_range(*recent.array, address, bytes, kind, code);
    if (recent.constant) return;

    if (reads && !recent.shared && seems_filled(address, bytes, 1))
        check_filled(recent, address, bytes);
    bool is_free = recent.free_to_read && kind == AccessKind::load;
    if (!is_free && (how.orders || !passes(recent, address, bytes, kind)))
        check_cells(recent, address, bytes, how);
    if (counting_) count(recent, address, bytes, kind);
}

// Which bytes of the cell at `at` the access from `offset` to `end` touches.
static unsigned bytes_in_cell(std::size_t at, unsigned cell_bytes, std::size_t offset,
                              std::size_t end) {
    unsigned mask = (1u << cell_bytes) - 1;
    if (at < offset) mask &= ~0u << (offset - at);
    if (at + cell_bytes > end) mask &= (1u << (end - at)) - 1;
    return mask;
}

Checker::Recent& Checker::find_texture(const KernelArray& memory, std::uintptr_t address,
                                       unsigned bytes, AccessKind kind, const void* code) {
    Recent& recent = recent_[slot(code)];
    if (recent.code != code || address - recent.begin >= recent.bytes) {
        checks_->know(memory);
        find(recent, address, bytes, kind, code);
    }
    return recent;
}

void Checker::count_texture(const KernelArray& memory, const std::uintptr_t* texels,
                            unsigned count, unsigned bytes, AccessKind kind, const void* code,
                            MemorySpace space, unsigned long long object) {
    const Recent& recent = find_texture(memory, memory.begin, bytes, kind, code);
    if (!recent.array) return;
    const char* name = checks_->name_of(object);
    counter_.fetch({code, place(), 0, bytes, kind, recent.array, position.thread, space,
                    name ? name : recent.array->name},
                   texels, count);
}

// What the launch has written a texture need not see, whatever orders the two: its cache may have
// what was there before.
void Checker::access_texture(const KernelArray& memory, std::uintptr_t address, unsigned bytes,
                             AccessKind kind, const void* code, const char* by) {
    settle(true);
    const Recent& recent = find_texture(memory, address, bytes, kind, code);
    if (!recent.array) return;
    if (kind == AccessKind::load) {
        unsigned cell_bytes = recent.cell_bytes;
        std::size_t offset = address - recent.begin, end = offset + bytes;
        for (std::size_t at = offset - offset % cell_bytes; at < end; at += cell_bytes) {
            Mark write = load(recent.cells[at / cell_bytes].write());
            if (write.exists() && write.bytes() & bytes_in_cell(at, cell_bytes, offset, end))
                report_stale(recent, address, write, by);
        }
        check_filled(recent, address, bytes);
        if (recent.free_to_read) return;
    }
    if (!passes(recent, address, bytes, kind)) check_cells(recent, address, bytes, {kind});
}

bool Checker::ordered(Mark earlier, Mark mine, bool shared) const {
    if (earlier.same_thread(mine)) return true;
    bool same_block = earlier.same_block(mine);
    if (same_block && clocks_.ordered(earlier.thread(), earlier.time(), mine.thread())) return true;
    if (!same_block && shared) return true;  // the block before this one, on this multiprocessor
    return order_.is_done(earlier, mine.thread(), mine.atomic());
}

// Whether both are atomics, and each is one step for the other.
static bool one_by_one(Mark earlier, Mark mine) {
    bool are_atomic = earlier.atomic() && mine.atomic();
    return are_atomic && (earlier.same_block(mine) || !(earlier.of_block() || mine.of_block()));
}

bool Checker::races(Mark earlier, Mark mine, bool shared) const {
    return earlier.exists() && earlier.bytes() & mine.bytes() && !one_by_one(earlier, mine) &&
           !ordered(earlier, mine, shared);
}

void Checker::check_cell(Cell cell, Mark mine, const KnownArray& array, std::uintptr_t address,
                         AccessKind kind, bool may_be_equal) {
    Mark write = load(cell.write()), read = load(cell.read()), other = load(cell.other_read());
    unsigned thread = mine.thread();
    bool is_load = kind == AccessKind::load;
    bool under_copy = write.copies() && write.same_block(mine);
    if (under_copy && write.bytes() & mine.bytes())
        report_under_copy(array, address, kind, mine, write);
    // To read a value and then to compare and swap it is right: if it has changed, that fails.
    bool will_compare = is_load && write.compares();
    if (will_compare && !mine.atomic() && swapped_[thread] == address)
        rereads_.push_back({&array, address, mine});
    bool conflicts = !will_compare && races(write, mine, array.shared);
    if (conflicts && (is_load || !may_be_equal || write.atomic()))
        report_race(array, address, kind, mine, write, true);
    if (is_load) {
        // A reader that comes before this one is not needed any more. Of several that are not
        // ordered, the first and the latest are kept.
        bool replaces = !read.exists() || ordered(read, mine, array.shared);
        if (replaces && read.same_moment(mine)) mine = mine.with_bytes(read.bytes());
        store(replaces ? cell.read() : cell.other_read(), mine);
        return;
    }
    for (Mark reader : {read, other})
        if (!mine.compares() && races(reader, mine, array.shared))
            report_race(array, address, kind, mine, reader, false);
    if (conflicts) unsettled_.element = address, unsettled_.earlier = write;
    if (mine.compares()) {
        swapped_[thread] = address;
        any_swapped_ = true;
        rereads_.erase(std::remove_if(rereads_.begin(), rereads_.end(),
                                      [&](const Reread& reread) {
                                          return reread.address == address &&
                                                 reread.mine.thread() == thread;
                                      }),
                       rereads_.end());
    }
    if (write.same_moment(mine)) mine = mine.with_bytes(write.bytes());
    // A thread's plain write says more than its atomic that follows.
    bool says_less = mine.atomic() && write.exists() && !write.atomic() &&
                     write.same_thread(mine) && write.when() == mine.when() &&
                     !(mine.bytes() & ~write.bytes());
    if (!says_less && !under_copy) store(cell.write(), mine);
}

// The write that was about to be done is done by now.
void Checker::settle(bool in_kernel) {
    if (!unsettled_.bytes) return;
    const Unsettled last = unsettled_;
    forget_unsettled();
    Mark mine = last.mine, earlier = last.earlier;
    if (std::memcmp(reinterpret_cast<void*>(last.address), last.before, last.bytes))
        return report_race(*last.array, last.element, AccessKind::store, mine, earlier, true,
                           in_kernel);
    bool one_instruction = mine.same_block(earlier) && mine.site() == earlier.site() &&
                           mine.thread() / WARP_SIZE == earlier.thread() / WARP_SIZE;
    if (one_instruction || !checks_->remark_once(mine.site(), earlier.site())) return;
    Quiet quiet;
    bool one_block = mine.same_block(earlier);
    std::string other = "thread " + multiprocessor_.index_text(earlier.thread());
    if (!one_block)
        other += " of block " + text(multiprocessor_.grid().block_index(earlier.block()));
    if (int line = checks_->line(earlier.site())) other += " in line " + std::to_string(line);
    remark(multiprocessor_.place(mine.thread(), checks_->line(mine.site())) + "writes " +
           checks_->element_names(*last.array, last.element) +
           ", written by " + other +
           (one_block ? ", with no barrier between." : "; nothing orders the blocks of a launch.") +
           " Both write the same value, so it does no harm.");
}

void Checker::check_rereads(bool in_kernel) {
    for (std::size_t i = 0; i < rereads_.size(); i++) {
        const Reread reread = rereads_[i];
        const Shadow& shadow = *reread.array->shadow;
        Mark write = load(
            shadow.cells()[(reread.address - reread.array->begin) / shadow.cell_bytes()].write());
        bool is_open = write.exists() && !write.same_thread(reread.mine) &&
                       !(write.same_block(reread.mine) &&
                         write.time() < clocks_.last_barrier());
        if (!is_open || ordered(write, reread.mine, reread.array->shared)) continue;
        rereads_.clear();
        return report_race(*reread.array, reread.address, AccessKind::load, reread.mine, write,
                           true, in_kernel);
    }
    rereads_.clear();
}

void Checker::check_cells(const Recent& recent, std::uintptr_t address, unsigned bytes, How how) {
    code_ = recent.code;
    AccessKind kind = how.kind;
    Mark mine = mark(recent).without_bytes().with_order(
        how.orders, how.atomic == AtomicKind::compare_and_swap, how.scope == Scope::block);
    bool may_be_equal =
        kind == AccessKind::store && !how.orders && bytes <= sizeof unsettled_.before;
    unsettled_.element = 0;
    bool needs_value =
        recent.shared && kind != AccessKind::store && how.atomic != AtomicKind::exchange;
    unsigned cell_bytes = recent.cell_bytes, unwritten = 0, cells = 0;
    std::size_t offset = address - recent.begin, end = offset + bytes;
    for (std::size_t at = offset - offset % cell_bytes; at < end; at += cell_bytes) {
        Cell cell = recent.cells[at / cell_bytes];
        unsigned mask = bytes_in_cell(at, cell_bytes, offset, end);
        Mark write = load(cell.write());
        unwritten += needs_value && !(write.exists() && write.same_block(mine));
        cells++;
        check_cell(cell, mine.with_bytes(mask), *recent.array,
                   std::max(address, recent.begin + at), kind, may_be_equal);
    }
    if (unsettled_.element) {
        unsettled_.array = recent.array;
        unsettled_.address = address;
        unsettled_.bytes = bytes;
        looks_closely_ = true;
        unsettled_.mine = mine;
        std::memcpy(unsettled_.before, reinterpret_cast<void*>(address), bytes);
    }
    // A structure's padding need not have been written.
    bool is_vector = recent.array->of_numbers && (bytes <= 8 || bytes == 16);
    if (unwritten && (is_vector || unwritten == cells)) report_unwritten(recent, address, mine);
}

// Of each cell of shared memory there change(write, bytes): the mark of its write, those of its bytes.
template <class Change>
void Checker::change_cells(std::uintptr_t begin, unsigned bytes, Change change) {
    auto array = std::find_if(shared_.begin(), shared_.end(),
                              [=](const KnownArray& shared) { return shared.contains(begin); });
    if (array == shared_.end()) return;
    unsigned cell_bytes = array->shadow->cell_bytes();
    std::uintptr_t end = begin + bytes;
    for (std::uintptr_t at = begin - (begin - array->begin) % cell_bytes; at < end;
         at += cell_bytes) {
        Cell cell = array->shadow->cells()[(at - array->begin) / cell_bytes];
        unsigned first = unsigned(std::max(at, begin) - at);
        unsigned last = unsigned(std::min(at + cell_bytes, end) - at);
        store(cell.write(), change(load(cell.write()), (1u << last) - (1u << first)));
    }
}

void Checker::begin_copy(std::uintptr_t to, unsigned bytes) {
    change_cells(to, bytes, [](Mark write, unsigned mask) {
        if (write.copies()) mask |= write.bytes();
        return write.as_copy().without_bytes().with_bytes(mask);
    });
}

void Checker::end_read(unsigned thread, const void* from, const unsigned char* value,
                       unsigned bytes, const void* code, bool at_barrier) {
    auto address = std::uintptr_t(from);
    Recent& recent = recent_[slot(code)];
    if (recent.code != code || address - recent.begin >= recent.bytes)
        find(recent, address, bytes, AccessKind::load, code);
    if (!recent.array || recent.free_to_read) return;
    auto* now = static_cast<const unsigned char*>(from);
    if (std::memcmp(now, value, bytes))
        report_changed_source(recent, thread,
                              std::uintptr_t(std::mismatch(now, now + bytes, value).first));
    if (at_barrier) return;  // whoever opens it
    code_ = code;
    unsigned cell_bytes = recent.cell_bytes;
    std::size_t offset = address - recent.begin, end = offset + bytes;
    Mark mine = mark(recent).without_bytes().as_copy();
    for (std::size_t at = offset - offset % cell_bytes; at < end; at += cell_bytes)
        check_cell(recent.cells[at / cell_bytes],
                   mine.with_bytes(bytes_in_cell(at, cell_bytes, offset, end)), *recent.array,
                   std::max(address, recent.begin + at), AccessKind::load, false);
}

void Checker::end_copy(std::uintptr_t to, unsigned bytes, bool at_barrier) {
    std::uint64_t now = clocks_.now(position.thread);
    change_cells(to, bytes, [=](Mark write, unsigned mask) {
        if (!write.copies()) return write;
        unsigned left = write.bytes() & ~mask;
        if (left) return write.without_bytes().with_bytes(left);
        Mark ended = Mark::of_site(write.site()).with_bytes(mask);
        return Mark{ended.bits | (at_barrier ? write.who_and_when() : now)};
    });
}

// ---------------------------------------------------------------- errors

void Checker::fail(const std::string& sentence, const void* code) {
    Quiet quiet;
    multiprocessor_.fail_at(Checks::line(code), {}, sentence);
}

static const char* const ATOMIC_IS_MISSING =
    " Each reads it, changes it and writes it back, and what others write meanwhile is lost. Does "
    "it take an atomic, atomicAdd() say?";

static const char* present(AccessKind kind) {
    return kind == AccessKind::load ? "reads " : kind == AccessKind::store ? "writes "
                                                                           : "atomically changes ";
}

void Checker::report_range(const KernelArray& array, std::uintptr_t address, unsigned bytes,
                           AccessKind kind, const void* code) {
    Quiet quiet;
    KernelArray named = checks_->named(array, address);
    bool before = address < named.begin;
    std::string name = *named.name ? named.name : "array", first = element_text(named, address);
    std::string sentence = present(kind) + checks_->element_names(array, address);
    std::uintptr_t end = named.begin + named.bytes;
    std::string edge = element_text(named, before ? named.begin : end - 1);
    if (!before && edge == first)  // a float4 in a tensor of floats
        fail(sentence + ", but only the first " +
                 std::to_string((end - named.first) % named.element_bytes) + " of its " +
                 std::to_string(named.element_bytes) + " bytes lie in " + name + ".",
             code);
    if (!before && address < end) sentence += " to " + element_text(named, address + bytes - 1);
    fail(sentence + ", but " + name + (before ? " begins at " : " ends at ") + edge + ".", code);
}

void Checker::report_stale(const Recent& recent, std::uintptr_t address, Mark write,
                           const char* by) {
    Quiet quiet;
    std::string who = write.same_block(mark(recent))
                          ? "thread " + multiprocessor_.index_text(write.thread())
                          : "block " + text(multiprocessor_.grid().block_index(write.block()));
    int line = checks_->line(write.site());
    fail("reads " + checks_->element_names(*recent.array, address) + " through " + by + ", but " +
             who + " has written it" + (line ? " in line " + std::to_string(line) : "") +
             " of this launch: what is read may be older, whatever orders the two. Another launch "
             "sees it.",
         recent.code);
}

void Checker::report_nowhere(std::uintptr_t address, AccessKind kind, const void* code) {
    std::string sentence = present(kind);
    if (const Parameter* parameter = checks_->pointing_nowhere(address)) {
        auto index = (address - std::uintptr_t(parameter->pointer)) / parameter->element_bytes;
        std::string name = *parameter->name ? parameter->name : "the pointer";
        sentence += name + "[" + std::to_string(index) + "], but " + name;
    } else {
        sentence += "through a pointer that";
    }
    fail(sentence + (was_freed(reinterpret_cast<void*>(address))
                         ? " points to memory that has been freed."
                         : " points to no memory of the device: no tensor, no array from "
                           "cudaMalloc, no variable of the device."),
         code);
}

void Checker::report_local_of_another(AccessKind kind, const void* code) {
    fail(std::string(present(kind)) +
             "a local variable of another thread: on a GPU each thread reaches its own only.",
         code);
}

// address: 0 if it is the variable of another lane
void Checker::report_unset(std::uintptr_t address, unsigned bytes, const void* code) {
    Quiet quiet;
    std::string name = address ? "a local variable" : "the variable of another lane";
    if (const DeclaredArray* found = locals_.find(address, position.thread)) {
        KernelArray variable = known_as(*found, false);
        bool is_whole = !variable.rank || bytes > variable.element_bytes;
        name = is_whole ? variable.name : element_text(variable, address);
    }
    fail("reads " + name + ", which has not been set before. Is a \"= 0\" missing, or a branch that "
         "sets it?", code);
}

void Checker::misaligned(std::uintptr_t address, unsigned bytes, AccessKind kind,
                         const void* code) {
    std::string place;
    for (const KnownArray& shared : shared_)
        if (shared.contains(address)) place = element_text(shared, address);
    if (place.empty())
        if (const KnownArray* array = checks_->find(address, bytes))
            place = checks_->element_names(*array, address);
    fail(present(kind) + std::to_string(bytes) + " bytes at once" +
             (place.empty() ? "" : " from " + place + " on") +
             ", but at an address that is no multiple of " + std::to_string(bytes) + ".",
         code);
}

// The bytes are what new memory is filled with. Fewer than four may hold that by chance, so there
// all eight have to do.
void Checker::check_filled(const Recent& recent, std::uintptr_t address, unsigned bytes) {
    std::uintptr_t begin = address, end = address + bytes;
    if (bytes < 4) {
        begin = std::max(recent.begin, address / 8 * 8);
        end = std::min(recent.begin + recent.bytes, begin / 8 * 8 + 8);
    }
    if (end - begin < 4 || !is_filled(begin, end - begin, UNWRITTEN)) return;
    MemoryFound found;
    if (!find_memory(reinterpret_cast<void*>(address), &found)) return;  // a variable
    fail("reads " + checks_->element_names(*recent.array, address) +
             ", to which nothing has been written.",
         recent.code);
}

void Checker::report_race(const KnownArray& array, std::uintptr_t address, AccessKind kind,
                          Mark mine, Mark earlier, bool wrote, bool in_kernel) {
    Quiet quiet;
    std::string what = !wrote ? "read" : earlier.atomic() ? "changed by an atomic" : "written";
    std::string sentence = present(kind) + checks_->element_names(array, address) + ", " + what + " by thread " +
                           multiprocessor_.index_text(earlier.thread());
    bool one_block = earlier.same_block(mine);
    if (!one_block)
        sentence += " of block " + text(multiprocessor_.grid().block_index(earlier.block()));
    if (int line = checks_->line(earlier.site())) sentence += " in line " + std::to_string(line);
    sentence += one_block ? ", with no barrier between."
                          : "; nothing orders the blocks of a launch.";
    if (!wrote && earlier.copies())
        sentence += " It is an asynchronous copy, which reads until the thread has waited for it.";
    else if (wrote && kind == AccessKind::store && mine.site() == earlier.site())
        sentence += " Often it is a missing guard, or an index that is the same for all threads.";
    else
        sentence += remedy(array, address, mine, earlier, wrote);
    multiprocessor_.stop(mine.thread(), checks_->line(mine.site()), sentence);
    if (in_kernel) multiprocessor_.abandon();
}

void Checker::report_under_copy(const KnownArray& array, std::uintptr_t address, AccessKind kind,
                                Mark mine, Mark copy) {
    Quiet quiet;
    int line = checks_->line(copy.site());
    std::string sentence = present(kind) + checks_->element_names(array, address) +
                           ", to which an asynchronous copy of thread " +
                           multiprocessor_.index_text(copy.thread()) + " is still under way" +
                           (line ? " since line " + std::to_string(line) : "") +
                           ": that thread has to wait for it, and a __syncthreads() after that tells "
                           "the others.";
    multiprocessor_.stop(mine.thread(), checks_->line(mine.site()), sentence);
    multiprocessor_.abandon();
}

// The copy has the older value here; on a GPU it may have either.
void Checker::report_changed_source(const Recent& recent, unsigned thread,
                                    std::uintptr_t address) {
    Quiet quiet;
    Mark write = load(recent.cells[(address - recent.begin) / recent.cell_bytes].write());
    std::string who = "somebody";
    if (write.exists())
        who = write.same_block(mark(recent))
                  ? "thread " + multiprocessor_.index_text(write.thread())
                  : "block " + text(multiprocessor_.grid().block_index(write.block()));
    int line = write.exists() ? checks_->line(write.site()) : 0;
    multiprocessor_.stop(thread, Checks::line(recent.code),
                         "copies " + checks_->element_names(*recent.array, address) +
                             " asynchronously, but " + who + " has changed it" +
                             (line ? " in line " + std::to_string(line) : "") +
                             " before the copy has been waited for.");
    multiprocessor_.abandon();
}

// A flag, that is an atomic or volatile write which tells of an access, shows what is meant: a fence
// is asked for only there. Else threads of a block have barriers, and blocks nothing at all.
std::string Checker::remedy(const KnownArray& array, std::uintptr_t address, Mark mine,
                            Mark earlier, bool wrote) const {
    bool one_block = earlier.same_block(mine);
    if (earlier.atomic() && mine.atomic())
        return " An atomic of a block, atomicAdd_block() say, is one step for threads of its own "
               "block only: it takes the atomic without _block.";
    if (order_.is_done(earlier, mine.thread(), true))
        return " The thread has seen that this is done, but a __threadfence() is missing between "
               "that and the access.";
    int who = one_block ? -1 : order_.who_knows(earlier);
    if (who >= 0)
        return " Thread " + multiprocessor_.index_text(unsigned(who)) +
               " has seen that this is done: is a __syncthreads() missing between that and the "
               "access?";
    auto can_tell = [&](std::uintptr_t at, bool is_counter) {
        if (at == address || (is_counter && (one_block || array.contains(at)))) return false;
        return one_block || std::none_of(shared_.begin(), shared_.end(), [&](const auto& shared) {
                   return shared.contains(at);
               });
    };
    switch (order_.telling(earlier, mine.thread(), one_block, can_tell)) {
    case Telling::unfenced:
        return " Is a __threadfence() missing, after the first access and before the atomic or "
               "volatile write that tells of it?";
    case Telling::for_block:
        return " A __threadfence_block() orders nothing for other blocks: it takes __threadfence().";
    case Telling::not_waited:
        return " An atomic or volatile write tells of it, after a fence; but it was looked at "
               "before that. Does the thread wait for the right value?";
    case Telling::too_early:
        return " Another thread of that block tells of it by an atomic or volatile write: is a "
               "__syncthreads() missing, after the first access and before the fence?";
    case Telling::nothing:
        break;
    }
    if (one_block) {
        bool two_lines = checks_->line(mine.site()) != checks_->line(earlier.site());
        return two_lines || order_.is_used() ? " Is a __syncthreads() missing between the two?" : "";
    }
    return is_update(array, address, mine, earlier, wrote) ? ATOMIC_IS_MISSING : "";
}

// Whether both accesses are of one line that reads an element and writes it back.
bool Checker::is_update(const KnownArray& array, std::uintptr_t address, Mark mine, Mark earlier,
                        bool wrote) const {
    int line = checks_->line(mine.site());
    if (mine.atomic() || earlier.atomic() || !line || line != checks_->line(earlier.site()))
        return false;
    const Shadow& shadow = *array.shadow;
    Cell cell = shadow.cells()[(address - array.begin) / shadow.cell_bytes()];
    Mark writer = wrote ? earlier : mine;
    for (Mark read : {load(cell.read()), load(cell.other_read())})
        if (read.exists() && read.same_thread(writer)) return true;
    return false;
}

void Checker::report_unwritten(const Recent& recent, std::uintptr_t address, Mark mine) {
    Quiet quiet;
    std::string sentence = "reads " + element_text(*recent.array, address) +
                           " before any thread of the block has written it";
    Mark last = {};  // write to the array since the barrier
    for (std::size_t i = 0; i < recent.bytes / recent.cell_bytes; i++) {
        Mark write = load(recent.cells[i].write());
        bool is_of_now = write.exists() && write.same_block(mine) && write.site() != mine.site() &&
                         write.time() >= clocks_.last_barrier();
        if (is_of_now && write.when() >= last.when()) last = write;
    }
    int line = last.exists() ? checks_->line(last.site()) : 0;
    fail(sentence + (line ? "; is a barrier missing after the writes in line " +
                                std::to_string(line) + "?"
                          : "."),
         code_);
}

// type: 'float [16][17]', with the quotation marks. Its first extent is the index's.
void Checker::index_out_of_bounds(int line, std::intptr_t index, const std::string& type) {
    Quiet quiet;
    std::size_t extents = type.find('[');
    std::string element = type.substr(1, extents - 1);
    if (element.size() && element.back() != ' ') element += ' ';  // clang leaves it out
    std::string of_type = type.substr(extents, type.size() - extents - 1), names;
    for (const KnownArray& array : shared_) {
        std::string own;  // its extents; the last of them are those of a row
        for (unsigned i = 0; i < array.rank; i++)
            own += "[" + std::to_string(array.extents[i]) + "]";
        if (own.size() < of_type.size() || own.substr(own.size() - of_type.size()) != of_type) continue;
        names += names.empty() ? "" : " or ";
        names += (own == of_type ? "" : "a row of ") + std::string(array.name);
    }
    std::string what = names.empty() ? "an array of type" : names + ", whose type is";
    multiprocessor_.fail_at(line, {},
                            "index " + std::to_string(index) + " is outside " + what + " " +
                                element + of_type + ".");
}

}  // namespace cuda_on_cpu
