"""Kernel files on chips with less shared memory than the CPU backend and a large GPU have.

What a file asks the chip for is answered as a smaller one would: the file then takes other
instances of its kernels, other tiles, other ways. Each has to be right wherever it is taken.
"""

import pytest

from helpers.compiler import compile_cuda
from kernels.tests.chips import on_chip
from kernels.tests.contract import check_right
from kernels.tests.test_contract import CASES, FILES

# file, chip, sizes by host function: those for which the chip makes a difference
LESS = [
    *[
        ("scan", chip, {"scan": [(3,), (3 * tile - 1,), (8 * tile + 2,), (25 * tile + 7,)]})
        for chip, tile in (("T4", 4096), ("RTX", 8192), ("A100", 12_288))
    ],
    (
        "quantized_linear",
        "T4",
        {"quantized_linear": [(9, 400, 3072, 4, True), (3, 400, 1056, 8, False)]},
    ),
    ("layer_norm", "T4", {"layer_norm_backward": [(40, 4096), (9, 8192)]}),
    ("rms_norm", "T4", {"rms_norm_backward": [(40, 4096), (9, 8192)]}),
    (
        "fft",
        "T4",
        {
            "fft_forward": [(1, 8192), (2, 16_384), (3, 1000), (2, 6000), (2, 10_007)],
            "fft_inverse": [(2, 16_384), (2, 6000)],
            "rfft": [(2, 32_768), (2, 12_000)],
            "fft2": [(2, 4096, 3), (2048, 5), (1000, 6)],
        },
    ),
    ("conv2d", "T4", {case.function: case.sizes[3:9] for case in CASES["conv2d"]}),
]
OTHERS = {  # files that ask, and why they are not here
    "batch_norm2d": "takes fewer channels into one kernel, and the others as any other",
    "conv2d_half": "asks for its way by wgmma alone, and all chips that have it have 227 KB",
    "mnist_cnn": "has a test of its own",
}


@pytest.mark.parametrize("op, chip, sizes", LESS)
def test_right_with_less_shared_memory(op, chip, sizes):
    functions = compile_cuda(on_chip(op, chip))
    for case in CASES[op]:
        for size in sizes.get(case.function, ()):
            arguments = case.arguments(*size)
            if op == "scan":  # sums so long are exact of whole numbers only
                arguments["inp"].mul_(4).round_()
            check_right(getattr(functions, case.function), case, size, arguments)


def test_every_file_that_asks_is_here():
    asked = "cudaDevAttrMaxSharedMemoryPerBlockOptin"
    asking = {path.stem for path in FILES if asked in path.read_text()}
    assert asking == {op for op, *_ in LESS} | set(OTHERS)
