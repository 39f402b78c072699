"""CUDA strings to Python functions, and what the compiler makes of them.

`set_up` makes the machine ready and says which one it is; `compile_cuda` builds (build.py: the only
caller of load_inline), `checked` gives a function's checked twin; `ptx`, `sass`, `main_loop`,
`main_loop_code` and `resource_usage` show the machine code (device_code.py); `kernel_output`
catches what kernels print; `compile_c` is for plain C (plain_c.py), `compile_extension` for C++
that reads PyTorch's own headers (extension.py).
Errors are CompileError (errors.py), which points into the learner's string, and ToolMissing
(tools.py), which says the line that installs the tool.
"""

from helpers.compiler.build import checked, compile_cuda, set_up
from helpers.compiler.device_code import main_loop, main_loop_code, ptx, resource_usage, sass
from helpers.compiler.errors import CompileError
from helpers.compiler.extension import compile_extension
from helpers.compiler.output import kernel_output
from helpers.compiler.plain_c import compile_c
from helpers.compiler.tools import ToolMissing

__all__ = [
    "CompileError",
    "ToolMissing",
    "checked",
    "compile_c",
    "compile_cuda",
    "compile_extension",
    "kernel_output",
    "main_loop",
    "main_loop_code",
    "ptx",
    "resource_usage",
    "sass",
    "set_up",
]
