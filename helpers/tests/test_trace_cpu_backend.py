"""What the CPU backend counts, against a brute-force model in NumPy on random patterns."""

import numpy as np
import pytest
import torch

from helpers.compiler.build import compile_traced
from helpers.trace.from_cpu_backend import record
from helpers.trace.machine_code import flops_of

_STRINGS = []


def cuda(src: str) -> None:
    """Add to the one string that all tests of this module share: it is compiled once."""
    _STRINGS.append(src)


@pytest.fixture(scope="module")
def compiled():
    return compile_traced("".join(_STRINGS))


def line_of(marker: str) -> int:
    """Return the number of the one line of the string that holds `marker`."""
    [line] = [i for i, s in enumerate("".join(_STRINGS).splitlines(), 1) if marker in s]
    return line


def only(accesses, **attributes):
    """Return the one access with these attributes."""
    [found] = [a for a in accesses if all(getattr(a, k) == v for k, v in attributes.items())]
    return found


# --- the model: sums over the warps of what HARDWARE does -----------------------------------------


def warps(values, mask=None):
    """Yield {lane: value} of each warp of a block whose threads have these values."""
    for first in range(0, len(values), 32):
        lanes = range(first, min(first + 32, len(values)))
        yield {i - first: int(values[i]) for i in lanes if mask is None or mask[i]}


def sectors(request, size):
    return len({byte // 32 for o in request.values() for byte in range(o, o + size)})


def ideal_sectors(request, size):
    return -(-len({byte for o in request.values() for byte in range(o, o + size)}) // 32)


def atomic_sectors(request, size):
    """A sector moves once for each of the lanes that meet at one address in it."""
    addresses = list(request.values())
    most = {}
    for address in addresses:
        most[address // 32] = max(most.get(address // 32, 0), addresses.count(address))
    return sum(most.values())


def passes(request, size):
    banks = [set() for _ in range(32)]
    for o in request.values():
        for byte in range(o, o + size):
            banks[byte // 4 % 32].add(byte // 4)
    return max(map(len, banks))


def wavefronts(request, size, operation):
    """Return (wavefronts, without a conflict) of a request to shared memory."""
    served = min(32, 128 // size)
    if operation == "load" and served < 32:
        if any(all(request.get(i ^ k, o) == o for i, o in request.items()) for k in (1, 2)):
            served *= 2
    parts = [{i: o for i, o in request.items() if i // served == p} for p in range(32 // served)]
    if operation == "atomic":
        return max(np.bincount([o // 4 % 32 for o in request.values()])), 1
    parts = [part for part in parts if part]
    return sum(passes(part, size) for part in parts), len(parts)


def most_at_one_address(request):
    return max(np.unique_counts(list(request.values())).counts)


def check_global(access, requests, size):
    requests = [request for request in requests if request]
    assert access.space == "global" and access.bytes == size
    assert access.requests == len(requests)
    assert access.lanes == sum(map(len, requests))
    count = atomic_sectors if access.operation == "atomic" else sectors
    assert access.sectors == sum(count(request, size) for request in requests)
    assert access.ideal_sectors == sum(ideal_sectors(request, size) for request in requests)
    assert access.wavefronts == access.ideal_wavefronts == 0
    check_samples(access, requests)


def check_shared(access, requests, size):
    requests = [request for request in requests if request]
    assert access.space == "shared" and access.bytes == size
    assert access.requests == len(requests)
    assert access.lanes == sum(map(len, requests))
    cost = [wavefronts(request, size, access.operation) for request in requests]
    assert access.wavefronts == sum(taken for taken, _ in cost)
    assert access.ideal_wavefronts == sum(ideal for _, ideal in cost)
    assert access.sectors == access.ideal_sectors == 0
    check_samples(access, requests)


def check_samples(access, requests):
    for sample, request in zip(access.samples, requests, strict=False):
        assert sample.offsets == tuple(request.get(lane) for lane in range(32))
    if access.operation == "atomic":
        assert access.same_address == sum(most_at_one_address(r) for r in requests)


# --- gathers and scatters -------------------------------------------------------------------------

cuda(r"""
template <class T>
__global__ void gather_kernel(T* out, const T* x, const int* index, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && index[i] >= 0)
        out[i] = x[index[i]];  // gather
}
template <class T>
__global__ void scatter_kernel(T* out, const T* x, const int* index, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[index[i]] = x[i];  // scatter
}
template <class T> T* as(torch::Tensor t) { return reinterpret_cast<T*>(t.data_ptr<float>()); }
template <class T>
void run(torch::Tensor out, torch::Tensor x, torch::Tensor index, bool scatter) {
    int n = index.numel(), blocks = (n + 127) / 128;
    if (scatter) scatter_kernel<T><<<blocks, 128>>>(as<T>(out), as<T>(x), index.data_ptr<int>(), n);
    else gather_kernel<T><<<blocks, 128>>>(as<T>(out), as<T>(x), index.data_ptr<int>(), n);
}
void move(torch::Tensor out, torch::Tensor x, torch::Tensor index, int size, bool scatter) {
    if (size == 1) run<char>(out, x, index, scatter);
    if (size == 2) run<short>(out, x, index, scatter);
    if (size == 4) run<float>(out, x, index, scatter);
    if (size == 8) run<double>(out, x, index, scatter);
    if (size == 16) run<float4>(out, x, index, scatter);
}
""")

PATTERNS = {
    "random": lambda rng, n, m: rng.integers(0, m, n),
    "in a row": lambda rng, n, m: np.arange(n) % m,
    "backwards": lambda rng, n, m: m - 1 - np.arange(n) % m,
    "stride": lambda rng, n, m: np.arange(n) * int(rng.integers(2, 40)) % m,
    "near": lambda rng, n, m: np.arange(n) % (m - 8) + rng.integers(0, 8, n),
    "idle lanes": lambda rng, n, m: np.where(rng.random(n) < 0.4, -1, rng.integers(0, m, n)),
}


@pytest.fixture
def rng():
    seed = int(torch.seed() % 2**32)
    print("seed", seed)  # shown if the test fails
    return np.random.default_rng(seed)


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_gathers_move_the_sectors_that_hold_their_bytes(compiled, rng, size, pattern):
    n, m, skipped = 300, 1000, 4 * int(rng.integers(0, 9))  # floats in front of the tensor
    index = PATTERNS[pattern](rng, n, m)
    x, out = torch.randn(skipped + m * size // 4)[skipped:], torch.zeros(n * size // 4 + 1)
    _, [launch] = record(compiled.move, out, x, torch.tensor(index, dtype=torch.int32), size, False)
    gather = [a for a in launch.accesses if a.line == line_of("// gather")]
    wanted = list(warps(skipped * 4 + index * size, index >= 0))
    check_global(only(gather, array="x"), wanted, size)
    check_global(only(gather, array="out"), list(warps(np.arange(n) * size, index >= 0)), size)
    assert launch.grid == (3, 1, 1) and launch.block == (128, 1, 1)
    assert launch.backend == "CPU backend" and launch.shared_bytes == 0


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16])
def test_scatters(compiled, rng, size):
    n, m = 200, 2000
    index = rng.permutation(m)[:n]
    x, out = torch.randn(n * size // 4 + 1), torch.zeros(m * size // 4)
    _, [launch] = record(compiled.move, out, x, torch.tensor(index, dtype=torch.int32), size, True)
    stored = only(launch.accesses, operation="store")
    assert stored.array == "out" and stored.line == line_of("// scatter")
    check_global(stored, list(warps(index * size)), size)


# --- shared memory --------------------------------------------------------------------------------

cuda(r"""
template <class T>
__global__ void shared_kernel(T* out, const int* load_at, const int* store_at) {
    __shared__ T s[512];
    int i = threadIdx.x;
    for (int k = i; k < 512; k += blockDim.x) s[k] = T();
    __syncthreads();
    if (store_at[i] >= 0) s[store_at[i]] = out[i];  // into shared memory
    __syncthreads();
    if (load_at[i] >= 0) out[i] = s[load_at[i]];  // from shared memory
}
void shared(torch::Tensor out, torch::Tensor load_at, torch::Tensor store_at, int size) {
    int *l = load_at.data_ptr<int>(), *s = store_at.data_ptr<int>(), n = load_at.numel();
    if (size == 1) shared_kernel<<<1, n>>>(as<char>(out), l, s);
    if (size == 2) shared_kernel<<<1, n>>>(as<short>(out), l, s);
    if (size == 4) shared_kernel<<<1, n>>>(as<float>(out), l, s);
    if (size == 8) shared_kernel<<<1, n>>>(as<double>(out), l, s);
    if (size == 16) shared_kernel<<<1, n>>>(as<float4>(out), l, s);
}
""")


def shared_patterns(rng, n):
    yield rng.integers(0, 512, n)
    yield np.arange(n) * int(rng.integers(1, 34)) % 512
    yield np.arange(n) // 2 * int(rng.integers(1, 34)) % 512  # neighbours agree
    yield (np.arange(n) // 4 * 2 + np.arange(n) % 2) * 3 % 512  # lanes i and i ^ 2 agree
    yield np.where(rng.random(n) < 0.6, -1, rng.integers(0, 512, n))
    yield np.full(n, int(rng.integers(512)))


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16])
def test_shared_memory_takes_the_wavefronts_of_the_hardware(compiled, rng, size):
    for n in (32, 100):
        for load_at in shared_patterns(rng, n):
            store_at = rng.permutation(512)[:n]
            store_at[rng.random(n) < rng.random()] = -1
            indices = [torch.tensor(t, dtype=torch.int32) for t in (load_at, store_at)]
            _, [launch] = record(compiled.shared, torch.zeros(n * 4), *indices, size)
            load = only(launch.accesses, space="shared", operation="load")
            assert load.array == "s" and load.line == line_of("// from shared")
            check_shared(load, list(warps(load_at * size, load_at >= 0)), size)
            if (store_at >= 0).any():
                store = only(launch.accesses, line=line_of("// into shared"), space="shared")
                check_shared(store, list(warps(store_at * size, store_at >= 0)), size)
            assert launch.shared_bytes == 512 * size


# --- atomics --------------------------------------------------------------------------------------

cuda(r"""
__global__ void histogram_kernel(int* counts, const int* x) {
    __shared__ int s[64];
    int i = threadIdx.x;
    if (i < 64) s[i] = 0;
    __syncthreads();
    atomicAdd(&s[x[i]], 1);  // a shared atomic
    atomicAdd(&counts[x[i]], 1);  // a global atomic
}
void histogram(torch::Tensor counts, torch::Tensor x) {
    histogram_kernel<<<1, x.numel()>>>(counts.data_ptr<int>(), x.data_ptr<int>());
}
""")


@pytest.mark.parametrize("bins", [1, 3, 64])
def test_atomics(compiled, rng, bins):
    x = rng.integers(0, bins, 160)
    tensors = torch.zeros(64, dtype=torch.int32), torch.tensor(x, dtype=torch.int32)
    _, [launch] = record(compiled.histogram, *tensors)
    in_global = only(launch.accesses, line=line_of("// a global atomic"), operation="atomic")
    check_global(in_global, list(warps(x * 4)), 4)
    in_shared = only(launch.accesses, line=line_of("// a shared atomic"), operation="atomic")
    check_shared(in_shared, list(warps(x * 4)), 4)
    np.testing.assert_array_equal(tensors[0], np.bincount(x, minlength=64))


# --- what belongs to one request ------------------------------------------------------------------

cuda(r"""
__device__ float twice(const float* x, int i) {
    return 2 * x[i];  // called twice
}
__device__ __noinline__ float later(const float* x, int i) {
    return x[i] - 1;  // in a function of its own
}
__global__ void ways_kernel(float* out, const float* x, int n) {
    int i = threadIdx.x;
    float sum = 0;
    for (int k = 0; k < n; k++)
        if ((i + k) % 2) sum += x[k * 64 + i];  // every other iteration
    for (int k = 0; k < n; k++) {
        if (k == i % 5) continue;
        if (k > i % 7) break;
        sum += x[k * 64 + i];  // with continue and break
    }
    int k = 0;
    while (k < i % 3) {
        do {
            sum += x[k * 64 + i];  // nested
        } while (++k % 2);
    }
    sum += x[i];  // after the loops
    if (i < 20) sum += twice(x + 99, i);
    else sum = 3 - twice(x + 99, 2 * i) * sum;
    sum += later(x, i);  // together again
    if (i < 30) sum -= later(x, i + 7);
    for (;;) {
        if (k >= i % 4) {
            out[i] = sum;  // and leave
            return;
        }
        sum += x[k++];  // until leaving
    }
}
void ways(torch::Tensor out, torch::Tensor x, int n) {
    ways_kernel<<<1, out.numel()>>>(out.data_ptr<float>(), x.data_ptr<float>(), n);
}
""")


def by_key(steps, threads):
    """Return the requests of lanes whose visits are {key: element} by thread, warp by warp."""
    requests = []
    for first in range(0, threads, 32):
        found = {}
        for thread in range(first, min(first + 32, threads)):
            for key, element in steps(thread):
                found.setdefault(key, {})[thread - first] = 4 * element
        requests += found.values()
    return requests


def test_lanes_at_one_place_make_one_request(compiled):
    n, threads = 9, 45
    _, [launch] = record(compiled.ways, torch.zeros(threads), torch.randn(64 * 64), n)

    def odd(i):
        return [(k, k * 64 + i) for k in range(n) if (i + k) % 2]

    def with_continue(i):
        for k in range(n):
            if k == i % 5:
                continue
            if k > i % 7:
                break
            yield k, k * 64 + i

    def nested(i):
        k = outer = 0
        while k < i % 3:
            inner = 0
            while True:
                yield (outer, inner), k * 64 + i
                k, inner = k + 1, inner + 1
                if not k % 2:
                    break
            outer += 1

    def k_after(i):
        return max([1 + e // 64 for _, e in nested(i)], default=0)

    expected = {
        "// every other iteration": odd,
        "// with continue and break": with_continue,
        "// nested": nested,
        "// after the loops": lambda i: [(0, i)],
        "// called twice": lambda i: [(0, 99 + i) if i < 20 else (1, 99 + 2 * i)],
        "// in a function of its own": lambda i: [(0, i), (1, i + 7)][: 1 + (i < 30)],
        "// until leaving": lambda i: [(k - k_after(i), k) for k in range(k_after(i), i % 4)],
    }
    for marker, steps in expected.items():
        access = only(launch.accesses, line=line_of(marker), operation="load")
        wanted = by_key(steps, threads)
        assert access.requests == len(wanted), marker
        assert access.lanes == sum(map(len, wanted)), marker
        assert access.sectors == sum(sectors(request, 4) for request in wanted), marker
    left = only(launch.accesses, line=line_of("// and leave"))
    assert left.lanes == threads and left.requests == sum(
        len({max(i % 4 - k_after(i), 0) for i in warp}) for warp in (range(32), range(32, 45))
    )
    for text in ("sum += x[i];  // after the loops", "sum += later(x, i);  // together again"):
        line = only(launch.lines, text=text)
        assert (line.line, line.executions, line.lanes) == (line_of(text), 2, threads)
    assert [line.text for line in launch.lines][-1] == "sum += x[k++];  // until leaving"


cuda(r"""
__global__ void two_d_kernel(float* out, const float* x, int width) {
    int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
    out[row * width + col] = x[col * width + row];  // transpose
}
void two_d(torch::Tensor out, torch::Tensor x, int rows, int cols) {
    int width = x.size(0);
    dim3 block(cols, rows), grid(width / cols, width / rows);
    two_d_kernel<<<grid, block>>>(out.data_ptr<float>(), x.data_ptr<float>(), width);
}
""")


@pytest.mark.parametrize(("rows", "cols"), [(5, 7), (16, 16), (1, 35), (32, 8)])
def test_blocks_of_two_dimensions(compiled, rows, cols):
    width = rows * cols if rows * cols < 100 else 32
    x = torch.randn(width, width)
    out = torch.zeros_like(x)
    _, [launch] = record(compiled.two_d, out, x, rows, cols)
    np.testing.assert_array_equal(out, x.T)
    loads, stores = [], []
    for block_row in range(0, width, rows):
        for block_col in range(0, width, cols):
            row, col = np.meshgrid(
                np.arange(block_row, block_row + rows),
                np.arange(block_col, block_col + cols),
                indexing="ij",
            )
            loads += warps((col * width + row).ravel() * 4)
            stores += warps((row * width + col).ravel() * 4)
    check_global(only(launch.accesses, operation="load"), loads, 4)
    check_global(only(launch.accesses, operation="store"), stores, 4)
    [line] = [line for line in launch.lines if line.line == line_of("// transpose")]
    assert line.executions == len(loads) and line.lanes == width * width


cuda(r"""
__global__ void long_kernel(float* out, const float* x, const float* y, int n) {
    int i = threadIdx.x;
    const float* mine = i % 2 ? x : y;
    float sum = mine[i];  // of two arrays
    for (int k = 0; k < n; k++) sum += x[(i + k) % 1000];  // long
    out[i] = sum;
}
void long_loop(torch::Tensor out, torch::Tensor x, torch::Tensor y, int n) {
    long_kernel<<<1, out.numel()>>>(out.data_ptr<float>(), x.data_ptr<float>(),
                                    y.data_ptr<float>(), n);
}
""")


def test_a_loop_longer_than_the_log(compiled):
    n, threads = 40_000, 48
    tensors = torch.zeros(threads), torch.randn(1000), torch.randn(1000)
    _, [launch] = record(compiled.long_loop, *tensors, n)
    wanted = [
        request for k in range(1000) for request in warps((np.arange(threads) + k) % 1000 * 4)
    ]
    load = only(launch.accesses, line=line_of("// long"))
    assert (load.requests, load.lanes) == (2 * n, threads * n)
    assert load.sectors == 40 * sum(sectors(request, 4) for request in wanted)
    assert only(launch.lines, line=line_of("// long")).flops == threads * n


cuda(r"""
__global__ void lonely_kernel(float* x, int n) {
    if (threadIdx.x) return;
    for (int i = 0; i < 40; i++) __nanosleep(1);  // the other lanes return
    x[n] = 1;
}
void lonely(torch::Tensor x, int n) { lonely_kernel<<<1, 32>>>(x.data_ptr<float>(), n); }
""")


def test_a_loop_after_a_launch_that_failed(compiled):
    n, threads = 1000, 32
    with pytest.raises(RuntimeError, match="lonely"):
        record(compiled.lonely, torch.zeros(9), 9)
    tensors = torch.zeros(threads), torch.randn(1000), torch.randn(1000)
    _, [launch] = record(compiled.long_loop, *tensors, n)
    load = only(launch.accesses, line=line_of("// long"))
    assert (load.requests, load.lanes) == (n, threads * n)


def test_one_request_may_reach_two_arrays(compiled):
    _, [launch] = record(compiled.long_loop, torch.zeros(32), torch.zeros(64), torch.zeros(64), 0)
    load = only(launch.accesses, line=line_of("// of two arrays"))
    assert (load.requests, load.lanes, load.sectors, load.ideal_sectors) == (1, 32, 8, 4)


cuda(r"""
__device__ float table[64];
__constant__ float constants[32];
__global__ void lookup_kernel(float* out) {
    out[threadIdx.x] = table[2 * threadIdx.x] + constants[threadIdx.x];  // from the table
}
void lookup(torch::Tensor out) { lookup_kernel<<<1, 32>>>(out.data_ptr<float>()); }
""")


def test_device_variables_are_global_memory_and_constants_are_not(compiled):
    _, [launch] = record(compiled.lookup, torch.zeros(32))
    load = only(launch.accesses, operation="load")
    assert (load.array, load.line) == ("table", line_of("// from the table"))
    assert (load.space, load.requests, load.sectors) == ("global", 1, 8)


cuda(r"""
__global__ void one_line_kernel(float* out, const float* x) {
    int i = threadIdx.x;
    for (int k = 0; k < i % 4; k++) out[i] += x[k];  // loop of one line
}
void one_line(torch::Tensor out, torch::Tensor x) {
    one_line_kernel<<<1, 64>>>(out.data_ptr<float>(), x.data_ptr<float>());
}
""")


def test_a_loop_of_one_line_counts_its_body(compiled):
    _, [launch] = record(compiled.one_line, torch.zeros(64), torch.ones(3))
    [line] = [line for line in launch.lines if line.line == line_of("// loop of one line")]
    assert (line.executions, line.lanes, line.flops) == (2 * 3, 2 * (24 + 16 + 8), 96)


# --- warp operations, stages, launches ------------------------------------------------------------

cuda(r"""
__global__ void sum_kernel(float* out, const float* x, int n) {
    extern __shared__ float parts[];
    float sum = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) sum += x[i];  // before the shuffles
    for (int offset = 16; offset; offset /= 2) sum += __shfl_down_sync(~0u, sum, offset);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;  // the warp's part
    __syncthreads();
    if (threadIdx.x < 32) {
        sum = threadIdx.x < blockDim.x / 32 ? parts[threadIdx.x] : 0;  // the parts
        for (int offset = 16; offset; offset /= 2) sum += __shfl_down_sync(~0u, sum, offset);
        if (threadIdx.x == 0) out[blockIdx.x] = sum;  // the sum
    }
}
float sum(torch::Tensor out, torch::Tensor x, int launches) {
    for (int k = 0; k < launches; k++)
        sum_kernel<<<1, 128, 4 * sizeof(float)>>>(out.data_ptr<float>(), x.data_ptr<float>(),
                                                  x.numel());
    return 7;
}
""")


def test_warp_operations_do_not_split_requests(compiled):
    x, out = torch.randn(300), torch.zeros(1)
    result, [launch] = record(compiled.sum, out, x, 1)
    assert result == 7 and out.item() == pytest.approx(x.sum().item(), abs=1e-4)
    load = only(launch.accesses, line=line_of("// before the shuffles"))
    wanted = by_key(lambda i: [(k, i + 128 * k) for k in range((300 - i + 127) // 128)], 128)
    check_global(load, wanted, 4)
    assert only(launch.accesses, line=line_of("// the warp's part")).requests == 4
    parts = only(launch.accesses, line=line_of("// the parts"))
    assert (parts.requests, parts.lanes, parts.wavefronts) == (1, 4, 1)
    assert only(launch.accesses, line=line_of("// the sum")).lanes == 1
    assert launch.shared_bytes == 16 and launch.kernel == "sum_kernel"
    found = {(s.number, s.warp, s.line, s.operation, s.space): s.requests for s in launch.stages}
    first, second = line_of("// the warp's part"), line_of("// the parts")
    assert all(found[0, warp, first, "store", "shared"] == 1 for warp in range(4))
    assert found[1, 0, second, "load", "shared"] == 1
    assert {number for number, *_ in found} == {0, 1}


def test_launches_stay_apart_and_are_the_same_in_every_run(compiled):
    x = torch.randn(1000)
    _, launches = record(compiled.sum, torch.zeros(1), x, 3)
    assert len(launches) == 3 and launches[0] == launches[1] == launches[2]
    assert record(compiled.sum, torch.zeros(1), x, 1)[1] == launches[:1]


cuda(r"""
__global__ void twice_kernel(float* doubled, const float* single, int n) {
    if (threadIdx.x < n) doubled[threadIdx.x] = 2 * single[threadIdx.x];
}
template <int K>
__global__ void times_kernel(float* product, const float* factor, int n) {
    if (threadIdx.x < n) product[threadIdx.x] = K * factor[threadIdx.x];
}
namespace {
__global__ void hidden_kernel(float* to, const float* from, int n) {
    if (threadIdx.x < n) to[threadIdx.x] = from[threadIdx.x];
}
}
template <class Kernel>
void run_with(Kernel kernel, torch::Tensor out, torch::Tensor inp) {
    kernel<<<1, 32>>>(out.data_ptr<float>(), inp.data_ptr<float>(), int(inp.numel()));
}
void by_pointers(torch::Tensor out, torch::Tensor inp) {
    void (*table[])(float*, const float*, int) = {twice_kernel, times_kernel<3>, hidden_kernel};
    for (int i = 0; i < 3; i++)
        table[i]<<<1, 32>>>(out.data_ptr<float>(), inp.data_ptr<float>(), int(inp.numel()));
    run_with(times_kernel<5>, out, inp);
}
""")


def test_a_kernel_launched_through_a_pointer_has_its_own_names(compiled):
    _, launches = record(compiled.by_pointers, torch.zeros(30), torch.randn(30))
    found = [(launch.kernel, *sorted(a.array for a in launch.accesses)) for launch in launches]
    assert found == [
        ("twice_kernel", "doubled", "single"),
        ("times_kernel<3>", "factor", "product"),
        ("hidden_kernel", "from", "to"),
        ("times_kernel<5>", "factor", "product"),
    ]


def test_a_call_that_fails_leaves_nothing_behind(compiled):
    with pytest.raises(RuntimeError, match="line"):
        record(compiled.move, torch.zeros(9), torch.zeros(9), torch.full((9,), 50).int(), 4, False)
    _, launches = record(compiled.sum, torch.zeros(1), torch.randn(9), 1)
    assert [launch.kernel for launch in launches] == ["sum_kernel"]


# --- lines, divergence, FLOPs ---------------------------------------------------------------------

cuda(r"""
__global__ void saxpy_kernel(float* y, const float* x, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = a * x[i] + y[i];  // saxpy
}
void saxpy(torch::Tensor y, torch::Tensor x, float a) {
    int n = x.numel();
    saxpy_kernel<<<(n + 255) / 256, 256>>>(y.data_ptr<float>(), x.data_ptr<float>(), a, n);
}
__global__ void matmul_kernel(float* C, const float* A, const float* B, int M, int N, int K) {
    int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < M && col < N) {
        float acc = 0;
        for (int k = 0; k < K; k++)
            acc += A[row * K + k] * B[k * N + col];  // inner product of rows
        C[row * N + col] = acc;
    }
}
constexpr int TILE = 16;
__global__ void tiled_kernel(float* C, const float* A, const float* B, int M, int N, int K) {
    __shared__ float A_tile[TILE][TILE], B_tile[TILE][TILE];
    int row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
    float acc = 0;
    for (int start = 0; start < K; start += TILE) {
        int a = start + threadIdx.x, b = start + threadIdx.y;
        A_tile[threadIdx.y][threadIdx.x] = row < M && a < K ? A[row * K + a] : 0;  // fill A
        B_tile[threadIdx.y][threadIdx.x] = b < K && col < N ? B[b * N + col] : 0;  // fill B
        __syncthreads();
        for (int k = 0; k < TILE; k++)
            acc += A_tile[threadIdx.y][k] * B_tile[k][threadIdx.x];  // inner product of tiles
        __syncthreads();
    }
    if (row < M && col < N) C[row * N + col] = acc;
}
void matmul(torch::Tensor C, torch::Tensor A, torch::Tensor B, bool tiled) {
    int M = A.size(0), K = A.size(1), N = B.size(1);
    dim3 block(TILE, TILE), grid((N + TILE - 1) / TILE, (M + TILE - 1) / TILE);
    auto kernel = tiled ? tiled_kernel : matmul_kernel;
    kernel<<<grid, block>>>(C.data_ptr<float>(), A.data_ptr<float>(), B.data_ptr<float>(), M, N, K);
}
__global__ void branch_kernel(float* y, const float* x, const int* kind) {
    int i = threadIdx.x;
    if (kind[i] == 0) {
        y[i] = x[i] / 3.0f;  // divide
    } else {
        y[i] = expf(x[i] - 1.0f);  // exponential
    }
    y[i] = fmaxf(y[i], 0.5f) + sqrtf(x[i]);  // after the branch
}
void branch(torch::Tensor y, torch::Tensor x, torch::Tensor kind) {
    branch_kernel<<<1, 96>>>(y.data_ptr<float>(), x.data_ptr<float>(), kind.data_ptr<int>());
}
""")


cuda(r"""
#include <cuda_fp16.h>
__global__ void operations_kernel(float* y, const float* x) {
    const float *a = x + threadIdx.x, *b = a + 32;
    float* out = y + threadIdx.x;
    out[0] = rsqrtf(*a);  // flops: 2
    out[32] = __expf(*a);  // flops: 1
    out[64] = fmaf(*a, *b, 1.5f);  // flops: 2
    out[96] = fmaxf(*a, 0.25f);  // flops: 1
    out[128] = tanhf(*a) * 0.5f;  // flops: 2
    __half h = __float2half(*a);  // flops: 0
    out[160] = __half2float(__hadd(h, h));  // flops: 1
    out[192] = __half2float(h * h);  // flops: 1
    out[224] = fabsf(*a) - float(threadIdx.x);  // flops: 1
    out[256] = float(double(*a) * double(*b) + 2.0);  // flops: 2
    out[288] = *a > 0.5f ? *a * 3.0f : *a / 7.0f;  // flops: 1
    atomicAdd(&out[320], *a);  // flops: 0
    out[352] = -*b;  // flops: 0
}
void operations(torch::Tensor y, torch::Tensor x) {
    operations_kernel<<<1, 32>>>(y.data_ptr<float>(), x.data_ptr<float>());
}
""")


def test_flops_of_functions(compiled):
    _, [launch] = record(compiled.operations, torch.zeros(384), torch.rand(64))
    told = [line for line in launch.lines if "// flops: " in line.text]
    assert len(told) == 13
    for line in told:
        assert line.flops == 32 * int(line.text[-1]), line.text


def test_flops_of_saxpy(compiled):
    n = 1000
    _, [launch] = record(compiled.saxpy, torch.randn(n), torch.randn(n), 2.5)
    line = only(launch.lines, line=line_of("// saxpy"))
    assert line.flops == 2 * n and line.lanes == n and line.executions == -(-n // 32)
    assert sum(line.flops for line in launch.lines) == 2 * n


@pytest.mark.parametrize("tiled", [False, True])
def test_flops_of_matmul(compiled, tiled):
    M, N, K = 35, 50, 21
    A, B, C = torch.randn(M, K), torch.randn(K, N), torch.zeros(M, N)
    _, [launch] = record(compiled.matmul, C, A, B, tiled)
    torch.testing.assert_close(C, A @ B)
    if tiled:
        line = only(launch.lines, line=line_of("// inner product of tiles"))
        assert line.flops == 2 * 48 * 64 * 32  # whole tiles
        assert launch.shared_bytes == 2 * 16 * 16 * 4
        warps_of_all_blocks = 3 * 4 * 8
        assert line.executions == warps_of_all_blocks * 32
    else:
        line = only(launch.lines, line=line_of("// inner product of rows"))
        assert line.flops == 2 * M * N * K and line.lanes == M * N * K
    assert sum(line.flops for line in launch.lines) == line.flops


def test_lanes_of_a_divergent_branch(compiled, rng):
    kind = rng.integers(0, 2, 96)
    kind[32:64] = 1
    tensors = torch.zeros(96), torch.rand(96), torch.tensor(kind, dtype=torch.int32)
    _, [launch] = record(compiled.branch, *tensors)
    for marker, chosen, flops in (
        ("// divide", kind == 0, 1),
        ("// exponential", kind == 1, 2),
        ("// after the branch", kind >= 0, 3),
    ):
        line = only(launch.lines, line=line_of(marker))
        assert line.lanes == chosen.sum(), marker
        assert line.executions == sum(chosen[k : k + 32].any() for k in (0, 32, 64)), marker
        assert line.flops == flops * chosen.sum(), marker


@pytest.mark.parametrize(
    ("mnemonic", "operands", "flops"),
    [
        ("vaddss", "%xmm0,%xmm1,%xmm2", 1),
        ("mulsd", "%xmm0,%xmm1", 1),
        ("vfmadd231ss", "(%rax),%xmm1,%xmm2", 2),
        ("vfnmadd132ps", "%ymm0,%ymm1,%ymm2", 16),
        ("vdivpd", "%zmm0,%zmm1,%zmm2", 8),
        ("sqrtps", "%xmm0,%xmm1", 4),
        ("vxorps", "%xmm0,%xmm0,%xmm0", 0),
        ("vcvtsi2ss", "%eax,%xmm0,%xmm0", 0),
        ("add", "$0x1,%eax", 0),
        ("call", "1070 <expf@plt>", 1),
        ("call", "1070 <fmaf@plt>", 2),
        ("call", "1070 <_Z4expfPf>", 0),
        ("fmadd", "s0, s1, s2, s3", 2),
        ("fmla", "v0.4s, v1.4s, v2.4s", 8),
        ("fadd", "d0, d1, d2", 1),
        ("fmov", "s0, s1", 0),
        ("bl", "1070 <__expf_finite@plt>", 1),
    ],
)
def test_flops_of_an_instruction(mnemonic, operands, flops):
    assert flops_of(mnemonic, operands) == flops
