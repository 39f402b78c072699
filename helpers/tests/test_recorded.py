"""Records survive their machine, say where they come from, and pretend nothing."""

import json

import pytest
import torch

from helpers import recorded as module
from helpers.recorded import recorded, stored


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch, records):
    monkeypatch.setattr(module, "BACKEND", "cpu")


def record_on_gpu(monkeypatch, pretend_gpu, key, value, about=None):
    with monkeypatch.context() as gpu:
        pretend_gpu()
        gpu.setenv("RECORD", "1")
        result = recorded(key, lambda: value, about)
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
    assert other.value == 1 and other.stale
    assert other.caption.endswith("for an older version of this cell")


def test_files_give_readable_diffs(monkeypatch, pretend_gpu, records):
    record_on_gpu(monkeypatch, pretend_gpu, "01_square", {"b": 1, "a": "µs"})
    text = (records / "01_square.json").read_text()
    assert text.endswith("}\n") and '"a": "µs",\n' in text
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
