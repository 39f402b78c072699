"""Comparisons measure in turns, check results before and after, and show records without a GPU."""

import gc
import math
import time
import weakref

import pytest
import torch

from helpers import recorded, timing
from helpers.base.called_kernels import called_kernels
from helpers.base.tables import Table
from helpers.compiler import compile_cuda
from helpers.device import BACKEND, DEVICE
from helpers.recorded import Record
from helpers.timing import Comparison, capture, compare, time_cuda

x = torch.arange(1.0, 101.0)


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch, records):
    monkeypatch.setattr(recorded, "BACKEND", "cpu")


def wall_clock(fn, calls):
    start = time.perf_counter()
    for _ in range(calls):
        fn()
    return 1e3 * (time.perf_counter() - start) / calls


@pytest.fixture
def gpu(monkeypatch, pretend_gpu):
    """Time with the wall clock where the GPU would be timed with events, few samples."""
    pretend_gpu()
    monkeypatch.setattr(timing, "cuda_clock", lambda reads, meet: wall_clock)
    monkeypatch.setattr(timing, "SAMPLES", 8)
    monkeypatch.setattr(timing, "WARM_UP_S", 0.001)


# ---- without a GPU


def test_every_candidate_runs_and_the_sentence_shows():
    calls = []
    candidates = {name: lambda name=name: calls.append(name) for name in "ab"}
    table = compare(candidates, "01_nothing", check=False)
    assert calls == ["a", "b"]
    assert table.rows == [] and math.isnan(table.self_ratio)
    assert math.isnan(table.time_us("square"))
    assert str(table) == table.caption and "Nothing is recorded" in table.caption
    assert "Nothing is recorded" in table._repr_html_()


def test_time_cuda_without_a_record_is_nan():
    calls = []
    found = time_cuda(lambda: calls.append(1), "01_nothing")
    assert calls == [1] and math.isnan(found.median_ms) and "Nothing is recorded" in str(found)


def test_a_recorded_table_is_shown_with_its_gpu(monkeypatch, gpu, records):
    candidates = {"x * x": lambda: x * x, "square": lambda: x.square()}
    monkeypatch.setenv("RECORD", "1")
    live = compare(candidates, "01_square", bytes=800, flops=100)
    time_cuda(candidates["square"], "01_one")
    monkeypatch.setattr(recorded, "BACKEND", "cpu")

    table = compare(candidates, "01_square", bytes=80, flops=10)  # smaller inputs on the CPU
    assert table.rows == live.rows and table.self_ratio == live.self_ratio
    assert table.time_us(table.rows[0]["name"]) == 1e3 * table.rows[0]["median_ms"]
    with pytest.raises(KeyError, match="no candidate 'cube'; there is"):
        table.time_us("cube")
    assert "recorded on Pretended GPU" in str(table)
    assert "recorded on Pretended GPU" in str(time_cuda(candidates["square"], "01_one"))
    assert table.record.value["bytes"] == 800

    assert table.header[0] == "Pretended GPU"
    (records / "01_two.json").write_text((records / "01_square.json").read_text())
    brief = compare(candidates, "01_two")
    assert brief.caption.startswith("median of 8 samples") and brief.header == table.header
    assert str(brief).count("\n") == 4

    changed = compare(candidates | {"pow": lambda: x**2}, "01_square")
    assert len(changed.rows) == 2 and "earlier version of this cell" in changed.caption


# ---- results


def test_a_wrong_candidate_is_named():
    with pytest.raises(AssertionError, match=r"'x \+ x' disagrees with 'x \* x': result\[0\]"):
        compare({"x * x": lambda: x * x, "x + x": lambda: x + x}, "01_x")


@pytest.mark.parametrize("spoilt", ["first", "second", "both"])
def test_nan_never_passes(spoilt):
    nan = torch.full_like(x, math.nan)
    first = nan if spoilt != "second" else x
    second = nan if spoilt != "first" else x
    with pytest.raises(AssertionError):
        compare({"a": lambda: first, "b": lambda: second}, "01_x")


def test_tuples_and_none_are_compared_part_by_part():
    good = {"a": lambda: (x, None, [x, 2]), "b": lambda: [x.clone(), None, (x, 2)]}
    assert compare(good, "01_x").rows == []
    assert compare({"numpy": lambda: x.numpy(), "torch": lambda: x}, "01_x").rows == []
    for bad in [(x, None), (x, None, (x + 1, 2)), (x, x, (x, 2)), (x, None, (x, 3)), None, x]:
        with pytest.raises(AssertionError, match="'b' disagrees with 'a': result"):
            compare(good | {"b": lambda bad=bad: bad}, "01_x")


def test_unchecked_candidates_may_differ():
    compare({"a": lambda: x, "b": lambda: None}, "01_x", check=False)


def test_a_check_that_would_compare_nothing_is_refused():
    with pytest.raises(ValueError, match="'a' returns nothing that could be checked: let every"):
        compare({"a": lambda: None, "b": lambda: x}, "01_x")
    with pytest.raises(ValueError, match="at least one candidate"):
        compare({}, "01_x")
    with pytest.raises(TypeError, match="result: expected a tensor, .* to check, got dict"):
        compare({"a": lambda: {"out": x}, "b": lambda: {"out": x}}, "01_x")


def test_a_candidate_that_raises_is_named():
    def fails():
        raise IndexError("5 is out of range")

    for wrong, error in ((fails, IndexError), (x, TypeError)):
        with pytest.raises(error) as caught:
            compare({"fine": lambda: x, "wrong": wrong}, "01_x")
        assert caught.value.__notes__ == ["in candidate 'wrong'"]


def test_candidates_that_change_their_inputs_are_told_apart_from_wrong_ones():
    y = x.clone()
    changing = {"mul": lambda: y.mul_(2), "add": lambda: y.add_(y)}
    with pytest.raises(AssertionError, match="'add' disagrees .*\n.* need check=False"):
        compare(changing, "01_x")
    nan = torch.full_like(x, math.nan)
    for first, second in ((x, x + 1), (nan, nan), ((x, 3), (x, 4)), (x.numpy(), x + 1)):
        with pytest.raises(AssertionError) as caught:
            compare({"a": lambda first=first: first, "b": lambda second=second: second}, "01_x")
        assert "check=False" not in str(caught.value)


def test_a_default_device_changes_nothing(monkeypatch, gpu):
    candidates = {f"{size} threads": lambda: (x * x, x.sum()) for size in range(32, 320, 32)}
    with torch.device("meta"):  # as set_default_device("cuda") does for real
        assert len(compare(candidates, "01_x").rows) == 9
        assert time_cuda(candidates["32 threads"], "01_x").median_ms > 0
    names = [row["name"] for row in compare({32: lambda: x, 64: lambda: x}, "01_x").rows]
    assert names == ["32", "64"]


def test_results_are_not_printed(capsys):
    compare({"a": lambda: x, "b": lambda: x}, "01_x")
    assert capsys.readouterr().out == ""


def test_results_are_checked_again_after_timing(gpu):
    y = x.clone()
    with pytest.raises(
        AssertionError, match="after timing, 'in place' disagrees with 'in place' before"
    ):
        compare({"in place": lambda: y.mul_(2)}, "01_x")
    y = x.clone()
    assert len(compare({"in place": lambda: y.mul_(2)}, "01_x", check=False).rows) == 1


def test_a_candidate_that_goes_wrong_later_is_caught(gpu):
    calls = []

    def later_wrong():
        calls.append(1)
        return x * x if len(calls) < 10 else x

    with pytest.raises(AssertionError, match="after timing, 'later wrong' disagrees"):
        compare({"x * x": lambda: x * x, "later wrong": later_wrong}, "01_x")


# ---- samples


def fake_clock(times_ms, log):
    """Return a clock in which each candidate takes the time that `times_ms` gives it."""

    def clock(fn, calls):
        log.append((fn, calls))
        return times_ms[fn]

    return clock


def test_candidates_take_turns_in_rotating_order(monkeypatch):
    monkeypatch.setattr(timing, "SAMPLES", 6)
    log = []
    samples = timing._sample(["a", "b", "c"], fake_clock({"a": 100, "b": 200, "c": 300}, log))
    assert [len(times) for times in samples] == [6, 6, 6]
    assert "".join(name for name, _ in log[-18:]) == "abcbcacab" * 2
    assert samples[1] == [200] * 6


def test_samples_keep_to_the_budget():
    log = []
    samples = timing._sample(["slow"], fake_clock({"slow": 150}, log))
    assert len(samples[0]) == 10  # 1.5 s
    assert len(timing._sample(["slower"], fake_clock({"slower": 2000}, log))[0]) == 5
    assert len(timing._sample(["fast"], fake_clock({"fast": 1}, log))[0]) == timing.SAMPLES


def test_short_calls_are_timed_several_at_once():
    log = []
    timing._sample(["short", "long"], fake_clock({"short": 0.01, "long": 1}, log))
    assert set(log[-10:]) == {("short", timing.CALLS_PER_SHORT_SAMPLE), ("long", 1)}


def test_figures_follow_from_the_samples():
    slow = [2.0 + i / 100 for i in range(-50, 51)]
    fast = [t / 4 for t in slow]
    value = timing.evaluate(["slow", "fast"], [slow, fast, slow], 8_000_000, 10**9)
    first, second = value["rows"]
    assert first["median_ms"] == pytest.approx(2.0)
    assert first["low_ms"] == pytest.approx(1.6) and first["high_ms"] == pytest.approx(2.4)
    assert first["gbps"] == pytest.approx(4.0) and first["tflops"] == pytest.approx(0.5)
    assert second["ratio"] == pytest.approx(4.0) and value["self_ratio"] == pytest.approx(1.0)


def test_a_live_comparison_is_near_the_truth(gpu):
    def busy(ms):  # not asleep: some machines wake up only every 4 ms
        def fn():
            end = time.perf_counter() + ms / 1e3
            while time.perf_counter() < end:
                pass

        return fn

    table = compare({"8 ms": busy(8), "2 ms": busy(2)}, "01_x", check=False)
    assert 8 <= table.rows[0]["median_ms"] < 30  # more than 8 where others want the core too
    assert 2 < table.rows[1]["ratio"] < 10
    assert 0.5 < table.self_ratio < 2
    assert "measured on Pretended GPU" in table.caption


def test_a_call_that_launches_for_long_is_timed_from_an_idle_gpu(monkeypatch, gpu):
    asked = []

    def clock(reads, meet):
        asked.append((meet, reads))
        return wall_clock

    monkeypatch.setattr(timing, "cuda_clock", clock)
    short, long = (lambda: 1), (lambda: time.sleep(timing.MOST_HIDDEN_MS / 1e3) or 1)
    tables = [compare({"short": short}, "01_x"), compare({"short": short, "long": long}, "01_x")]
    reads = timing.FLUSH_READS
    assert asked == [(None, reads), (torch.cuda.synchronize, reads)]
    assert ["launching included; the first" in table.caption for table in tables] == [False, True]
    assert "median of 8 samples, L2 flushed before each call, launching" in tables[1].caption
    assert str(time_cuda(long, "01_x")).endswith("each call, launching included")


def test_the_flush_is_long_enough_to_hide_what_launches_a_while(monkeypatch, gpu):
    asked = []
    monkeypatch.setattr(timing, "cuda_clock", lambda reads, meet: asked.append(reads) or wall_clock)
    monkeypatch.setattr(timing, "_launch_ms", lambda fn: fn() * timing.HIDDEN_MS)
    for launch in 0.5, 1, 1.1, 3.3:
        assert "launching included" not in str(time_cuda(lambda: launch, "01_x"))  # noqa: B023
    reads = timing.FLUSH_READS
    assert asked == [reads, reads, math.ceil(1.1 * reads), math.ceil(3.3 * reads)]


@pytest.mark.parametrize("from_idle", [False, True])
def test_a_call_stands_alone_between_its_events_after_the_flush(monkeypatch, from_idle):
    log = []

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            log.append("event")

        def elapsed_time(self, end):
            return 3.0

    class Chip:
        L2_cache_size = 2**20

    flushed = []
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "get_device_properties", Chip)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: log.append("wait"))
    read = torch.sum
    monkeypatch.setattr(torch, "sum", lambda *a, **k: flushed.append(a[0]) or read(*a, **k))
    monkeypatch.setattr(timing, "DEVICE", torch.device("cpu"))
    with torch.device("meta"):  # a default device changes nothing
        clock = timing.cuda_clock(7, torch.cuda.synchronize if from_idle else None)
    assert clock(lambda: log.append(len(flushed)), 2) == 3.0
    first, second = 7, 14
    wait = ["wait"] * from_idle
    calls = [*wait, "event", first, "event", *wait, "event", second, "event"]
    assert log == [*calls, "wait"] and flushed[0].nbytes == 2**26


@pytest.mark.parametrize("slow", [1, 5])  # calls, while the machine is busy with something else
def test_the_first_slow_calls_do_not_count_as_launching(gpu, slow):
    times = iter([20] * slow + [0, 0])
    assert timing._launch_ms(lambda: time.sleep(next(times) / 1e3)) < timing.MOST_HIDDEN_MS


# ---- the table


def shown(**columns):
    rows = [
        {"name": name, "median_ms": t, "low_ms": 0.9 * t, "high_ms": 1.2 * t, "ratio": 0.2 / t}
        | {"gbps": None, "tflops": None}
        | columns
        for name, t in (("torch", 0.2), ("ours & <fast>", 0.01234))
    ]
    value = {"rows": rows, "self_ratio": 1.004, "method": "median of 100 samples"}
    return Comparison(Record(value, "GPU", torch.__version__, "13.0", date="2026-01-01"))


def test_a_table_without_a_caption_ends_with_its_rows():
    table = Table(["a"], [["1"]], "")
    assert str(table).endswith("\n1") and "<p" not in table._repr_html_()


def test_names_that_begin_with_a_number_are_names():
    lines = [["1", "2.5", "1.00×"], ["2, a block apart", "12,345", "50%"]]
    assert str(Table(["GPU", "µs", "speed"], lines, "")).split("\n")[2:] == [
        "1                    2.5  1.00×",
        "2, a block apart  12,345    50%",
    ]


def test_text_is_aligned_and_has_units():
    head, rule, *rows = str(shown(gbps=4000.4)).split("\n")
    assert head.split() == ["GPU", "median", "µs", "10", "%", "90", "%", "GB/s", "speed"]
    assert rows[0].split() == ["torch", "200.00", "180.00", "240.00", "4,000", "1.00×"]
    assert rows[1].endswith("12.34   11.11   14.81  4,000  16.21×")
    assert len(rows[0]) == len(rows[1]) == len(rule)
    assert "first against itself: 1.004×" in rows[3]


def test_html_takes_the_themes_colours_and_escapes():
    html = shown(tflops=1.5)._repr_html_()
    assert "ours &amp; &lt;fast&gt;" in html and "TFLOP/s" in html and "GB/s" not in html
    assert "color:" not in html and "background" not in html


# ---- CUDA graphs


def test_a_graph_does_the_work_again_and_names_its_kernels():
    add_one = compile_cuda("""
        #include <c10/cuda/CUDAStream.h>
        __global__ void add_one_kernel(float* x, int n) {
            if (threadIdx.x < n) x[threadIdx.x] += 1;
        }
        void add_one(torch::Tensor x) {
            auto stream = at::cuda::getCurrentCUDAStream();
            add_one_kernel<<<1, 32, 0, stream>>>(x.data_ptr<float>(), x.numel());
        }
        """).add_one
    counts = torch.zeros(7, device=DEVICE)
    replay = capture(lambda: add_one(counts))
    before = counts.clone()
    with called_kernels() as called:
        replay()
        replay()
    assert torch.equal(counts, before + 2)
    assert called == add_one.kernel_versions


@pytest.mark.skipif(BACKEND == "cpu", reason="there are no graphs")
def test_a_graph_of_nothing_is_an_error():
    fill = compile_cuda("""
        __global__ void fill_kernel(float* x) { *x = 1; }
        void fill(torch::Tensor x) { fill_kernel<<<1, 1>>>(x.data_ptr<float>()); }
        """).fill
    x = torch.zeros(1, device=DEVICE)
    with pytest.raises(RuntimeError, match="graph is empty: expected launches in .*Stream"):
        capture(lambda: fill(x))


def test_memory_that_a_graph_writes_stays_its_own():
    total = torch.zeros(7, device=DEVICE)

    def step():
        total.add_(1)

    alive = weakref.ref(step)
    replay = capture(step)
    del step
    gc.collect()
    assert alive() is not None
    replay()
