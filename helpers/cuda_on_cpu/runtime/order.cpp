#include "order.h"

#include <algorithm>

namespace cuda_on_cpu {

void merge(Seen& into, const Seen& more) {
    for (auto [address, count] : more) {
        std::uint32_t& known = into[address];
        known = std::max(known, count);
    }
}

// ---------------------------------------------------------------- an address

unsigned Address::Growth::at(std::uint32_t release) const {
    auto later = std::upper_bound(steps_.begin(), steps_.end(), std::make_pair(release, ~0u));
    return later == steps_.begin() ? 0 : std::prev(later)->second;
}

void Address::release(unsigned block, const Done& done, const Seen& seen) {
    std::lock_guard<std::mutex> lock(mutex_);
    count_++;
    OfBlock& known = of_block_[block];
    known.before.to(done.before, count_);
    for (auto [thread, time] : done.threads) known.threads[thread].to(time, count_);
    for (auto [address, count] : seen)
        if (address != this) behind_[address].to(count, count_);
}

std::uint32_t Address::releases() {
    std::lock_guard<std::mutex> lock(mutex_);
    return count_;
}

void Address::open() {
    std::lock_guard<std::mutex> lock(mutex_);
    opened_ = count_;
}

std::uint32_t Address::releases_when_opened() {
    std::lock_guard<std::mutex> lock(mutex_);
    return opened_;
}

bool Address::tells_of(Mark access, std::uint32_t count, Seen& behind) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = of_block_.find(access.block());
    if (found != of_block_.end()) {
        const OfBlock& known = found->second;
        if (access.time() < known.before.at(count)) return true;
        auto thread = known.threads.find(access.thread());
        if (thread != known.threads.end() && access.time() < thread->second.at(count)) return true;
    }
    for (const auto& [address, seen] : behind_) {
        std::uint32_t& known = behind[address];
        known = std::max(known, std::uint32_t(seen.at(count)));
    }
    return false;
}

Address* Addresses::find(std::uintptr_t at, Scope scope, unsigned block, bool make) {
    std::lock_guard<std::mutex> lock(mutex_);
    std::pair key{at, scope == Scope::block ? block : ALL};
    auto found = all_.find(key);
    if (found != all_.end()) return found->second.get();
    if (!make) return nullptr;
    return (all_[key] = std::make_unique<Address>(scope)).get();
}

void Addresses::tell(std::uintptr_t at, const Told& told) {
    constexpr std::size_t MOST = 64;
    std::lock_guard<std::mutex> lock(mutex_);
    auto& [all, count] = told_[at];
    if (all.size() < MOST) all.push_back(told);
    else all[count % MOST] = told;
    count++;
}

std::vector<Told> Addresses::told_at(std::uintptr_t at, unsigned block) {
    std::lock_guard<std::mutex> lock(mutex_);
    std::vector<Told> found;
    auto all = told_.find(at);
    if (all == told_.end()) return found;
    for (const Told& told : all->second.first)
        if (told.block == block) found.push_back(told);
    return found;
}

// ---------------------------------------------------------------- the threads of a block

void Order::begin_launch(Addresses& addresses, unsigned threads) {
    addresses_ = &addresses;
    threads_ = threads;
    words_left_ = WORDS;
}

void Order::begin_block(unsigned block) {
    block_ = block;
    if (!used_) return;
    used_ = false;
    looks_.clear();
    latest_look_.fill(0);
    is_late_.fill(false);
    for (unsigned thread : touched_) thread_[thread] = {}, is_touched_[thread] = false;
    touched_.clear();
    seen_by_any_.clear();
    seen_by_all_.clear();
    all_before_ = {};
    for (auto& ready : all_ready_) ready.clear();
    for (Seen& seen : all_seen_) seen.clear();
}

Order::Thread& Order::use(unsigned thread) {
    if (thread_.empty()) thread_.resize(Clocks::THREADS), is_touched_.resize(Clocks::THREADS);
    if (!is_touched_[thread]) is_touched_[thread] = true, touched_.push_back(thread);
    used_ = true;
    return thread_[thread];
}

void Order::barrier() {
    if (!used_) return;
    for (unsigned thread = 0; thread < threads_; thread++) acquire_late(thread);
    seen_by_all_ = seen_by_any_;
    for (unsigned thread : touched_) {
        Thread& own = thread_[thread];
        own.released_at = {};
        for (unsigned scope = 0; scope < SCOPES; scope++) {
            const Ready& ready = own.ready[scope];
            if (ready.is_empty()) continue;
            merge(all_seen_[scope], ready.seen);
            all_before_[scope] = std::max(all_before_[scope], ready.before);
            auto& all = all_ready_[scope];
            all.resize(threads_);
            unsigned first = thread - thread % Clocks::LANES;
            for (unsigned lane = 0; lane < Clocks::LANES && first + lane < threads_; lane++)
                all[first + lane] = std::max(all[first + lane], ready.lanes[lane]);
        }
    }
    for (unsigned scope = 0; scope < SCOPES; scope++) {  // what all threads have made ready
        auto& all = all_ready_[scope];
        if (!all.empty())
            all_before_[scope] =
                std::max(all_before_[scope], unsigned(*std::min_element(all.begin(), all.end())));
    }
}

void Order::share(unsigned warp, std::uint32_t lanes, bool meets) {
    unsigned first = warp * Clocks::LANES;
    for (std::uint32_t rest = lanes; rest; rest &= rest - 1)
        acquire_late(first + unsigned(__builtin_ctz(rest)));
    if (touched_.empty()) return;
    Thread joined;
    bool any = false;
    for (std::uint32_t rest = lanes; rest; rest &= rest - 1) {
        unsigned thread = first + unsigned(__builtin_ctz(rest));
        if (!is_touched_[thread]) continue;
        any = true;
        const Thread& own = thread_[thread];
        merge(joined.pending, own.pending);
        merge(joined.seen, own.seen);
        if (!meets) continue;
        merge(joined.seen, own.pending);
        for (unsigned scope = 0; scope < SCOPES; scope++) {
            Ready& ready = joined.ready[scope];
            ready.before = std::max(ready.before, own.ready[scope].before);
            merge(ready.seen, own.ready[scope].seen);
            for (unsigned lane = 0; lane < Clocks::LANES; lane++)
                ready.lanes[lane] = std::max(ready.lanes[lane], own.ready[scope].lanes[lane]);
        }
    }
    if (!any) return;
    for (std::uint32_t rest = lanes; rest; rest &= rest - 1) {
        Thread& own = use(first + unsigned(__builtin_ctz(rest)));
        own.pending = joined.pending;
        own.seen = joined.seen;
        if (meets) own.ready = joined.ready, own.released_at = {};
    }
}

void Order::fence(unsigned thread, Scope scope, Clocks& clocks) {
    addresses_->use_fences();
    acquire_late(thread);
    Thread& own = use(thread);
    clocks.tick(thread);  // what comes later is not made ready
    for (auto seen = own.pending.begin(); seen != own.pending.end();) {
        bool is_enough = seen->first->scope <= scope;
        if (is_enough) own.seen[seen->first] = std::max(own.seen[seen->first], seen->second);
        seen = is_enough ? own.pending.erase(seen) : std::next(seen);
    }
    for (unsigned s = 0; s <= unsigned(scope); s++) {
        Ready& ready = own.ready[s];
        ready.before = clocks.last_barrier();
        unsigned first = thread - thread % Clocks::LANES;
        for (unsigned lane = 0; lane < Clocks::LANES; lane++)
            ready.lanes[lane] =
                std::max(ready.lanes[lane], std::uint16_t(clocks.known(thread, first + lane)));
        merge(ready.seen, seen_by_all_);
        merge(ready.seen, own.seen);
    }
    own.released_at = {};
}

void Order::release(unsigned thread, std::uintptr_t at, Scope scope) {
    if (!addresses_->fences_are_used()) return;
    Thread& own = use(thread);
    if (own.released_at.at == at && own.released_at.scope == scope) return;
    own.released_at = {at, scope};
    for (unsigned s = 0; s <= unsigned(scope); s++) {
        const Ready& ready = own.ready[s];
        const auto& all = all_ready_[s];
        Done done;
        done.before = std::max(ready.before, all_before_[s]);
        auto add = [&](unsigned who, unsigned time) {
            if (time > done.before) done.threads.push_back({who, time});
        };
        unsigned first = thread - thread % Clocks::LANES;
        for (unsigned lane = 0; lane < Clocks::LANES; lane++) add(first + lane, ready.lanes[lane]);
        for (unsigned who = 0; who < all.size(); who++) add(who, all[who]);
        if (!done.before && done.threads.empty()) continue;
        Seen seen = all_seen_[s];
        merge(seen, ready.seen);
        addresses_->find(at, Scope(s), block_, true)->release(block_, done, seen);
    }
}

void Order::acquire(unsigned thread) {
    is_late_[thread] = false;
    if (!addresses_->fences_are_used()) return;
    Thread& own = use(thread);
    auto [at, scope] = address_[thread];
    for (unsigned s = 0; s <= unsigned(scope); s++)
        if (Address* address = addresses_->find(at, Scope(s), block_, false))
            own.pending[address] = seen_by_any_[address] = address->releases();
}

void Order::acquired(unsigned thread) {
    if (!addresses_->fences_are_used()) return;
    Thread& own = use(thread);
    merge(own.seen, own.pending);
    own.pending.clear();
}

void Order::arrive(unsigned thread, std::uintptr_t at, Clocks& clocks) {
    fence(thread, Scope::block, clocks);
    release(thread, at, Scope::block);
}

void Order::open(std::uintptr_t at) {
    if (Address* address = addresses_->find(at, Scope::block, block_, false)) address->open();
}

void Order::pass(unsigned thread, std::uintptr_t at) {
    Address* address = addresses_->find(at, Scope::block, block_, false);
    if (!address) return;
    std::uint32_t opened = address->releases_when_opened();
    for (Seen* seen : {&use(thread).seen, &seen_by_any_})
        (*seen)[address] = std::max((*seen)[address], opened);
}

void Order::note_word(unsigned thread, std::uintptr_t at, Word word, const Clocks& clocks) {
    if (!words_left_) return;
    unsigned time = clocks.time(thread);
    unsigned look = word.reads ? 2 * time + 1 + word.looks : 0;
    if (look && look == latest_look_[thread] && at == address_[thread].at) return;  // as it waits
    latest_look_[thread] = look;
    words_left_--;
    if (word.reads) looks_.push_back({at, thread, word.looks});
    if (!word.writes) return;
    Told told{block_, thread, time, clocks.last_barrier(), {}, {}, word.sets};
    for (unsigned scope = 0; scope < SCOPES; scope++) {
        const auto& all = all_ready_[scope];
        told.all[scope] = all_before_[scope];
        told.own[scope] = thread < all.size() ? all[thread] : 0;
        if (thread_.empty()) continue;
        const Ready& ready = thread_[thread].ready[scope];
        told.all[scope] = std::max(told.all[scope], ready.before);
        told.own[scope] =
            std::max(told.own[scope], unsigned(ready.lanes[thread % Clocks::LANES]));
    }
    addresses_->tell(at, told);
}

int Order::who_knows(Mark access) const {
    for (const Look& look : looks_)
        if (is_done(access, look.thread, true)) return int(look.thread);
    return -1;
}

bool Order::is_done(Mark access, unsigned thread, bool at_once) const {
    if (!used_ || !addresses_->fences_are_used()) return false;
    Seen open = seen_by_all_, visited;
    if (!thread_.empty()) {
        merge(open, thread_[thread].seen);
        if (at_once) merge(open, thread_[thread].pending);
    }
    while (!open.empty()) {
        Seen behind;
        for (auto [address, count] : open) {
            std::uint32_t& known = visited[address];
            if (count <= known) continue;
            known = count;
            if (address->tells_of(access, count, behind)) return true;
        }
        open.clear();
        for (auto [address, count] : behind)
            if (count > visited[address]) open[address] = count;
    }
    return false;
}

}  // namespace cuda_on_cpu
