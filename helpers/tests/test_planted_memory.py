"""Every planted fault of memory is found in a checked build, its twin passes."""

import re
import warnings

import pytest
import torch

from helpers.compiler import compile_cuda
from helpers.tests.planted_memory import FAULTS, source


@pytest.fixture(scope="module")
def planted():
    text, lines = source()
    return compile_cuda(text, check=True), lines


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_found_and_its_twin_passes(planted, fault):
    compiled, lines = planted
    bad, good = (getattr(compiled, f"{fault.name}_{kind}") for kind in ("bad", "good"))
    for n in fault.sizes:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            good(torch.arange(n).float())
        with pytest.raises(RuntimeError) as error:
            bad(torch.arange(n).float())
        expected = fault.where + ".*(" + fault.said + ")"
        expected = expected.replace("{n}", str(n)).replace(
            "{line}", str(lines[f"{fault.name}_bad"])
        )
        said = str(error.value).splitlines()[0]
        assert re.search(expected, said), f"n = {n}: {said}"


def test_both_names_are_told_and_a_bad_free_leaves_no_error():
    c = compile_cuda(
        """__global__ void shift_kernel(const float* x, float* out, int to) {
    out[to + threadIdx.x] = x[threadIdx.x];
}
void shift(torch::Tensor x, torch::Tensor out, int64_t to, int64_t threads) {
    shift_kernel<<<1, threads>>>(x.data_ptr<float>(), out.data_ptr<float>(), to);
}
void free_twice(torch::Tensor) {
    float* d;
    cudaMalloc(&d, 64);
    cudaFree(d);
    cudaFree(d);
}
int64_t last_error(torch::Tensor) { return cudaGetLastError(); }""",
        check=True,
    )
    x = torch.arange(64).float()
    with pytest.raises(RuntimeError, match=r"reads x\[1\] \(also out\[1\]\), written by thread"):
        c.shift(x, x, 1, 2)
    with pytest.raises(RuntimeError, match=r"writes x\[64\] \(also out\[64\]\), but x ends at"):
        c.shift(x, x, 64, 1)
    with pytest.raises(RuntimeError, match="has been freed already"):
        c.free_twice(x)
    assert c.last_error(x) == 0
