"""Records survive their machine, say where they come from, and pretend nothing."""

import json
import threading

import pytest
import torch

from helpers import recorded as module
from helpers.base.called_kernels import called_kernels, noting
from helpers.compiler.source import kernel_version
from helpers.recorded import StaleRecord, recorded, stored


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch, records):
    monkeypatch.setattr(module, "BACKEND", "cpu")


def record_on_gpu(monkeypatch, pretend_gpu, key, value, about=None, kernels=()):
    with monkeypatch.context() as gpu:
        pretend_gpu()
        gpu.setenv("RECORD", "1")
        result = recorded(key, lambda: value, about, kernels)
    monkeypatch.setattr(module, "BACKEND", "cpu")
    return result


def test_without_gpu_or_record_there_is_a_sentence_and_no_measurement():
    def measure():
        raise AssertionError("measured without a GPU")

    record = recorded("01_nothing", measure)
    assert record.value is None and not record.live and not record.stale
    assert record.caption.startswith("Nothing is recorded for this cell yet")


def test_a_record_comes_back_elsewhere_as_it_was(monkeypatch, pretend_gpu, records):
    value = {"µs": 1.25, "rows": (1, 2), 3: None}
    live = record_on_gpu(monkeypatch, pretend_gpu, "01_square", value)
    assert live.live and live.caption.startswith("measured on Pretended GPU · torch")

    back = recorded("01_square", lambda: 1 / 0)
    assert back.value == live.value == {"µs": 1.25, "rows": [1, 2], "3": None}
    assert not back.live and not back.stale
    assert "recorded on Pretended GPU" in back.caption and "CUDA 13.0" in back.caption
    assert back.date in back.caption and back.driver == "580.0"
    assert [path.name for path in records.iterdir()] == ["01_square.json"]  # nothing half-written


def test_one_record_of_a_notebook_describes_the_machine(monkeypatch, pretend_gpu):
    for key in "01_one", "01_two":
        record_on_gpu(monkeypatch, pretend_gpu, key, 1)
    for _ in range(2):  # also when cells run again
        one, two = stored("01_one"), stored("01_two")
        assert "torch" in one.caption and "driver 580.0" in one.caption and one.date in one.caption
        assert two.caption == "recorded on Pretended GPU" and two.brief and not one.brief
    changed = stored("01_two", about="more")
    assert "earlier version of this cell" in changed.caption and "torch" in changed.caption
    pretend_gpu()
    assert recorded("01_two", lambda: 1).caption == "measured on Pretended GPU"
    monkeypatch.setattr(module, "_driver_version", lambda: "590.0")  # another machine
    assert "driver 590.0" in recorded("01_two", lambda: 1).caption


def test_on_a_gpu_nothing_is_stored_unless_asked(pretend_gpu, records):
    pretend_gpu()
    assert recorded("01_square", lambda: 5).value == 5
    assert not records.exists()


def test_another_torch_is_named(monkeypatch, pretend_gpu):
    record_on_gpu(monkeypatch, pretend_gpu, "01_square", 1)
    assert "this machine has" not in stored("01_square").caption
    monkeypatch.setattr(torch, "__version__", "9.9.9")
    assert "(this machine has torch 9.9.9)" in stored("01_square").caption


def test_a_record_of_something_else_says_so(monkeypatch, pretend_gpu):
    record_on_gpu(monkeypatch, pretend_gpu, "01_square", 1, about=("a", "b"))
    assert not stored("01_square", about=["a", "b"]).stale
    other = stored("01_square", about=["a", "c"])
    assert other.value == 1 and other.stale == "this cell"
    assert other.caption.startswith("recorded for an earlier version of this cell on Pretended GPU")


ADD = "__global__ void add_kernel(float* x, int n) { x[0] += n; }  // adds"


def test_a_record_knows_the_version_of_its_kernels(monkeypatch, pretend_gpu, records):
    add = noting(lambda: 1, "add", ADD)
    record_on_gpu(monkeypatch, pretend_gpu, "01_add", 1, kernels=[add])
    assert stored("01_add", kernels=add.kernel_versions).stale is None
    assert json.loads((records / "01_add.json").read_text())["kernels"] == [*add.kernel_versions]
    mended = noting(lambda: 1, "add", ADD.replace("n;", "2 * n;"))
    sub = noting(lambda: 1, "sub", ADD)
    for kernels, changed in ([mended], "add"), ([], "add"), ([add, sub], "sub"):
        record = stored("01_add", kernels=kernels)
        assert record.value == 1 and record.stale == changed
        assert f"recorded for an earlier version of {changed} on" in record.caption


def test_where_records_are_checked_a_stale_one_is_an_error(monkeypatch, pretend_gpu):
    record_on_gpu(monkeypatch, pretend_gpu, "01_square", 1, kernels=["add 1"])
    monkeypatch.setenv("RECORD", "check")
    assert stored("01_square", kernels=["add 1"]).value == 1
    with pytest.raises(StaleRecord, match="01_square.json .* earlier version of add: run .*GPU"):
        stored("01_square", kernels=["add 2"])
    pretend_gpu()
    with pytest.raises(StaleRecord):  # also where it is not needed
        recorded("01_square", lambda: 2, kernels=["add 2"])
    assert recorded("01_square", lambda: 2, kernels=["add 1"]).value == 2


def test_comments_and_blanks_make_no_version():
    name, digest = kernel_version(ADD).split()
    assert name == "add_kernel" and len(digest) == 12
    spaced = "/* in place */\n" + ADD.replace("// adds", "").replace("{ ", "{\n\n    ")
    assert kernel_version(spaced) == kernel_version(ADD)
    for other in ADD.replace("int", "long"), ADD.replace("x[0]", "x [1]"), "#define N 3\n" + ADD:
        assert kernel_version(other) != kernel_version(ADD)
    said = 'void f() { printf("%d // not a comment", 1); }'
    assert kernel_version(said) != kernel_version(said.replace("not a", "a"))


def test_called_kernels_are_collected_from_all_threads():
    add, sub, unused = (noting(lambda x: x, name, ADD) for name in ("add", "sub", "unused"))
    with called_kernels() as outer:
        add(1)
        with called_kernels() as inner:
            thread = threading.Thread(target=sub, args=(2,))
            thread.start()
            thread.join()
        assert inner == sub.kernel_versions
    assert outer == add.kernel_versions | sub.kernel_versions
    assert unused(3) == 3 and unused.__name__ == "<lambda>"


def test_a_measurement_names_all_kernels_it_calls(monkeypatch, pretend_gpu, records):
    pretend_gpu()
    add = noting(lambda: 1, "add", ADD)
    assert recorded("01_add", add).value == 1
    monkeypatch.setenv("RECORD", "1")
    with pytest.raises(ValueError, match="01_add measures add as well: name all in `kernels`"):
        recorded("01_add", add)
    assert not records.exists()
    assert recorded("01_add", add, kernels=[add]).value == 1
    with pytest.raises(TypeError, match="expected a function of compile_cuda, got <built-in"):
        recorded("01_add", add, kernels=[abs])


TRITON = """
import triton
@triton.jit
def twice(x):
    return 2 * x
@triton.autotune(configs=[], key=[])
@triton.jit
def twice_kernel(out):
    twice(out)
@triton.jit
def other_kernel(out):
    twice(out)
"""


def test_triton_kernels_are_noted_with_what_they_call(tmp_path):
    pytest.importorskip("triton")

    def called(name, text):
        path = tmp_path / f"{name}.py"
        path.write_text(text)
        kernels = {}
        exec(compile(text, path, "exec"), kernels)
        with called_kernels() as found:
            kernels["twice_kernel"][(1,)]  # the launch; calling it would need a GPU
        return found

    first = called("first", TRITON)
    assert {version.split()[0] for version in first} == {"twice", "twice_kernel"}
    assert called("comment", TRITON.replace("* x", "* x  # doubled\n")) == first
    changed = called("changed", TRITON.replace("2 * x", "3 * x")) ^ first
    assert {version.split()[0] for version in changed} == {"twice"}


def test_files_give_readable_diffs(monkeypatch, pretend_gpu, records):
    record_on_gpu(monkeypatch, pretend_gpu, "01_square", {"b": 1, "a": "µs"})
    text = (records / "01_square.json").read_text()
    assert text.endswith("}\n") and '"b": 1,\n  "a": "µs"\n' in text  # a value keeps its order
    keys = list(json.loads(text))
    assert keys == sorted(keys)


@pytest.mark.parametrize("key", ["square", "1_square", "01_Square", "01_a/b", "../01_a", "01_", ""])
def test_malformed_keys_are_refused(key):
    with pytest.raises(ValueError, match="expected a key"):
        recorded(key, lambda: 1)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), torch.ones(1), {1, 2}])
def test_values_that_json_cannot_hold_are_refused(monkeypatch, pretend_gpu, records, value):
    with pytest.raises(ValueError, match="numbers, texts, lists"):
        record_on_gpu(monkeypatch, pretend_gpu, "01_square", value)
    assert not records.exists()


def test_a_record_is_replaced_whole(monkeypatch, pretend_gpu, records):
    record_on_gpu(monkeypatch, pretend_gpu, "01_square", list(range(1000)))
    record_on_gpu(monkeypatch, pretend_gpu, "01_square", 7)
    assert stored("01_square").value == 7
    assert len(list(records.iterdir())) == 1
