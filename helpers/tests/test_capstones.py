"""A capstone refuses wrong kernels, and tells naive ones from good ones; marks are kept."""

import json
import random

import pytest
import torch

from helpers.base.machine import ROOT
from helpers.device import BACKEND
from helpers.exercises import ExerciseError, capstone, capstones, progress
from helpers.exercises.capstones import BY_COUNT, PASSED
from helpers.exercises.hidden import TASKS
from helpers.exercises.marks import best
from helpers.exercises.ticks import ticks_of
from helpers.tests.at_once import run_two
from helpers.tests.capstone_attempts import BODIES, GOOD, HEAD, NAIVE
from helpers.trace.record import Access, Launch, Line

OPS = list(TASKS)
counted = pytest.mark.skipif(BACKEND == "cuda", reason="a GPU marks by its clock")


@pytest.fixture(autouse=True)
def fresh_progress(tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "FILE", tmp_path / "cache" / "progress.json")


def cells_of(notebook):
    text = (ROOT / "notebooks" / f"{notebook}.ipynb").read_text(encoding="utf-8")
    return {cell["id"]: "".join(cell["source"]) for cell in json.loads(text)["cells"]}


def ours_of(notebook):
    """Return the CUDA string that a notebook hands over as the course's own."""
    names = {}
    exec(cells_of(notebook)[f"{notebook.split('_')[0]}-cap-o"], names)
    return names["block_src"]


OURS = {"first_block": ours_of("17b_faster_and_faster")}


def run(op, source, hint=""):
    capstone("it", source, op, hint, ours=OURS.get(op, ""))


def speed(name):
    return progress.entry(name)["marks"][-1]["speed"]


@counted
@pytest.mark.parametrize("op", OPS)
def test_naive_and_good_kernels_are_told_apart(op, capsys):
    run(op, NAIVE[op], hint="share the work")
    assert speed("it") < PASSED
    assert "solved" not in progress.entry("it")
    said = capsys.readouterr().out
    assert said.startswith("◐ it: all hidden tests pass, at 0.") and "Hint: share" in said
    run(op, GOOD[op], hint="share the work")
    assert speed("it") >= PASSED
    assert progress.entry("it")["solved"]
    said = capsys.readouterr().out
    assert said.startswith("● it: all hidden tests pass") and "Hint" not in said
    assert "2 right so far" in said


@counted
@pytest.mark.parametrize("op", OPS)
def test_the_kernel_of_the_course_passes_its_own_tests(op):
    file = ROOT / "kernels" / f"{TASKS[op].file}.cu"
    run(op, OURS[op] if op in OURS else file.read_text())
    assert speed("it") == 1


WRONG = [
    ("histogram", "i < n; i += step", "i < n - 1; i += step"),
    ("histogram", "+ lane, 1", "+ lane, inp[i] == 255 ? 0 : 1"),
    ("histogram", "unsigned counts", "unsigned char counts"),
    ("histogram", "inp.data_ptr<uint8_t>()", "inp.data_ptr<uint8_t>() + inp.storage_offset()"),
    ("histogram", "unsigned sum = 0", "unsigned short sum = 0"),
    ("softmax", "largest = -INFINITY", "largest = -100"),
    ("softmax", "largest = top;", "largest = 0;"),
    ("softmax", "start<c10::BFloat16>", "start<c10::Half>"),
    ("softmax", "c < C", "c < C && c < 1024"),
    ("softmax", "if (top > -INFINITY || isnan(x)) sum", "sum"),
    ("matmul", "(first + k) * a_col", "(first + k)"),
    ("matmul", "(row + m) * a_row", "(row + m) * K"),
    ("matmul", "(first + l) * b_row", "(first + l) * N"),
    ("matmul", "first + k < K", "true"),
    ("attention", "causal ?", "false ?"),
    ("attention", "min(S_kv, row + 1)", "min(S_kv, row)"),
    ("attention", "/ sqrtf(D)", "/ 8"),
    ("attention", "top = larger;", "top = 0;"),
    ("attention", "S_kv, row + 1) : S_kv", "S_kv, row + 1) : min(S_kv, 256)"),
    ("depthwise_conv2d", "shift ? shift[c] : 0;\n    for (int h", "0;\n    for (int h"),
    ("depthwise_conv2d", "+ a * dilation", "+ a"),
    ("depthwise_conv2d", "row * stride", "row"),
    ("depthwise_conv2d", "0 <= w && w < W ? inp", "w < W ? inp"),
    ("depthwise_conv2d", "if (first + r < H_out &&", "if ("),
    ("depthwise_conv2d", "weight[(c * kH + a) * 7 + b]", "weight[a * 7 + b]"),
    ("first_block", "rows[blockIdx.x]", "blockIdx.x"),
    ("first_block", "largest = 0.0f", "largest = -INFINITY"),
    ("first_block", "i < M * 9", "i < min(M * 9, 288)"),
    ("first_block", "scale * y", "fabsf(scale) * y"),
    ("first_block", "stats[M + m]", "stats[m + 32]"),
    ("first_block", "y >= 0 && y < H && x >= 0 && x < W ?", "y >= 0 && x >= 0 && x < W ?"),
    ("first_block", "i < H * W / 4; i += blockDim.x", "i < min(H * W / 4, 224); i += blockDim.x"),
    ("first_block", "i / (W / 2) * 2 * (W + 2)", "i / 14 * 2 * (W + 2)"),
]


@pytest.mark.parametrize(("op", "old", "new"), WRONG, ids=lambda part: part[:20])
def test_wrong_kernels_are_refused(op, old, new, capsys):
    assert old in GOOD[op]
    with pytest.raises(ExerciseError):
        run(op, GOOD[op].replace(old, new), hint="look again")
    said = capsys.readouterr().out
    assert said.startswith("✗ it: ") and "Hint: look again" in said
    assert "marks" not in progress.entry("it")


def test_the_first_failure_says_what_was_tested(capsys):
    with pytest.raises(ExerciseError):
        capstone("it", GOOD["histogram"].replace("+ lane, 1", "+ lane, 2"), "histogram")
    said = capsys.readouterr().out
    assert "hidden test 3 of 11, one byte[" in said and "expected 1, got 2" in said


def test_inputs_and_types_stay_what_they_are(capsys):
    writes = GOOD["matmul"].replace("float* A,", "float* A_,").replace(
        "    __shared__ float a[16]",
        "    float* A = const_cast<float*>(A_);\n"
        "    if (threadIdx.x + threadIdx.y + blockIdx.x + blockIdx.y == 0) A[0] = A[0] + 1;\n"
        "    __syncthreads();\n    __shared__ float a[16]",
    )  # fmt: skip
    wide = GOOD["softmax"].replace("empty_like(inp)", "empty(inp.sizes(), torch::kFloat)")
    wide = wide.replace("softmax_kernel(T* out", "softmax_kernel(float* out")
    wide = wide.replace("static_cast<T*>(out", "static_cast<float*>(out").replace("T(expf", "(expf")
    for op, source, complaint in (
        ("matmul", writes, "argument 1 is written to"),
        ("softmax", wide, "expected torch.bfloat16, got torch.float32"),
    ):
        with pytest.raises(ExerciseError):
            capstone("it", source, op)
        assert complaint in capsys.readouterr().out


def test_what_is_empty_is_to_do(capsys):
    empty = HEAD + "__global__ void histogram_kernel() {\n    // all of it is missing\n}\n"
    capstone("it", empty, "histogram")
    assert capsys.readouterr().out == "○ it: to do\n"
    assert progress.entry("it") == {}


def test_another_host_function_is_named(capsys):
    with pytest.raises(ExerciseError):
        capstone("it", GOOD["histogram"].replace("Tensor histogram(", "Tensor count("), "histogram")
    assert "expected a host function histogram" in capsys.readouterr().out


@counted
def test_a_kernel_that_is_left_out_has_no_mark(capsys):
    """Right in all tests, but on what is marked it does not run."""
    source = GOOD["softmax"].replace("!inp.numel()", "inp.numel() == 64000 || !inp.numel()")
    with pytest.raises(ExerciseError):
        capstone("it", source, "softmax")
    assert "the hidden tests pass, but on the inputs of the mark" in capsys.readouterr().out


@pytest.mark.parametrize("notebook", BODIES)
def test_the_start_in_a_notebook_lacks_only_its_body(notebook, capsys):
    """With one, it passes; as it is, it is to do, and the notebook names the op that it is."""
    cells, number = cells_of(notebook), notebook.split("_")[0]
    parts = [f"{number}-cap-{part}" for part in "olke" if f"{number}-cap-{part}" in cells]
    exec("\n".join(cells[part] for part in parts), {"capstone": capstone})
    assert capsys.readouterr().out.startswith(f"○ {number} capstone: ")
    start = cells[f"{number}-cap-k"]
    assert start.count("    // all of it is missing\n") == 1
    cells[f"{number}-cap-k"] = start.replace("    // all of it is missing\n", BODIES[notebook])
    exec("\n".join(cells[part] for part in parts), {"capstone": capstone})
    assert "all hidden tests pass" in capsys.readouterr().out


@pytest.mark.parametrize("op", OPS)
def test_cases_are_drawn_anew(op):
    def cases(seed):
        torch.manual_seed(seed)
        return [case.what for case in TASKS[op].cases(random.Random(seed))]

    assert cases(1) == cases(1) != cases(2)
    assert len({tuple(cases(seed)) for seed in range(9)}) == 9


def test_the_numbers_of_the_notebook_stay_what_they_are():
    torch.manual_seed(5)
    want = torch.randn(3)
    torch.manual_seed(5)
    with pytest.raises(ExerciseError):
        capstone("it", GOOD["histogram"].replace("+ lane, 1", "+ lane, 2"), "histogram")
    assert torch.equal(torch.randn(3), want)


# ---------------------------------------------------------------- marks


def mark(took, by=BY_COUNT, ours=100):
    speed = ours / took
    return {"date": "2026-01-02", "took": took, "ours": ours, "speed": speed, "by": by}


def test_the_table_has_the_best_first_and_one_machine_alone():
    for took in (400, 90, 1000, 200, 800, 125):
        progress.append("it", "marks", mark(took))
    progress.append("it", "marks", mark(50, by="a GPU"))
    table = best("it", BY_COUNT, "ticks")
    assert [line[-1] for line in table.lines] == ["1.11", "0.80", "0.50", "0.25", "0.12"]
    assert table.lines[1][1].endswith("←") and "6 right so far" in table.caption
    assert [line[2] for line in best("it", "a GPU", "µs").lines] == ["50"]
    assert best("other", BY_COUNT, "ticks").lines == []


APPEND = """
import sys
from pathlib import Path
from helpers.exercises import progress

progress.FILE = Path(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
for i in range(50):
    progress.append("it", "marks", f"{sys.argv[2]} {i}")
"""


def test_two_kernels_that_save_marks_at_once_lose_nothing():
    run_two(APPEND, progress.FILE)
    marks = json.loads(progress.FILE.read_text())["it"]["marks"]
    assert len(set(marks)) == 100


def timed(yours, ours):
    def row(name, us):
        return {"name": name, "median_ms": us / 1e3, "low_ms": us / 1e3, "high_ms": us / 1e3}

    return {"rows": [row("ours", ours), row("yours", yours)], "method": "median of 5 samples"}


def test_a_gpu_marks_by_its_clock(monkeypatch, capsys):
    def measure(functions):
        assert list(functions) == ["ours", "yours"]
        results = [function() for function in functions.values()]
        assert torch.equal(*results)
        return timed(yours=80.0, ours=60.0)

    monkeypatch.setattr("helpers.timing.measure_speeds", measure)
    monkeypatch.setattr(capstones, "BACKEND", "cuda")
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "some GPU")
    task = TASKS["histogram"]
    small = task.marked(False)
    monkeypatch.setattr(capstones, "_marked", lambda task, is_gpu: small)
    capstone("it", GOOD["histogram"], "histogram")
    assert progress.entry("it")["marks"][0]["by"] == "some GPU"
    said = capsys.readouterr().out
    assert "● it: all hidden tests pass, at 0.75 of" in said and "some GPU" in said


def test_what_differs_at_full_size_is_wrong(monkeypatch, capsys):
    def measure(functions):
        raise AssertionError("'yours' disagrees with 'ours': out[5]")

    monkeypatch.setattr("helpers.timing.measure_speeds", measure)
    monkeypatch.setattr(capstones, "BACKEND", "cuda")
    monkeypatch.setattr(capstones, "_marked", lambda task, is_gpu: ())
    with pytest.raises(ExerciseError):
        capstone("it", GOOD["histogram"], "histogram")
    assert "the hidden tests pass, but 'yours' disagrees" in capsys.readouterr().out


@counted
def test_where_nothing_can_be_counted_right_is_enough(monkeypatch, capsys):
    def refuse(*_):
        raise RuntimeError("objdump is not installed")

    monkeypatch.setattr(capstones, "count_ticks", refuse)
    capstone("it", GOOD["histogram"], "histogram")
    assert progress.entry("it") == {"tries": 1, "solved": True}
    assert "without a mark, for objdump is not installed" in capsys.readouterr().out


# ---------------------------------------------------------------- ticks


def launch(accesses=(), lines=(), grid=(4, 1, 1)):
    return Launch("k", grid, (32, 1, 1), 0, "CPU backend", list(accesses), list(lines), [])


def access(operation, space, **counts):
    return Access(1, "", operation, space, "a", 4, **counts)


@pytest.mark.parametrize(
    ("what", "passes"),
    [
        (access("load", "global", requests=10, sectors=40), 10),
        (access("load", "global", requests=10, sectors=10), 10),  # a request is one pass at least
        (access("load", "global", requests=10, sectors=320), 80),
        (access("atomic", "global", requests=10, sectors=320), 320),
        (access("load", "shared", requests=8, wavefronts=16, joined_wavefronts=4), 4),
        (access("atomic", "shared", requests=8, wavefronts=16, same_address=256), 256),
    ],
)
def test_the_door(what, passes):
    assert ticks_of([launch([what])]).door == passes / 4
    assert ticks_of([launch([what], grid=(1, 1, 1))]).door == passes
    assert ticks_of([launch([what], grid=(2, 1, 1))]).door == passes / 2


def test_the_largest_limit_of_each_launch_counts():
    memory = launch([access("load", "global", requests=40, sectors=160)])
    arithmetic = launch(lines=[Line(1, "", 100, 3200, 6400), Line(2, "", 64, 64, 128)])
    ticks = ticks_of([memory, arithmetic])
    assert (ticks.door, ticks.lanes, ticks.launches) == (10, 6528 / 256 / 4, 2)
    assert ticks.schedulers == 40 / 4 / 4 + (100 + 64) / 4 / 4  # a line by one lane: as slow
    assert ticks.total == 10 + 164 / 16
    assert ticks_of([]).total == 0
