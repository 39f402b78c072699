"""Which call runs which instance of the kernel templates, in instances.csv.

    python -m kernels.tests.instances    runs what has changed, a minute or two for all

Each row is a kernel, or an instance of a template, and the call that runs it: one of the cases and
ways that test_contract.py and test_ways.py judge in numbers, or for what takes other than these the
test that does, as ELSEWHERE says. A row holds for a version of the file, its test file and the
ways; where one of them is another, test_instances.py runs the calls anew.

A file's kernels are those that nvcc made of it, see registers.py. To see which run, each is given a
line that prints its name, with its template's arguments, when its first thread begins.
"""

import contextlib
import csv
import inspect
import io
import re
from pathlib import Path

from helpers.base.machine import ROOT
from helpers.compiler import compile_cuda, kernel_output
from helpers.cuda_on_cpu import digest
from helpers.cuda_on_cpu.scanner import Source
from kernels.tests import contract, registers, ways
from kernels.tests.ways import CASES, TESTS, WAYS, Way, elements

RECORD = Path(__file__).with_name("instances.csv")
FILES = registers.FILES
SAY = (
    " if (!(threadIdx.x | threadIdx.y | threadIdx.z | blockIdx.x | blockIdx.y | blockIdx.z))"
    r' printf("ran %s\n", __PRETTY_FUNCTION__);'
)
# What no call of a case or a way runs on the CPU backend, by a regular expression: file and kernel.
ELSEWHERE = {
    r"conv2d conv2d_(wgmma_kernel|copy_kernel|reorder_kernel<.*true>)": (
        "test_conv2d.py: test_wgmma_at_awkward_sizes"
    ),
    r"conv2d_half conv2d_half_(turn_kernel|wgmma_kernel<.*Way<8,)": (
        "test_conv2d_half.py: test_wgmma_of_few_channels"
    ),
    r"conv2d_half conv2d_half_(weight_)?wgmma_kernel": (
        "test_conv2d_half.py: test_wgmma_at_awkward_sizes"
    ),
    r"fft fft_(last_rows|long_columns)_kernel": "test_fft.py: test_large_images",
    r"flash_attention flash_forward_wgmma_kernel": (
        "test_flash_attention.py: test_forward_by_wgmma"
    ),
    r"flash_attention flash_(backward_wgmma|dq)_kernel": (
        "test_flash_attention.py: test_backward_by_wgmma"
    ),
    r"linear linear_plain_kernel": "test_linear.py: test_as_built_for_sm_75",
    r"linear linear_wgmma_kernel": "test_linear.py: test_wgmma",
    r"matmul_fp8 (matmul_fp8_wgmma|fp8_pad)_kernel": "test_matmul_fp8.py: test_wgmma",
    r"matmul_tensor_core matmul_wgmma_kernel<Cut<c10::": (
        "test_matmul_tensor_core.py: test_wgmma_of_each_width"
    ),
    r"matmul_tensor_core (matmul_wgmma|rows)_kernel": (
        "test_matmul_tensor_core.py: test_wgmma_in_any_layout"
    ),
    r"mnist_cnn conv_backward_kernel<(1, 2, 3|3, 2, 1)>": (
        "test_mnist_cnn.py: test_chips_with_less_shared_memory"
    ),
    r"scan scan_kernel<[123]>": "test_chips.py: test_right_with_less_shared_memory",
}
SPELLED = {  # g++'s words and nvcc's
    "short unsigned int": "unsigned short",
    "E4M3": "(Type)0",
    "E5M2": "(Type)1",
    "FORWARD": "(How)0",
    "RUNS": "(How)1",
    "BACKWARD": "(How)2",
    ">>": "> >",
}


def told(source: str) -> str:
    """Return the source, whose kernels print their names."""
    for function in reversed([f for f in Source(source).functions if f.is_kernel]):
        at = function.body[0] + 1
        source = source[:at] + SAY + source[at:]
    return "#include <cstdio>\n" + source


def instance(printed: str) -> str:
    """Return a kernel's name and its template's arguments, as nvcc's tools name it."""
    head, _, given = printed.partition(" [with ")
    name = re.search(r"(\w+)\(", head)[1]
    pairs = [part.split(" = ", 1) for part in given.removesuffix("]").split("; ") if part]
    values = [value for key, value in pairs if not re.search(r"_t$|Tensor$|[<:]", key)]
    full = name + (f"<{', '.join(values)}>" if values else "")
    for ours, nvccs in SPELLED.items():
        full = full.replace(ours, nvccs)
    return full


def calls(op: str) -> list[Way]:
    """Return the cases' sizes and the ways of a file, small ones first."""
    found = [Way(op, name, size) for (of, name), case in CASES.items() if of == op
             for size in case.sizes]  # fmt: skip
    found += [way for way in WAYS if way.op == op]
    return sorted(found, key=lambda way: elements(way.size))


def runs(op: str) -> dict[str, str]:
    """Run a file's calls; return for each kernel that ran the first call that ran it."""
    module = compile_cuda(told((ROOT / "kernels" / f"{op}.cu").read_text()))
    by: dict[str, str] = {}
    for way in calls(op):
        arguments = way.arguments()
        with contextlib.redirect_stdout(io.StringIO()), kernel_output() as output:
            getattr(module, way.function)(*way.case.values(arguments))
        for line in output.text.splitlines():
            if line.startswith("ran "):
                by.setdefault(instance(line.removeprefix("ran ")), str(way))
    return by


def version_of(path: Path) -> str:
    """Return a hash of what a row holds for."""
    modules = (contract, ways, TESTS[path.stem])
    return digest(path.read_text(), *map(inspect.getsource, modules))[:12]


def kernels_of(path: Path) -> list[str]:
    """Return the kernels that nvcc made of the file, as recorded last."""
    rows = registers.recorded()
    return sorted({name for arch in registers.ARCHS
                   for name in rows.get((path.stem, arch), ("", "", {}))[2]})  # fmt: skip


def recorded() -> dict[str, tuple[str, dict[str, str]]]:
    """Return each file's version, and its kernels with the call that runs each."""
    found: dict[str, tuple[str, dict[str, str]]] = {}
    if RECORD.exists():
        with RECORD.open(newline="") as file:
            for row in csv.DictReader(file):
                found.setdefault(row["file"], (row["version"], {}))[1][row["kernel"]] = row["by"]
    return found


def found_for(path: Path) -> dict[str, str]:
    """Return the call that runs each kernel of the file; empty where there is none."""
    by = runs(path.stem)
    for name in {*by, *kernels_of(path)} - {*by}:
        place = f"{path.stem} {name}"
        by[name] = next((test for said, test in ELSEWHERE.items() if re.match(said, place)), "")
    return dict(sorted(by.items()))


def main() -> None:
    kept = recorded()
    rows = []
    for path in FILES:
        version, by = kept.get(path.stem, ("", {}))
        if version != version_of(path):
            version, by = version_of(path), found_for(path)
        rows += [(path.stem, version, name, call) for name, call in by.items()]
    with RECORD.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["file", "version", "kernel", "by"])
        writer.writerows(rows)


if __name__ == "__main__":
    main()
