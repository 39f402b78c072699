"""The kernels of this folder, each built when it is first asked for: `from load import square`.

`square.square(x)` is then the function of square.cu; the first comment of a .cu file says what its
functions take. PyTorch, ninja and nvcc build machine code for the GPUs that are here and for no
others (setup.py does); TORCH_CUDA_ARCH_LIST does not count. PyTorch keeps what it has built in
~/.cache/torch_extensions, or in TORCH_EXTENSIONS_DIR.
"""

import hashlib
from pathlib import Path

import torch
from torch.utils import cpp_extension

FOLDER = Path(__file__).parent


def __getattr__(name):
    sources = [FOLDER / f"{name}.cu", FOLDER / f"{name}_bind.cpp"]
    if not all(source.exists() for source in sources):
        there = ", ".join(
            sorted(path.stem.removesuffix("_bind") for path in FOLDER.glob("*_bind.cpp"))
        )
        raise AttributeError(f"{name}.cu is not among the kernels beside load.py: {there}")
    if not torch.cuda.is_available():
        raise RuntimeError(f"{name}.cu is built for the GPU that is here; PyTorch finds none")
    flags = [f"-gencode=arch=compute_{chip},code=sm_{chip}" for chip in chips()]
    made_of = "".join([*flags, *(source.read_text() for source in sources)])
    version = hashlib.sha256(made_of.encode()).hexdigest()[:8]  # each has a place of its own
    module = cpp_extension.load(
        f"{name}_{version}", [str(source) for source in sources], extra_cuda_cflags=flags
    )
    globals()[name] = module
    return module


def chips():
    """Return the GPUs that are here as nvcc names them: ["90a"]; with the a, wgmma is there."""
    found = {torch.cuda.get_device_capability(i) for i in range(torch.cuda.device_count())}
    return [f"{major}{minor}" + "a" * (major >= 9) for major, minor in sorted(found)]
