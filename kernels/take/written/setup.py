"""Build the kernels of this folder ahead of time, for several kinds of GPU at once.

    pip install --no-build-isolation .      then: from taken_kernels import square

TORCH_CUDA_ARCH_LIST says for which; a GPU is not needed. "9.0a" has to keep its a: without it
kernels that have a way of their own for Hopper take the one for all others.
"""

import os
from pathlib import Path

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CUDAExtension

# machine code of 8.0 serves all of 8.x; newer GPUs than 9.0 compile its PTX, as they cannot 9.0a's
os.environ["TORCH_CUDA_ARCH_LIST"] = os.environ.get("TORCH_CUDA_ARCH_LIST") or "7.5;8.0+PTX;9.0a"

BINDINGS = Path(__file__).parent.glob("*_bind.cpp")
NAMES = sorted(path.name.removesuffix("_bind.cpp") for path in BINDINGS)

setup(
    name="taken_kernels",
    version="1.0",
    packages=[],
    ext_modules=[
        CUDAExtension(f"taken_kernels.{name}", [f"{name}.cu", f"{name}_bind.cpp"]) for name in NAMES
    ],
    cmdclass={"build_ext": BuildExtension},
)
