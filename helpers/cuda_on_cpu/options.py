"""The command line of command.py: nvcc's everyday options, and what they ask for."""

import re
from dataclasses import dataclass, field
from pathlib import Path

# Options that take a value, each with its long names: `-o x`, `-o=x`; one letter: `-ox` as well.
_WITH_VALUE = {
    "o": ["output-file"],
    "I": ["include-path"],
    "isystem": ["system-include"],
    "D": ["define-macro"],
    "U": ["undefine-macro"],
    "L": ["library-path"],
    "l": ["library"],
    "std": [],
    "O": ["optimize"],
    "x": [],
    "ccbin": ["compiler-bindir"],
    "Xcompiler": ["compiler-options"],
    "Xlinker": ["linker-options"],
    "fmad": [],
    # these change nothing here
    "arch": ["gpu-architecture"],
    "code": ["gpu-code"],
    "gencode": ["generate-code"],
    "maxrregcount": [],
    "Xptxas": ["ptxas-options"],
    "rdc": ["relocatable-device-code"],
    "cudart": [],
    "t": ["threads"],
}
_WITHOUT_VALUE = {
    "c": ["compile", "dc", "device-c"],
    "g": ["debug"],
    "w": ["disable-warnings"],
    "check": [],
    "help": ["h"],
    # these change nothing here; -use_fast_math computes as without
    "G": ["device-debug"],
    "lineinfo": ["generate-line-info"],
    "use_fast_math": [],
    "extended-lambda": ["expt-extended-lambda"],
    "expt-relaxed-constexpr": [],
    "m64": [],
    "Wno-deprecated-gpu-targets": [],
}
_NAMES = {
    name: own for own, more in (_WITH_VALUE | _WITHOUT_VALUE).items() for name in (own, *more)
}
CUDA, CPP, LINKED = (".cu",), (".cpp", ".cc", ".cxx"), (".o", ".a", ".so")
_GPU_ONLY = r"nccl|nvrtc|nvJitLink|cusparse\w*|cusolver\w*|cufftw|npp\w*|nvjpeg|nvidia-ml|cupti"


class Refused(Exception):
    """What cannot be done, in a sentence."""


@dataclass
class Asked:
    """What the command line asks for."""

    files: list[Path] = field(default_factory=list)
    values: dict[str, list[str]] = field(default_factory=dict)  # by the option's first name

    def has(self, name: str) -> bool:
        return name in self.values

    def last(self, name: str, default: str) -> str:
        return self.values.get(name, [default])[-1]

    @property
    def folders(self) -> list[Path]:
        """The folders of -I, but for a CUDA toolkit's: its headers are for a GPU."""
        folders = map(Path, self.values.get("I", []))
        return [folder for folder in folders if not (folder / "cuda_runtime_api.h").exists()]

    def passed(self, name: str, dash: str) -> list[str]:
        """Return an option with its values as the C++ compiler takes it."""
        return [f"{dash}{value}" for value in self.values.get(name, [])]

    def listed(self, name: str) -> list[str]:
        """Return values that may be several behind one comma: -Xcompiler -Wall,-fopenmp."""
        return [part for value in self.values.get(name, []) for part in value.split(",")]


def options() -> str:
    """Return the options by name."""
    known = [(name, "") for name in _WITHOUT_VALUE] + [(name, " VALUE") for name in _WITH_VALUE]
    dashes = {"check": "--check", "help": "--help"}
    return ", ".join(f"{dashes.get(name, f'-{name}')}{value}" for name, value in known)


def read(arguments: list[str]) -> Asked:
    """Return what the command line asks for; raises Refused."""
    asked, rest = Asked(), list(arguments)
    while rest:
        argument = rest.pop(0)
        if not argument.startswith("-"):
            asked.files.append(Path(argument))
            continue
        name, value = _option(argument)
        if name in _WITH_VALUE and value is None:
            if not rest:
                raise Refused(f"{argument} wants a value, and nothing follows it.")
            value = rest.pop(0)
        asked.values.setdefault(name, []).append(value or "")
    if not asked.has("help"):
        _check(asked)
    return asked


def _option(argument: str) -> tuple[str, str | None]:
    """Return an option's first name, and the value that is written together with it."""
    word, equals, value = argument.lstrip("-").partition("=")
    own = _NAMES.get(word)
    if own in _WITH_VALUE:
        return own, value if equals else None
    if own and not equals:
        return own, None
    letter = argument[1:2]
    if letter in _WITH_VALUE and not argument.startswith("--"):
        return letter, argument[2:]
    raise Refused(f"{argument} is no option that it knows: see cuda-on-cpu --help.")


def _check(asked: Asked) -> None:
    if not asked.files:
        raise Refused("expected a .cu file, got none: see cuda-on-cpu --help.")
    for file in asked.files:
        if file.suffix not in CUDA + CPP + LINKED and not (file.suffix and asked.has("x")):
            known = ", ".join(CUDA + CPP + LINKED)
            raise Refused(f"expected files of {known}, got {file}.")
        if not file.exists():
            raise Refused(f"there is no file {file}.")
    if asked.last("x", "cu") != "cu":
        raise Refused(f"-x takes cu, got {asked.last('x', 'cu')}.")
    if asked.has("c") and asked.has("o") and len(sources(asked)) > 1:
        raise Refused("with -c, -o names one file, and there are several to compile.")
    for library in asked.values.get("l", []):
        if re.fullmatch(_GPU_ONLY, library):
            raise Refused(f"-l{library}: that library has no code for the CPU backend.")


def sources(asked: Asked) -> list[Path]:
    """Return the files to compile."""
    return [file for file in asked.files if asked.has("x") or file.suffix not in LINKED]
