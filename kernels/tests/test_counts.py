"""The CPU backend counts of every kernel file what Nsight Compute counted on a GPU: counts.csv."""

import pytest

from kernels.tests.counts import by_cpu_backend, by_nsight_compute, calls, label

# What Nsight Compute counts differently, and nothing else.
DIFFERENT = {
    # nvcc takes several turns of the loop over a row at a time, and then the rest one by one:
    # lanes at the image's edges, whose loops are shorter, do not load together with the others
    "blur": {"load requests", "load sectors"},
}

MEASURED = by_nsight_compute()


@pytest.fixture(scope="module")
def counted():
    return by_cpu_backend()


def test_every_call_was_measured():
    assert {label(function, size) for _, function, size, _ in calls()} == set(MEASURED)


@pytest.mark.parametrize("call", MEASURED)
def test_the_counts_are_those_of_nsight_compute(counted, call):
    measured, ours = MEASURED[call], counted[call]
    assert {name for name in ours if ours[name] != measured[name]} == DIFFERENT.get(
        call.split()[0], set()
    )
