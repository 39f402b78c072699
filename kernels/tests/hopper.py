"""A kernel file's text with wgmma and TMA written out in C++, for the CPU backend.

The backend refuses both. hopper.cu stands for what a file keeps between these two lines, functions
of a few lines of PTX each; the kernels behind them, with their rings, barriers and turns, are run
as they are.
"""

import re

from helpers.base.machine import ROOT

BEGIN, END = "// ---- sm_90: wgmma and TMA", "// ---- sm_90: kernels"


def for_cpu(text: str) -> str:
    """Return a kernel file's text as the CPU backend can run it, always by the sm_90 way."""
    before, rest = text.split(BEGIN)
    _, kernels = rest.split(END)
    text = before + "#if 1\n" + (ROOT / "kernels/tests/hopper.cu").read_text() + kernels
    text = re.sub(r"#ifdef __CUDA(CC_VER_MAJOR__|_ARCH_FEAT_SM90_ALL)", "#if 1", text)
    return re.sub(r"\bwgmma\b", "products", text).replace("CUtensorMap", "BoxMap")
