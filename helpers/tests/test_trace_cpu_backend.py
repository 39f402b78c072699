"""What the CPU backend takes for one request, one execution of a line, one operation."""

import numpy as np
import pytest
import torch

from helpers.compiler.build import compile_traced
from helpers.trace import model
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


# --- requests, and what they cost by the model that test_proof_patterns.py judges -----------------


def warps(values):
    """Yield {lane: value} of each warp of a block whose threads have these values."""
    for first in range(0, len(values), 32):
        yield {i: int(value) for i, value in enumerate(values[first : first + 32])}


def sectors(request, size):
    return model.sectors(tuple(request.get(lane) for lane in range(32)), size)


def check_global(access, requests, size):
    offsets = [tuple(request.get(lane) for lane in range(32)) for request in requests if request]
    assert access.space == "global" and access.bytes == size
    assert access.requests == len(offsets)
    assert access.lanes == sum(map(len, requests))
    assert access.sectors == sum(model.sectors(o, size) for o in offsets)
    assert access.ideal_sectors == sum(model.ideal_sectors(o, size) for o in offsets)
    assert access.wavefronts == access.ideal_wavefronts == 0
    assert [sample.offsets for sample in access.samples] == offsets[: len(access.samples)]


# --- what belongs to one request ------------------------------------------------------------------

cuda(r"""
#include <cstring>
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


# --- structures that move as a whole --------------------------------------------------------------

cuda(r"""
struct Five { float v[5]; };
template <class T> __device__ __noinline__ float add_up(T pack) {
    const float* numbers = reinterpret_cast<const float*>(&pack);
    float sum = 0;
    for (int k = 0; k < int(sizeof(T) / sizeof(float)); k++) sum += numbers[k];
    return sum;
}
template <class T> __device__ __noinline__ T pack_at(const T* at) { return *at; }  // load
template <class T> __device__ __noinline__ void put(T* at, T pack) { *at = pack; }  // store
template <class T> __device__ void assign(T& to, const T& from) { to = from; }  // load store
template <class T> struct Two { T a[2]; };
template <class T> __global__ void packs_kernel(T* y, T* x, float* sums) {
    int i = threadIdx.x;
    sums[i] = add_up(x[i]);  // load
    sums[i] += add_up(i % 2 ? x[i] : x[i + 32]);  // load
    y[i] = pack_at(x + 32 + i);  // store
    put(y + 32 + i, x[i]);  // load
    auto add = [](T one, T two) { return add_up(one) + add_up(two); };
    sums[i] += add(x[i + 1], x[0]);  // load load
    assign(y[64 + i], x[64 + i]);
    auto *pairs = reinterpret_cast<Two<T>*>(y), *from = reinterpret_cast<Two<T>*>(x);
    pairs[64 + i].a[1] = from[32].a[1];  // load store
    memcpy(y + 256 + i, x + 96 + i, sizeof(T));  // load store
    T mine[2];
    std::memmove(mine, x + i, sizeof mine);  // load of 2
    memset(y + 300 + 2 * i, 0, sizeof mine);  // store of 2
    sums[i] += add_up(mine[1]);
}
void packs(torch::Tensor y, torch::Tensor x, torch::Tensor sums, int numbers) {
    float *to = y.data_ptr<float>(), *from = x.data_ptr<float>(), *s = sums.data_ptr<float>();
    if (numbers == 4)
        packs_kernel<<<1, 32>>>(reinterpret_cast<float4*>(to), reinterpret_cast<float4*>(from), s);
    else
        packs_kernel<<<1, 32>>>(reinterpret_cast<Five*>(to), reinterpret_cast<Five*>(from), s);
}
""")


@pytest.mark.parametrize("numbers", [4, 5])
def test_structures_that_are_passed_returned_or_copied(compiled, numbers):
    y, x, sums = torch.zeros(364 * numbers), torch.rand(129 * numbers), torch.zeros(32)
    _, [launch] = record(compiled.packs, y, x, sums, numbers)
    x, y = x.view(-1, numbers), y.view(-1, numbers)
    odd = (torch.arange(32) % 2 > 0)[:, None]
    added = [x[:32], torch.where(odd, x[:32], x[32:64]), x[1:33], x[:1].expand(32, -1), x[1:33]]
    assert torch.allclose(sums, sum(part.sum(1) for part in added))
    assert torch.equal(y[256:288], x[96:128])
    told = [a for a in launch.accesses if a.array in ("x", "y")]
    expected = {}
    for number, line in enumerate("".join(_STRINGS).splitlines(), 1):
        if line_of("struct Five") <= number <= line_of("// store of 2"):
            words = line.partition("//")[2].split()
            size = 4 * numbers * (2 if "of" in words else 1)
            for operation in {"load", "store"} & set(words):
                expected[number, operation, size] = words.count(operation)
    assert {(a.line, a.operation, a.bytes): a.requests for a in told} == expected


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
    with pytest.raises(RuntimeError, match="lonely"):
        record(compiled.lonely, torch.zeros(9), 9)
    _, launches = record(compiled.sum, torch.zeros(1), torch.randn(9), 1)
    assert [launch.kernel for launch in launches] == ["sum_kernel"]


# --- lines, divergence, FLOPs ---------------------------------------------------------------------

cuda(r"""
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
    out[192] = __half2float(__hmul(h, h));  // flops: 1
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


def test_lanes_of_a_divergent_branch(compiled):
    kind = np.random.default_rng(0).integers(0, 2, 96)
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


# --- textures and surfaces ------------------------------------------------------------------------

cuda(r"""
__global__ void image_kernel(float* out, const float* x, cudaTextureObject_t image,
                             cudaTextureObject_t row, cudaSurfaceObject_t result, int W, int H) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= W * H) return;
    int col = i % W, line = i / W;
    float sum = x[i];  // from global memory
    sum += tex2D<float>(image, col + 0.25f, line + 0.75f);  // mixed
    for (int k = 0; k < 3; k++) sum += tex1Dfetch<float>(row, i * k);  // thrice
    sum += surf2Dread<float>(result, 4 * (W - 1 - col), line);  // mirrored
    if (i % 2) surf2Dwrite(sum, result, 4 * (W - 1 - col), line);  // half of them
    out[i] = sum;  // to global memory
}
__global__ void outside_kernel(float* out, cudaTextureObject_t image) {
    out[threadIdx.x] = tex2D<float>(image, threadIdx.x - 8.f, 0);  // beside the image
}
__global__ void gather_kernel(float* out, cudaTextureObject_t image) {
    out[threadIdx.x] = tex2Dgather<float4>(image, threadIdx.x + 0.5f, 1).x;  // four
}
struct Image {
    cudaArray_t array;
    cudaTextureObject_t texture;
    cudaSurfaceObject_t surface;
    Image(torch::Tensor inp, cudaTextureAddressMode address, cudaTextureFilterMode filter) {
        int H = inp.size(0), W = inp.size(1);
        cudaChannelFormatDesc element = cudaCreateChannelDesc<float>();
        unsigned flags = cudaArraySurfaceLoadStore | cudaArrayTextureGather;
        TORCH_CHECK(!cudaMallocArray(&array, &element, W, H, flags));
        cudaMemcpy2DToArray(array, 0, 0, inp.data_ptr(), 4 * W, 4 * W, H, cudaMemcpyDeviceToDevice);
        cudaResourceDesc resource = {};
        resource.resType = cudaResourceTypeArray;
        resource.res.array.array = array;
        cudaTextureDesc how = {};
        how.addressMode[0] = how.addressMode[1] = address;
        how.filterMode = filter;
        TORCH_CHECK(!cudaCreateTextureObject(&texture, &resource, &how, nullptr));
        TORCH_CHECK(!cudaCreateSurfaceObject(&surface, &resource));
    }
    ~Image() {
        cudaDestroyTextureObject(texture);
        cudaDestroySurfaceObject(surface);
        cudaFreeArray(array);
    }
};
void image(torch::Tensor out, torch::Tensor x, torch::Tensor inp) {
    Image image(inp, cudaAddressModeClamp, cudaFilterModeLinear);
    Image result(inp, cudaAddressModeClamp, cudaFilterModePoint);
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeLinear;
    resource.res.linear = {x.data_ptr(), cudaCreateChannelDesc<float>(), (size_t)(4 * x.numel())};
    cudaTextureDesc how = {};
    cudaTextureObject_t row;
    TORCH_CHECK(!cudaCreateTextureObject(&row, &resource, &how, nullptr));
    image_kernel<<<x.numel() / 64 + 1, 64>>>(out.data_ptr<float>(), x.data_ptr<float>(),
                                             image.texture, row, result.surface, inp.size(1),
                                             inp.size(0));
    cudaDestroyTextureObject(row);
}
void outside(torch::Tensor out, torch::Tensor inp) {
    Image image(inp, cudaAddressModeBorder, cudaFilterModePoint);
    outside_kernel<<<1, 32>>>(out.data_ptr<float>(), image.texture);
}
void gather(torch::Tensor out, torch::Tensor inp) {
    Image image(inp, cudaAddressModeClamp, cudaFilterModePoint);
    gather_kernel<<<1, 32>>>(out.data_ptr<float>(), image.texture);
}
""")


def check_texels(access, space, array, requests):
    """Compare with the places that the lanes of each warp want: {lane: [offset, ...]}."""
    assert (access.space, access.array, access.bytes) == (space, array, 4)
    assert access.requests == len(requests) and access.lanes == sum(map(len, requests))
    assert access.texels == sum(len(set().union(*r.values())) for r in requests)
    assert access.sectors == access.ideal_sectors == access.wavefronts == access.bank_conflicts == 0
    for sample, request in zip(access.samples, requests, strict=False):
        wanted = {lane: sorted(offsets) for lane, offsets in request.items() if offsets}
        found = {lane: [o] for lane, o in enumerate(sample.offsets) if o is not None}
        for lane, offset in sample.more:
            found[lane].append(offset)
        assert {lane: sorted(offsets) for lane, offsets in found.items()} == wanted


def by_warp(wanted, n):
    """Return {lane: wanted(i)} of each warp of threads 0 to n; those that want None stay out."""
    warps_of = range(0, n, 32)
    of = [{i: wanted(first + i) for i in range(32) if first + i < n} for first in warps_of]
    return [{lane: w for lane, w in warp.items() if w is not None} for warp in of]


def test_textures_and_surfaces_are_counted_by_texels(compiled):
    H, W = 11, 29
    n, inp, out = H * W, torch.randn(H, W), torch.zeros(H * W)
    x = torch.randn(n)
    _, [launch] = record(compiled.image, out, x, inp)

    def corners(i):  # between this column and the one before, this line and the next
        columns, lines = {max(i % W - 1, 0), i % W}, {i // W, min(i // W + 1, H - 1)}
        return [4 * (line * W + column) for line in lines for column in columns]

    mixed = only(launch.accesses, line=line_of("// mixed"))
    check_texels(mixed, "texture", "image", by_warp(corners, n))
    thrice = only(launch.accesses, line=line_of("// thrice"))
    fetched = [by_warp(lambda i, k=k: [4 * i * k] if i * k < n else [], n) for k in range(3)]
    in_order = [request for of_warp in zip(*fetched, strict=True) for request in of_warp]
    check_texels(thrice, "texture", "row", in_order)

    def mirrored(i):
        return [4 * (i // W * W + W - 1 - i % W)]

    read = only(launch.accesses, line=line_of("// mirrored"))
    check_texels(read, "surface", "result", by_warp(mirrored, n))
    written = only(launch.accesses, line=line_of("// half of them"))
    check_texels(written, "surface", "result", by_warp(lambda i: mirrored(i) if i % 2 else None, n))
    assert (read.operation, written.operation) == ("load", "store")
    # what goes to global memory stands apart, and is all that is there
    assert {(a.operation, a.array) for a in launch.accesses if a.space == "global"} == {
        ("load", "x"),
        ("store", "out"),
    }
    assert only(launch.accesses, line=line_of("// from global memory")).lanes == n
    first = {(s.line, s.space, s.operation): s.requests for s in launch.stages}
    assert first[line_of("// mixed"), "texture", "load"] == 1
    assert launch.busiest["load", "texture"] == 4 and launch.busiest["store", "surface"] == 1


def test_fetches_that_read_no_texel_are_requests_all_the_same(compiled):
    out = torch.zeros(32)
    _, [launch] = record(compiled.outside, out, torch.randn(3, 5))
    access = only(launch.accesses, line=line_of("// beside the image"), space="texture")
    there = by_warp(lambda i: [4 * (i - 8)] if 0 <= i - 8 < 5 else [], 32)
    check_texels(access, "texture", "image", there)
    assert (access.requests, access.lanes, access.texels) == (1, 32, 5)


def test_a_gather_reads_four_texels(compiled):
    _, [launch] = record(compiled.gather, torch.zeros(32), torch.randn(3, 40))
    access = only(launch.accesses, line=line_of("// four"), space="texture")
    wanted = by_warp(lambda i: [4 * (y * 40 + x) for y in (0, 1) for x in (i, i + 1)], 32)
    check_texels(access, "texture", "image", wanted)
    assert access.texels == 66
