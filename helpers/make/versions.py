"""Run a part of the tests with each PyTorch that the course takes: `make test-versions`.

Each version gets a virtual environment of its own in .cache/versions, with the build for the CPU
where it can be had. One or some of them: `make test-versions V="2.10.0 2.11.0"`.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from helpers.base.machine import CACHE, ROOT
from helpers.make.install import REQUIREMENTS, UV
from helpers.make.tests import COLOURS, ENVIRONMENT, NBVAL, Result, counts, solutions_of

# PyTorch, and what it wants of Triton and numpy: Triton 3.6's interpreter fails with numpy 2.4
OLDER_TRITON = ("triton==3.6.0", "numpy<2.4")
VERSIONS = {
    "2.10.0": OLDER_TRITON,
    "2.11.0": OLDER_TRITON,
    "2.12.1": (),
    "2.13.0": (),
}
# Without a GPU their opcheck does not compare strides, which a cell of 14 waits for.
LEFT_OUT = {version: "notebooks/14_autograd.ipynb" for version in ("2.10.0", "2.11.0", "2.12.1")}
FOLDER = CACHE / "versions"
PARTS = (  # what reaches into PyTorch: its C interface, operators, autograd, Triton
    "helpers/tests/test_torch_light.py",
    "helpers/tests/test_simulator_operators.py",
    "kernels/tests/test_relu.py",
    "notebooks/02_grids_blocks_threads.ipynb",
    "notebooks/13_triton.ipynb",
    "notebooks/14_autograd.ipynb",
)


def environment(version: str) -> Path:
    """Return the Python that has this PyTorch, after installing what it lacks.

    Raises CalledProcessError if it cannot be installed.
    """
    python = FOLDER / version / "bin" / "python"
    done = FOLDER / version / "installed"
    pins = [pin for pin in REQUIREMENTS.read_text().splitlines() if not pin.startswith("#")]
    replaced = [f"torch=={version}", *VERSIONS[version]]
    names = {name.replace("<", "=").split("=")[0] for name in replaced}
    packages = [*replaced, *(pin for pin in pins if pin.split("=")[0] not in names)]
    key = f"{sys.version} {packages}"
    if done.exists() and done.read_text() == key:
        return python
    subprocess.run([sys.executable, "-m", "venv", "--clear", FOLDER / version], check=True)
    pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    uv = [python, "-m", "uv", "pip", "install", "--quiet", "--python", python]
    if not _runs([*pip, f"torch=={version}+cpu"]):
        subprocess.run([*pip, UV], check=True)
        if not _runs([*uv, "--torch-backend=cpu", f"torch=={version}"]):
            print(f"{version}: the build for the CPU cannot be reached, the one for CUDA is taken")
    subprocess.run([*pip, *packages], check=True)
    done.write_text(key)
    return python


def _runs(command: list) -> bool:
    return subprocess.run(command, stderr=subprocess.DEVNULL).returncode == 0


def run_part(python: Path, part: str) -> Result:
    """Let pytest run one part with this Python."""
    begin = time.perf_counter()
    path = str(ROOT / part)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        options = ["-q", "--color=no", "-p", "no:cacheprovider", f"--junitxml={report}"]
        options += NBVAL if part.endswith(".ipynb") else []
        command = [python, "-m", "pytest", *options, path]
        variables = os.environ | ENVIRONMENT | solutions_of(path) | {"CUDA_VISIBLE_DEVICES": ""}
        done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True)
        passed, failed, skipped = counts(report)
    output = COLOURS.sub("", done.stdout + done.stderr)
    failed = failed or int(done.returncode != 0)
    return Result(part, passed, failed, skipped, time.perf_counter() - begin, output)


def main(versions: list[str]) -> int:
    if unknown := [version for version in versions if version not in VERSIONS]:
        print(f"expected versions of {', '.join(VERSIONS)}, got {unknown[0]}")
        return 2
    rows = ["PyTorch   passed  failed  skipped  seconds"]
    all_failed = 0
    for version in versions or VERSIONS:
        python = environment(version)
        results = []
        for part in PARTS:
            if part == LEFT_OUT.get(version):
                continue
            results.append(run_part(python, part))
            print(f"{version}  {results[-1]}", flush=True)
            if results[-1].failed:
                print(results[-1].output, flush=True)
        passed, failed, skipped, seconds = (
            sum(getattr(result, name) for result in results)
            for name in ("passed", "failed", "skipped", "seconds")
        )
        rows.append(f"{version:8} {passed:7} {failed:7} {skipped:8} {seconds:8.0f}")
        all_failed += failed
    print("\n" + "\n".join(rows))
    return 1 if all_failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
