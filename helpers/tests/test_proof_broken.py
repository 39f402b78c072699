"""Each planted fault is found, with its line, threads and element, and each mended twin passes."""

import json
import re

import pytest
from numpy.random import RandomState

from helpers.checks import check_close
from helpers.simulator import launch
from helpers.tests.proof.broken import (
    cpu_backend_says,
    cuda_place,
    found,
    python_place,
    simulator_says,
    table,
)
from helpers.tests.proof.broken_kernel import BARRIER, OUT_OF_RANGE, RACE, UNWRITTEN, WARP
from helpers.tests.proof.broken_kernels import BROKEN, SOURCE, checked_mended
from helpers.tests.proof.sanitizer import TOOLS, VERDICTS, program
from helpers.tests.proof.table import README

SIMULATOR_SAYS = {
    OUT_OF_RANGE: "is out of range",
    RACE: "no barrier between|are not ordered",
    BARRIER: "is reached by .* only",
    UNWRITTEN: "is read before anybody has written it",
    WARP: "lanes named in the mask do not come|own lane|has returned",
}
CPU_BACKEND_SAYS = {
    OUT_OF_RANGE: "begins at|ends at|is outside",
    RACE: "no barrier between|nothing orders",
    BARRIER: "has to reach the same barrier",
    UNWRITTEN: "before any thread of the block has written it",
    WARP: "a shuffle|__syncwarp|own lane|has left",
}

each_kernel = pytest.mark.parametrize("kernel", BROKEN.values(), ids=BROKEN)


@each_kernel
def test_the_simulator_finds_the_fault(kernel):
    message = simulator_says(kernel)
    assert message.startswith(kernel.name)
    assert found(message, kernel.python_lines, python_place(kernel)) == "found", message
    assert re.search(SIMULATOR_SAYS[kernel.reported or kernel.kind], message)
    assert kernel.element in message


@each_kernel
def test_the_cpu_backend_finds_the_fault(kernel):
    message = cpu_backend_says(kernel)
    assert message.startswith(kernel.name)
    assert found(message, kernel.cuda_lines(SOURCE), cuda_place(kernel)) == "found", message
    assert re.search(CPU_BACKEND_SAYS[kernel.reported or kernel.kind], message)
    element = kernel.element.replace(", ", "][")
    # an index beyond its dimension is found before there is an address
    assert element in message or f"index {element[:-1].split('[')[-1]} is outside" in message


def test_an_error_about_another_place_is_not_found():
    kernel = BROKEN["shift_kernel"]  # threads 1 and 0 of block 0
    python = "line 18: s[0] is read by thread {} and was written by thread {} in line 16 (block {})"
    cuda = "block ({},0,0), thread ({},0,0), line 18: read, written by thread ({},0,0) in line 16"

    def verdicts(block, reader, writer):
        return {
            found(python.format(reader, writer, block), (18, 16), python_place(kernel)),
            found(cuda.format(block, reader, writer), (18, 16), cuda_place(kernel)),
        }

    assert verdicts(0, 1, 0) == {"found"}
    for wrong in ((1, 1, 0), (0, 1, 1), (0, 10, 0), (0, 2, 0)):
        assert verdicts(*wrong) == {"another block or thread"}
    assert found(python.format(1, 0, 0), (18, 17), python_place(kernel)) == "another line"
    assert found("", (18, 16), python_place(kernel)) == "missed"


@each_kernel
def test_the_mended_twin_passes_in_the_simulator(kernel):
    mended = kernel.mended
    arguments = mended.arguments(RandomState())
    expected = mended.expected(*arguments)
    launch(mended.python, mended.grid, mended.block, *arguments)
    check_close(arguments[0], expected)


@each_kernel
def test_the_mended_twin_passes_on_the_cpu_backend(kernel):
    arguments = kernel.arguments(RandomState())
    expected = kernel.expected(*arguments)
    getattr(checked_mended(), kernel.function)(*arguments)
    check_close(arguments[0], expected)


@each_kernel
def test_the_twins_differ_in_one_line(kernel):
    def code(source):
        return [line.partition("//")[0].strip() for line in source.splitlines()]

    pairs = zip(code(kernel.cuda), code(kernel.mended.cuda), strict=True)
    assert sum(broken != mended for broken, mended in pairs) == 1


def test_compute_sanitizer_has_seen_these_kernels():
    verdicts = json.loads(VERDICTS.read_text())["verdicts"]
    assert set(verdicts) == set(BROKEN)
    for twins in verdicts.values():
        assert set(twins["broken"]) <= set(TOOLS)
        assert twins["mended"] == {}


def test_the_program_for_compute_sanitizer_has_both_twins_of_each_kernel():
    for kernel in BROKEN.values():
        assert kernel.cuda in program() and kernel.mended.cuda in program()


def test_the_readme_is_up_to_date():
    assert README.read_text().endswith(table()), "run `make proof`"
