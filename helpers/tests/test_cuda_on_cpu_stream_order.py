"""Work in streams that nothing orders is found with its lines; its mended twins pass."""

import re

import pytest
import torch

from helpers.compiler import compile_cuda
from helpers.tests.proof.broken_kernel import fault_lines, mend
from helpers.tests.stream_faults import FAULTS, HEADER, RIGHT

FUNCTION = """
void {name}(torch::Tensor, int64_t n) {{
    float *x, *y, *h, *k, *m, own[16] = {{}};
    cudaMalloc(&x, 4096), cudaMalloc(&y, 4096), cudaMallocHost(&h, 4096), cudaMallocHost(&k, 4096);
    cudaMallocManaged(&m, 4096);
    for (int i = 0; i < 1024; i++) h[i] = k[i] = m[i] = float(i);
    cudaStream_t a, b, free;
    cudaStreamCreate(&a), cudaStreamCreate(&b);
    cudaStreamCreateWithFlags(&free, cudaStreamNonBlocking);
    cudaEvent_t e;
    cudaEventCreate(&e);
    cudaEventRecord(e, a);
    cudaDeviceSynchronize();
{body}
    cudaDeviceSynchronize();
    if (own[0] == -1) printf("%f", own[0]);
    cudaEventDestroy(e);
    cudaStreamDestroy(a), cudaStreamDestroy(b), cudaStreamDestroy(free);
    cudaFree(x), cudaFree(y), cudaFree(m), cudaFreeHost(h), cudaFreeHost(k);
}}
"""
BODIES = dict(RIGHT)
for fault, (_, body) in FAULTS.items():
    BODIES |= {fault: body, f"{fault}_mended": mend(body)}
SOURCE = HEADER + "".join(FUNCTION.format(name=n, body=body) for n, body in BODIES.items())


@pytest.fixture(scope="module")
def cu():
    return compile_cuda(SOURCE, check=True)


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found(cu, name):
    with pytest.raises(RuntimeError) as raised:
        getattr(cu, name)(torch.zeros(1), 1)
    message = str(raised.value)
    assert re.search(FAULTS[name][0], message), message
    lines = set(fault_lines(SOURCE, FAULTS[name][1]))
    assert {int(line) for line in re.findall(r"\bline (\d+)", message)} == lines, message


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", [name for name in BODIES if name not in FAULTS])
def test_what_is_right_passes(cu, name):
    getattr(cu, name)(torch.zeros(1), 1)
