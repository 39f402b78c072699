"""Lanes that go round nested loops unequally often: the CPU backend against the simulator.

The CPU backend runs lane after lane and finds by loops and calls which of them share a request.
"""

import pytest
import torch

from helpers.checks import check_close
from helpers.compiler import compile_cuda
from helpers.simulator import blockDim, blockIdx, threadIdx
from helpers.trace import trace

SOURCE = r"""
#include <cuda_runtime.h>

__global__ void uneven(float* out, const float* x, const int* turns, int n) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    float acc = 0;
    for (int i = 0; i < turns[t]; i++) {
        if ((i + t) % 5 == 0) continue;
        acc += x[(i * 7 + t) % n];
        for (int j = 0; j < (i + t) % 4; j++)
            acc += x[(i + j * 13) % n];
        if (i > 3 * turns[(t + 1) % n]) break;
    }
    out[t] = acc;
}

__global__ void nested(float* out, const float* x, int n) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    float acc = 0;
    for (int i = 0; i < n + t % 5; i++) {
        if ((i * 7 + t) % 11 == 0) continue;
        acc += x[(i + t) % 128];
        for (int j = t % 3; j < 6; j++) {
            if ((i + j + t) % 13 == 5) break;
            acc += x[(i * j + t) % 128];
            int q = 0;
            do {
                acc += x[(q + i + t) % 128];
                q++;
            } while (q < (t + j) % 3);
        }
        if (i > n - 3 && t % 9 == 1) break;
    }
    out[t] = acc;
}

torch::Tensor run_nested(torch::Tensor x, int64_t n) {
    auto out = torch::zeros({128}, x.options());
    nested<<<2, 64>>>(out.data_ptr<float>(), x.data_ptr<float>(), n);
    return out;
}

torch::Tensor run(torch::Tensor x, torch::Tensor turns) {
    auto out = torch::zeros({turns.size(0)}, x.options());
    uneven<<<turns.size(0) / 64, 64>>>(out.data_ptr<float>(), x.data_ptr<float>(),
                                       turns.data_ptr<int>(), x.size(0));
    return out;
}

__device__ int next_even(const int* x, int i) {
    while (true) {
        if (x[i] % 2 == 0) return i;
        i++;
    }
}

__global__ void find(int* out, const int* x) { out[threadIdx.x] = next_even(x, threadIdx.x); }

torch::Tensor run_find(torch::Tensor x) {
    auto out = torch::zeros({32}, x.options());
    find<<<1, 32>>>(out.data_ptr<int>(), x.data_ptr<int>());
    return out;
}
"""


def uneven(out, x, turns, n):
    t = blockIdx.x * blockDim.x + threadIdx.x
    acc = 0.0
    for i in range(turns[t]):
        if (i + t) % 5 == 0:
            continue
        acc += x[(i * 7 + t) % n]
        for j in range((i + t) % 4):
            acc += x[(i + j * 13) % n]
        if i > 3 * turns[(t + 1) % n]:
            break
    out[t] = acc


def nested(out, x, n):
    t = blockIdx.x * blockDim.x + threadIdx.x
    acc = 0.0
    for i in range(n + t % 5):
        if (i * 7 + t) % 11 == 0:
            continue
        acc += x[(i + t) % 128]
        for j in range(t % 3, 6):
            if (i + j + t) % 13 == 5:
                break
            acc += x[(i * j + t) % 128]
            q = 0
            while True:
                acc += x[(q + i + t) % 128]
                q += 1
                if not q < (t + j) % 3:
                    break
        if i > n - 3 and t % 9 == 1:
            break
    out[t] = acc


def counts(report):
    """Return requests, lanes, sectors and ideal sectors by line and array, but for loop headers."""
    found = {}
    for access in report.accesses:
        if not access.text.startswith("for"):
            line = access.text.replace(" ", "").strip(";:").removeprefix("if").strip("()break")
            found[line.replace(")", ""), access.array] = (
                access.requests, access.lanes, access.sectors, access.ideal_sectors
            )  # fmt: skip
    return found


@pytest.mark.parametrize("most", [2, 12, 60, 250])
@pytest.mark.parametrize("even", [True, False])
def test_uneven_loops_are_counted_exactly(most, even):
    n = 128
    random = torch.Generator().manual_seed(most)
    turns = torch.full((n,), most) if even else torch.randint(most + 1, (n,), generator=random)
    turns[5] = most // 3
    turns, x, out = turns.to(torch.int32), torch.randn(n), torch.zeros(n)
    on_cpu_backend = trace(compile_cuda(SOURCE).run, x, turns)
    on_simulator = trace(uneven, n // 64, 64, out, x, turns, n)
    check_close(on_cpu_backend.result, out.double(), atol=1e-3)
    assert counts(on_cpu_backend) == counts(on_simulator)
    assert len(counts(on_simulator)) == 4


@pytest.mark.parametrize("n", [5, 150])
def test_nested_uneven_loops_are_counted_exactly(n):
    x, out = torch.randn(128), torch.zeros(128)
    on_cpu_backend = trace(compile_cuda(SOURCE).run_nested, x, n)
    on_simulator = trace(nested, 2, 64, out, x, n)
    check_close(on_cpu_backend.result, out.double(), atol=1e-3)
    assert counts(on_cpu_backend) == counts(on_simulator)
    assert len(counts(on_simulator)) == 4


@pytest.mark.parametrize("even", [3, 31, 57])
def test_a_loop_without_an_end_needs_nothing_returned_behind_it(even):
    x = torch.ones(64, dtype=torch.int32)
    x[even] = x[63] = 2
    looks = torch.where(torch.arange(32) <= even, even, 63) - torch.arange(32) + 1
    report = trace(compile_cuda(SOURCE).run_find, x)
    assert torch.equal(report.result, (looks - 1 + torch.arange(32)).to(torch.int32))
    [loads] = [access for access in report.accesses if access.array == "x"]
    assert (loads.requests, loads.lanes) == (looks.max().item(), looks.sum().item())
