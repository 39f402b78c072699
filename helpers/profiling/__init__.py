"""Where the time goes: PyTorch's profilers, a timeline, and NVIDIA's tools on a script."""

from helpers.profiling.profilers import (
    autograd_profile,
    chrome_trace,
    ncu_counters,
    ncu_report,
    profile_table,
    sanitize,
)

__all__ = [
    "autograd_profile",
    "chrome_trace",
    "ncu_counters",
    "ncu_report",
    "profile_table",
    "sanitize",
]
