"""Run the broken kernels under compute-sanitizer: `python -m helpers.tests.proof.sanitizer`.

All kernels and their mended twins become one program, without PyTorch so that it starts quickly.
Each tool looks at each of them in a process of its own. Needs a GPU; writes sanitizer.json.
"""

import json
import re
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import product
from pathlib import Path

import torch
from numpy.random import RandomState

from helpers.checks import check_close
from helpers.compiler.tools import compute_sanitizer, cuda_home, nvcc_version
from helpers.profiling.nvidia_tools import run, sanitize
from helpers.profiling.tool_output import parse_sanitizer
from helpers.tests.proof.broken_kernels import BROKEN
from helpers.tests.proof.kernel import Kernel, sizes

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
TWINS = ("broken", "mended")
VERDICTS = Path(__file__).with_name("sanitizer.json")
SEED = 0
TIME_LIMIT_S = 30  # a run takes one or two; a kernel that hangs ends its program after 15
AT_A_TIME = 8

PROGRAM = r"""
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

void check(cudaError_t error) {
    if (error == cudaSuccess) return;
    printf("%s\n", cudaGetErrorString(error));
    exit(1);
}

// An array on the GPU. Nobody frees it: the process is about to end.
struct Array {
    template <size_t N> Array(const unsigned char (&host)[N]) : bytes(N) {
        check(cudaMalloc(&data, N));
        check(cudaMemcpy(data, host, N, cudaMemcpyHostToDevice));
    }
    template <class T> operator T*() const { return static_cast<T*>(data); }
    void print() const {
        unsigned char* host = new unsigned char[bytes];
        check(cudaDeviceSynchronize());
        check(cudaMemcpy(host, data, bytes, cudaMemcpyDeviceToHost));
        printf("result ");
        for (size_t i = 0; i < bytes; i++) printf("%02x", host[i]);
        printf("\n");
    }
    void* data;
    size_t bytes;
};

namespace broken {
BROKEN_KERNELS
}  // namespace broken

namespace mended {
MENDED_KERNELS
}  // namespace mended

DATA

int main(int, char** argv) {
    signal(SIGALRM, [](int) { _exit(write(1, "hangs\n", 6)); });
    alarm(15);  // seconds
LAUNCHES
}
"""


def main() -> None:
    """Write sanitizer.json."""
    with tempfile.TemporaryDirectory() as folder:
        binary = build(folder, "native")
        runs = list(product(BROKEN, TOOLS, TWINS))
        with ThreadPoolExecutor(AT_A_TIME) as pool:
            found = list(pool.map(lambda run: verdict(binary, *run), runs))
    verdicts: dict = {name: {twin: {} for twin in TWINS} for name in BROKEN}
    for (name, tool, twin), said in zip(runs, found, strict=True):
        if said:
            verdicts[name][twin][tool] = said
    VERDICTS.write_text(json.dumps({"machine": _machine(), "verdicts": verdicts}, indent=1) + "\n")
    print(f"wrote {VERDICTS.name}: {len(runs)} runs")


@cache
def program() -> str:
    """Return a program that launches the kernel named by its argument: "broken::sum_kernel"."""
    sources = {
        "BROKEN_KERNELS": "\n".join(kernel.cuda for kernel in BROKEN.values()),
        "MENDED_KERNELS": "\n".join(kernel.mended.cuda for kernel in BROKEN.values()),
        "DATA": "\n".join(map(_data, BROKEN.values())),
        "LAUNCHES": "\n".join(
            _launch(kernel, twin) for twin in TWINS for kernel in BROKEN.values()
        ),
    }
    return re.sub("|".join(sources), lambda found: sources[found[0]], PROGRAM)


def build(folder: str, arch: str) -> str:
    """Compile the program with nvcc for a chip ("sm_90") and return its path."""
    source, binary = Path(folder, "kernels.cu"), Path(folder, "kernels")
    source.write_text(program())
    nvcc = str(cuda_home() / "bin" / "nvcc")
    options = ["-lineinfo", f"-arch={arch}", "-o", str(binary)]
    subprocess.run([nvcc, *options, str(source)], check=True)
    return str(binary)


def verdict(binary: str, name: str, tool: str, twin: str) -> dict:
    """Return what a tool says of a kernel, {} if nothing: its first error, the lines, any hang.

    Lines are counted within the kernel's source. RuntimeError if the tool does not work,
    AssertionError if a mended kernel's result is wrong.
    """
    done = sanitize([binary, f"{twin}::{name}"], tool, TIME_LIMIT_S)
    output, hangs = done.output, done.stopped or "\nhangs\n" in done.output
    # A run that hangs may have no summary
    found = parse_sanitizer(output + "========= ERROR SUMMARY: 0 errors\n" * hangs)
    if found is None:
        raise RuntimeError(f"{tool} does not work on {twin}::{name}:\n{output}")
    kernel = BROKEN[name] if twin == "broken" else BROKEN[name].mended
    if twin == "mended":
        _check_result(kernel, output)
    errors = [row["error"] for row in found["rows"]]  # of a race, with the other accesses' lines
    lines = {int(line) for error in errors for line in re.findall(r", line (\d+)", error)}
    lines |= {row["line"] for row in found["rows"] if row["line"]}
    before = program().split(kernel.cuda)[0].count("\n")
    if not errors:
        return {"error": None, "lines": [], "hangs": True} if hangs else {}
    error = errors[0].split(", line ")[0].removeprefix("Warning: ")
    return {"error": error, "lines": sorted(line - before for line in lines), "hangs": hangs}


def _check_result(kernel: Kernel, output: str) -> None:
    """Compare the first array that the program printed with what the kernel should write."""
    arguments = kernel.arguments(RandomState(SEED))
    printed = re.search(r"^result (\w+)$", output, re.MULTILINE)
    assert printed, f"{kernel.name} has no result:\n{output}"
    result = torch.frombuffer(bytearray.fromhex(printed[1]), dtype=arguments[0].dtype)
    check_close(result, kernel.expected(*arguments).view(-1), name=kernel.name)


def _data(kernel: Kernel) -> str:
    """Return the contents of the kernel's arrays in C++."""
    return "\n".join(
        f"const unsigned char {kernel.name}_{i}[] = "
        f"{{{', '.join(map(str, value.view(torch.uint8).tolist()))}}};"
        for i, value in enumerate(kernel.arguments(RandomState(SEED)))
        if isinstance(value, torch.Tensor)
    )


def _launch(kernel: Kernel, twin: str) -> str:
    """Return the part of main that launches the kernel."""
    arguments = kernel.arguments(RandomState(SEED))
    arrays = [i for i, value in enumerate(arguments) if isinstance(value, torch.Tensor)]
    passed = [f"a{i}" if i in arrays else str(value) for i, value in enumerate(arguments)]
    return f"""    if (!strcmp(argv[1], "{twin}::{kernel.name}")) {{
        Array {", ".join(f"a{i}({kernel.name}_{i})" for i in arrays)};
        dim3 grid({sizes(kernel.grid)}), block({sizes(kernel.block)});
        {twin}::{kernel.name}<<<grid, block>>>({", ".join(passed)});
        a0.print();
    }}"""


def _machine() -> dict[str, str]:
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    gpu, driver = run(query).output.splitlines()[0].split(", ")
    version = run([str(compute_sanitizer()), "--version"]).output
    return {
        "gpu": gpu,
        "driver": driver,
        "cuda": nvcc_version(cuda_home()),
        "compute-sanitizer": re.search(r"[Vv]ersion (\S+)", version)[1],
    }


if __name__ == "__main__":
    main()
