"""The flags that a string may be compiled with, on a GPU, on the CPU backend and for its PTX."""

from collections.abc import Iterable

# What PyTorch tells nvcc in every build (COMMON_NVCC_FLAGS): the CPU backend refuses the same.
NVCC_DEFINES = [
    "-D__CUDA_NO_HALF_OPERATORS__",
    "-D__CUDA_NO_HALF_CONVERSIONS__",
    "-D__CUDA_NO_BFLOAT16_CONVERSIONS__",
    "-D__CUDA_NO_HALF2_OPERATORS__",
]
# What compile_cuda may be told: each takes back what refuses code that nvcc alone would take.
LAMBDA_FLAGS = ["--extended-lambda", "--expt-extended-lambda"]
FLAGS = [*(define.replace("-D", "-U") for define in NVCC_DEFINES), *LAMBDA_FLAGS]


def known(flags: str | Iterable[str]) -> tuple[str, ...]:
    """Return one flag or several as a tuple. Raises ValueError for one that is not of FLAGS."""
    flags = (flags,) if isinstance(flags, str) else tuple(flags)
    if unknown := [flag for flag in flags if flag not in FLAGS]:
        raise ValueError(f"expected flags of {', '.join(FLAGS)}, got {unknown[0]!r}")
    return flags


def allow_lambdas(flags: tuple[str, ...]) -> bool:
    """Return whether kernels may be given lambdas that are written on the host."""
    return not {*flags}.isdisjoint(LAMBDA_FLAGS)


def defines(flags: tuple[str, ...]) -> list[str]:
    """Return the definitions of NVCC_DEFINES that the flags leave in place."""
    return [define for define in NVCC_DEFINES if define.replace("-D", "-U") not in flags]
