"""Time the files in kernels/ against PyTorch and libraries: `make bench`, `make bench K=softmax`.

What is measured becomes a record for each file, helpers/recorded/bench_*.json; kernels/README.md
and README's table are written from the records (by `make results` as well).
"""

import os
import sys

import torch

from helpers.base.called_kernels import called_kernels
from helpers.compiler import set_up
from helpers.device import BACKEND
from helpers.make import readme
from helpers.make.bench_cases import CASES, Lacking, Work
from helpers.recorded import recorded
from helpers.timing import measure_speeds


def time_kernel(op: str) -> None:
    """Time all works of a kernel file and store them."""
    works = []
    with called_kernels() as called:
        for work in CASES[op]():
            for name, how in leave_out_wrong(work).items():
                print(f"{op}, {work.name}: {name} is not timed: {how}", flush=True)
            check = work.agree is None
            measured = (
                work.measure()
                if work.measure
                else measure_speeds(work.candidates, work.bytes, work.flops, check)
            )
            leave_out_wrong(work, may=False)
            works.append({"work": work.name, **measured})
            print(f"{op}, {work.name}: {readme.speeds(works[-1])}", flush=True)
    os.environ["RECORD"] = "1"
    recorded(f"bench_{op}", lambda: works, kernels=called)


def leave_out_wrong(work: Work, may: bool = True) -> dict[str, str]:
    """Take out of a work the rivals that do not agree with ours, in its terms: name → difference.

    Raises AssertionError if none agrees, for then it may be ours that is wrong, or not `may`. A
    work without terms of its own is left to `measure_speeds`. The floors compute nothing.
    """
    if work.agree is None:
        return {}
    rivals = [name for name in work.candidates if name not in ("ours", *readme.FLOORS)]
    ours, wrong = work.candidates["ours"](), {}
    for name in rivals:
        try:
            work.agree(work.candidates[name](), ours)
        except AssertionError as error:
            wrong[name] = str(error)
    if wrong and (not may or len(wrong) == len(rivals)):
        raise AssertionError("; ".join(f"{name}: {how}" for name, how in wrong.items()))
    for name in wrong:
        del work.candidates[name]
    return wrong


def main(names: list[str]) -> int:
    if unknown := set(names) - set(CASES):
        listed = ", ".join(sorted(CASES))
        print(f"no kernel {', '.join(sorted(unknown))} to time; there is {listed}")
        return 2
    if BACKEND != "cuda":
        print("make bench needs an NVIDIA GPU; kernels/README.md has what was measured on one")
        return 1
    set_up()
    torch.backends.cudnn.allow_tf32 = False  # float32 against float32, as matmul has it
    torch.backends.cudnn.benchmark = True  # from the start: a shape once met keeps what it has
    failed = []
    for op in names or CASES:
        try:
            time_kernel(op)
        except Lacking as sentence:
            print(f"{op}: {sentence}", flush=True)
        except Exception as error:  # the others are worth timing all the same
            failed.append(op)
            print(f"{op}: {type(error).__name__}: {error}", flush=True)
    readme.write()
    if failed:
        print("failed: " + ", ".join(failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
