"""What kernels print: their printf goes to the process's stdout, which a notebook does not show."""

import ctypes
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from helpers.device import BACKEND


class Output:
    """What was printed inside `with kernel_output() as output`, once the block has ended."""

    text = ""


@contextmanager
def kernel_output() -> Iterator[Output]:
    """Catch what C and CUDA code prints to stdout in the block, and print it in Python's stdout.

    At the end of the block the GPU is waited for: only then has it handed its printf buffer over.
    """
    output = Output()
    sys.stdout.flush()
    _flush_c()
    kept = os.dup(1)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 1)
        try:
            yield output
        finally:
            try:
                if BACKEND == "cuda":
                    torch.cuda.synchronize()
            finally:
                _flush_c()
                os.dup2(kept, 1)
                os.close(kept)
                file.seek(0)
                output.text = file.read().decode(errors="replace")
                print(output.text, end="")


def _flush_c() -> None:
    ctypes.CDLL(None).fflush(None)  # None: every stream of the C library
