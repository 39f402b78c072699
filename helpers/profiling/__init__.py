"""Where the time goes: PyTorch's profilers, a timeline, and NVIDIA's tools on a script."""

from helpers.profiling.nvidia_reports import ncu_counters, ncu_report, sanitize
from helpers.profiling.torch_profilers import autograd_profile, chrome_trace, profile_table

__all__ = [
    "autograd_profile",
    "chrome_trace",
    "ncu_counters",
    "ncu_report",
    "profile_table",
    "sanitize",
]
