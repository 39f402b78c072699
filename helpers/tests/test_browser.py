"""The page that runs Python kernels: its Python side here, and the whole in Chromium, offline."""

import functools
import http.server
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

import pytest

from helpers.base.machine import ROOT
from helpers.base.palette import INK, PLATE
from helpers.exercises.solutions import folded_solution
from helpers.make import browser
from helpers.make.browser import lessons, packages

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)
LESSONS = [
    lesson
    for notebook in browser.NOTEBOOKS
    for lesson in lessons.of(ROOT / f"notebooks/{notebook}.ipynb")
]
EXERCISES = [lesson for lesson in LESSONS if lesson["exercise"]]

RACE = """
def sum_kernel(total, a):
    total[0] = total[0] + a[threadIdx.x]

launch(sum_kernel, 1, 4, torch.zeros(1), torch.ones(4))
"""
OUT_OF_RANGE = """
def no_guard(out):
    out[blockIdx.x * blockDim.x + threadIdx.x] = 1.0

launch(no_guard, 2, 4, np.zeros(6, np.float32))
"""
BANKS = """
def column_kernel(out):
    tile = shared_array((32, 32))
    tile[threadIdx.x, 0] = 1.0
    syncthreads()
    out[threadIdx.x] = tile[threadIdx.x, 0]
launch(column_kernel, 1, 32, torch.zeros(32))
"""
ENDLESS = "while True:\n    pass\n"


def titles(notebook, exercise):
    return [
        lesson["title"]
        for lesson in LESSONS
        if lesson["notebook"] == notebook and lesson["exercise"] == exercise
    ]


def solved(lesson):
    """Return a lesson's code with the solution that the notebook shows."""
    notebook = ROOT / f"notebooks/{lesson['notebook']}.ipynb"
    call, language, code = folded_solution(notebook, lesson["title"])
    assert language == "python"
    source = lesson["code"]
    return f"{code}\n{source[source.index('exercise(') :]}"


# ---- what is taken from the notebooks


def test_the_python_kernels_of_the_notebooks_are_there():
    assert titles("00_start_here", False) == ["add_kernel", "sum_kernel", "add_no_guard"]
    assert titles("02_grids_blocks_threads", False) == [
        "vector_add_kernel",
        "two_each_kernel, grid_stride_kernel",
        "owner_kernel",
        "where_kernel",
    ]


def test_so_are_the_exercises_without_cuda():
    assert titles("00_start_here", True) == [
        "sentences on the chip",
        "who takes which",
        "how long at least",
        "sort",
    ]
    assert len(titles("02_grids_blocks_threads", True)) == 6
    for lesson in EXERCISES:
        assert "<details" not in lesson["text"] and lesson["text"]
        assert lesson["solution"] and "hint=" in lesson["code"]


def test_the_code_is_the_notebooks():
    text = (ROOT / "notebooks/00_start_here.ipynb").read_text()
    sources = ["".join(cell["source"]) for cell in json.loads(text)["cells"]]
    (add,) = [lesson for lesson in LESSONS if lesson["title"] == "add_kernel"]
    for part in add["code"].strip().split("\n\n\n"):
        assert part in sources


# ---- the Python side, in CPython without PyTorch


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    """A function that runs code as the page does, in a process that has no PyTorch."""
    folder = tmp_path_factory.mktemp("course")
    browser.write_course(folder / "course.zip")
    shutil.unpack_archive(folder / "course.zip", folder)
    program = (
        "import sys, json\n"
        "class Missing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in ('PIL', 'pygments'):\n"
        "            raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Missing())\n"
        f"sys.path.insert(0, {str(folder)!r})\n"
        "import run\n"
        f"assert run.torch.__file__.startswith({str(folder)!r})\n"
        "print(json.dumps([json.loads(run.run(*one)) for one in json.load(sys.stdin)]))\n"
    )

    def run(*codes):
        done = subprocess.run(
            [sys.executable, "-c", program], input=json.dumps(codes), capture_output=True,
            text=True, cwd=folder, env={"PATH": os.environ["PATH"]},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def test_every_lesson_runs_as_it_is(run):
    results = run(*((lesson["setup"], lesson["code"]) for lesson in LESSONS))
    for lesson, result in zip(LESSONS, results, strict=True):
        assert result["line"] == 0 and "the run</b>" not in result["html"], (
            lesson["title"],
            result,
        )
        if lesson["exercise"]:
            assert "to do" in result["html"]


def test_every_solution_is_right(run):
    results = run(*((lesson["setup"], solved(lesson)) for lesson in EXERCISES))
    for lesson, result in zip(EXERCISES, results, strict=True):
        assert result["solved"] == [lesson["title"]], result["html"]
        assert "●" in result["html"]


def test_a_wrong_answer_shows_its_hint(run):
    (lesson,) = [lesson for lesson in EXERCISES if lesson["title"] == "3.4 column-major"]
    code = lesson["code"].replace("return ...", "return row * width + col")
    (result,) = run((lesson["setup"], code))
    assert ": wrong" in result["html"] and "expected" in result["html"]
    assert "how many come before its column" in result["html"]


def test_a_race_and_a_wrong_index_name_line_thread_and_element(run):
    race, index = run(("", RACE), ("", OUT_OF_RANGE))
    assert race["line"] == 3 and index["line"] == 3
    assert "RaceError: sum_kernel, line 3: total[0] is read by thread 1" in race["html"]
    assert "out[6] is out of range, shape (6,) (block 1, thread 2)" in index["html"]
    assert "block 1 of 2, thread 2 of 4: warp 0, lane 2" in index["html"]


def test_banks_are_drawn(run):
    (result,) = run(("", BANKS))
    assert "32 wavefronts, 1 would do" in result["html"] and "<svg" in result["html"]


def test_every_picture_of_a_trace_is_shown_with_dark_ink_on_its_plate(run):
    names = "draw draw_lanes draw_lines draw_addresses draw_timeline".split()
    every = "\n".join(f"display(report.{name}())" for name in names)
    kernel = "def k(x):\n    x[threadIdx.x] = 2 * x[threadIdx.x]\n"
    (result,) = run(
        ("", f"from IPython.display import display\n{kernel}"
             f"report = trace(k, 1, 64, torch.zeros(64))\n{every}"),
    )  # fmt: skip
    assert result["line"] == 0, result["html"]
    pictures = result["html"].split("<svg ")[1:]
    assert len(pictures) == 6  # draw() shows two
    for picture in pictures:
        assert f'fill="{INK}"><defs>' in picture and f'fill="{PLATE}"/>' in picture
        assert "currentColor" not in picture


def test_a_launch_with_nothing_to_draw_says_so(run):
    (result,) = run(("", "launch(lambda: None, 1, 32)"))
    assert "nothing to draw" in result["html"], result["html"]


def test_errors_of_python_and_what_is_not_there(run):
    name, syntax, missing, cuda = run(
        ("", "x = 1\nwhat"),
        ("", "def f(:\n    pass"),
        ("", "torch.matmul"),
        ("", "from helpers.compiler import compile_cuda\ncompile_cuda('')"),
    )
    assert name["line"] == 2 and "NameError" in name["html"]
    assert syntax["line"] == 1 and "SyntaxError" in syntax["html"]
    assert "torch.matmul is not on this page" in missing["html"]
    assert "needs a C++ compiler" in cuda["html"]


def test_another_tarball_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(packages, "FOLDER", tmp_path)
    packages.NUMPY.file.write_bytes(b"something else")
    with pytest.raises(packages.PackageMissing, match="expected sha512 "):
        packages.NUMPY.tarball()


# ---- in Chromium, without a network


class Page:
    """A page of headless Chromium, by the DevTools protocol."""

    def __init__(self, address):
        websocket = pytest.importorskip("websocket", reason="needs JupyterLab's websocket-client")
        self._socket = websocket.create_connection(address, timeout=60, suppress_origin=True)
        self._numbers = itertools.count(1)
        self.problems = []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method, **params):
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            message = json.loads(self._socket.recv())
            if message.get("id") == number:
                assert "error" not in message, message
                return message["result"]
            self._note(message)

    def _note(self, message):
        params = message.get("params", {})
        if message.get("method") == "Runtime.exceptionThrown":
            self.problems.append(params["exceptionDetails"])
        if message.get("method") == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.problems.append(params["entry"])
        if message.get("method") == "Runtime.consoleAPICalled" and params["type"] == "error":
            self.problems.append(params["args"])

    def eval(self, expression):
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait(self, expression, seconds=60):
        end = time.monotonic() + seconds
        while not self.eval(expression):
            assert time.monotonic() < end, f"{expression}: {self.eval('document.body.innerText')}"
            time.sleep(0.1)

    def run(self, code):
        self.eval(f"code.value = {json.dumps(code)}; at('run').click()")
        self.wait("at('state').textContent.startsWith('Done')")
        return self.eval("at('output').textContent")


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The page in Chromium, which finds no other machine than this one."""
    if CHROMIUM is None:
        pytest.skip("needs Chromium")
    folder = tmp_path_factory.mktemp("site")
    try:
        path = browser.write(folder)
    except packages.PackageMissing as error:
        pytest.skip(str(error))
    handler = functools.partial(_Quiet, directory=folder)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    profile = tmp_path_factory.mktemp("profile")
    options = (
        "--headless --no-sandbox --disable-gpu --disable-background-networking --disable-sync "
        "--disable-component-update --no-first-run --remote-debugging-port=0 "
        "--window-size=1440,1000"
    ).split()
    options.append("--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1")
    process = subprocess.Popen(
        [CHROMIUM, *options, f"--user-data-dir={profile}", "about:blank"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        port = _devtools_port(profile)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json") as answer:
            (tab,) = [tab for tab in json.load(answer) if tab["type"] == "page"]
        page = Page(tab["webSocketDebuggerUrl"])
        page.address = f"http://127.0.0.1:{server.server_port}/{path.relative_to(folder)}"
        page.call("Page.navigate", url=page.address)
        page.wait("document.body?.dataset.ready || document.body?.dataset.failed")
        assert page.eval("document.body.dataset.ready"), page.eval("document.body.innerText")
        yield page
    finally:
        process.terminate()
        process.wait()
        server.shutdown()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def _devtools_port(profile: Path) -> int:
    file = profile / "DevToolsActivePort"
    for _ in range(300):
        if file.exists() and (text := file.read_text()):
            return int(text.split()[0])
        time.sleep(0.1)
    pytest.skip("Chromium does not start")


def test_the_first_kernel_runs_in_the_browser(page):
    page.eval("at('run').click()")
    page.wait("at('state').textContent.startsWith('Done')")
    text = page.eval("at('output').textContent")
    assert "out: 6 float32, all within" in text and "29 of 32 lanes idle" in text
    assert page.eval("document.querySelectorAll('#output svg').length") == 2


def test_the_browser_finds_the_race_and_the_index(page):
    assert "total[0] is read by thread 1 and was written by thread 0" in page.run(RACE)
    assert page.eval("document.querySelector('#numbers .at').textContent") == "3"
    assert "out[6] is out of range, shape (6,) (block 1, thread 2)" in page.run(OUT_OF_RANGE)
    assert "32 wavefronts" in page.run(BANKS)


def test_an_endless_kernel_is_stopped_and_the_page_lives(page):
    page.eval(f"code.value = {json.dumps(ENDLESS)}; at('run').click()")
    time.sleep(0.5)
    assert page.eval("at('state').textContent") == "Running …"
    page.eval("at('stop').click()")
    page.wait("at('state').textContent === 'Ready'")
    assert "2" in page.run("1 + 1")


def test_an_exercise_is_solved_and_remembered(page):
    (lesson,) = [lesson for lesson in EXERCISES if lesson["title"] == "sort"]
    page.eval(f"at('lesson').value = '{lesson['id']}'; choose()")
    assert page.eval("at('solution').open") is False
    assert "●" in page.run(solved(lesson))
    page.call("Page.reload")
    page.wait("document.body?.dataset.ready")
    assert page.eval("at('lesson').selectedOptions[0].text") == "● Exercise: sort"


def test_a_phone_scrolls_in_one_direction(page):
    page.call(
        "Emulation.setDeviceMetricsOverride",
        width=400,
        height=800,
        deviceScaleFactor=1,
        mobile=True,
    )
    page.run(BANKS)
    assert page.eval("document.documentElement.scrollWidth") == 400
    page.call("Emulation.clearDeviceMetricsOverride")


def test_no_error_was_written_to_the_console(page):
    page.eval("1")
    assert page.problems == []


def test_the_page_names_no_other_machine():
    for file in (Path(browser.__file__).parent / "page").iterdir():
        assert not re.search(r"https?://(?!www\.w3\.org)", file.read_text()), file
