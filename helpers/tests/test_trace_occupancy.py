"""Tests of the occupancy calculator; one compares it with NVIDIA's own, where its header is."""

import math
import random
import shlex
import subprocess
from types import SimpleNamespace

import pytest
import torch

from helpers.base.gpu import CHIPS, KB
from helpers.compiler import ToolMissing, tools
from helpers.trace import occupancy as occupancy_function
from helpers.trace.occupancy import occupancy

# asks cuda_occupancy.h about the lines of stdin: a chip's and a kernel's figures
NVIDIAS = r"""
#include <cstdio>
#include <cuda_occupancy.h>
int main() {
    int major, minor, threads, registers;
    size_t per_sm, per_block, reserved, shared;
    int warps;
    while (std::scanf("%d %d %d %zu %zu %zu %d %d %zu", &major, &minor, &warps, &per_sm, &per_block,
                      &reserved, &threads, &registers, &shared) == 9) {
        cudaOccDeviceProp chip;
        chip.computeMajor = major, chip.computeMinor = minor;
        chip.maxThreadsPerBlock = 1024, chip.maxThreadsPerMultiprocessor = 32 * warps;
        chip.regsPerBlock = chip.regsPerMultiprocessor = 65536, chip.warpSize = 32;
        chip.sharedMemPerBlock = 49152, chip.sharedMemPerMultiprocessor = per_sm;
        chip.sharedMemPerBlockOptin = per_block, chip.reservedSharedMemPerBlock = reserved;
        chip.numSms = 1;
        cudaOccFuncAttributes kernel;
        kernel.maxThreadsPerBlock = 1024, kernel.numRegs = registers;
        kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
        kernel.maxDynamicSharedSizeBytes = shared, kernel.numBlockBarriers = 1;
        cudaOccDeviceState state;
        cudaOccResult result;
        auto error = cudaOccMaxActiveBlocksPerMultiprocessor(
            &result, &chip, &kernel, &state, threads, shared);
        if (error) return 1;
        std::printf("%d %d %d %d\n", result.activeBlocksPerMultiprocessor, result.blockLimitBlocks,
                    result.blockLimitWarps, result.blockLimitRegs);
    }
}
"""


@pytest.mark.parametrize(
    ("chip", "threads", "shared", "registers", "percent", "blocks", "limiters"),
    [
        ("H200", 256, 0, 32, 100, 8, ["warps", "registers"]),
        ("H200", 1024, 0, 40, 50, 1, ["registers"]),
        ("H200", 1024, 0, None, 100, 2, ["warps"]),
        ("H200", 32, 0, 16, 50, 32, ["blocks"]),
        ("H200", 256, 48 * KB, 32, 50, 4, ["shared memory"]),
        ("H200", 256, 227 * KB, 32, 12.5, 1, ["shared memory"]),
        ("H100 SXM", 128, 0, 128, 25, 4, ["registers"]),
        ("B200", 96, 0, 40, 75, 16, ["registers"]),  # 12 warps in each quarter of the SM
        ("A100", 256, 40 * KB, 32, 50, 4, ["shared memory"]),  # 41 KB each, with the reserved one
        ("T4", 256, 48 * KB, 32, 25, 1, ["shared memory"]),
        ("T4", 1024, 0, 64, 100, 1, ["warps", "registers"]),
        ("T4", 256, 16 * KB, 32, 100, 4, ["warps", "shared memory"]),
        ("RTX 2080", 64, 0, 32, 100, 16, ["blocks", "warps"]),
        ("RTX 3090", 1024, 0, 32, 2 / 3 * 100, 1, ["warps"]),
        ("A10", 64, 0, 32, 2 / 3 * 100, 16, ["blocks"]),
        ("L4", 64, 0, 32, 100, 24, ["blocks", "warps"]),
        ("RTX 4090", 768, 0, 40, 100, 2, ["warps", "registers"]),
        ("RTX 5090", 33, 0, None, 100, 24, ["blocks", "warps"]),  # 33 threads take two warps
        ("RTX 5090", 1024, 0, 65, 0, 0, ["registers"]),  # does not launch
    ],
)
def test_occupancy(chip, threads, shared, registers, percent, blocks, limiters):
    found = occupancy(chip, threads, shared, registers)
    assert found.blocks == blocks
    assert 100 * found.fraction == pytest.approx(percent)
    assert found.limiters == limiters


def test_occupancy_is_that_of_nvidias_own_calculator(tmp_path):
    try:
        include = tools.cuda_home() / "include"
    except ToolMissing:
        pytest.skip("needs cuda_occupancy.h of a CUDA toolkit")
    source, program = tmp_path / "nvidias.cpp", tmp_path / "nvidias"
    source.write_text(NVIDIAS)
    compiler = shlex.split(tools.host_compiler())
    subprocess.run([*compiler, f"-I{include}", source, "-o", program], check=True)
    cases = []
    for name, chip in CHIPS.items():
        for _ in range(500):
            shared = random.choice([0, random.randint(1, 110 * KB), random.randint(1, 240 * KB)])
            cases.append((name, random.randint(1, 1024), shared, random.randint(1, 255)))
            cases.append((name, 32 * random.randint(1, 32), chip.shared_bytes_per_block, 32))
    asked = []
    for name, threads, shared, registers in cases:
        chip = CHIPS[name]
        major, minor = divmod(int(chip.arch.removeprefix("sm_")), 10)
        figures = (chip.warps, chip.shared_bytes, chip.shared_bytes_per_block, chip.reserved_bytes)
        asked.append(" ".join(map(str, (major, minor, *figures, threads, registers, shared))))
    done = subprocess.run([program], input="\n".join(asked), capture_output=True, text=True)
    answers = done.stdout.splitlines()
    for case, answer in zip(cases, answers, strict=True):
        ours = occupancy(*case)
        limits = [ours.limits[name] for name in ("blocks", "warps", "registers")]
        assert [ours.blocks, *limits] == list(map(int, answer.split())), case


def test_unknown_registers_are_no_limit_but_it_is_said_up_to_how_many_would_not_be():
    unknown = occupancy("H200", 256)
    assert unknown.limits["registers"] is None
    assert unknown.fraction == 1
    assert unknown.free_registers == 32
    for threads in (48, 96, 256, 384, 1000, 1024):
        for name in CHIPS:
            unknown = occupancy(name, threads, 20 * KB)
            most = unknown.free_registers
            assert occupancy(name, threads, 20 * KB, most).blocks == unknown.blocks
            if most < 255:
                assert occupancy(name, threads, 20 * KB, most + 1).blocks < unknown.blocks


def test_waves_and_the_last_one():
    found = occupancy("H200", 256, 0, 32)  # 8 blocks on each of 132 SMs
    assert found.waves(1056) == 1
    assert found.last_wave(1056) == 1
    assert found.waves(1584) == 1.5
    assert found.last_wave(1584) == 0.5
    assert found.last_wave(1057) == pytest.approx(1 / 1056)
    assert found.waves(132) == 1 / 8
    none = occupancy("H200", 1024, 0, 255)
    assert none.waves(1) == math.inf
    assert math.isnan(none.last_wave(1))


def test_an_occupancy_says_what_it_is():
    assert str(occupancy("T4", 1024, 48 * KB, 40)) == (
        "T4: 100% occupancy, 1 block of 32 warps an SM; 40 registers a thread\n"
        "blocks that an SM has room for: 16 by blocks, 1 by warps, 1 by registers, "
        "1 by shared memory"
    )
    assert repr(occupancy("A10", 64)) == (
        "A10: 66.7% occupancy, 16 blocks of 2 warps an SM, limited by blocks\n"
        "registers are not known; up to 64 a thread would allow this\n"
        "blocks that an SM has room for: 16 by blocks, 24 by warps"
    )
    assert str(occupancy("H200", 256, 227 * KB)).startswith("H200: 12.5% occupancy, 1 block of 8")
    none = "T4: not one block fits an SM, limited by shared memory\n"
    assert str(occupancy("T4", 32, 65 * KB)).startswith(none)


def test_what_no_kernel_has_is_refused():
    with pytest.raises(ValueError, match="chip 'P100' is not known; known are T4, .*H200"):
        occupancy("P100", 256)
    with pytest.raises(ValueError, match="1 to 1024 threads, not 2048"):
        occupancy("H200", 2048)
    for registers in (0, 256):
        with pytest.raises(ValueError, match=f"1 to 255 registers, not {registers}"):
            occupancy("H200", 256, 0, registers)
    with pytest.raises(ValueError, match="-1 bytes"):
        occupancy("H200", 256, -1)
    for figures in ((16, 16),), (256.0,), (256, 1.5), (256, 0, 32.0):
        with pytest.raises(TypeError, match=r"is .*, not an integer"):
            occupancy("H200", *figures)


@pytest.mark.parametrize(
    ("gpu", "sms", "expected"),
    [
        ("Tesla T4", 40, "T4"),
        ("NVIDIA A100-SXM4-80GB", 108, "A100"),
        ("NVIDIA H100 80GB HBM3", 132, "H100 SXM"),
        ("NVIDIA H100 PCIe", 114, "H200"),
        ("NVIDIA H200", 132, "H200"),
        ("NVIDIA GeForce RTX 2080 Ti", 68, "H200"),
        ("NVIDIA L40S", 142, "H200"),
        ("NVIDIA GeForce RTX 5090", 170, "RTX 5090"),
    ],
)
def test_the_default_chip_is_the_gpu_here_if_it_is_known(monkeypatch, gpu, sms, expected):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    here = SimpleNamespace(name=gpu, multi_processor_count=sms)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda: here)
    assert occupancy(None, 256).chip.name == expected


def test_the_default_chip_without_a_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert occupancy(None, 256).chip.name == "H200"
    assert occupancy_function is occupancy
