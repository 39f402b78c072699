"""Say what this machine has for the course, and the line that mends what is missing.

`python -m helpers.doctor`, or `make doctor`. Exit code 0: the notebooks run here.
"""

import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from helpers.base.machine import CACHE
from helpers.base.system import find_gpu
from helpers.compiler import CompileError, compile_cuda, tools
from helpers.compiler.tools import ToolMissing
from helpers.device import BACKEND, DEVICE

# whether a check must pass: for any notebook, for some cells, or for some cells if there is a GPU
ALWAYS, FOR_SOME, ON_A_GPU = "always", "for some cells", "on a GPU"
WITH_GPU = {"cuda": ALWAYS, "cpu": FOR_SOME}[BACKEND]
WITH_GPU_FOR_SOME = {"cuda": FOR_SOME, "cpu": ON_A_GPU}[BACKEND]

DISK_GB = 1  # builds, data and recorded pages

SQUARE = """
__global__ void square_kernel(float* out, const float* inp, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = inp[i] * inp[i];
}
torch::Tensor square(torch::Tensor inp) {
  auto out = torch::empty_like(inp);
  int n = inp.numel();
  square_kernel<<<(n + 255) / 256, 256>>>(out.data_ptr<float>(), inp.data_ptr<float>(), n);
  return out;
}
"""


@dataclass
class Row:
    """One line of the report: what was looked at, and what was found or how to mend it."""

    name: str
    need: str
    found: str = ""
    problem: ToolMissing | None = None

    def __str__(self):
        if self.problem is None:
            return f"  ok       {self.name:18}{self.found}"
        if self.need == ON_A_GPU:
            return f"  -        {self.name:18}{self.problem.sentence} It is of use on a GPU only."
        mark = "MISSING" if self.need == ALWAYS else "missing"
        return f"  {mark:9}{self.name:18}{self.problem.sentence}\n{'':29}{self.problem.mend}"


def python() -> str:
    """Return Python's version and place."""
    return f"{platform.python_version()}, {sys.executable}"


def pytorch() -> str:
    """Return PyTorch's version and build, if CUDA strings compile with it and it suits the GPU."""
    version = tools.torch_version()
    if torch.version.cuda:
        return f"{version}, built for CUDA {torch.version.cuda}"
    if find_gpu():
        raise ToolMissing(
            "PyTorch is the build for the CPU, but this machine has an NVIDIA GPU.",
            f"{sys.executable} -m pip install --force-reinstall torch==={version}",
        )
    return f"{version}, built for the CPU"


def gpu() -> str:
    """Return the GPU and its driver, or that there is none."""
    if BACKEND == "cuda":
        return f"{tools.gpu()}, driver {_driver_version()}"
    if find_gpu() and torch.version.cuda:
        raise ToolMissing(
            f"PyTorch for CUDA {torch.version.cuda} does not reach the GPU: {_why_no_cuda()}",
            "nvidia-smi   # if this works too, update the driver and reboot",
        )
    return "none, so CUDA strings run on the CPU backend"


def cuda_match() -> str:
    """Return that nvcc and PyTorch are of the same CUDA version."""
    version = tools.cuda_fits_torch(tools.cuda_home())
    return f"nvcc {version}, PyTorch {torch.version.cuda or 'without CUDA'}"


def disk() -> str:
    """Return the room on the disk of the cache."""
    with tools.writing(CACHE):
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=CACHE):  # to see whether one can
            pass
    free_gb = shutil.disk_usage(CACHE).free / 1e9
    if free_gb < DISK_GB:
        raise ToolMissing(f"Only {free_gb:.1f} GB are free for {CACHE}.", "make clean")
    return f"{free_gb:.0f} GB free"


def backend() -> str:
    """Compile and run a kernel, and return where it ran."""
    start = time.perf_counter()
    try:
        x = torch.randn(1000, device=DEVICE)
        y = compile_cuda(SQUARE).square(x)
        is_right = torch.equal(y, x * x)  # waits for the GPU, so its errors arrive here
    except ToolMissing as problem:
        sentence = "A kernel cannot be compiled: " + problem.sentence
        raise ToolMissing(sentence, problem.mend) from None
    except (CompileError, RuntimeError, OSError) as error:  # a tool is there, and broken
        first = str(error).strip().partition("\n")[0]
        raise ToolMissing(f"A kernel does not run: {first}", "make clean && make doctor") from None
    if not is_right:
        raise ToolMissing("A kernel ran and its result is wrong.", "make clean && make doctor")
    where = "the GPU" if BACKEND == "cuda" else "the CPU backend"
    return f"a kernel ran on {where}, compiled and loaded in {time.perf_counter() - start:.1f} s"


CHECKS: list[tuple[str, Callable, str]] = [
    ("Python", python, ALWAYS),
    ("folder", lambda: str(tools.folder()), ALWAYS),
    ("PyTorch", pytorch, FOR_SOME),
    ("GPU", gpu, FOR_SOME),
    ("C++ compiler", tools.host_compiler, ALWAYS),
    ("ninja", lambda: str(tools.ninja()), ALWAYS),
    ("Python headers", lambda: str(tools.python_headers()), ALWAYS),
    ("nvcc", lambda: str(tools.cuda_home() / "bin" / "nvcc"), WITH_GPU),
    ("CUDA versions", cuda_match, WITH_GPU),
    ("C++ for nvcc", lambda: tools.compiler_fits_nvcc(tools.cuda_home()), WITH_GPU),
    ("cuobjdump", lambda: str(tools.cuobjdump()), FOR_SOME),
    ("ncu", lambda: str(tools.ncu()), WITH_GPU_FOR_SOME),
    ("compute-sanitizer", lambda: str(tools.compute_sanitizer()), WITH_GPU_FOR_SOME),
    ("disk", disk, ALWAYS),
    ("backend", backend, ALWAYS),
]


def examine() -> list[Row]:
    """Run every check."""
    rows = []
    for name, check, need in CHECKS:
        try:
            rows.append(Row(name, need, found=check()))
        except ToolMissing as problem:
            rows.append(Row(name, need, problem=problem))
    return rows


def main() -> int:
    """Print the report; return 0 if the notebooks can run here, else 1."""
    rows = examine()
    print(*rows, sep="\n")
    problems = [row for row in rows if row.problem]
    if any(row.need == ALWAYS for row in problems):
        print("\nThe notebooks do not run yet: mend what is MISSING, from the top down.")
        return 1
    missing = ", ".join(row.name for row in problems if row.need == FOR_SOME)
    print("\nThe notebooks run" + (f", but some cells need: {missing}." if missing else "."))
    return 0


def _driver_version():
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True).stdout.split()[0]
    except (OSError, IndexError):
        return "unknown"


def _why_no_cuda():
    try:
        torch.cuda.init()
    except Exception as error:  # whatever it is, its first sentence is what we want
        return str(error).split(". ")[0]
    return "the driver answers, but shows no GPU."


if __name__ == "__main__":
    sys.exit(main())
