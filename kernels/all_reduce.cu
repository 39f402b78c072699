// kernels/all_reduce.cu
// SPDX-License-Identifier: MIT
// All-reduce over the GPUs of one machine: every rank gets the sum of all ranks' inp.
// Any shape, contiguous; float32, float16 or bfloat16, added in float32 in order of
// rank, so that all ranks get the same bits. 1 to 8 ranks, GPUs alike, each of which
// reaches the others' memory: by NVLink, or by PCIe with peer access. On any stream and
// in CUDA graphs; the calls of a rank must follow each other, as NCCL's must.
// Of n bytes each of p ranks sends (p - 1) * 2 n while that is little: in one trip (a
// one-shot), in lines (LL packets) of words with flags beside them, to everybody.
// Beyond that it sends 2 n (p - 1) / p, no more than a ring: in two trips (a two-shot:
// reduce-scatter, then all-gather), in rounds that overlap, shares go to their owners
// and sums come back. Of two ranks each sends all to the other, in one trip again.
// A rank's card holds the IPC handle of its memory, its links are its communicator;
// all_reduce_here has all ranks in a single process, on one GPU.
// All ranks have to call with the same size and type, which nobody compares. Who waits
// longer than timeout_s stops with an assertion: nobody waits for ever.
// Scratch memory: what all_reduce_open takes, up to 43 MB a rank; calls take none.
// Notebook: 16c_all_reduce. Own code; flags beside words after NCCL's protocol LL.
//
// from pathlib import Path
// from torch.utils.cpp_extension import load_inline
// NUMBERS = "std::vector<int64_t>"
// all_reduce = load_inline("all_reduce",
//     cuda_sources=Path("all_reduce.cu").read_text(),
//     cpp_sources=f"""{NUMBERS} all_reduce_open(torch::Tensor like, int64_t ranks);
//     {NUMBERS} all_reduce_connect(torch::Tensor like, {NUMBERS} cards, int64_t rank,
//                                  double timeout_s);
//     void all_reduce_close(torch::Tensor like, {NUMBERS} links);
//     torch::Tensor all_reduce(torch::Tensor inp, {NUMBERS} links);
//     void all_reduce_(torch::Tensor inp, {NUMBERS} links);
//     torch::Tensor all_reduce_here(torch::Tensor inp, {NUMBERS} links);""",
//     functions=["all_reduce_open", "all_reduce_connect", "all_reduce_close",
//                "all_reduce", "all_reduce_", "all_reduce_here"])
#include <c10/cuda/CUDAGuard.h>  // and with it streams, and checks of launches
#include <torch/types.h>
#include <unistd.h>
#include <algorithm>
#include <cassert>
#include <cstring>
#include <string>
#include <vector>
using c10::cuda::CUDAGuard, c10::cuda::getCurrentCUDAStream, torch::Tensor;

constexpr int MAX_RANKS = 8, MAX_BLOCKS = 256, BLOCK_SIZE = 512;
constexpr int64_t WORDS_PAIR = 640 << 10;  // up to so many bytes with flags: two ranks,
constexpr int64_t WORDS = 2 << 20;         // more of them (as if those were two)
constexpr int SLOTS = 2;                   // rounds that a block has room for
constexpr int ROUND_PACKS = 8 * BLOCK_SIZE;  // of 16 bytes, all ranks' shares together
constexpr int PAIR_SLOTS = 4, PAIR_SIZE = 256, PAIR_PACKS = 4;  // threads, of packs

// First in each rank's memory. An entry a block: none reads what another one writes.
struct Head {
    unsigned calls[MAX_BLOCKS];   // so far, of one trip
    unsigned rounds[MAX_BLOCKS];  // so far, of this block
    // written by the others: rounds whose shares, whose sums they have sent here
    unsigned sent[2][MAX_BLOCKS][MAX_RANKS];
};
constexpr int64_t HEAD_BYTES = 1 << 15;
static_assert(sizeof(Head) <= HEAD_BYTES);

struct Ranks {
    char* memory[MAX_RANKS];  // of each, as this process sees it
    int count, first;         // block (x, y) works for rank first + y
    int64_t timeout_ns;
};

template <typename T, int BYTES> struct alignas(BYTES) Pack {
    static constexpr int WIDTH = BYTES / sizeof(T);
    T at[WIDTH];
};

// elements i, i + 1 ... of n, with zeros behind them
template <typename P, typename T>
static __device__ P load(const T* inp, int64_t i, int64_t n, bool aligned) {
    if (aligned && i + P::WIDTH <= n) return *reinterpret_cast<const P*>(inp + i);
    P pack;
    for (int k = 0; k < P::WIDTH; k++) pack.at[k] = i + k < n ? inp[i + k] : T(0.0f);
    return pack;
}

template <typename P, typename T>
static __device__ void store(T* out, int64_t i, int64_t n, bool aligned, P pack) {
    using Words = std::conditional_t<sizeof(P) == 16, uint4, uint2>;
    if (aligned && i + P::WIDTH <= n)  // streamed: L2 is for what is read again
        __stcs(reinterpret_cast<Words*>(out + i), reinterpret_cast<Words&>(pack));
    else
        for (int k = 0; k < P::WIDTH; k++)
            if (i + k < n) out[i + k] = pack.at[k];
}

template <typename T, typename P> struct Sum {
    float at[P::WIDTH] = {};
    __device__ void add(P pack) {
        for (int k = 0; k < P::WIDTH; k++) at[k] += float(pack.at[k]);
    }
    __device__ P rounded() const {
        P pack;
        for (int k = 0; k < P::WIDTH; k++) pack.at[k] = T(at[k]);
        return pack;
    }
};

// A rank that has died never comes: who waits looks at the clock now and then.
struct Patience {
    int64_t timeout_ns, start = 0;
    unsigned polls = 0;
    __device__ void spend() {
        if (++polls % 1024) return;
        int64_t now;
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
        if (start == 0) start = now;
        if (now - start < timeout_ns) return;
        assert(!"all_reduce: a rank has not come in time (dead? with another size?)");
        __trap();
        __builtin_unreachable();  // so that nothing is kept for afterwards
    }
};

// A line (an LL packet) is 16 bytes: two words of data, each beside a flag, the number
// of the call. Each half is stored whole, so that no word comes without its flag; the
// halves may come one after the other. Who finds the flag in both has the data: this
// takes neither a fence nor a second message that says so.
// .relaxed: now, and not from L1; .sys: for all GPUs.
static __device__ void put_line(ulonglong2* to, uint2 words, unsigned flag) {
    uint64_t a = uint64_t(flag) << 32 | words.x, b = uint64_t(flag) << 32 | words.y;
    asm volatile("st.relaxed.sys.global.v2.b64 [%0], {%1, %2};"
                 :: "l"(to), "l"(a), "l"(b) : "memory");
}
static __device__ uint2 wait_line(const ulonglong2* from, unsigned flag, Patience& p) {
    while (true) {
        uint64_t a, b;
        asm volatile("ld.relaxed.sys.global.v2.b64 {%0, %1}, [%2];"
                     : "=l"(a), "=l"(b) : "l"(from) : "memory");
        if (a >> 32 == flag && b >> 32 == flag) return make_uint2(a, b);
        p.spend();
    }
}

// inp, out: n elements a rank. A call finds its lines in one of two buffers of the
// rank's memory, calls taking turns, and nobody ever says that a buffer is free. It is:
// say r begins call e + 2, whose lines overwrite those of call e in s's memory.
//   1. r has ended its call e + 1, for the calls of a rank follow each other.
//   2. So r has found s's lines of e + 1, for a call ends when it has all ranks' lines.
//   3. So s had begun its call e + 1, and ended e before: it has read the lines of e.
// One buffer would not do: r ends e as soon as it has s's lines, and its lines of e + 1
// would overwrite those of e, which a slower s is still about to read.
template <typename T>
__global__ void __launch_bounds__(BLOCK_SIZE, 1)
all_reduce_words_kernel(T* out, const T* inp, int64_t n, int64_t room,
                           const __grid_constant__ Ranks ranks) {
    using P = Pack<T, 8>;
    int me = ranks.first + blockIdx.y, count = ranks.count;
    inp += blockIdx.y * n, out += blockIdx.y * n;
    bool inp_aligned = uintptr_t(inp) % 8 == 0, out_aligned = uintptr_t(out) % 8 == 0;
    Head* head = reinterpret_cast<Head*>(ranks.memory[me]);
    unsigned call = head->calls[blockIdx.x] + 1;
    auto lines = [&](int of, int from) {  // in the memory of one, what another one sent
        auto* all = reinterpret_cast<ulonglong2*>(ranks.memory[of] + HEAD_BYTES);
        return all + (call % 2 * count + from) * room;
    };
    int64_t first = int64_t(blockIdx.x) * BLOCK_SIZE + threadIdx.x;
    int64_t step = int64_t(gridDim.x) * BLOCK_SIZE;

    for (int64_t line = first; line * P::WIDTH < n; line += step) {
        P pack = load<P>(inp, line * P::WIDTH, n, inp_aligned);
        uint2 words = *reinterpret_cast<uint2*>(&pack);
        for (int r = 1; r < count; r++)
            put_line(lines((me + r) % count, me) + line, words, call);
    }
    Patience patience{ranks.timeout_ns};
    for (int64_t line = first; line * P::WIDTH < n; line += step) {
        Sum<T, P> sum;
        for (int from = 0; from < count; from++) {
            P pack;
            if (from == me) {
                pack = load<P>(inp, line * P::WIDTH, n, inp_aligned);
            } else {
                uint2 words = wait_line(lines(me, from) + line, call, patience);
                pack = *reinterpret_cast<P*>(&words);
            }
            sum.add(pack);
        }
        store(out, line * P::WIDTH, n, out_aligned, sum.rounded());
    }
    __syncthreads();  // all threads have read the number of this call
    unsigned block = blockIdx.x + threadIdx.x * gridDim.x;  // those at rest count, too
    if (block < MAX_BLOCKS) head->calls[block] = call;
}

// A number says that many packs are there, which plain instructions write and read:
//   one rank:  all threads write packs; __syncthreads(); one thread tells (.release)
//   another:   one thread waits (.acquire); __syncthreads(); all threads read packs
// .release: what its thread wrote, and through the barrier what its block wrote, is
// there for everybody who acquires the number. With .relaxed the number could overtake
// the packs. Numbers only grow, and the other rank may be a round ahead: hence >=, of a
// difference, which is right when the 32 bits begin again at 0.
static __device__ void tell(unsigned* to, unsigned number) {
    asm volatile("st.release.sys.global.u32 [%0], %1;"
                 :: "l"(to), "r"(number) : "memory");
}
static __device__ void wait_for(const unsigned* from, unsigned number, Patience& p) {
    while (true) {
        unsigned now;
        asm volatile("ld.acquire.sys.global.u32 %0, [%1];"
                     : "=r"(now) : "l"(from) : "memory");
        if (int(now - number) >= 0) return;
        p.spend();
    }
}

// A round of two trips. It gives each rank, its owner, a share of V packs a thread:
//   trip 0: every rank sends each share to a slot of its owner, which adds them up;
//   trip 1: the owner sends the sum to a slot of every rank.
// Block b of a rank has to do with the blocks b of the others only. For either trip and
// each sender it has SLOTS = 2 slots, round k in slot k % 2. Nobody says that a slot is
// free. In turn k a block sends the shares of k + 1, adds up those of k, sends the
// sums of k, and waits for all others' sums of k and stores them. So
//   shares of k + 2 overwrite those of k. They are sent in turn k + 1, when all sums of
//   k have come; and an owner sends its sum when it has read all shares of k.
//   sums of k + 2 overwrite those of k. They are sent when all shares of k + 2 have
//   come; and a rank sends these in turn k + 1, when it has stored the sums of k.
// One slot would not do: the shares of k + 1 are on their way before those of k are
// read, which is what hides the trip. Rounds are counted over all calls, so that all
// this holds from one call to the next, too: a rank's calls follow each other.
template <typename T, int V> struct Rounds {
    using P = Pack<T, 16>;
    const Ranks& ranks;
    int64_t n, slots_at;
    int me, count;
    unsigned before;  // rounds of earlier calls
    Patience patience;

    __device__ Head* head(int of) const {
        return reinterpret_cast<Head*>(ranks.memory[of]);
    }
    __device__ int64_t element(int k, int owner, int v) const {
        int64_t share = (int64_t(k) * gridDim.x + blockIdx.x) * count + owner;
        return ((share * V + v) * BLOCK_SIZE + threadIdx.x) * P::WIDTH;
    }
    // In the memory of one: what another one sent in round k, shares (0) or sums (1)
    __device__ P* slot(int of, int trip, int k, int from) const {
        int64_t number = (blockIdx.x * 2 + trip) * SLOTS + (before + k) % SLOTS;
        auto* slots = reinterpret_cast<P*>(ranks.memory[of] + slots_at);
        return slots + number * ROUND_PACKS + from * V * BLOCK_SIZE + threadIdx.x;
    }
    __device__ bool speaks() const {  // a thread for each other rank
        return threadIdx.x < count && threadIdx.x != me;
    }
    __device__ void tell_all(int trip, int k) const {
        __syncthreads();  // the whole block has written before the number says so
        if (speaks())
            tell(&head(threadIdx.x)->sent[trip][blockIdx.x][me], before + k + 1);
    }
    __device__ void wait_for_all(int trip, int k) {
        if (speaks())
            wait_for(&head(me)->sent[trip][blockIdx.x][threadIdx.x], before + k + 1,
                     patience);
        __syncthreads();  // now all threads may read what has come
    }
};

// inp, out: n elements a rank; slots_at: where slots begin in a rank's memory. Block b
// has rounds b, b + gridDim.x ... Why no slot is overwritten too early: see Rounds.
template <typename T, int V>
__global__ void __launch_bounds__(BLOCK_SIZE, 1)
all_reduce_two_trips_kernel(T* out, const T* inp, int64_t n, int64_t slots_at,
                            const __grid_constant__ Ranks ranks) {
    using P = Pack<T, 16>;
    int me = ranks.first + blockIdx.y, count = ranks.count;
    inp += blockIdx.y * n, out += blockIdx.y * n;
    bool inp_aligned = uintptr_t(inp) % 16 == 0, out_aligned = uintptr_t(out) % 16 == 0;
    unsigned& done = reinterpret_cast<Head*>(ranks.memory[me])->rounds[blockIdx.x];
    Rounds<T, V> r{ranks, n, slots_at, me, count, done, {ranks.timeout_ns}};
    int64_t round = int64_t(count) * V * BLOCK_SIZE * P::WIDTH;
    int64_t all = (n + round - 1) / round;
    int rounds = int((all - blockIdx.x + gridDim.x - 1) / gridDim.x);

    auto send_shares = [&](int k) {
        for (int other = 1; other < count; other++) {
            int owner = (me + other) % count;
            P pack[V];
#pragma unroll
            for (int v = 0; v < V; v++)
                pack[v] = load<P>(inp, r.element(k, owner, v), n, inp_aligned);
#pragma unroll
            for (int v = 0; v < V; v++)
                r.slot(owner, 0, k, me)[v * BLOCK_SIZE] = pack[v];
        }
        r.tell_all(0, k);
    };
    if (rounds > 0) send_shares(0);
    for (int k = 0; k < rounds; k++) {
        if (k + 1 < rounds) send_shares(k + 1);  // they travel while k is added up
        r.wait_for_all(0, k);
        Sum<T, P> sum[V];
        for (int from = 0; from < count; from++)
#pragma unroll
            for (int v = 0; v < V; v++)
                sum[v].add(from != me ? r.slot(me, 0, k, from)[v * BLOCK_SIZE]
                           : load<P>(inp, r.element(k, me, v), n, inp_aligned));
#pragma unroll
        for (int v = 0; v < V; v++) {
            P pack = sum[v].rounded();
            store(out, r.element(k, me, v), n, out_aligned, pack);
            for (int other = 1; other < count; other++)
                r.slot((me + other) % count, 1, k, me)[v * BLOCK_SIZE] = pack;
        }
        r.tell_all(1, k);
        r.wait_for_all(1, k);
        for (int other = 1; other < count; other++) {
            int owner = (me + other) % count;
#pragma unroll
            for (int v = 0; v < V; v++)
                store(out, r.element(k, owner, v), n, out_aligned,
                      r.slot(me, 1, k, owner)[v * BLOCK_SIZE]);
        }
    }
    if (threadIdx.x == 0) done += rounds;
}

// Two ranks, A and B: each sends all it has to the other and adds up all of it. In turn
// k a block sends round k + 1, waits for the other's round k and adds it up. Round k
// lies in slot k % PAIR_SLOTS, and nobody says that a slot is free.
//   1. When A sends round j, it has ended turn j - 2, so B's round j - 2 has come.
//   2. B sent that at the beginning of its turn j - 3, when turn j - 4 had ended (or at
//      the beginning of a call, when all turns before had).
//   3. So B has read A's rounds up to j - 4, and j may take the slot of j - 4.
// Four slots are needed: B may not yet have read j - 3, j - 2 and j - 1, so that with
// three of them j would overwrite j - 3. Here, too, rounds are counted over all calls.
template <typename T>
__global__ void __launch_bounds__(PAIR_SIZE, 2)
all_reduce_pair_kernel(T* out, const T* inp, int64_t n, int64_t slots_at,
                       const __grid_constant__ Ranks ranks) {
    using P = Pack<T, 16>;
    int me = ranks.first + blockIdx.y, other = 1 - me, t = threadIdx.x;
    inp += blockIdx.y * n, out += blockIdx.y * n;
    bool inp_aligned = uintptr_t(inp) % 16 == 0, out_aligned = uintptr_t(out) % 16 == 0;
    Head* mine = reinterpret_cast<Head*>(ranks.memory[me]);
    Head* theirs = reinterpret_cast<Head*>(ranks.memory[other]);
    unsigned before = mine->rounds[blockIdx.x];  // rounds of earlier calls
    int64_t round = PAIR_PACKS * PAIR_SIZE * P::WIDTH, all = (n + round - 1) / round;
    int rounds = int((all - blockIdx.x + gridDim.x - 1) / gridDim.x);
    Patience patience{ranks.timeout_ns};

    auto element = [&](int k, int v) {
        int64_t row = (int64_t(k) * gridDim.x + blockIdx.x) * PAIR_PACKS + v;
        return (row * PAIR_SIZE + t) * P::WIDTH;
    };
    auto slot = [&](int of, int k) {  // in the memory of one, for the other's round k
        auto* slots = reinterpret_cast<P*>(ranks.memory[of] + slots_at);
        int64_t number = blockIdx.x * PAIR_SLOTS + (before + k) % PAIR_SLOTS;
        return slots + number * PAIR_PACKS * PAIR_SIZE + t;
    };
    auto send = [&](int k) {
        P pack[PAIR_PACKS], *to = slot(other, k);
#pragma unroll
        for (int v = 0; v < PAIR_PACKS; v++)
            pack[v] = load<P>(inp, element(k, v), n, inp_aligned);
#pragma unroll
        for (int v = 0; v < PAIR_PACKS; v++) to[v * PAIR_SIZE] = pack[v];
        __syncthreads();  // the whole block has written before the number says so
        if (t == PAIR_SIZE - 1) tell(&theirs->sent[0][blockIdx.x][me], before + k + 1);
    };
    send(0);
    for (int k = 0; k < rounds; k++) {
        if (k + 1 < rounds) send(k + 1);  // it travels while k is added up
        if (t == 0)
            wait_for(&mine->sent[0][blockIdx.x][other], before + k + 1, patience);
        __syncthreads();  // now all threads may read what has come
        P got[PAIR_PACKS], own[PAIR_PACKS], *from = slot(me, k);
#pragma unroll
        for (int v = 0; v < PAIR_PACKS; v++) {
            got[v] = from[v * PAIR_SIZE];
            own[v] = load<P>(inp, element(k, v), n, inp_aligned);
        }
#pragma unroll
        for (int v = 0; v < PAIR_PACKS; v++) {
            Sum<T, P> sum;  // a + b has the bits of b + a
            sum.add(own[v]), sum.add(got[v]);
            store(out, element(k, v), n, out_aligned, sum.rounded());
        }
    }
    if (t == 0) mine->rounds[blockIdx.x] = before + rounds;
}

static void check(const char* name, Tensor x) {
    auto type = x.scalar_type();
    bool known = type == torch::kFloat32 || type == torch::kFloat16 ||
                 type == torch::kBFloat16;
    TORCH_CHECK(known && x.is_contiguous() && x.is_cuda(), name, ": expected "
                "contiguous float32, float16 or bfloat16 on a CUDA device, got ", type,
                " on ", x.device(), ", shape ", x.sizes(), ", strides ", x.strides());
}
static void check_done(cudaError_t error, const std::string& what) {
    TORCH_CHECK(error == cudaSuccess, what, ": ", cudaGetErrorString(error));
}

// Lines that one rank may send to another: as many as make words the faster way
static int64_t line_room(int64_t count) {
    if (count <= 2) return count == 1 ? 0 : WORDS_PAIR / 8;
    return WORDS * count / (16 * (count - 1) * (count - 1));
}
static int64_t slots_place(int64_t count) {
    return HEAD_BYTES + 2 * count * line_room(count) * 16;
}
// All have to be on the GPU at once; two of a pair's blocks fit on a multiprocessor.
static int64_t most_blocks(int64_t multiprocessors, bool pair) {
    int64_t most = pair ? MAX_BLOCKS : MAX_BLOCKS / 2;
    return std::min<int64_t>(most, multiprocessors * (pair ? 2 : 1));
}

// A card, what a rank tells the others of its memory: an IPC handle, its address, its
// process, the GPU's multiprocessors, how many ranks it is for
constexpr int HANDLE = sizeof(cudaIpcMemHandle_t) / sizeof(int64_t), CARD = HANDLE + 4;

// Takes this rank's memory, on the GPU of `like`. Returns its card.
std::vector<int64_t> all_reduce_open(Tensor like, int64_t ranks) {
    check("like", like);
    TORCH_CHECK(ranks >= 1 && ranks <= MAX_RANKS, "ranks: expected 1 to ", MAX_RANKS,
                ", got ", ranks);
    CUDAGuard guard(like.device());
    int multiprocessors = 0;
    check_done(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount,
                                      like.get_device()), "all_reduce_open");
    int64_t slots =
        ranks == 2 ? most_blocks(multiprocessors, true) * PAIR_SLOTS *
                     PAIR_PACKS * PAIR_SIZE * 16
        : most_blocks(multiprocessors, false) * 2 * SLOTS * ROUND_PACKS * 16;
    char* memory;
    check_done(cudaMalloc(&memory, slots_place(ranks) + slots), "all_reduce_open");
    cudaError_t error = cudaMemset(memory, 0, slots_place(ranks));
    if (error == cudaSuccess) error = cudaDeviceSynchronize();
    if (error != cudaSuccess) cudaFree(memory);
    check_done(error, "all_reduce_open");
    cudaIpcMemHandle_t handle;
    std::vector<int64_t> card(HANDLE);  // zeros: not to be shared, see reach
    if (cudaIpcGetMemHandle(&handle, memory) == cudaSuccess)
        std::memcpy(card.data(), &handle, sizeof handle);
    else cudaGetLastError();  // one process needs no handle
    card.insert(card.end(), {reinterpret_cast<int64_t>(memory), int64_t(getpid()),
                             multiprocessors, ranks});
    return card;
}

// Another rank's memory, as this process sees it
static char* reach(const int64_t* card, Tensor like, int64_t rank) {
    auto* memory = reinterpret_cast<char*>(card[HANDLE]);
    std::string what = "the memory of rank " + std::to_string(rank) + " is out of "
                       "reach (expected GPUs of one machine with peer access)";
    if (card[HANDLE + 1] != getpid()) {
        bool shared = std::count(card, card + HANDLE, 0) < HANDLE;
        TORCH_CHECK(shared, what, ": it has no handle for other processes");
        cudaIpcMemHandle_t handle;
        std::memcpy(&handle, card, sizeof handle);
        void* opened;
        auto how = cudaIpcMemLazyEnablePeerAccess;
        check_done(cudaIpcOpenMemHandle(&opened, handle, how), what);
        return static_cast<char*>(opened);
    }
    cudaPointerAttributes found;  // a handle is for other processes
    check_done(cudaPointerGetAttributes(&found, memory), what);
    if (found.device == like.get_device()) return memory;
    cudaError_t error = cudaDeviceEnablePeerAccess(found.device, 0);
    if (error == cudaErrorPeerAccessAlreadyEnabled) cudaGetLastError();
    else check_done(error, what);
    return memory;
}

enum Kind { NOT_MINE, MINE, OPENED };
constexpr int LINKS = 4;  // rank, ranks, ns, multiprocessors; then an address, a kind

// Gives back how this process reaches the memory of others.
static cudaError_t close_opened(const std::vector<int64_t>& links) {
    cudaError_t error = cudaSuccess;
    for (size_t i = LINKS; i < links.size(); i += 2)
        if (links[i + 1] == OPENED)
            error = std::max(error, cudaIpcCloseMemHandle(
                                        reinterpret_cast<void*>(links[i])));
    return error;
}

// cards: all ranks', in order of rank. rank: this one's; -1: this process has opened
// all of them, on one GPU, for all_reduce_here. Returns the links that calls take.
std::vector<int64_t> all_reduce_connect(Tensor like, std::vector<int64_t> cards,
                                        int64_t rank, double timeout_s) {
    check("like", like);
    int64_t ranks = cards.size() / CARD;
    TORCH_CHECK(ranks >= 1 && ranks <= MAX_RANKS && cards.size() % CARD == 0,
                "cards: expected those of 1 to ", MAX_RANKS, " ranks, got ",
                cards.size(), " numbers");
    TORCH_CHECK(rank >= -1 && rank < ranks, "rank: expected -1 to ", ranks - 1,
                ", got ", rank);
    TORCH_CHECK(timeout_s > 0, "timeout_s: expected a time, got ", timeout_s);
    CUDAGuard guard(like.device());
    int64_t alike = cards[HANDLE + 2];
    std::vector<int64_t> links = {rank, ranks, int64_t(timeout_s * 1e9), alike};
    for (int64_t r = 0; r < ranks; r++) {
        const int64_t* card = cards.data() + r * CARD;
        TORCH_CHECK(card[HANDLE + 2] == alike && card[HANDLE + 3] == ranks, "cards: "
                    "expected ", ranks, " GPUs of ", alike, " multiprocessors, got one "
                    "of ", card[HANDLE + 2], ", opened for ", card[HANDLE + 3]);
        bool mine = rank < 0 || r == rank, here = card[HANDLE + 1] == getpid();
        TORCH_CHECK(!mine || here, "cards: expected rank ", r, "'s of this process, "
                    "got another's");
        int64_t kind = mine ? MINE : here ? NOT_MINE : OPENED;
        links.insert(links.end(), {card[HANDLE], kind});
    }
    int64_t r = 0;
    try {
        for (; r < ranks; r++) {
            const int64_t* card = cards.data() + r * CARD;
            int64_t &at = links[LINKS + 2 * r], kind = links[LINKS + 2 * r + 1];
            if (kind != MINE) at = reinterpret_cast<int64_t>(reach(card, like, r));
        }
    } catch (...) {
        links.resize(LINKS + 2 * r);  // those that were reached
        close_opened(links);
        throw;
    }
    return links;
}

static void check_links(const std::vector<int64_t>& links, bool here) {
    bool whole = links.size() > LINKS && links.size() == size_t(LINKS + 2 * links[1]);
    TORCH_CHECK(whole && (links[0] < 0) == here, "links: expected what "
                "all_reduce_connect returns for ", here ? "rank -1" : "a rank",
                ", got ", links.size(), " numbers",
                !whole ? "" : here ? " for a rank" : " for rank -1");
}

template <typename F> static void with_type(Tensor x, F f) {  // f(an element's zero)
    if (x.scalar_type() == torch::kFloat32) f(float());
    else if (x.scalar_type() == torch::kFloat16) f(at::Half());
    else f(at::BFloat16());
}

// n: elements of a rank; ys: for how many ranks this launch works
static void launch(Tensor out, Tensor inp, int64_t n, int64_t ys,
                   const std::vector<int64_t>& links) {
    Ranks ranks{};
    ranks.count = int(links[1]), ranks.timeout_ns = links[2];
    ranks.first = int(std::max<int64_t>(links[0], 0));
    for (int r = 0; r < ranks.count; r++)
        ranks.memory[r] = reinterpret_cast<char*>(links[LINKS + 2 * r]);
    int64_t bytes = n * inp.element_size(), lines = (bytes + 7) / 8;
    bool words = lines <= line_room(ranks.count), pair = !words && ranks.count == 2;
    int V = ranks.count <= 2 ? 4 : ranks.count <= 4 ? 2 : 1;
    int64_t threads = pair ? PAIR_SIZE : BLOCK_SIZE;
    int64_t round = pair ? PAIR_PACKS * PAIR_SIZE * 16
                         : int64_t(ranks.count) * V * BLOCK_SIZE * 16;
    int64_t wanted = words ? (lines + BLOCK_SIZE - 1) / BLOCK_SIZE
                           : (bytes + round - 1) / round;
    int64_t blocks = std::min(wanted, most_blocks(links[3], pair) / ys);
    cudaLaunchAttribute together{};  // ranks of one launch: all blocks alive at once
    together.id = cudaLaunchAttributeCooperative, together.val.cooperative = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(std::max<int64_t>(blocks, 1), ys);
    config.blockDim = dim3(threads), config.stream = getCurrentCUDAStream();
    config.attrs = &together, config.numAttrs = ys > 1;
    with_type(inp, [&](auto zero) { using T = decltype(zero);
        auto* kernel = words ? all_reduce_words_kernel<T>
                       : pair ? all_reduce_pair_kernel<T>
                       : V == 4 ? all_reduce_two_trips_kernel<T, 4>
                       : V == 2 ? all_reduce_two_trips_kernel<T, 2>
                                : all_reduce_two_trips_kernel<T, 1>;
        int64_t place = words ? line_room(ranks.count) : slots_place(ranks.count);
        C10_CUDA_CHECK(cudaLaunchKernelEx(
            &config, kernel, out.data_ptr<T>(),
            static_cast<const T*>(inp.data_ptr<T>()), n, place, ranks));
    });
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}

// The sum of all ranks' inp. links: from all_reduce_connect.
Tensor all_reduce(Tensor inp, std::vector<int64_t> links) {
    check("inp", inp);
    check_links(links, false);
    CUDAGuard guard(inp.device());
    Tensor out = torch::empty_like(inp);
    if (inp.numel() > 0) launch(out, inp, inp.numel(), 1, links);
    return out;
}

void all_reduce_(Tensor inp, std::vector<int64_t> links) {  // the same, in place
    check("inp", inp);
    check_links(links, false);
    CUDAGuard guard(inp.device());
    if (inp.numel() > 0) launch(inp, inp, inp.numel(), 1, links);
}

// All ranks on one GPU, in one launch: row r of inp, (ranks, ...), is rank r's.
Tensor all_reduce_here(Tensor inp, std::vector<int64_t> links) {
    check("inp", inp);
    check_links(links, true);
    TORCH_CHECK(inp.dim() > 0 && inp.size(0) == links[1], "inp: expected a row for "
                "each of ", links[1], " ranks, got shape ", inp.sizes());
    CUDAGuard guard(inp.device());
    Tensor out = torch::empty_like(inp);
    if (inp.numel() > 0) launch(out, inp, inp.numel() / links[1], links[1], links);
    return out;
}

// When all ranks have ended their last call: gives this rank's memory back.
void all_reduce_close(Tensor like, std::vector<int64_t> links) {
    check("like", like);
    check_links(links, !links.empty() && links[0] < 0);
    CUDAGuard guard(like.device());
    cudaError_t error = close_opened(links);
    for (size_t i = LINKS; i < links.size(); i += 2)
        if (links[i + 1] == MINE)
            error = std::max(error, cudaFree(reinterpret_cast<void*>(links[i])));
    check_done(error, "all_reduce_close");
}
