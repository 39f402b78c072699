"""Faults of asynchronous copies are found with their lines and threads; their mended twins pass."""

import re

import numpy as np
import pytest

from helpers.tests.copy_faults import FAULTS, HEADER, RIGHT
from helpers.tests.cuda_driver import compile_string
from helpers.tests.proof.broken_kernel import fault_lines, mend

KERNEL = """
__global__ void {name}_kernel(float* x, float* y, int* n) {{{body}}}
EXPORT {name}(const Arrays& a) {{
    {name}_kernel<<<{grid}, {block}>>>(a.at<float>(0), a.at<float>(1), a.at<int>(2));
}}
"""
KERNELS = (
    {name: (grid, block, body) for name, (grid, block, _, body) in FAULTS.items()}
    | {
        f"{name}_mended": (grid, block, mend(body))
        for name, (grid, block, _, body) in FAULTS.items()
    }
    | RIGHT
)
SOURCE = HEADER + "".join(
    KERNEL.format(name=name, grid=grid, block=block, body=body)
    for name, (grid, block, body) in KERNELS.items()
)


@pytest.fixture(scope="module")
def lib(tmp_path_factory):
    return compile_string(SOURCE, tmp_path_factory.mktemp("copies"), check=True)


def run(lib, name):
    arrays = np.arange(4096, dtype=np.float32), np.zeros(4096, np.float32), np.zeros(256, np.int32)
    lib.run(name, *arrays)


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found(lib, name):
    with pytest.raises(RuntimeError) as raised:
        run(lib, name)
    message = re.sub(r" \(launched at line \d+\)", "", str(raised.value))
    lines = fault_lines(SOURCE, FAULTS[name][-1])
    assert re.match(name + r"_kernel, block \(\d+,0,0\), thread \(\d+,0,0\), line", message)
    assert re.search(
        re.sub(r"\{(\d)\}", lambda at: str(lines[int(at[1])]), FAULTS[name][2]), message
    )
    named = {int(line) for line in re.findall(r"\bline (\d+)", message)}
    assert named == set(lines), message


@pytest.mark.parametrize("name", [name for name in KERNELS if name not in FAULTS])
def test_what_is_right_passes(lib, name):
    run(lib, name)
