"""A kernel in Python and in CUDA, with what both are launched with."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

import torch
from numpy.random import RandomState

HEADER = "#include <c10/cuda/CUDAStream.h>\n"


@dataclass(frozen=True)
class Kernel:
    """A kernel in Python and, line by line the same, in CUDA; both take the same arguments."""

    python: Callable
    cuda: str  # its source; other functions may stand before it
    grid: int | tuple
    block: int | tuple
    arguments: Callable[[RandomState], tuple]  # the first is what the kernel writes
    expected: Callable[..., torch.Tensor]  # of the arguments before the launch
    note: str = ""  # what Nsight Compute counts differently, and why

    @property
    def name(self) -> str:
        """The kernel's name in both languages."""
        return self.python.__name__

    @property
    def function(self) -> str:
        """The name of the host function that launches the CUDA kernel."""
        return self.name.removesuffix("_kernel")

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return math.prod(self.block) if isinstance(self.block, tuple) else self.block

    @property
    def source(self) -> str:
        """The CUDA kernel and a host function that launches it."""
        listed = re.search(rf"__global__ void {self.name}\((.*?)\)", self.cuda, re.DOTALL)[1]
        parameters = [parameter.strip().rsplit(" ", 1) for parameter in listed.split(",")]
        taken = ", ".join(
            f"torch::Tensor {name}" if "*" in kind else f"int64_t {name}"
            for kind, name in parameters
        )
        passed = ", ".join(
            f"{name}.data_ptr<{kind.removeprefix('const ').rstrip('*')}>()" if "*" in kind else name
            for kind, name in parameters
        )
        return f"""{self.cuda}
void {self.function}({taken}) {{
    dim3 grid({sizes(self.grid)}), block({sizes(self.block)});
    {self.name}<<<grid, block, 0, c10::cuda::getCurrentCUDAStream()>>>({passed});
}}
"""


def floats(random: RandomState, *shape: int) -> torch.Tensor:
    """Return float32 from a normal distribution."""
    return torch.from_numpy(random.standard_normal(shape)).float()


def integers(random: RandomState, limit: int, *shape: int) -> torch.Tensor:
    """Return int32 from 0 to limit - 1."""
    return torch.from_numpy(random.randint(limit, size=shape)).int()


def unwritten(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return a tensor in which an element that a kernel leaves out is surely wrong."""
    return torch.full(shape, math.nan if dtype.is_floating_point else 77, dtype=dtype)


def sizes(shape: int | tuple) -> str:
    """Return what a dim3 of that grid or block is made of, in C++."""
    return ", ".join(map(str, shape)) if isinstance(shape, tuple) else str(shape)
