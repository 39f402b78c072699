"""A kernel file's text for a chip with less shared memory than the one that is there."""

import re

from helpers.base.machine import ROOT

# KB that a block may ask for, and that a multiprocessor has
CHIPS = {"T4": (64, 64), "RTX": (99, 100), "A100": (163, 164)}
ANSWER = """
static cudaError_t smaller_chip(int* value, cudaDeviceAttr which, int device) {{
    cudaError_t error = cudaDeviceGetAttribute(value, which, device);
    if (which == cudaDevAttrMaxSharedMemoryPerBlockOptin) *value = {block} * 1024;
    if (which == cudaDevAttrMaxSharedMemoryPerMultiprocessor) *value = {all} * 1024;
    return error;
}}
template <typename Kernel>
static cudaError_t set_if_it_fits(Kernel kernel, cudaFuncAttribute which, int value) {{
    cudaFuncAttributes built;  // what it has beside
    if (cudaError_t error = cudaFuncGetAttributes(&built, kernel)) return error;
    bool fits = which != cudaFuncAttributeMaxDynamicSharedMemorySize ||
                value + int(built.sharedSizeBytes) <= {block} * 1024;
    return fits ? cudaFuncSetAttribute(kernel, which, value) : cudaErrorInvalidValue;
}}
#define cudaDeviceGetAttribute smaller_chip
#define cudaFuncSetAttribute set_if_it_fits
"""


def on_chip(op: str, chip: str) -> str:
    """Return the file's text, to which the chip has no more shared memory than this one."""
    text = (ROOT / "kernels" / f"{op}.cu").read_text()
    *_, last = re.finditer(r"^#include .*\n", text, re.MULTILINE)
    answer = ANSWER.format(block=CHIPS[chip][0], all=CHIPS[chip][1])
    return text[: last.end()] + answer + text[last.end() :]
