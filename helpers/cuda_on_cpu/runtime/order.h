// What fences and atomics order, beside barriers. A fence makes ready what its thread knows to be
// done; the thread's next atomic or volatile write releases that at its address. Who reads this
// address later, by an atomic or volatile, and then passes a fence or barrier, knows it as well.
#pragma once
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "../include/cuda_on_cpu/check.h"
#include "shadow.h"

namespace cuda_on_cpu {

class Address;

// Of some addresses, how many of their releases have been seen.
using Seen = std::unordered_map<Address*, std::uint32_t>;
void merge(Seen& into, const Seen& more);

// What a release tells of: what was done before these times.
struct Done {
    unsigned before = 0;                                 // by all threads of the block
    std::vector<std::pair<unsigned, unsigned>> threads;  // by this one: thread, time
};

constexpr unsigned SCOPES = 2;  // Scope::block and Scope::device

// An address through which threads tell each other that something is done: those of one block
// alone, or those of all.
class Address {
public:
    explicit Address(Scope scope) : scope(scope) {}
    const Scope scope;

    void release(unsigned block, const Done& done, const Seen& seen);
    std::uint32_t releases();
    // At a barrier: who waits for it sees what has been released until it opens.
    void open();
    std::uint32_t releases_when_opened();
    // Whether one of the first `count` releases tells of an access, itself or by what its thread
    // had seen: such addresses are added to `behind`.
    bool tells_of(Mark access, std::uint32_t count, Seen& behind);

private:
    // How a number grows: the releases at which it did, and to what.
    class Growth {
    public:
        void to(unsigned number, std::uint32_t release) {
            bool grows = steps_.empty() || number > steps_.back().second;
            if (grows) steps_.push_back({release, number});
        }
        unsigned at(std::uint32_t release) const;

    private:
        std::vector<std::pair<std::uint32_t, unsigned>> steps_;
    };
    struct OfBlock {
        Growth before;
        std::unordered_map<unsigned, Growth> threads;
    };
    std::mutex mutex_;
    std::uint32_t count_ = 0, opened_ = 0;
    std::unordered_map<unsigned, OfBlock> of_block_;
    std::unordered_map<Address*, Growth> behind_;  // what releasing threads had seen elsewhere
};

// How a thread accesses an address through which it may tell others something. An atomic that only
// changes a number, such as a counter, neither sets nor looks.
struct Word {
    bool writes, reads;
    bool sets, looks;
};

// An atomic or volatile write, with a fence before it or without: what errors are explained by.
struct Told {
    unsigned block, thread, time;
    unsigned met;                           // what has an earlier time was over for the block
    std::array<unsigned, SCOPES> own, all;  // likewise, what a fence had made ready: the thread's
    bool sets;                              //   own accesses, and those of the whole block
};

// What the block has been told of an access that races all the same.
enum class Telling {
    nothing,
    too_early,   // by a thread of that block that had met with no barrier after the access
    unfenced,    // or, in the same time, before it
    for_block,   // after a fence that orders it for the block alone
    not_waited,  // properly, but whoever looked did so before
};

// The addresses of a launch. As long as no thread has passed a fence, there are none.
class Addresses {
public:
    void tell(std::uintptr_t at, const Told& told);
    std::vector<Told> told_at(std::uintptr_t at, unsigned block);

    bool fences_are_used() const { return used_.load(std::memory_order_relaxed); }
    void use_fences() { used_.store(true, std::memory_order_relaxed); }
    // For the threads of one block, or for all.
    Address* find(std::uintptr_t at, Scope scope, unsigned block, bool make);

private:
    static constexpr unsigned ALL = ~0u;  // blocks
    std::atomic<bool> used_{false};
    std::mutex mutex_;
    std::map<std::pair<std::uintptr_t, unsigned>, std::unique_ptr<Address>> all_;
    // Of each the latest, and how many there were.
    std::unordered_map<std::uintptr_t, std::pair<std::vector<Told>, std::size_t>> told_;
};

// What the threads of the running block know.
class Order {
public:
    void begin_launch(Addresses& addresses, unsigned threads);
    void begin_block(unsigned block);
    void barrier();
    void share(unsigned warp, std::uint32_t lanes, bool meets);  // meets: it is a __syncwarp
    void fence(unsigned thread, Scope scope, Clocks& clocks);
    void release(unsigned thread, std::uintptr_t at, Scope scope);  // before the atomic
    void acquire(unsigned thread);                               // after it
    // A load that acquires, after it: what the thread has seen it knows. Unlike a fence it makes
    // nothing ready, and it may be a step of a long wait, which takes no time here.
    void acquired(unsigned thread);
    // reads: an access of which nothing tells when it is over, a volatile member's say. So what it
    // acquires is looked up with the thread's next step.
    void note_address(unsigned thread, std::uintptr_t at, Scope scope, bool reads) {
        acquire_late(thread);
        address_[thread] = {at, scope}, used_ = true;
        is_late_[thread] = reads;
    }
    // For errors alone. Of a launch that does many atomics the first are kept.
    void note_word(unsigned thread, std::uintptr_t at, Word word, const Clocks& clocks);
    // can_tell(at, is_counter): whether an address may be what tells of the access.
    template <typename CanTell>
    Telling telling(Mark access, unsigned thread, bool one_block, CanTell can_tell) const;
    // A thread of the block that knows that the access is done; -1: none that has looked.
    int who_knows(Mark access) const;
    // At a barrier of some threads, which needs no fence: what the thread did, and what it knew to
    // be done, is done for whoever passes it.
    void arrive(unsigned thread, std::uintptr_t at, Clocks& clocks);
    void open(std::uintptr_t at);
    void pass(unsigned thread, std::uintptr_t at);

    // Whether `access` is done for the thread. at_once: it need not pass a fence any more, for it
    // reads by an atomic or volatile itself.
    bool is_done(Mark access, unsigned thread, bool at_once) const;
    bool is_used() const { return used_; }  // some thread of the block has made an atomic or fence

private:
    struct Ready {  // by a fence
        unsigned before = 0;
        std::array<std::uint16_t, Clocks::LANES> lanes{};  // of the thread's warp
        Seen seen;
        bool is_empty() const { return !before; }
    };
    struct Where {
        std::uintptr_t at = 0;
        Scope scope = Scope::device;
    };
    struct Thread {
        std::array<Ready, SCOPES> ready;
        Seen pending;       // seen, but no fence passed since that is enough for it
        Seen seen;          // and a fence passed
        Where released_at;  // since its latest fence
    };
    struct Look {
        std::uintptr_t at;
        unsigned thread;
        bool looks;
    };
    Thread& use(unsigned thread);
    void acquire_late(unsigned thread) {
        if (is_late_[thread]) acquire(thread);
    }

    Addresses* addresses_ = nullptr;
    unsigned threads_ = 0, block_ = 0;
    bool used_ = false;
    std::vector<Thread> thread_;
    std::array<Where, Clocks::THREADS> address_{};  // of each thread's latest atomic
    std::array<bool, Clocks::THREADS> is_late_{};   // it has not been acquired yet
    static constexpr unsigned WORDS = 1u << 15;
    unsigned words_left_ = WORDS;       // of the launch, that note_word() still keeps
    std::vector<Look> looks_;
    std::array<unsigned, Clocks::THREADS> latest_look_{};  // when, and how; 0: it was none
    std::vector<unsigned> touched_;     // threads that differ from a fresh one
    std::vector<bool> is_touched_;
    Seen seen_by_any_, seen_by_all_;
    // Made ready before the last barrier, so that every thread may release it.
    std::array<unsigned, SCOPES> all_before_{};
    std::array<std::vector<std::uint16_t>, SCOPES> all_ready_;
    std::array<Seen, SCOPES> all_seen_;
};

template <typename CanTell>
Telling Order::telling(Mark access, unsigned thread, bool one_block, CanTell can_tell) const {
    Telling found = Telling::nothing;
    unsigned scope = unsigned(one_block ? Scope::block : Scope::device);
    for (const Look& look : looks_) {
        if (one_block && look.thread != thread) continue;
        for (const Told& told : addresses_->told_at(look.at, access.block())) {
            bool counts = !look.looks && !told.sets;
            if (!can_tell(look.at, counts)) continue;
            bool itself = told.thread == access.thread(), met = access.time() < told.met;
            if (itself ? told.time < access.time() : !met && told.time <= access.time()) continue;
            bool ready = access.time() < told.all[scope] ||
                         (itself && access.time() < told.own[scope]);
            bool for_block = access.time() < told.all[0] || (itself && access.time() < told.own[0]);
            Telling says = !itself && !met ? Telling::too_early
                           : ready         ? Telling::not_waited
                           : for_block     ? Telling::for_block
                                           : Telling::unfenced;
            found = std::max(found, says);
        }
    }
    return found;
}

}  // namespace cuda_on_cpu
