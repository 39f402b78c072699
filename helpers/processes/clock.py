"""How long something takes that several processes do together."""

import math
import time
from collections.abc import Callable

import torch
import torch.distributed as dist

from helpers.timing import cuda_clock

SHORT_MS = 0.05
CALLS_PER_SHORT_SAMPLE = 10
SAMPLES = 50
BUDGET_S = 1.0  # a candidate, all its samples together


def clock(fn: Callable, samples: int = SAMPLES, calls: int = 1) -> list[float]:
    """Return milliseconds a call, for each sample those of the slowest rank; the same in all ranks.

    Every rank has to call it. Before a sample all wait for each other. With a GPU, CUDA events
    stand around the calls, and the L2 cache is flushed before; without, it is perf_counter.
    """
    sample = _cuda_sample() if _on_gpu() else _cpu_sample
    return _slowest([sample(fn, calls) for _ in range(samples)])


def clock_in_turns(functions: list[Callable], seconds: float) -> list[list[float]]:
    """Return the samples of each function, taken in turns, so many seconds for each."""
    sample = _cuda_sample() if _on_gpu() else _cpu_sample
    calls, a_round_s = [], 0.0
    for fn in functions:
        warm = _slowest([sample(fn, 1) for _ in range(3)])  # so that all ranks count alike
        calls.append(CALLS_PER_SHORT_SAMPLE if min(warm) < SHORT_MS else 1)
        a_round_s += 1e-3 * calls[-1] * min(warm)
    rounds = max(5, min(SAMPLES, math.floor(seconds * len(functions) / a_round_s)))
    taken: list[list[float]] = [[] for _ in functions]
    for first in range(rounds):
        for step in range(len(functions)):
            i = (first + step) % len(functions)
            taken[i].append(sample(functions[i], calls[i]))
    return [_slowest(times) for times in taken]


def _on_gpu() -> bool:
    return dist.get_backend() == "nccl"


def _cpu_sample(fn: Callable, calls: int) -> float:
    dist.barrier()
    start = time.perf_counter()
    for _ in range(calls):
        fn()
    return 1e3 * (time.perf_counter() - start) / calls


def _cuda_sample() -> Callable[[Callable, int], float]:
    meet = torch.zeros(1, device="cuda")
    # the GPUs themselves meet before a call, not only the processes
    sample = cuda_clock(meet=lambda: dist.all_reduce(meet))

    def sample_together(fn: Callable, calls: int) -> float:
        dist.barrier()
        return sample(fn, calls)

    return sample_together


def _slowest(times: list[float]) -> list[float]:
    """Return for each sample the time of the rank that took longest."""
    device = "cuda" if _on_gpu() else "cpu"
    times = torch.tensor(times, dtype=torch.float64, device=device)
    dist.all_reduce(times, dist.ReduceOp.MAX)
    return times.tolist()
