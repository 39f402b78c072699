"""Run NVIDIA's tools, ncu and compute-sanitizer, on a program in a process of its own."""

import os
import signal
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from helpers.base.machine import ROOT
from helpers.compiler import tools
from helpers.profiling.tool_output import parse_ncu

TIME_LIMIT_S = 400


@dataclass(frozen=True)
class Run:
    """What a command printed, stdout and stderr together, and whether it had to be stopped."""

    output: str
    stopped: bool = False


def profile(program: list[str], options: list[str], units: str = "auto") -> tuple[dict | None, str]:
    """Run a program under ncu; return what it measured (see parse_ncu; None: nothing), and said.

    `units` is "auto", or "base" for bytes, nanoseconds and counts. Raises ToolMissing if ncu is not
    there or may not count, RuntimeError if the program goes on past the time limit.
    """
    ncu = str(tools.ncu())
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.ncu-rep")
        # clocks as they are: a profile then tells the time that a call takes
        command = [ncu, "--clock-control", "none", *options, "--export", str(report), *program]
        done = run(command)
        if done.stopped:
            raise RuntimeError(f"ncu ran past {TIME_LIMIT_S} s")
        if "ERR_NVGPUCTRPERM" in done.output:
            raise tools.counters_forbidden()
        if not report.exists():
            return None, done.output
        pages = ["--csv", "--page", "details", "--print-units", units]
        return parse_ncu(run([ncu, "--import", str(report), *pages]).output), done.output


def sanitize(program: list[str], tool: str, limit_s: float | None = None) -> Run:
    """Run a program under a tool of compute-sanitizer. Raises ToolMissing if it is not there."""
    command = [str(tools.compute_sanitizer()), "--tool", tool, "--show-backtrace", "no"]
    # CUDA 13's start-up asks the driver for functions that old ones lack: no error of ours
    command += ["--report-api-errors", "no"] if tool == "memcheck" else []
    return run([*command, *program], limit_s)


def run(command: list[str], limit_s: float | None = None) -> Run:
    """Run a command; past the limit (by default TIME_LIMIT_S) it and what it started are killed."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(paths),  # a script finds `helpers`
        "PYTORCH_NO_CUDA_MEMORY_CACHING": "1",  # else torch's pool hides overruns of a tensor
        "LC_ALL": "C.UTF-8",  # decimal points
    }
    both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "errors": "replace"}
    process = subprocess.Popen(command, **both, text=True, env=environment, start_new_session=True)
    try:
        return Run(process.communicate(timeout=limit_s or TIME_LIMIT_S)[0])
    except subprocess.TimeoutExpired:
        _kill(process)
        return Run(process.communicate()[0], stopped=True)
    except (
        BaseException
    ):  # Ctrl-C reaches this process alone, as the other has a session of its own
        _kill(process)
        raise


def _kill(process: subprocess.Popen) -> None:
    os.killpg(process.pid, signal.SIGKILL)  # the tool and the program under it
