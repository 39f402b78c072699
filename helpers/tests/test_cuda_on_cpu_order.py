"""Faults in the order of accesses are found with their lines; their mended twins pass."""

import re

import pytest
import torch

from helpers.compiler import compile_cuda
from helpers.tests import mixed_faults, order_chains, order_faults
from helpers.tests.order_faults import RIGHT
from helpers.tests.proof.broken_kernel import fault_lines, mend

KERNEL = """
__global__ void {name}_kernel(float* x, float* y, int* n) {{{body}}}
void {name}(torch::Tensor x, torch::Tensor y, torch::Tensor n) {{
    {name}_kernel<<<{grid}, {block}, 1024>>>(x.data_ptr<float>(), y.data_ptr<float>(),
                                             n.data_ptr<int>());
}}
"""


def source(kernels: dict) -> str:
    return HEADER + "".join(
        KERNEL.format(name=name, grid=grid, block=block, body=body)
        for name, (grid, block, body) in kernels.items()
    )


HEADER = order_faults.HEADER + order_chains.HEADER + mixed_faults.HEADER
FAULTS = order_faults.FAULTS | order_chains.FAULTS | mixed_faults.FAULTS
MENDED = {
    f"{name}_mended": (grid, block, mend(body)) for name, (grid, block, body) in FAULTS.items()
}
SOURCE = source(FAULTS | MENDED | RIGHT)


@pytest.fixture(scope="module")
def cu():
    return compile_cuda(SOURCE, check=True)


def run(cu, name):
    x = torch.arange(4096, dtype=torch.float)
    getattr(cu, name)(x, torch.zeros(4096), torch.zeros(256, dtype=torch.int32))


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found(cu, name):
    with pytest.raises(RuntimeError) as raised:
        run(cu, name)
    message = re.sub(r" \(launched at line \d+\)", "", str(raised.value))
    assert re.match(name + r"_kernel, block \(\d+,0,0\)", message)
    assert re.search(r"thread \(\d+,0,0\)", message)
    named = {int(line) for line in re.findall(r"\bline (\d+)", message)}
    lines = fault_lines(SOURCE, FAULTS[name][-1])
    assert named and named <= set(lines), message
    assert len(named) == 2 or len(lines) == 1 or "atomic" in message, message


BARRIER = "with no barrier between. Is a __syncthreads() missing between the two?"
FENCE = "Is a __threadfence() missing, after the first access and before the atomic"
LEFT_OPEN = "; nothing orders the blocks of a launch."
REMEDIES = {
    "scan_in_place": BARRIER,
    "sum_stops_barriers_early": "with no barrier between.",
    "counts_set_to_zero": BARRIER,
    "counts_read_too_early": BARRIER,
    "lost_update": "what others write meanwhile is lost. Does it take an atomic",
    "shift_across_blocks": LEFT_OPEN,
    "last_block_without_fence": FENCE,
    "fence_before_the_write": FENCE,
    "producer_without_fence": FENCE,
    "lock_without_release_fence": FENCE,
    "waits_for_an_old_value": "Does the thread wait for the right value?",
    "consumer_without_fence": "The thread has seen that this is done, but a __threadfence() is",
    "fence_of_a_block": "it takes __threadfence().",
    "all_write_one_fences": "is a __syncthreads() missing, after the first access",
    "all_fence_no_barrier": "is a __syncthreads() missing, after the first access",
    "one_waits_all_read": "Thread (0,0,0) has seen that this is done: is a __syncthreads() missing",
}


@pytest.mark.parametrize("name", REMEDIES)
def test_what_is_missing_is_asked_for(cu, name):
    with pytest.raises(RuntimeError) as raised:
        run(cu, name)
    message, said = str(raised.value), REMEDIES[name]
    assert message.endswith(said) if said.endswith(".") else said in message


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", [*MENDED, *RIGHT])
def test_what_is_right_passes(cu, name):
    run(cu, name)


QUESTION = r"""
#include <torch/types.h>
// Block 1 waits for long, reads, and answers; block 0 reads the answer.
__global__ void question_kernel(float* x, int* flag, long long wait) {
    if (threadIdx.x) return;
    int now = 0, wanted = 2 - blockIdx.x;
    if (blockIdx.x == 0) {
        for (long long end = clock64() + wait; clock64() < end;) __nanosleep(1);
        x[0] = 5;
        asm volatile("st.release.gpu.global.u32 [%0], 1;" :: "l"(flag) : "memory");
    }
    while (now != wanted)
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(flag) : "memory");
    if (blockIdx.x == 0) {
        x[2] = x[1];
    } else {
        x[1] = x[0] + 1;
        asm volatile("st.release.gpu.global.u32 [%0], 2;" :: "l"(flag) : "memory");
    }
}
void question(torch::Tensor x, torch::Tensor flag, int64_t nanoseconds) {
    float* at = x.data_ptr<float>();
    int* f = flag.data_ptr<int>();
    long long wait = nanoseconds;
    void* arguments[] = {&at, &f, &wait};
    cudaLaunchCooperativeKernel((void*)question_kernel, 2, 32, arguments, 0, nullptr);
}
"""


def test_a_wait_of_many_polls_takes_no_time():
    """Half a second is a few hundred thousand of them: more than the checker's clocks count to."""
    x, flag = torch.zeros(3), torch.zeros(1, dtype=torch.int32)
    compile_cuda(QUESTION, check=True).question(x, flag, 500_000_000)
    assert x.tolist() == [5, 6, 6]
