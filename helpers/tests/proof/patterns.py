"""What the hardware counts for one request: patterns of 32 offsets, measured with Nsight Compute.

    python -m helpers.tests.proof.patterns      with a GPU and ncu: measures patterns.csv

Each row is one launch of one warp that makes one request: the operation, the bytes that a lane
moves, the byte offset of every lane (empty: inactive), and what Nsight Compute counted. The rules
in helpers/trace/model.py were found from these rows, and a test holds them to every one.
"""

import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch

from helpers.base.machine import ROOT
from helpers.compiler import compile_cuda, tools

MEASURED = Path(__file__).with_name("patterns.csv")
NAMES = ("operation", "bytes", "requests", "sectors", "wavefronts", "conflicts")

# operation → its suffix in Nsight Compute's metrics, and the bytes that a lane moves
SHARED = {"shared_ld": (1, 2, 4, 8, 16), "shared_st": (4, 8, 16), "shared_atom": (4,)}
GLOBAL = {
    "global_ld": (1, 4, 16),
    "global_st": (4, 16),
    "global_red": (4,),
    "global_atom": (4,),
}
METRICS = {
    "requests": "l1tex__t_requests_pipe_lsu_mem_{}.sum",
    "sectors": "l1tex__t_sectors_pipe_lsu_mem_{}.sum",
    "wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_{}.sum",
    "conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_{}.sum",
}

# The offsets travel as an argument, because reading them from memory would be a request as well.
SOURCE = r"""
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

constexpr int SHARED_FLOATS = 8192;
struct Offsets { int byte[32]; };

template <class T>
__global__ void shared_ld(T* out, Offsets offsets, unsigned mask) {
    __shared__ __align__(16) float s[SHARED_FLOATS];
    int t = threadIdx.x;
    for (int i = t; i < SHARED_FLOATS; i += 32) s[i] = i;
    __syncthreads();
    if (mask >> t & 1) out[t] = *(T*)((char*)s + offsets.byte[t]);
}

template <class T>
__global__ void shared_st(T* out, Offsets offsets, unsigned mask) {
    __shared__ __align__(16) float s[SHARED_FLOATS];
    int t = threadIdx.x;
    T* mine = (T*)((char*)s + offsets.byte[t]);
    if (mask >> t & 1) *mine = out[t];
    __syncthreads();
    if (mask >> t & 1) out[t] = *mine;
}

__global__ void shared_atom(int* out, Offsets offsets, unsigned mask) {
    __shared__ int s[SHARED_FLOATS];
    int t = threadIdx.x;
    for (int i = t; i < SHARED_FLOATS; i += 32) s[i] = i;
    __syncthreads();
    if (mask >> t & 1) out[t] = atomicAdd((int*)((char*)s + offsets.byte[t]), t + 2);
}

template <class T>
__global__ void global_ld(T* out, const T* inp, Offsets offsets, unsigned mask) {
    int t = threadIdx.x;
    if (mask >> t & 1) out[t] = *(const T*)((const char*)inp + offsets.byte[t]);
}

template <class T>
__global__ void global_st(T* out, Offsets offsets, unsigned mask) {
    int t = threadIdx.x;
    if (mask >> t & 1) *(T*)((char*)out + offsets.byte[t]) = T{};
}

__global__ void global_red(int* out, Offsets offsets, unsigned mask) {
    int t = threadIdx.x;
    if (mask >> t & 1) atomicAdd((int*)((char*)out + offsets.byte[t]), t + 2);
}

__global__ void global_atom(int* out, int* old, Offsets offsets, unsigned mask) {
    int t = threadIdx.x;
    if (mask >> t & 1) old[t] = atomicAdd((int*)((char*)out + offsets.byte[t]), t + 2);
}

template <class T>
void run(const std::string& operation, torch::Tensor out, torch::Tensor inp, Offsets offsets,
         unsigned mask) {
    auto stream = c10::cuda::getCurrentCUDAStream();
    T* to = (T*)out.data_ptr();
    if (operation == "shared_ld") shared_ld<T><<<1, 32, 0, stream>>>(to, offsets, mask);
    if (operation == "shared_st") shared_st<T><<<1, 32, 0, stream>>>(to, offsets, mask);
    if (operation == "global_ld")
        global_ld<T><<<1, 32, 0, stream>>>(to, (const T*)inp.data_ptr(), offsets, mask);
    if (operation == "global_st") global_st<T><<<1, 32, 0, stream>>>(to, offsets, mask);
}

void probe(std::string operation, int64_t bytes, torch::Tensor out, torch::Tensor inp,
           std::vector<int64_t> places, int64_t mask) {
    Offsets offsets;
    for (int t = 0; t < 32; t++) offsets.byte[t] = int(places[t]);
    auto stream = c10::cuda::getCurrentCUDAStream();
    int *to = (int*)out.data_ptr(), *from = (int*)inp.data_ptr();
    if (operation == "shared_atom") shared_atom<<<1, 32, 0, stream>>>(to, offsets, mask);
    else if (operation == "global_red") global_red<<<1, 32, 0, stream>>>(to, offsets, mask);
    else if (operation == "global_atom") global_atom<<<1, 32, 0, stream>>>(to, from, offsets, mask);
    else if (bytes == 1) run<unsigned char>(operation, out, inp, offsets, mask);
    else if (bytes == 2) run<unsigned short>(operation, out, inp, offsets, mask);
    else if (bytes == 4) run<float>(operation, out, inp, offsets, mask);
    else if (bytes == 8) run<float2>(operation, out, inp, offsets, mask);
    else run<float4>(operation, out, inp, offsets, mask);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}
"""


def patterns() -> list[list[int | None]]:
    """Return which element each lane asks for, None for an inactive lane; the same every time."""
    lane = np.arange(32)
    full = [lane * stride for stride in (0, 1, 2, 3, 4, 5, 8, 16, 32, 33)]
    full += [31 - lane, lane ^ 1, lane // 16, lane // 4, lane % 16, lane % 8, lane % 4]
    full += [lane % 16 + lane // 16 * 32, lane % 2 * 32 + lane // 2, lane % 8 + lane // 8 * 32]
    full += [lane % 4 + lane // 4 * 32, lane // 8 + lane % 8 * 32, lane // 4 + lane % 4 * 8]
    # Neighbours that ask for the same: lanes t and t ^ 1, t ^ 2, …, in parts of the warp
    pair, xor2 = lane // 2, lane % 2 + lane // 4 * 2
    full += [pair, pair * 2, pair * 16, xor2, xor2 * 4, lane % 4 + lane // 8 * 4]
    for first, last in ((0, 8), (8, 16), (0, 16), (16, 32), (8, 24)):
        inside = (lane >= first) & (lane < last)
        full += [np.where(inside, pair, lane), np.where(inside, xor2, lane)]
    full += [
        np.where(lane < 16, pair, xor2),
        np.where(lane < 8, pair, np.where(lane < 16, xor2, 0)),
    ]
    full += [
        np.where(lane == odd_one_out, 40, shape)
        for odd_one_out in (5, 20)
        for shape in (pair, xor2, 0 * lane)
    ]
    random = np.random.default_rng(7)
    full += [random.integers(0, size, 32) for size in (8, 16, 32, 64, 128, 256, 512)]
    full += [random.permutation(64)[:32] for _ in range(3)]
    full += [random.integers(0, 32, 32)[same] for same in (pair, xor2) * 4]
    masks = (0x55555555, 0xAAAAAAAA, 0x33333333, 0x66666666, 0x0F0F0F0F, 0xFFFF, 0xFF, 0x20)
    masks += (0xFFFF5555, 0x5555FFFF, 0xFFFFFF55, 0xFFFF3333)
    found = [(shape, 0xFFFFFFFF) for shape in full]
    found += [(lane, mask) for mask in masks] + [(lane * 16, 0x55555555), (lane * 2, 0x00FF00FF)]
    found += [
        (random.integers(0, size, 32), int(random.integers(1, 1 << 32)))
        for size in (32, 64, 256) * 3
    ]
    return [
        [int(place) if mask >> t & 1 else None for t, place in enumerate(shape)]
        for shape, mask in found
    ]


def requests():
    """Yield operation, bytes and the 32 byte offsets of each request to measure."""
    for operation, sizes in (SHARED | GLOBAL).items():
        for size in sizes:
            # The rule for global memory is simple: every third pattern will do.
            for elements in patterns()[:: 3 if operation in GLOBAL else 1]:
                # Global accesses also begin in the middle of a sector.
                for first in (0, size) if (operation, size) == ("global_ld", 4) else (0,):
                    yield (
                        operation,
                        size,
                        [None if e is None else e * size + first for e in elements],
                    )


def arguments(operation: str, size: int, offsets: list[int | None], device="cpu") -> tuple:
    """Return what `probe`, the function of SOURCE, is called with for one request."""
    out, inp = torch.zeros(2, 16384, device=device)
    mask = sum(1 << t for t, offset in enumerate(offsets) if offset is not None)
    return operation, size, out, inp, [offset or 0 for offset in offsets], mask


def measured() -> list[dict]:
    """Return the rows of patterns.csv: operation, bytes, offsets and Nsight Compute's counts."""
    with MEASURED.open() as file:
        next(file)  # where it was measured
        rows = list(csv.reader(file))
    return [
        dict(zip(NAMES, [row[0], *map(int, row[1:6])], strict=True))
        | {"offsets": [int(cell) if cell else None for cell in row[6:]]}
        for row in rows
    ]


def measure() -> None:
    """Run all requests under ncu and write patterns.csv."""
    compile_cuda(SOURCE)  # before ncu looks
    ncu = str(tools.ncu())
    wanted = sorted(
        {metric for operation in SHARED | GLOBAL for metric in _metrics(operation).values()}
    )
    names = "regex:" + "|".join(SHARED | GLOBAL)
    command = [ncu, "--clock-control", "none", "--csv", "--page", "raw", "--kernel-name", names]
    command += ["--metrics", ",".join(wanted)]
    command += [sys.executable, "-m", "helpers.tests.proof.patterns", "run"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    lines = done.stdout.splitlines()
    begin = next(i for i, line in enumerate(lines) if line.startswith('"ID"'))
    counted = list(csv.DictReader(lines[begin:]))[1:]  # the first row holds the units
    asked = list(requests())
    if len(counted) != len(asked):
        raise RuntimeError(f"ncu measured {len(counted)} launches, expected {len(asked)}")
    version = subprocess.run([ncu, "--version"], capture_output=True, text=True).stdout
    about = {"gpu": torch.cuda.get_device_name(), "ncu": version.split("Version ")[1].split()[0]}
    with MEASURED.open("w", newline="") as file:
        file.write(json.dumps(about) + "\n")
        writer = csv.writer(file, lineterminator="\n")
        for (operation, size, offsets), row in zip(asked, counted, strict=True):
            metrics = _metrics(operation)
            counts = [
                int(row[metrics[name]].replace(",", "")) if name in metrics else 0
                for name in NAMES[2:]
            ]
            writer.writerow([operation, size, *counts, *offsets])


def _metrics(operation: str) -> dict[str, str]:
    """Return Nsight Compute's metrics for an operation by what they count."""
    space, kind = operation.split("_")
    names = NAMES[2:4] if space == "global" else NAMES[4:6]
    return {name: METRICS[name].format(f"{space}_op_{kind}") for name in names}


def _run() -> None:
    probe = compile_cuda(SOURCE).probe
    for operation, size, offsets in requests():
        probe(*arguments(operation, size, offsets, "cuda"))
    torch.cuda.synchronize()


if __name__ == "__main__":
    _run() if sys.argv[1:] == ["run"] else measure()
