"""What the text of a kernel file has to hold, because one GPU and one stream do not show it.

A launch on another stream than PyTorch's current one, or on the wrong one of two GPUs, a kernel
that begins before the one whose numbers it reads has ended: all this gives right results most of
the time, and on the CPU backend always.
"""

import re

import pytest

from helpers.cuda_on_cpu.launches import find_launches
from helpers.cuda_on_cpu.scanner import Function, Source, closing, split
from kernels.tests.ways import FILES, TESTS

CURRENT = r"(?:c10::cuda::)?getCurrentCUDAStream\(\)"
STREAM = rf"{CURRENT}|stream"
# What allocates a tensor, or starts work: on the current device.
WORKS = r"""<<<|\bcudaLaunch\w*\(|\bcudaM(?:alloc|emset|emcpy)\w*\(|\bcudaFunc[SG]et\w+\(
    |\btorch::(?:empty|zeros|ones|full|rand|arange)\w*\(|\bat::(?:empty|zeros)\w*\(
    |[.](?:clone|contiguous|to|zero_|fill_|copy_|new_\w+|cumsum|sum)\("""
EARLY = "cudaLaunchAttributeProgrammaticStreamSerialization"


class Text:
    """A kernel file, or a mutant of one, as code without comments."""

    def __init__(self, source: str):
        self.source = Source(source)
        self.code = self.source.code
        self.hosts = {f.name: f for f in self.source.functions
                      if f.body and not f.is_for_device}  # fmt: skip

    def body(self, function: Function) -> str:
        return self.code[function.body[0] : function.body[1]]

    def arguments(self, opening: int) -> list[str]:
        inside = self.code[opening + 1 : closing(self.code, opening)]
        return [part.strip() for part in split(inside)]

    # -------------------------------------------------------------- streams

    def streams(self) -> list[tuple[int, str]]:
        """Return the line of each launch, and of each copy, and the stream that it names."""
        found = []
        for at in find_launches(self.code):
            end = self.code.index(">>>", at)
            parts = split(self.code[at + 3 : end])
            found.append((at, parts[3].strip() if len(parts) > 3 else ""))
        calls = r"\b(cudaLaunchCooperativeKernel|cudaLaunchKernel|cudaMem\w+Async)\s*(\()"
        for call in re.finditer(calls, self.code):
            found.append((call.start(), self.arguments(call.start(2))[-1]))
        for config in re.finditer(r"\bcudaLaunchConfig_t (\w+)", self.code):
            given = re.compile(rf"\b{config[1]}\.stream = ([^;,]+)[;,]|= \{{([^}}]*,[^}}]*)\}};")
            made = given.search(self.code, config.end())
            listed = split(made[2]) if made and made[2] else []  # grid, block, bytes, stream
            stream = made[1] if made and made[1] else listed[3].strip() if len(listed) > 3 else ""
            found.append((config.start(), stream))
        return [(self.source.line_of(at), stream) for at, stream in found]

    def stream_faults(self) -> list[str]:
        faults = [f"line {line}: stream {stream or 'none'}" for line, stream in self.streams()
                  if not re.fullmatch(STREAM, stream)]  # fmt: skip
        for made in re.finditer(r"\bstream = ([^;]+);", self.code):
            if not re.fullmatch(CURRENT, made[1]):
                faults.append(f"line {self.source.line_of(made.start())}: stream = {made[1]}")
        return faults

    # -------------------------------------------------------------- devices

    def works(self, name: str, seen: tuple = ()) -> str:
        """Return what a host function does first: "guards", "works" on any device, or nothing."""
        body, guards = self.body(self.hosts[name]), ""
        others = "|".join(map(re.escape, set(self.hosts) - {name, *seen}))
        call = rf"\b({others})(?:<[^;()]*>)?\s*\("
        event = re.compile(rf"(\bCUDAGuard\s+\w+\()|({WORKS})|{call}", re.VERBOSE)
        for found in event.finditer(body):
            if found[1]:
                return "guards"
            if found[2]:
                return "works"
            inner = self.works(found[3], (*seen, name)) if others else ""
            if inner == "works":
                return "works"
            guards = guards or inner
        return guards

    # -------------------------------------------------------------- kernels that begin early

    def early_kernels(self) -> set[str]:
        """Return the kernels that may begin before the one before them has ended."""
        kernels: set[str] = set()
        for function in self.hosts.values():
            body = self.body(function)
            if EARLY not in body:
                continue
            named = set(re.findall(r"\b\w+_kernel\b", body))
            if not named:  # it is handed over: launch(early, kernel, ...)
                calls = re.finditer(rf"\b{function.name}(\()", self.code)
                for call in calls:
                    parts = self.arguments(call.start(1))
                    if parts[0] != "false" and (kernel := re.match(r"\w+_kernel\b", parts[1])):
                        named.add(kernel[0])
            kernels |= named
        return kernels

    def waits(self, kernel: str) -> bool:
        [function] = [f for f in self.source.functions if f.name == kernel and f.body]
        return bool(re.search(r"\bwait_for_last\(\)", self.body(function)))


every_kernel_file = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)


@every_kernel_file
def test_everything_runs_on_the_current_stream(path):
    text = Text(path.read_text())
    assert text.streams(), "nothing is launched?"
    assert not text.stream_faults()
    waits = r"\bcuda(?:Memset|Memcpy|(?:Device|Stream|Event)Synchronize)\("
    blocking = re.findall(waits, text.code)
    assert not blocking or path.stem == "all_reduce", blocking  # which does when it is set up


@every_kernel_file
def test_what_is_bound_is_on_its_tensors_device_before_it_does_anything(path):
    text = Text(path.read_text())
    functions = [case.function for case in TESTS[path.stem].CASES]
    functions += getattr(TESTS[path.stem], "SET_UP", ())
    wrong = {f: text.works(f) or "nothing" for f in functions if text.works(f) != "guards"}
    allowed = {"all_reduce_close"}  # takes addresses of its own, and frees them
    assert not {f for f in wrong if f not in allowed}, wrong
    for guard in re.finditer(r"\bCUDAGuard \w+\(([^;]*)\);", text.code):
        assert re.fullmatch(r"[\w.\[\]]+\.device\(\)", guard[1]), guard[0]


@every_kernel_file
def test_what_begins_early_waits(path):
    text = Text(path.read_text())
    kernels = text.early_kernels()
    assert bool(kernels) == (EARLY in text.code)
    assert not [kernel for kernel in kernels if not text.waits(kernel)]
    if kernels:
        waits = r"wait_for_last\(\) \{[^}]*\bcudaGridDependencySynchronize\(\);"
        assert re.search(waits, text.code), "wait_for_last does not wait"
