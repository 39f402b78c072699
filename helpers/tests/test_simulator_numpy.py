"""The simulator and its trace on NumPy alone: no PyTorch, no matplotlib, no IPython."""

import subprocess
import sys
import textwrap

import numpy as np
import pytest

from helpers.base.machine import ROOT
from helpers.simulator import (
    DtypeError,
    HostOnlyError,
    LaunchError,
    OutOfRangeError,
    RaceError,
    as_vector,
    launch,
    shared_array,
    syncthreads,
    threadIdx,
)

WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "matplotlib", "IPython", "PIL"):
            raise ModuleNotFoundError(f"{name} is imported")

sys.meta_path.insert(0, Missing())
"""


def run_without(code):
    """Run code where PyTorch, matplotlib, Pillow and IPython are missing; return what it prints."""
    program = WITHOUT + textwrap.dedent(code)
    found = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True
    )
    assert found.returncode == 0, found.stderr
    return found.stdout


@pytest.fixture
def kernels(tmp_path):
    """A file with kernels: their source must be at hand."""
    (tmp_path / "kernels.py").write_text(
        textwrap.dedent("""
        from helpers.simulator import *

        def add_kernel(out, a, b, n):
            i = blockIdx.x * blockDim.x + threadIdx.x
            if i < n:
                out[i] = a[i] + b[i]

        def no_guard(out, a, b):
            i = blockIdx.x * blockDim.x + threadIdx.x
            out[i] = a[i] + b[i]

        def sum_kernel(total, a):
            total[0] = total[0] + a[threadIdx.x]

        def column_kernel(out):
            tile = shared_array((32, 32))
            tile[threadIdx.x, 0] = threadIdx.x
            syncthreads()
            out[threadIdx.x] = tile[31 - threadIdx.x, 0]
        """)
    )
    return tmp_path


def test_launches_race_indices_and_traces_need_numpy_alone(kernels):
    said = run_without(f"""
        sys.path.insert(0, {str(kernels)!r})
        import numpy as np
        from kernels import *
        from helpers.trace import trace

        a, b, out = np.arange(6.0, dtype="f4"), np.full(6, 10, "f4"), np.empty(6, "f4")
        launch(add_kernel, 2, 4, out, a, b, 6)
        print(out)
        for kernel, args in ((sum_kernel, (np.zeros(1), a)), (no_guard, (out, a, b))):
            try:
                launch(kernel, 2, 4, *args)
            except SimulatorError as error:
                print(type(error).__name__, str(error).splitlines()[0], error.stopped_at[2:])
        report = trace(column_kernel, 1, 32, np.zeros(32, "f4"))
        print(report)
        print(report["load", "tile"].wavefronts, len(report._repr_html_()) > 1000)
        print({{"torch", "matplotlib", "IPython"}} & set(sys.modules))
    """)
    assert "[10. 11. 12. 13. 14. 15.]" in said
    assert "RaceError sum_kernel, line 14: total[0] is read by thread 1 and was written by" in said
    assert "OutOfRangeError no_guard, line 11: a[6] is out of range, shape (6,)" in said
    assert "(block 1, thread 2) ((1, 0, 0), (2, 0, 0))" in said
    assert "H200: 50% occupancy" in said
    assert said.splitlines()[-2:] == ["32 True", "set()"]


def test_an_animation_needs_numpy_alone():
    said = run_without("""
        from helpers.trace import animate_tiled_matmul
        print(len(animate_tiled_matmul().frames))
    """)
    assert int(said) > 10


def double_kernel(x):
    x[threadIdx.x] = 2 * x[threadIdx.x]


@pytest.mark.parametrize(
    "dtype", "f2 f4 f8 i1 i2 i4 i8 u1 u2 u4 u8".split(), ids=lambda dtype: np.dtype(dtype).name
)
def test_elements_of_every_type(dtype):
    x = np.arange(4).astype(dtype)
    launch(double_kernel, 1, 4, x)
    assert x.tolist() == [0, 2, 4, 6]


def test_arrays_with_gaps_and_backwards_are_brought_back():
    x = np.arange(8.0)
    launch(double_kernel, 1, 4, x[::2])
    assert x.tolist() == [0, 1, 4, 3, 8, 5, 12, 7]
    launch(double_kernel, 1, 2, x[1::-1])
    assert x[:2].tolist() == [0, 2]

    def corner_kernel(x):
        x[threadIdx.x, 0] = -1.0

    x = np.zeros((2, 3))
    launch(corner_kernel, 1, 3, x.T)
    assert x.tolist() == [[-1, -1, -1], [0, 0, 0]]


def test_an_array_that_is_passed_twice_is_one():
    def shift_kernel(out, inp):
        out[threadIdx.x] = inp[threadIdx.x + 1]

    for step in (1, 2):
        x = np.arange(16.0)[::step]
        with pytest.raises(RaceError, match=r"out\[1\].* is written by thread 1 and was read by"):
            launch(shift_kernel, 1, 4, x, x)


def test_arrays_that_no_kernel_takes_are_refused():
    with pytest.raises(DtypeError, match="x is complex64; arrays can be float32, float64"):
        launch(double_kernel, 1, 4, np.zeros(4, "c8"))
    with pytest.raises(DtypeError, match="x is object; arrays can be"):
        launch(double_kernel, 1, 4, np.array([None]))
    other = np.dtype("f4").newbyteorder()
    with pytest.raises(DtypeError, match=f"x is {other}; arrays can be"):
        launch(double_kernel, 1, 4, np.zeros(4, other))
    with pytest.raises(LaunchError, match=r"x has no dimensions; pass a number: x\.item\(\)"):
        launch(double_kernel, 1, 4, np.array(1.0))


def test_a_read_only_array_is_read_only():
    for step in (1, 2):
        x = np.arange(8.0)[::step]
        x.flags.writeable = False
        with pytest.raises(HostOnlyError, match="x is read-only"):
            launch(double_kernel, 1, 4, x)


def test_an_array_of_the_host_in_a_kernel_is_refused():
    table = np.zeros(4)

    def kernel(x):
        x[threadIdx.x] = table[threadIdx.x]

    with pytest.raises(HostOnlyError, match="table in line .* is a tensor of the host"):
        launch(kernel, 1, 4, np.zeros(4))


def test_vectors_are_aligned_in_the_memory_that_was_made():
    def kernel(x):
        as_vector(x, 4)[threadIdx.x] = 0.0, 1.0, 2.0, 3.0

    x = np.zeros(12, "f4")
    launch(kernel, 1, 2, x[4:])
    assert x.tolist() == [0] * 4 + [0, 1, 2, 3] * 2
    with pytest.raises(DtypeError, match="x begins 8 bytes into its storage: misaligned"):
        launch(kernel, 1, 2, x[2:10])


def test_shared_memory_by_the_type_of_an_array():
    seen = []

    def kernel(x):
        tile = shared_array(4, x.dtype)
        tile[threadIdx.x] = x[threadIdx.x]
        syncthreads()
        x[threadIdx.x] = tile[3 - threadIdx.x]
        note(tile.dtype == np.int16, str(tile.dtype), tile.dtype == np.int32)

    def note(*what):
        seen.append(what)

    x = np.arange(4, dtype=np.int16)
    launch(kernel, 1, 4, x)
    assert x.tolist() == [3, 2, 1, 0]
    assert set(seen) == {(True, "int16", False)}


def test_an_index_is_checked():
    def kernel(x):
        x[threadIdx.x + 1] = 0.0

    with pytest.raises(OutOfRangeError, match=r"x\[4\] is out of range, shape \(4,\)"):
        launch(kernel, 1, 4, np.zeros(4))
