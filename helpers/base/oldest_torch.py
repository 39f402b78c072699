"""The oldest PyTorch that CUDA strings compile with. The standard library only."""

import re

OLDEST_TORCH = (2, 10)  # older ones' stable C interface lacks what torch_light is made of


def is_too_old(torch: str) -> bool:
    return tuple(map(int, re.findall(r"\d+", torch)[:2])) < OLDEST_TORCH


def torch_too_old(torch: str) -> str:
    """Return the sentence about a PyTorch version that CUDA strings do not compile with."""
    oldest = ".".join(map(str, OLDEST_TORCH))
    return (
        f"PyTorch {torch.split('+')[0]} is too old for CUDA strings, which need {oldest} or newer."
    )
