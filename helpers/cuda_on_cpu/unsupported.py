"""What exists on a GPU only: found before the compiler sees it, and said in one sentence."""

import re
from pathlib import Path

from .scanner import Source, blank, mask, mask_directives

ARCHITECTURE = 800  # __CUDA_ARCH__ in include/cuda_runtime.h

_INCLUDE = Path(__file__).resolve().parent / "include"

# (what to look for in code, what to say). The first in the source counts.
_UNSUPPORTED = [
    (r"\bwgmma\w*", "wgmma (warp-group matrix instructions) runs on a GPU only."),
    (r"\bCUtensorMap\b|\bcuTensorMap\w+", "TMA (tensor maps) runs on a GPU only."),
    (r"\b__cluster_dims__\b|\bthis_cluster\b|\bcluster_group\b",
     "thread block clusters run on a GPU only."),
    (r"\b(?:texture|surface)\s*<\s*(?:(?:un)?signed\b|(?:u?(?:char|short|int)|float)[124]?\b"
     r"|void\b)|\bcuda(?:Bind|Unbind)(?:Texture|Surface)\w*|\btextureReference\b",
     "texture and surface references are gone since CUDA 12: give the kernel an object "
     "(cudaTextureObject_t) that cudaCreateTextureObject makes, and call tex2D<T>(object, x, y)."),
    (r"\b(?:tex|surf)Cubemap\w*|\bcudaArrayCubemap\b",
     "CUDA has cubemaps, the CPU backend does not yet: take an array of six layers "
     "(cudaArrayLayered) and tex2DLayered, which filters within a face."),
    (r"\bcuda\w*MipmappedArray(?!_t\b|\w*Desc\b)\w*(?=\s*\()",
     "CUDA has mipmapped arrays, the CPU backend does not yet: make a texture of each level, of an "
     "array from cudaMallocArray."),
    (r"\bcudaGraphAddMem(?:Alloc|Free)Node\w*|\bcudaMemAllocNodeParams\w*",
     "CUDA has nodes of graphs that allocate and free, the CPU backend does not yet: allocate with "
     "cudaMalloc before the graph is built, or with cudaMallocAsync while a stream is captured."),
    (r"\bcudaGraphConditional\w*|\bcudaGraphSetConditional\w*|\bcudaGraphCond(?:Type|Assign)\w*"
     r"|\bcudaConditionalNodeParams\b|\bcudaGraphNodeTypeConditional\b",
     "CUDA has conditional nodes of graphs, the CPU backend does not yet: let the host look at the "
     "condition and launch one graph or another, or let the node's kernels return at once where it "
     "does not hold."),
    (r"\bcudaGraph(?:Add|NodeAdd)Node\s*\(|\bcudaGraph(?:Exec)?Node[SG]etParams\b"
     r"|\bcudaGraphNodeParams\b",
     "CUDA has one call for nodes of every kind, the CPU backend does not yet: "
     "cudaGraphAddKernelNode, cudaGraphAddMemcpyNode and their like add one of a kind."),
    (r"\bcudaGetCurrentGraphExec\b|\bcudaStreamGraph(?:TailLaunch|FireAndForget)\w*",
     "CUDA has graphs that kernels launch, the CPU backend does not yet: launch the graph from the "
     "host, or the kernels from the kernel."),
    (r"\bcudaIpc(?!(?:Get|Open|Close)?MemHandle|MemLazy)\w+",
     "events that processes share (cudaIpc...) exist on a GPU only; memory may be shared."),
    (r"\b(?:cusparse|cusolver|nccl)[A-Z]\w*|\b(?:cublas|cufft)(?:Xt|Mp|Dx)\w*|\bcudnnBackend\w*"
     r"|\bcudnn_frontend\s*::",
     "of CUDA's libraries, the CPU backend has cuBLAS, cuBLASLt, cuDNN's legacy calls, cuFFT and "
     "cuRAND; the others run on a GPU only."),
    (r"\bcuda\s*::\s*(?:ptx|device|experimental)\b|\bcp_async_bulk\w*",
     "cuda::ptx, cuda::device and TMA's copies run on a GPU only."),
    (r"\bcub\s*::\s*(?:Device(?!(?:Reduce|Scan|RadixSort|Select|Histogram)\b)\w+|BlockRadixRank\w*"
     r"|BlockExchange|BlockHistogram|BlockDiscontinuity|BlockMerge\w*|BlockAdjacent\w+|BlockShuffle"
     r"|WarpMergeSort|WarpExchange|\w+Iterator)\b",
     "the CPU backend has cub's reductions, scans, radix sorts, loads and stores, DeviceSelect and "
     "DeviceHistogram; for what its other parts do, write a kernel."),
    (r"\b(?:cutlass|cute)\s*::", "CUTLASS runs on a GPU only."),
]  # fmt: skip

# Headers of a toolkit that the CPU backend has no like of, and the names that come from them. That
# one is included is no reason to refuse a string that uses none of its names.
_HEADERS = {
    r"(?:cub|thrust|cutlass|cute)/[^>\"]+": r"\b(?:cub|thrust|cutlass|cute)\s*::",
    r"cuda/[^>\"]+": r"\bcuda\s*::",
    r"nv/[^>\"]+": r"\bnv\s*::|\bNV_\w+",
    r"(?:cublas|cufft|curand|cudnn|cusparse|cusolver|nccl|nvrtc)\w*\.h":
        r"\b(?:cublas|cufft|curand|cudnn|cusparse|cusolver|nccl|nvrtc)[A-Z_]\w*|\bcurand\w*",
    r"cuda_fp[46]\.h": r"\b__nv_fp[46]\w*",
    r"cudaTypedefs\.h": r"\bPFN_cu\w+",
    r"(?:cuda_)?(?:texture|surface)(?:_fetch_functions|_functions|_types)\.h":
        r"\b(?:texture|surface)\s*<",
}  # fmt: skip


def find_unsupported(source: Source) -> tuple[int, str] | None:
    """Return (line, sentence) of the first thing that the CPU backend cannot do, or None.

    Code for newer architectures is passed over: the compiler leaves it out, as it does under nvcc
    for an older GPU.
    """
    src, code = source.text, without_other_architectures(source.code)
    found = []
    for pattern, sentence in _UNSUPPORTED:
        for match in re.finditer(pattern, code):
            if not _in_directive(code, match.start()):
                found.append((match.start(), sentence))
                break
    for start, header, names in _missing_headers(src, code):
        if re.search(names, mask_directives(code)):
            found.append((start, f"<{header}> is for a GPU; the CPU backend has nothing like it."))
    if not found:
        return None
    position, sentence = min(found)
    return source.line_of(position), sentence


def leave_out_headers(src: str) -> str:
    """Blank the #include of headers that the CPU backend does not have."""
    for start, _, _ in _missing_headers(src, mask(src)):
        end = (src + "\n").index("\n", start)
        src = src[:start] + blank(src[start:end]) + src[end:]
    return src


def _missing_headers(src, code):
    """Yield place, name and pattern of its names for each header that is not in include/."""
    for headers, names in _HEADERS.items():
        include = rf"^[ \t]*\#[ \t]*include[ \t]*[<\"](?P<header>{headers})[>\"]"
        for match in re.finditer(include, src, re.MULTILINE):
            exists = (_INCLUDE / match["header"]).exists()
            if not exists and code[match.start() : match.end()].strip():  # no comment, not left out
                yield match.start(), match["header"], names


def _in_directive(code: str, position: int) -> bool:
    """Whether the line is an #include or a condition (a #define counts as code)."""
    line = code[code.rfind("\n", 0, position) + 1 : position]
    return bool(re.match(r"[ \t]*#[ \t]*(?!define\b)\w", line))


def without_other_architectures(code: str) -> str:
    """Blank what conditions on __CUDA_ARCH__ leave out; what cannot be decided stays."""
    return "".join(
        line if directive or _live(stack) else blank(line)
        for line, directive, stack in _conditions(code)
    )


def is_surely_compiled(code: str, position: int) -> bool:
    """Whether no condition around the position is one that cannot be decided here."""
    for line, _, stack in _conditions(code):
        position -= len(line)
        if position < 0:
            return all(taken for _, taken, _ in stack)
    return True


def _conditions(code):
    """Yield each line, whether it is an #if, #else ..., and the #ifs that are open after it."""
    stack = []  # per #if: [live before it, a branch was surely taken, this branch may be live]
    for line in code.splitlines(keepends=True):
        found = re.match(r"[ \t]*#[ \t]*(if|ifdef|ifndef|elif|else|endif)\b(.*)", line)
        word, condition = found.groups() if found else ("", "")
        if word in ("if", "ifdef", "ifndef"):
            test = {"if": "{}", "ifdef": "defined({})", "ifndef": "!defined({})"}[word]
            value = evaluate(test.format(condition))
            stack.append([_live(stack), value is True, value is not False])
        elif word == "elif" and stack:
            value = False if stack[-1][1] else evaluate(condition)
            stack[-1][1:] = [stack[-1][1] or value is True, value is not False]
        elif word == "else" and stack:
            stack[-1][2] = not stack[-1][1]
        elif word == "endif" and stack:
            stack.pop()
        yield line, bool(word), stack


def _live(stack: list) -> bool:
    return all(before and branch for before, _, branch in stack)


def evaluate(condition: str, on_device: bool = True) -> bool | None:
    """Return the value of a condition about __CUDA_ARCH__ alone; None for any other.

    The host has no __CUDA_ARCH__.
    """
    if not on_device:
        condition = re.sub(_ASKED, "0", condition)
    text = re.sub(r"\bdefined\s*(?:\(\s*(\w+)\s*\)|(\w+))", _defined, condition)
    text = text.replace("__CUDA_ARCH__", str(ARCHITECTURE if on_device else 0))
    text = text.replace("&&", " and ").replace("||", " or ")
    text = re.sub(r"!(?!=)", " not ", text)
    if not re.fullmatch(r"(?:\s|[()<>=!]|\d+|\band\b|\bor\b|\bnot\b)+", text):
        return None
    try:
        return bool(eval(text, {"__builtins__": {}}))  # digits, comparisons, and, or, not
    except SyntaxError:
        return None


_ASKED = r"\bdefined\s*(?:\(\s*__CUDA_ARCH__\s*\)|__CUDA_ARCH__\b)"


def _defined(found: re.Match) -> str:
    here = dict.fromkeys(("__CUDA_ARCH__", "__CUDACC__", "__NVCC__"), "1")
    nvcc_alone = dict.fromkeys(("__CUDACC_VER_MAJOR__", "__CUDA_ARCH_FEAT_SM90_ALL"), "0")
    return (here | nvcc_alone).get(found[1] or found[2], "unknown")
