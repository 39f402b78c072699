"""Which machine this is: the one place that decides between the GPU and the CPU backend."""

import platform

import torch

BACKEND = "cuda" if torch.cuda.is_available() else "cpu"
DEVICE = torch.device(BACKEND)


def describe_device() -> str:
    """Return one line that names the device, the backend that runs CUDA strings, and torch."""
    versions = f"torch {torch.__version__}, Python {platform.python_version()}"
    if BACKEND == "cpu":
        return f"no GPU: CUDA strings run on the CPU backend ({platform.machine()}) · {versions}"
    major, minor = torch.cuda.get_device_capability()
    name = torch.cuda.get_device_name()
    return f"{name} (sm_{major}{minor}), CUDA {torch.version.cuda} · {versions}"
