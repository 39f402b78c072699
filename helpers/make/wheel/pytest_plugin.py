"""For pytest: the fixture `cuda`, which compiles a .cu file and gives its host functions.

PyTorch is imported by the first test that asks for it.
"""

from pathlib import Path

import pytest


@pytest.fixture
def cuda(request):
    """Return a function: cuda("kernels.cu", check=True) has the host functions as attributes.

    The file's path is taken from the test file's folder. The other arguments are those of
    `compile_cuda` (cuda_on_cpu.compiler). Without a GPU, or with `check`, kernels run on the CPU.
    """
    try:
        from helpers.compiler import compile_cuda
        from helpers.compiler.build import prepare
        from helpers.device import BACKEND
    except ModuleNotFoundError as missing:
        pytest.fail(
            f"the fixture cuda needs {missing.name}: pip install torch ninja", pytrace=False
        )
    prepare(BACKEND)  # tensors made from now on are guarded

    def compiled(
        file: str | Path,
        functions: list[str] | None = None,
        check: bool = False,
        libraries: tuple[str, ...] = (),
    ):
        return compile_cuda(request.path.parent / file, functions, check, libraries=libraries)

    return compiled
