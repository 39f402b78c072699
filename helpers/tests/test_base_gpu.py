"""The CPU backend's copy of CUDA's facts is the same as helpers/base/gpu.py."""

import re

from helpers.base import gpu
from helpers.base.machine import ROOT

LIMITS = ROOT / "helpers/cuda_on_cpu/include/cuda_on_cpu/limits.h"
SAME = {
    "WARP_SIZE": gpu.WARP_SIZE,
    "SECTOR_BYTES": gpu.SECTOR_BYTES,
    "BANKS": gpu.BANKS,
    "WORD_BYTES": gpu.WORD_BYTES,
    "WIDEST_ACCESS": gpu.WIDEST_ACCESS,
    "MAX_THREADS": gpu.MAX_THREADS,
    "MAX_BLOCK_Z": gpu.MAX_BLOCK[2],
    "MAX_GRID_X": gpu.MAX_GRID[0],
    "MAX_GRID_YZ": gpu.MAX_GRID[1],
    "SHARED_WITHOUT_REQUEST": gpu.STATIC_SHARED_BYTES,
    "MAX_SHARED_ON_REQUEST": gpu.MAX_SHARED_BYTES,
    "REGISTERS_PER_MULTIPROCESSOR": gpu.REGISTERS,
    "THREADS_PER_MULTIPROCESSOR": gpu.CHIPS["T4"].warps * gpu.WARP_SIZE,
    "BLOCKS_PER_MULTIPROCESSOR": gpu.CHIPS["T4"].blocks,
}


def test_the_cpu_backend_has_the_same_facts():
    text = LIMITS.read_text()
    found = re.findall(r"(\w+) = ([\w* ]+)(?=[,;])", text)
    facts = {name: eval(value, {}) for name, value in found}
    assert {name: facts.pop(name) for name in SAME} == SAME
    assert set(facts) == {"ARCHITECTURE", "MULTIPROCESSORS", "CONSTANT_BYTES", "ARGUMENT_BYTES"}
    assert f"sm_{facts['ARCHITECTURE'] // 10}" == gpu.CHIPS["A100"].arch
