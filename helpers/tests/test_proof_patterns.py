"""The rules of one request, and the CPU backend's own copy of them, against Nsight Compute."""

import random

import pytest

from helpers.compiler.build import compile_traced
from helpers.tests.proof import patterns
from helpers.trace import model
from helpers.trace.from_cpu_backend import record

MEASURED = patterns.measured()


def split(row):
    space, kind = row["operation"].split("_")
    operation = {"ld": "load", "st": "store"}.get(kind, "atomic")
    return space, operation, row["offsets"], row["bytes"]


def test_the_rows_are_those_of_the_program():
    asked = [tuple(request) for request in patterns.requests()]
    assert asked == [(r["operation"], r["bytes"], r["offsets"]) for r in MEASURED]
    assert len(MEASURED) > 1000


@pytest.mark.parametrize("operation", [*patterns.SHARED, *patterns.GLOBAL])
def test_the_model_counts_what_the_hardware_counts(operation):
    wrong = []
    for row in MEASURED:
        if row["operation"] != operation:
            continue
        space, kind, offsets, size = split(row)
        if space == "global":
            counted = (1, model.sectors(offsets, size, kind))
            expected = (row["requests"], row["sectors"])
        else:
            waves = model.wavefronts(offsets, size, kind)
            counted = (waves, waves - model.ideal_wavefronts(offsets, size, kind))
            expected = (row["wavefronts"], row["conflicts"])
        if counted != expected:
            wrong.append((offsets, size, counted, expected))
    assert wrong == []


def traced(function, row):
    """Return the one access that the request of `row` made, as the CPU backend recorded it."""
    space, operation, offsets, size = split(row)
    _, [launch] = record(function, *patterns.arguments(row["operation"], size, offsets))
    [access] = [a for a in launch.accesses if (a.space, a.operation) == (space, operation)]
    return access


def test_the_cpu_backend_counts_what_the_hardware_counts():
    """Stores to one address by several lanes are left out: they are races, and refused."""
    probe = compile_traced(patterns.SOURCE).probe
    rows = [row for row in MEASURED if row["operation"] not in ("shared_st", "global_st")]
    for row in random.Random(0).sample(rows, 120):
        access = traced(probe, row)
        if access.space == "global":
            assert (access.requests, access.sectors) == (row["requests"], row["sectors"]), row
        else:
            counted = (access.wavefronts, access.bank_conflicts)
            assert counted == (row["wavefronts"], row["conflicts"]), row
