"""Stands in for the builder in the browser: see helpers.compiler."""

from contextlib import nullcontext

from helpers.compiler import compile_cuda

every_call_checked = nullcontext


def source_of(_function):
    compile_cuda()
