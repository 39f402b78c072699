// Streams, events, and what a stream's capture makes of the work in it.
#include "streams.h"

#include <time.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>
#include <unordered_set>

#include "host_memory.h"
#include "memory.h"
#include "multiprocessor.h"
#include "stream_order.h"

// One capture: of the stream it began in, and of those that waited for an event in it.
struct cuda_on_cpu::Capture {
    unsigned long long id;
    cudaStreamCaptureMode mode;
    std::thread::id thread;
    cudaStream_t origin;
    std::unique_ptr<CUgraph_st> graph{new CUgraph_st};
    bool invalidated = false;
};

struct CUstream_st {
    unsigned flags = cudaStreamDefault;
    int priority = 0;
    unsigned long long id = 0;
    std::shared_ptr<cuda_on_cpu::Capture> capture{};
    std::vector<cudaGraphNode_t> last{};  // what the next node of this stream comes after
    unsigned long long done = 0;          // pieces of work
    cuda_on_cpu::Times after{};           // what its next work comes after
};

struct CUevent_st {
    unsigned flags;
    bool is_recorded = false;
    timespec recorded{};
    std::weak_ptr<cuda_on_cpu::Capture> capture{};  // the last record was captured,
    std::vector<cudaGraphNode_t> nodes{};           // after these,
    cudaStream_t stream = nullptr;                  // in this stream
    cuda_on_cpu::Times after{};                     // what who waits for it comes after
};

namespace cuda_on_cpu {

// Guards all streams, events and captures.
static std::recursive_mutex& streams_mutex() {
    static auto* mutex = new std::recursive_mutex;
    return *mutex;
}
using Lock = std::lock_guard<std::recursive_mutex>;

struct DoneWork {
    unsigned long long stream, number;
    std::string call;
    std::vector<Touched> touched;
};

struct Streams {
    std::unordered_set<cudaStream_t> alive;
    std::vector<std::shared_ptr<Capture>> captures;  // that have not ended
    unsigned long long ids = 2;
    std::vector<DoneWork> done;                      // that the host has not waited for
};
static Streams& streams() {
    static auto* all = new Streams;
    return *all;
}
static std::atomic<int> captures_now{0};
static thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

// The default stream is one object for all threads, cudaStreamPerThread one for each. Null for a
// stream that does not exist.
static CUstream_st* find_stream(cudaStream_t stream) {
    static auto* legacy = new CUstream_st{cudaStreamDefault, 0, 1};
    static thread_local CUstream_st per_thread{cudaStreamDefault, 0, 2};
    if (!stream || stream == cudaStreamLegacy) return legacy;
    if (stream == cudaStreamPerThread) return &per_thread;
    return streams().alive.count(stream) ? stream : nullptr;
}
static bool is_legacy(cudaStream_t stream) { return !stream || stream == cudaStreamLegacy; }

static void invalidate(Capture& capture) { capture.invalidated = true; }

cudaError_t refuse_during_capture() {
    if (!captures_now) return cudaSuccess;
    Lock lock(streams_mutex());
    for (auto& capture : streams().captures) {
        bool mine = capture->thread == std::this_thread::get_id();
        bool forbids = capture->mode == cudaStreamCaptureModeGlobal ||
                       (capture->mode == cudaStreamCaptureModeThreadLocal && mine);
        if (!forbids || thread_mode == cudaStreamCaptureModeRelaxed) continue;
        if (!mine && thread_mode == cudaStreamCaptureModeThreadLocal) continue;
        invalidate(*capture);
        return result(cudaErrorStreamCaptureUnsupported);
    }
    return cudaSuccess;
}

// The default stream waits for all streams but the non-blocking ones, so also for a captured one.
static cudaError_t refuse_waiting_for_captured() {
    for (cudaStream_t stream : streams().alive) {
        if (!stream->capture || stream->flags & cudaStreamNonBlocking) continue;
        invalidate(*stream->capture);
        return result(cudaErrorStreamCaptureImplicit);
    }
    return result(cudaSuccess);
}

bool is_put_off(cudaStream_t stream) {
    if (Multiprocessor::running() || captures_now) return true;
    if (!stream || std::uintptr_t(stream) <= std::uintptr_t(cudaStreamFireAndForget)) return false;
    Lock lock(streams_mutex());
    return !find_stream(stream);  // to be refused
}

cudaError_t do_in_stream(cudaStream_t stream, cudaGraphNodeType type, Work work,
                         cudaGraphNode_t* made) {
    if (Multiprocessor* here = Multiprocessor::running()) {
        here->do_after_grid(std::move(work), stream == cudaStreamTailLaunch);
        return cudaSuccess;
    }
    {
        Lock lock(streams_mutex());
        CUstream_st* known = find_stream(stream);
        if (!known) return result(cudaErrorInvalidResourceHandle);
        if (Capture* capture = known->capture.get()) {
            if (capture->invalidated) return result(cudaErrorStreamCaptureInvalidated);
            cudaGraphNode_t node = capture->graph->add(type, std::move(work), known->last);
            known->last = {node};
            if (made) *made = node;
            return cudaSuccess;
        }
        if (is_legacy(stream))
            if (cudaError_t error = refuse_waiting_for_captured()) return error;
    }
    return result(work());
}

// For calls that wait for a stream: it must exist, and no capture may be in it.
static cudaError_t wait_for(cudaStream_t stream) {
    Lock lock(streams_mutex());
    CUstream_st* known = find_stream(stream);
    if (!known) return result(cudaErrorInvalidResourceHandle);
    if (known->capture) {
        invalidate(*known->capture);
        return result(cudaErrorStreamCaptureUnsupported);
    }
    return is_legacy(stream) ? refuse_waiting_for_captured() : result(cudaSuccess);
}

// ---------------------------------------------------------------- order

bool host_must_wait = false;

static void merge(Times& into, const Times& more) {
    for (auto [stream, count] : more) into[stream] = std::max(into[stream], count);
}

bool is_order_of_interest() { return !streams().alive.empty() || has_host_arrays(); }

static bool touches_host(const DoneWork& work) {
    return std::any_of(work.touched.begin(), work.touched.end(), [](const Touched& touched) {
        return is_host_array(reinterpret_cast<void*>(touched.begin));
    });
}

// What comes before the host's next call need not be remembered.
static void host_knows(const Times& times) {
    auto& done = streams().done;
    auto is_known = [&](const DoneWork& work) {
        auto known = times.find(work.stream);
        return known != times.end() && work.number <= known->second;
    };
    done.erase(std::remove_if(done.begin(), done.end(), is_known), done.end());
    host_must_wait = std::any_of(done.begin(), done.end(), touches_host);
}

// Streams that wait for the default stream, and it for them.
template <class See>
static void see_blocking(CUstream_st& known, See see) {
    if (known.id != find_stream(nullptr)->id) {
        if (!(known.flags & cudaStreamNonBlocking)) see(*find_stream(nullptr));
        return;
    }
    for (cudaStream_t other : streams().alive)
        if (!(other->flags & cudaStreamNonBlocking)) see(*other);
}

// Where two pieces of work touch the same memory and one writes there: what each does. Both are
// sorted.
static std::pair<const Touched*, const Touched*> meeting(const std::vector<Touched>& mine,
                                                         const std::vector<Touched>& others) {
    auto a = mine.begin(), b = others.begin();
    while (a != mine.end() && b != others.end()) {
        bool meet = a->begin < b->end && b->begin < a->end;
        if (meet && (a->written || b->written)) return {&*a, &*b};
        a->end < b->end ? ++a : ++b;
    }
    return {nullptr, nullptr};
}

void note_work(cudaStream_t stream, const std::string& call, std::vector<Touched> touched) {
    Lock lock(streams_mutex());
    CUstream_st* known = find_stream(stream);
    if (!known || known->capture || Multiprocessor::running()) return;
    see_blocking(*known, [=](const CUstream_st& other) { merge(known->after, other.after); });
    const Times before = known->after;
    DoneWork mine{known->id, ++known->done, call, std::move(touched)};
    known->after[mine.stream] = mine.number;
    std::sort(mine.touched.begin(), mine.touched.end(),
              [](const Touched& a, const Touched& b) { return a.begin < b.begin; });
    for (const DoneWork& other : streams().done) {
        auto time = before.find(other.stream);
        if (time != before.end() && other.number <= time->second) continue;
        auto [own, its] = meeting(mine.touched, other.touched);
        if (!own) continue;
        const char* does = own->freed ? " frees " : own->written ? " writes " : " reads ";
        std::string sentence = call + does +
                               describe_place(std::max(own->begin, its->begin)) + ", which " +
                               other.call + (its->written ? " writes" : " reads") +
                               " in another stream; nothing orders the two. Is a "
                               "cudaStreamWaitEvent() missing, or a wait of the host?";
        forget_work();
        throw std::runtime_error(sentence);
    }
    host_must_wait = host_must_wait || touches_host(mine);
    streams().done.push_back(std::move(mine));
}

void note_free(cudaStream_t stream, const std::string& call, std::uintptr_t begin,
               std::uintptr_t end) {
    Lock lock(streams_mutex());
    note_work(stream, call, {{begin, end, true, true}});
    auto is_of_it = [=](const Touched& it) { return it.begin >= begin && it.end <= end; };
    for (DoneWork& work : streams().done) {
        auto& touched = work.touched;
        touched.erase(std::remove_if(touched.begin(), touched.end(), is_of_it), touched.end());
    }
}

// What is done once a stream has come so far.
static Times done_in(CUstream_st& known) {
    Times times = known.after;
    see_blocking(known, [&](const CUstream_st& other) {
        if (known.id == find_stream(nullptr)->id) merge(times, other.after);
    });
    return times;
}

void note_wait(cudaStream_t stream) {
    Lock lock(streams_mutex());
    if (CUstream_st* known = find_stream(stream)) host_knows(done_in(*known));
}

// While it lives, the host does a stream's work: what that has waited for is done for the host.
class HostWork {
public:
    explicit HostWork(cudaStream_t stream) {
        Lock lock(streams_mutex());
        all_ = streams().done;
        if (CUstream_st* known = find_stream(stream)) host_knows(done_in(*known));
        left_ = streams().done.size();
    }
    ~HostWork() {
        Lock lock(streams_mutex());
        if (streams().done.size() != left_) return;  // it was wrong, and all has been forgotten
        streams().done = std::move(all_);
        host_knows({});
    }
    HostWork(const HostWork&) = delete;

private:
    std::vector<DoneWork> all_;
    std::size_t left_;
};

void forget_work() {
    Lock lock(streams_mutex());
    streams().done.clear();
    host_must_wait = false;
}

void note_host_access(const void* address, std::size_t bytes, bool writes, const void* code) {
    Lock lock(streams_mutex());
    auto begin = std::uintptr_t(address);
    for (const DoneWork& work : streams().done)
        if (const Touched* its = meeting({{begin, begin + bytes, writes}}, work.touched).second) {
            int line = source_line(static_cast<char*>(const_cast<void*>(code)) - 1);
            tell_later(std::string("the host ") + (writes ? "writes " : "reads ") +
                       describe_place(begin) +
                       (line ? " in line " + std::to_string(line) : "") + ", which " + work.call +
                       (its->written ? " writes" : " reads") +
                       ", and has not waited for that. Is a cudaStreamSynchronize() missing?");
            return forget_work();
        }
}

}  // namespace cuda_on_cpu

using namespace cuda_on_cpu;

// ---------------------------------------------------------------- streams

constexpr int LEAST_PRIORITY = 0, GREATEST_PRIORITY = -5;

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
    if (least) *least = LEAST_PRIORITY;
    if (greatest) *greatest = GREATEST_PRIORITY;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
    if (!stream || flags > cudaStreamNonBlocking) return result(cudaErrorInvalidValue);
    Lock lock(streams_mutex());
    priority = std::max(GREATEST_PRIORITY, std::min(LEAST_PRIORITY, priority));
    *stream = new CUstream_st{flags, priority, ++streams().ids};
    streams().alive.insert(*stream);
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
    return cudaStreamCreateWithPriority(stream, flags, LEAST_PRIORITY);
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
    return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    Lock lock(streams_mutex());
    if (!streams().alive.count(stream)) return result(cudaErrorInvalidResourceHandle);
    if (stream->capture) invalidate(*stream->capture);
    streams().alive.erase(stream);
    delete stream;
    return cudaSuccess;
}

template <class See>
static cudaError_t see_stream(cudaStream_t stream, See see) {
    Lock lock(streams_mutex());
    CUstream_st* known = find_stream(stream);
    if (!known) return result(cudaErrorInvalidResourceHandle);
    see(*known);
    return cudaSuccess;
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
    return see_stream(stream, [=](const CUstream_st& s) { *priority = s.priority; });
}

cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned* flags) {
    return see_stream(stream, [=](const CUstream_st& s) { *flags = s.flags; });
}

cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long* id) {
    return see_stream(stream, [=](const CUstream_st& s) { *id = s.id; });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    note_wait(stream);
    return wait_for(stream);
}

cudaError_t cudaStreamQuery(cudaStream_t stream) { return cudaStreamSynchronize(stream); }

cudaError_t cudaDeviceSynchronize() {
    forget_work();
    if (!captures_now) return result(cudaSuccess);
    Lock lock(streams_mutex());
    for (auto& capture : streams().captures) invalidate(*capture);
    return result(cudaErrorStreamCaptureUnsupported);
}

cudaError_t cudaDeviceReset() {
    fault = cudaSuccess;
    return cudaDeviceSynchronize();
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
    if (!function) return result(cudaErrorInvalidValue);
    return do_in_stream(stream, cudaGraphNodeTypeHost, [=] {
        HostWork work(stream);
        function(data);
        return cudaSuccess;
    });
}

cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t function, void* data,
                                  unsigned flags) {
    if (!function || flags) return result(cudaErrorInvalidValue);
    if (cudaError_t error = wait_for(stream)) return error;  // a capture does not take it
    function(stream, cudaSuccess, data);
    return cudaSuccess;
}

// ---------------------------------------------------------------- events

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
    if (!event) return result(cudaErrorInvalidValue);
    *event = new CUevent_st{flags};
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    if (!event) return result(cudaErrorInvalidResourceHandle);
    delete event;
    return cudaSuccess;
}

static cudaError_t record_now(cudaEvent_t event) {
    clock_gettime(CLOCK_MONOTONIC, &event->recorded);
    event->is_recorded = true;
    return cudaSuccess;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
    if (!event) return result(cudaErrorInvalidResourceHandle);
    auto record = [=] { return record_now(event); };
    if (flags & cudaEventRecordExternal)
        return do_in_stream(stream, cudaGraphNodeTypeEventRecord, record);
    Lock lock(streams_mutex());
    CUstream_st* known = find_stream(stream);
    if (known && known->capture) {  // it marks a place in the graph, and needs no node
        if (known->capture->invalidated) return result(cudaErrorStreamCaptureInvalidated);
        event->capture = known->capture;
        event->nodes = known->last;
        event->stream = known;
        return cudaSuccess;
    }
    event->capture.reset();
    if (known) {
        event->after = known->after;
        see_blocking(*known, [=](const CUstream_st& other) { merge(event->after, other.after); });
    }
    return do_in_stream(stream, cudaGraphNodeTypeEventRecord, record);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    return cudaEventRecordWithFlags(event, stream, cudaEventRecordDefault);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
    Lock lock(streams_mutex());
    CUstream_st* known = find_stream(stream);
    if (!known || !event) return result(cudaErrorInvalidResourceHandle);
    auto capture = event->capture.lock();
    if (!capture) {
        merge(known->after, event->after);
        if (!known->capture) return cudaSuccess;
        if (!event->is_recorded) return cudaSuccess;
        invalidate(*known->capture);
        return result(cudaErrorStreamCaptureIsolation);
    }
    if (known->capture && known->capture != capture) {
        invalidate(*capture), invalidate(*known->capture);
        return result(cudaErrorStreamCaptureMerge);
    }
    if (is_legacy(stream)) {
        invalidate(*capture);
        return result(cudaErrorStreamCaptureImplicit);
    }
    if (!known->capture) {
        known->capture = capture;
        known->last.clear();
    }
    for (cudaGraphNode_t node : event->nodes)
        if (std::find(known->last.begin(), known->last.end(), node) == known->last.end())
            known->last.push_back(node);
    return cudaSuccess;
}

static cudaError_t see_event(cudaEvent_t event) {
    Lock lock(streams_mutex());
    if (!event) return result(cudaErrorInvalidResourceHandle);
    if (auto capture = event->capture.lock()) {
        invalidate(*capture);
        return result(cudaErrorCapturedEvent);
    }
    return result(cudaSuccess);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    Lock lock(streams_mutex());
    if (event) host_knows(event->after);
    return see_event(event);
}

cudaError_t cudaEventQuery(cudaEvent_t event) { return cudaEventSynchronize(event); }

cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
    if (!ms) return result(cudaErrorInvalidValue);
    for (cudaEvent_t event : {start, end}) {
        if (cudaError_t error = see_event(event)) return error;
        if (!event->is_recorded || event->flags & cudaEventDisableTiming)
            return result(cudaErrorInvalidResourceHandle);
    }
    *ms = float(double(end->recorded.tv_sec - start->recorded.tv_sec) * 1e3 +
                double(end->recorded.tv_nsec - start->recorded.tv_nsec) * 1e-6);
    return cudaSuccess;
}

// ---------------------------------------------------------------- capture

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
    Lock lock(streams_mutex());
    CUstream_st* known = find_stream(stream);
    if (!known) return result(cudaErrorInvalidResourceHandle);
    if (is_legacy(stream)) return result(cudaErrorStreamCaptureUnsupported);
    if (known->capture) {
        invalidate(*known->capture);
        return result(cudaErrorIllegalState);
    }
    known->capture.reset(new Capture{++streams().ids, mode, std::this_thread::get_id(), known});
    known->last.clear();
    streams().captures.push_back(known->capture);
    captures_now++;
    return cudaSuccess;
}

// Whether another stream did captured work that the origin does not come after.
static bool has_unjoined(const Capture& capture) {
    std::unordered_set<cudaGraphNode_t> before(capture.origin->last.begin(),
                                               capture.origin->last.end());
    std::vector<cudaGraphNode_t> open(before.begin(), before.end());
    while (!open.empty()) {
        cudaGraphNode_t node = open.back();
        open.pop_back();
        for (cudaGraphNode_t earlier : node->dependencies)
            if (before.insert(earlier).second) open.push_back(earlier);
    }
    for (cudaStream_t stream : streams().alive) {
        if (stream->capture.get() != &capture || stream == capture.origin) continue;
        for (cudaGraphNode_t node : stream->last)
            if (!before.count(node)) return true;
    }
    return false;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
    Lock lock(streams_mutex());
    CUstream_st* known = find_stream(stream);
    if (graph) *graph = nullptr;
    if (!known || !graph) return result(cudaErrorInvalidValue);
    std::shared_ptr<Capture> capture = known->capture;
    if (!capture) return result(cudaErrorIllegalState);
    if (capture->origin != known) {
        invalidate(*capture);
        return result(cudaErrorStreamCaptureUnmatched);
    }
    if (capture->mode != cudaStreamCaptureModeRelaxed &&
        capture->thread != std::this_thread::get_id())
        return result(cudaErrorStreamCaptureWrongThread);
    bool unjoined = has_unjoined(*capture);
    for (cudaStream_t other : streams().alive)
        if (other->capture == capture) other->capture.reset(), other->last.clear();
    known->capture.reset(), known->last.clear();
    auto& all = streams().captures;
    all.erase(std::find(all.begin(), all.end(), capture));
    captures_now--;
    if (capture->invalidated) return result(cudaErrorStreamCaptureInvalidated);
    if (unjoined) return result(cudaErrorStreamCaptureUnjoined);
    *graph = capture->graph.release();
    return cudaSuccess;
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t* graph) {
    return see_stream(stream, [=](const CUstream_st& s) {
        *status = !s.capture               ? cudaStreamCaptureStatusNone
                  : s.capture->invalidated ? cudaStreamCaptureStatusInvalidated
                                           : cudaStreamCaptureStatusActive;
        if (id && s.capture) *id = s.capture->id;
        if (graph && s.capture) *graph = s.capture->graph.get();
    });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
    return cudaStreamGetCaptureInfo(stream, status);
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
    std::swap(*mode, thread_mode);
    return cudaSuccess;
}
