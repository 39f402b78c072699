"""The kernels of helpers/tests/proof are right, and their counts are those of Nsight Compute."""

import pytest
import torch
from numpy.random import RandomState

from helpers.checks import check_close
from helpers.device import DEVICE
from helpers.simulator import launch
from helpers.tests.proof.agreement import (
    cpu_backend,
    nsight_compute,
    simulator,
    trace_on_cpu_backend,
    trace_on_simulator,
)
from helpers.tests.proof.kernels import KERNELS, compiled
from helpers.tests.proof.table import README, counts

# What Nsight Compute counts differently, and nothing else; the kernel's `note` says why.
DIFFERENT = {
    "invariant_load_kernel": {"global load requests", "global load sectors"},
    "uneven_unrolled_kernel": {"global load requests", "global load sectors"},
    "matmul_tiled_kernel": {"shared load wavefronts"},
    "row_sum_warp_kernel": {"FLOPs"},
    "sum_shuffles_kernel": {"FLOPs"},
    "histogram_shared_kernel": {"shared atomic wavefronts", "shared atomic conflicts"},
    "count_positive_kernel": {"global atomic sectors"},
    "fetch_and_add_kernel": {"global atomic sectors"},
    "exchange_kernel": {"global atomic sectors"},
}

each_kernel = pytest.mark.parametrize("name", KERNELS)


@each_kernel
def test_the_python_kernel_is_right(name):
    kernel = KERNELS[name]
    arguments = kernel.arguments(RandomState(0))
    expected = kernel.expected(*arguments)
    launch(kernel.python, kernel.grid, kernel.block, *arguments)
    check_close(arguments[0], expected)


@each_kernel
def test_the_cuda_kernel_is_right(name):
    arguments = KERNELS[name].arguments(RandomState(0))
    expected = KERNELS[name].expected(*arguments)
    arguments = [a.to(DEVICE) if isinstance(a, torch.Tensor) else a for a in arguments]
    compiled(name)(*arguments)
    check_close(arguments[0].cpu(), expected)


@each_kernel
def test_both_backends_see_the_same(name):
    assert simulator(name) == cpu_backend(name)
    ours, theirs = trace_on_simulator(name), trace_on_cpu_backend(name)
    assert accesses(ours) == accesses(theirs)
    assert [one.busiest for one in ours.launches] == [one.busiest for one in theirs.launches]


def accesses(report):
    """List what a report says about each access, but for the line, which is another in CUDA."""
    left_out = ("line", "text", "samples", "widest")
    return sorted(
        [value for name, value in vars(access).items() if name not in left_out]
        for access in report.accesses
    )


@each_kernel
def test_nsight_compute_counts_the_same(name):
    counted, measured = simulator(name), nsight_compute(name)
    assert counted.keys() == measured.keys()
    different = {what for what in counted if counted[what] != measured[what]}
    assert different == DIFFERENT.get(name, set())
    assert bool(different) == bool(KERNELS[name].note)


@each_kernel
def test_with_what_nvcc_joins_wavefronts_are_nsight_computes(name):
    report = trace_on_cpu_backend(name)
    uses_shared = any(access.space == "shared" for access in report.accesses)
    if uses_shared and report.launches[0].registers is None:
        pytest.skip("needs nvcc and nvdisasm")
    measured = nsight_compute(name)
    for operation in ("load", "store"):
        found = [a for a in report.accesses if (a.space, a.operation) == ("shared", operation)]
        waves = sum(a.joined_wavefronts if a.widest > a.bytes else a.wavefronts for a in found)
        assert waves == measured[f"shared {operation} wavefronts"]


def test_the_readme_is_up_to_date():
    assert counts() in README.read_text(), "run `make proof`"
