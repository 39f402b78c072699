"""`make test` counts what passed, also when a part crashes or hangs, and ends with the sum."""

import fcntl
import os
import re
import subprocess
import sys
import time

import nbformat
import pytest

from helpers.device import BACKEND
from helpers.make import tests as run_tests
from helpers.make import worker as workers
from helpers.make.worker import Worker

ONE_CORE = {min(os.sched_getaffinity(0))} if hasattr(os, "sched_getaffinity") else set()


@pytest.fixture(scope="module")
def worker():
    worker = Worker(ONE_CORE, imported=("pytest",))
    yield worker
    worker.kill()


@pytest.fixture(scope="module")
def worker_with_torch():
    worker = Worker(ONE_CORE, imported=("pytest", "matplotlib.pyplot", "torch"))
    yield worker
    worker.kill()


@pytest.fixture
def part(tmp_path, worker):
    """Return a function that writes a file of tests and runs it as a part."""

    def run(text, name="test_part.py", arguments=()):
        (tmp_path / name).write_text(text)
        return run_tests.run_part([*arguments, str(tmp_path / name)], worker)

    return run


def test_counts(part):
    result = part(
        "import pytest\n"
        "def test_right(): pass\n"
        "def test_wrong(): assert 'apples' == 'pears'\n"
        "def test_left_out(): pytest.skip()\n"
        "def test_right_too(): pass\n"
    )
    assert (result.passed, result.failed, result.skipped) == (2, 1, 1)
    assert "apples" in result.output
    assert str(result).startswith("FAILED") and "test_part.py: 2 passed, 1 failed" in str(result)


def test_a_crash_is_a_failure(part):
    result = part("import os\ndef test_right(): pass\ndef test_crash(): os._exit(139)\n")
    assert (result.passed, result.failed) == (0, 1)
    assert "pytest ended with code 139" in result.output


def test_a_file_without_tests_is_a_failure(part):
    assert part("x = 1\n").failed == 1
    left_out = part("import pytest\npytest.importorskip('no_such_module')\ndef test(): pass\n")
    assert (left_out.failed, left_out.skipped) == (0, 1)


HOLD = """
import fcntl, os, subprocess, time
held = open({lock!r}, "w")
fcntl.flock(held, fcntl.LOCK_EX)
"""


def let_go(lock):
    """Return whether all processes that hold the lock end, now or soon."""
    with open(lock) as file:
        for _ in range(100):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                time.sleep(0.1)
    return False


def test_a_part_that_hangs_is_stopped_with_its_children(part, monkeypatch, tmp_path):
    lock = str(tmp_path / "lock")
    part("def test_for_a_worker_at_work(): pass\n")
    monkeypatch.setattr(workers, "LIMIT_S", 3)
    monkeypatch.setattr(workers, "GRACE_S", 1)
    result = part(
        HOLD.format(lock=lock)
        + "def test_hang(): subprocess.run(['sleep', '600'], pass_fds=[held.fileno()])\n"
    )
    assert result.failed == 1 and "longer than 3 s" in result.output
    assert let_go(lock)


def test_a_worker_that_is_killed_fails_its_part_alone_and_leaves_nothing(part, tmp_path):
    lock = str(tmp_path / "lock")
    result = part(
        HOLD.format(lock=lock)
        + "def test_kill():\n    os.kill(os.getppid(), 9)\n    time.sleep(600)\n"
    )
    assert result.failed == 1 and "pytest ended with code -9" in result.output
    assert let_go(lock)
    assert part("def test_the_next(): pass\n").passed == 1


def test_parts_are_apart(part):
    change = "import os, sys\nos.environ['LEFT'] = sys.modules['left'] = 'behind'\n"
    assert part(change + "def test_change(): os.chdir('/')\n").passed == 1
    look = "import os, sys\ndef test_look():\n    assert os.getcwd() != '/'\n"
    look += "    assert 'LEFT' not in os.environ and 'left' not in sys.modules\n"
    look += "    assert os.environ['RECORD'] and os.read(0, 1) == b''\n"
    assert part(look).passed == 1


def test_a_worker_asks_for_no_gpu():  # its parts could not use one then
    look = "import torch\ntorch.cuda._is_compiled, torch.version.cuda = lambda: True, '13.0'\n"
    look += "torch.cuda.is_available = torch.cuda.device_count = torch.cuda.init = None\n"
    look += "".join(f"import {name}\n" for name in workers.IMPORTED)
    look += "try:\n    import torch.utils.cpp_extension\nexcept TypeError: pass\n"
    look += "else: raise SystemExit('what this test looks for is not there')"
    environment = os.environ | {"CUDA_HOME": "/cuda"}
    subprocess.run([sys.executable, "-c", look], check=True, env=environment)


def test_cells_that_raise_show_something_else_or_end_their_kernel_fail(part):
    sources = ("print(1)", "1 / 0", "print(2)", "import os; os.abort()", "print(1)")
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    for cell in cells[:1] + cells[2:3]:
        cell.metadata["tags"], cell.execution_count = ["nbval-check-output"], 1
        cell.outputs = [nbformat.v4.new_output("stream", text="1\n")]
    text = nbformat.writes(nbformat.v4.new_notebook(cells=cells))
    result = part(text, "00_test.ipynb", run_tests.NBVAL)
    assert (result.passed, result.failed) == (1, 4) and result.seconds < 100
    assert "ZeroDivisionError" in result.output and "\x1b" not in result.output
    assert "the kernel died in this cell" in result.output


@pytest.mark.skipif(BACKEND == "cuda", reason="stderr is not compared there")
def test_words_about_a_build_are_not_compared_and_others_are(part):
    build = """
import sys
from pathlib import Path
from tempfile import mkdtemp
sys.path.insert(0, %r)
from helpers.cuda_on_cpu.cache import Cache
for name in ("one", "two"):
    Cache(Path(mkdtemp())).get(name, lambda private: None, f"Building {name}")
print(1)"""
    others = 'print(1)\nprint("Building without an end", file=__import__("sys").stderr)'
    cells = [nbformat.v4.new_code_cell(source) for source in (build % str(run_tests.ROOT), others)]
    for cell in cells:
        cell.metadata["tags"], cell.execution_count = ["nbval-check-output"], 1
        cell.outputs = [nbformat.v4.new_output("stream", text="1\n")]
    text = nbformat.writes(nbformat.v4.new_notebook(cells=cells))
    result = part(text, "00_test.ipynb", run_tests.NBVAL)
    assert (result.passed, result.failed) == (1, 1), result.output
    assert "stderr" in result.output


@pytest.mark.skipif(BACKEND == "cuda" or sys.platform == "darwin", reason="no kernel is a fork")
def test_a_kernel_has_what_the_worker_imported_and_nothing_of_the_part(
    tmp_path, monkeypatch, worker_with_torch
):
    monkeypatch.delenv("PYTHONPATH", raising=False)
    cells = [
        "import sys, os; assert 'torch' in sys.modules and 'nbval' not in sys.modules",
        "assert not [name for name in sys.modules if name.split('.')[0] == 'helpers']",
        f"assert os.getcwd() == {str(tmp_path)!r} and {str(run_tests.ROOT)!r} not in sys.path",
        "assert __name__ == '__main__' and sys.modules['__main__'].__dict__ is globals()",
        "import matplotlib; assert 'inline' in matplotlib.get_backend()",
        "import subprocess; print(subprocess.run(['echo', 'said'], capture_output=True).stdout)",
        "os.kill(os.getpid(), 9)",
    ]
    notebook = tmp_path / "00_test.ipynb"
    cells = [nbformat.v4.new_code_cell(source) for source in cells]
    notebook.write_text(nbformat.writes(nbformat.v4.new_notebook(cells=cells)))
    result = run_tests.run_part([*run_tests.NBVAL, str(notebook)], worker_with_torch)
    assert (result.passed, result.failed) == (len(cells) - 1, 1), result.output
    assert "the kernel died in this cell" in result.output


def test_every_test_file_and_notebook_is_a_part():
    parts = [part[-1] for part in run_tests.parts()]
    assert any(part.endswith("helpers/tests/test_make_tests.py") for part in parts)
    assert any(part.endswith("kernels/tests/test_kernels.py") for part in parts)
    assert any(part.endswith(".ipynb") for part in parts)
    assert [os.path.relpath(part, run_tests.ROOT) for part in parts[: len(run_tests.LONGEST)]] == [
        *run_tests.LONGEST
    ]
    assert len(set(parts)) == len(parts) and all(map(os.path.exists, parts))


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="macOS has no affinity")
def test_notebooks_check_the_solutions_that_they_show():
    assert run_tests.solutions_of("/course/03.ipynb") == {"SOLUTIONS_OF": "/course/03.ipynb"}
    assert run_tests.solutions_of("/course/test_03.py") == {}


def test_parts_at_once_share_the_cores(monkeypatch, tmp_path, worker_with_torch):
    own = os.sched_getaffinity(0)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: own)
    assert set().union(*run_tests.shares()) == own
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(20)))
    cores = run_tests.shares()
    assert len(cores) == run_tests.MOST_AT_ONCE and sorted(sum(map(sorted, cores), [])) == [
        *range(20)
    ]
    text = "import os, torch\ndef test_cores():\n"
    text += f"    assert os.sched_getaffinity(0) == {ONE_CORE} and torch.get_num_threads() == 1\n"
    (tmp_path / "test_part.py").write_text(text)
    assert run_tests.run_part([str(tmp_path / "test_part.py")], worker_with_torch).passed == 1


@pytest.mark.parametrize("failed, code", [(0, 0), (2, 1)])
def test_the_last_line_is_the_sum(monkeypatch, capsys, failed, code):
    results = {
        "a": run_tests.Result("a", 3, 0, 1, 0.5, "output of a"),
        "b": run_tests.Result("b", 4, failed, 0, 0.5, "output of b"),
    }
    monkeypatch.setattr(run_tests, "parts", lambda: ["a", "b"])
    monkeypatch.setattr(run_tests, "set_up", lambda: None)
    monkeypatch.setattr(run_tests, "prepare", lambda backend: None)
    monkeypatch.setattr(run_tests, "run_part", lambda part, worker: results[part])
    monkeypatch.setattr(run_tests.signal, "signal", lambda *of: None)
    assert run_tests.main() == code
    out = capsys.readouterr().out
    assert out.splitlines()[-1] == f"7 passed, {failed} failed, 1 skipped"
    counted = [line for line in out.splitlines() if re.match(r" +\d/2 +0 s  (ok|FAILED) ", line)]
    assert [line.split("/")[0].strip() for line in counted] == ["1", "2"]
    assert ("output of b" in out) == bool(failed) and "output of a" not in out


def test_stopping_it_stops_what_it_runs(tmp_path):
    (tmp_path / "test_part.py").write_text(
        "import pathlib, time\n"
        f"def test_part(): pathlib.Path('{tmp_path}/began').touch(); time.sleep(60)\n"
    )
    part = f"[['{tmp_path}/test_part.py']]"
    code = f"from helpers.make import tests as r; r.parts = lambda: {part} * 9; "
    code += "Worker = r.Worker; r.Worker = lambda cores: Worker(cores, ()); "
    code += "r.set_up = r.prepare = lambda *of: None; "
    command = [sys.executable, "-c", code + "raise SystemExit(r.main())"]
    process = subprocess.Popen(command, cwd=run_tests.ROOT, stdout=subprocess.PIPE, text=True)
    while not (tmp_path / "began").exists():
        time.sleep(0.1)
    process.terminate()
    assert process.communicate(timeout=60)[0].endswith("stopped\n")
    assert process.returncode == 130
