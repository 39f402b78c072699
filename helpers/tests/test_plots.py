"""Plots show the numbers they were given, at the right place, with units and the machine's name."""

import itertools
import math
import warnings

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib import pyplot as plt
from matplotlib.patches import Rectangle

from helpers.plots import (
    draw_race,
    plot_bars,
    plot_blocks,
    plot_confusion,
    plot_curves,
    plot_grid,
    plot_lanes,
    plot_losses,
    plot_owners,
    plot_roofline,
    plot_streams,
    plot_timeline,
    plot_timings,
    show_images,
)
from helpers.recorded import Record
from helpers.timing import Comparison

matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def cells(ax):
    """Return {(x, y): colour} of the threads that have an element, and the places of the others."""
    busy, idle = ax.collections
    assert idle.get_hatch() and not busy.get_hatch()
    places = [[tuple(path.vertices[0]) for path in c.get_paths()] for c in (busy, idle)]
    colors = map(tuple, busy.get_facecolor()[:, :3])
    return dict(zip(places[0], colors, strict=True)), set(places[1])


def text_at(ax):
    return {t.get_position(): t.get_text() for t in ax.texts}


def test_grid_in_one_dimension():
    ax = plot_grid(3, 4, 10)
    colors, idle = cells(ax)
    assert set(colors) == {(i, 0) for i in range(10)} and idle == {(10, 0), (11, 0)}
    assert len({colors[i, 0] for i in range(4)}) == 1  # a colour a block
    assert len({colors[i, 0] for i in (0, 4, 8)}) == 3
    assert [text_at(ax)[i + 0.5, 0.5] for i in range(12)] == list("012301230123")
    assert "3 blocks of 4 threads, 10 elements" in ax.get_title()
    assert "blockIdx.x * blockDim.x + threadIdx.x" in ax.get_xlabel()


def test_grid_in_two_dimensions():
    ax = plot_grid((3, 2), (2, 4), (7, 5))  # x is along the columns, y along the rows
    colors, idle = cells(ax)
    assert set(colors) == {(col, row) for col in range(5) for row in range(7)}
    assert idle == {(5, row) for row in range(8)} | {(col, 7) for col in range(6)}
    assert len(set(colors.values())) == 6
    assert text_at(ax)[3.5, 6.5] == "1,2"  # col 3, row 6: threadIdx.x 1, threadIdx.y 2
    assert "6 blocks of 8 threads, 7 × 5 elements" in ax.get_title()
    assert "row = blockIdx.y" in ax.get_ylabel()


def test_a_long_grid_is_cut_at_its_blocks():
    ax = plot_grid(8, 32, 250)
    colors, idle = cells(ax)
    assert set(colors) | idle == {(t, b) for t in range(32) for b in range(8)}
    assert idle == {(t, 7) for t in range(26, 32)}
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("threadIdx.x", "blockIdx.x")


def test_owners_stand_in_their_cells():
    owners = torch.tensor([[0, 1, 2, 3], [0, 0, 1, 1]])
    ax = plot_owners(owners, ["one each", "two each"])
    texts = {place: int(text) for place, text in text_at(ax).items()}
    assert texts == {(i + 0.5, r + 0.5): owners[r, i].item() for i in range(4) for r in range(2)}
    colors = {patch.get_xy(): patch.get_facecolor() for patch in ax.patches}
    assert all(min(color) > 0.59 for color in colors.values()), "black text is easy to read"
    assert colors[0, 1] == colors[1, 1] == colors[0, 0] != colors[2, 1] == colors[1, 0]
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["one each", "two each"]
    assert "two each [0, 0, 1, 1]" in ax.figure.get_label()


def test_small_cells_have_no_text():
    ax = plot_grid((4, 4), (16, 16), (60, 60))
    assert not ax.texts and "in a cell" not in ax.get_title()


def test_roofline_has_its_ridge_where_both_bounds_meet():
    points = {"vector add": (0.1, 0.3), "matmul": (100.0, 40.0)}
    ax = plot_roofline(points, peak_gbps=4000, peak_tflops=60.0123, caption="NVIDIA H200")
    intensity, speed = ax.lines[0].get_data()
    assert speed == pytest.approx(np.minimum(4 * intensity, 60.0123))
    assert ax.lines[1].get_xdata()[0] == pytest.approx(15.003, abs=1e-3)
    marks = {tuple(np.ravel(line.get_data())) for line in ax.lines[2:]}
    assert marks == set(points.values())
    texts = [t.get_text() for t in ax.texts]
    assert {"vector add", "matmul", "4,000 GB/s", "60 TFLOP/s", "15.0 FLOP/byte"} <= set(texts)
    (left, right), (low, high) = ax.get_xlim(), ax.get_ylim()
    assert all(left < x < right and low < y < high for x, y in points.values())
    assert ax.get_title() == "NVIDIA H200" and "TFLOP/s" in ax.get_ylabel()


@pytest.mark.parametrize("points", [
    {"sum": (0.25, 1.1), "argmax": (0.25, 1.09), "scan": (0.125, 0.41)},
    {"torch": (0.6, 1.7), "three passes": (0.6, 0.98), "online": (0.6, 1.15), "held": (0.6, 2)},
])  # fmt: skip
def test_names_of_a_roofline_do_not_lie_on_each_other(points):
    ax = plot_roofline(points, peak_gbps=4257, peak_tflops=63.8, caption="NVIDIA H200")
    ax.figure.canvas.draw()
    boxes = {t.get_text(): t.get_window_extent() for t in ax.texts if t.get_text() in points}
    assert set(boxes) == set(points)
    pairs = itertools.combinations(boxes, 2)
    assert not [pair for pair in pairs if boxes[pair[0]].overlaps(boxes[pair[1]])]
    heights = sorted(points, key=lambda name: points[name][1])
    assert sorted(points, key=lambda name: boxes[name].y0) == heights


def test_ticks_do_not_run_into_each_other():
    ax = plot_curves({"sum": [(2**k, k) for k in range(8, 27, 2)]}, "n", "µs", "GPU", log="x")
    ax.figure.canvas.draw()
    ticks = [t for t in ax.get_xticklabels() if t.get_text()]
    assert {"512", "524,288", "$2^{21}$", "$2^{25}$"} <= {t.get_text() for t in ticks}
    (left, right), boxes = ax.bbox.intervalx, [t.get_window_extent() for t in ticks]
    shown = [box for box in boxes if left <= box.x0 and box.x1 <= right]
    assert all(box.x1 < after.x0 for box, after in itertools.pairwise(shown))


def test_numbers_of_ticks_are_written_out():
    curves = {"loss": [(1, 1e-8), (3_000_000, 1e6)]}
    ax = plot_curves(curves, "n", "loss", "GPU", log="y")
    x, y = ax.xaxis.get_major_formatter(), ax.yaxis.get_major_formatter()
    assert [x(2_500_000), x(0.015625), y(1e6), y(1e-8)] == [
        "2,500,000", "0.015625", "1,000,000", "1e-08"
    ]  # fmt: skip


def test_a_curve_shows_through_another_that_lies_on_it():
    points = [(1, 2), (2, 3)]
    ax = plot_curves({"counted": points, "measured": points}, "stride", "ticks", "GPU")
    assert [line.get_linestyle() for line in ax.lines] == ["-", "--"]


def test_curves_stand_where_they_were_measured():
    curves = {"4 bytes": [(2, 0.5), (1, 0.25)], "16 bytes": [(4, 2.0)]}
    ax = plot_curves(curves, "KB", "TB/s", "NVIDIA H200", log="x", marks={"Little": 3.0})
    drawn = [list(zip(*line.get_data(), strict=True)) for line in ax.lines[:2]]
    assert drawn == [[(1, 0.25), (2, 0.5)], [(4, 2.0)]]
    assert ax.lines[2].get_xdata()[0] == 3 and ax.texts[0].get_text() == "Little"
    assert ax.get_xscale() == "log" and ax.get_yscale() == "linear" and ax.get_ylim()[0] == 0
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_title()) == ("KB", "TB/s", "NVIDIA H200")
    assert "4 bytes: 0.25 at 1, 0.5 at 2; 16 bytes: 2 at 4; Little at 3" in ax.figure.get_label()


def test_blocks_wait_for_a_place_on_their_sm():
    blocks = [(0, 10, 20), (0, 10, 30), (1, 11, 15), (0, 20, 25), (9, 12, 40)]
    ax = plot_blocks(blocks, "NVIDIA H200", sms=2)  # SM 9 is not shown
    bars = {(p.get_x(), round(p.get_y() - 0.08), p.get_width()) for p in ax.patches}
    assert bars == {(0, 0, 10), (0, 1, 20), (10, 0, 5), (1, 2, 4)}
    assert {t.get_text() for t in ax.texts} <= {"0", "1", "2", "3"}
    assert [t.get_text() for t in ax.get_yticklabels()] == ["SM 0", "SM 1"]
    assert "SM 1: block 2 from 1 to 5" in ax.figure.get_label()


def comparison(*medians):
    rows = [
        {"name": f"no. {i}", "median_ms": t, "low_ms": 0.9 * t, "high_ms": 1.1 * t}
        | {"gbps": None, "tflops": None, "ratio": medians[0] / t}
        for i, t in enumerate(medians)
    ]
    value = {"rows": rows, "self_ratio": 1.0, "method": "median of 9 samples"}
    return Comparison(Record(value, "NVIDIA H200", "2.11.0", "13.0", live=True))


@pytest.mark.parametrize("medians, unit, scale", [((0.2, 0.1), "µs", 1e3), ((2, 0.1), "ms", 1)])
def test_bars_are_as_long_as_the_times(medians, unit, scale):
    ax = plot_timings(comparison(*medians))
    bars = [p for p in ax.patches if isinstance(p, Rectangle)]
    assert [bar.get_width() for bar in bars] == pytest.approx([scale * t for t in medians])
    assert [label.get_text() for label in ax.get_yticklabels()] == ["no. 0", "no. 1"]
    assert f"({unit})" in ax.get_xlabel() and ax.yaxis_inverted()
    assert "NVIDIA H200" in ax.get_title() and "torch 2.11.0" in ax.get_title()
    assert ax.texts[0].get_text() == f"{scale * medians[0]:.4g} {unit} · 1.00×"


def test_bars_of_values_have_notches_and_lines_where_they_could_end():
    values = {"naive": 0.5, "unknown": math.nan, "tile": 9.2}
    ax = plot_bars(values, "TFLOP/s", "some GPU", {"tile": 10.3, "unknown": 1}, {"peak": 60})
    bars = [p for p in ax.patches if isinstance(p, Rectangle)]
    assert [bar.get_width() for bar in bars] == [0.5, 9.2] and ax.yaxis_inverted()
    assert [label.get_text() for label in ax.get_yticklabels()] == ["naive", "tile"]
    assert [list(line.get_xdata()) for line in ax.lines] == [[10.3, 10.3], [60, 60]]
    assert {t.get_text() for t in ax.texts} == {"0.5", "9.2", "peak"}
    assert ax.figure.get_label() == "TFLOP/s, some GPU: naive 0.5, tile 9.2 of 10.3; peak 60"
    assert not plot_bars({}, "TFLOP/s", "some GPU").patches


def test_owners_may_be_blocks_that_have_tiles():
    ax = plot_owners(torch.tensor([[0, 1]]), ["one each"], "block", "tile")
    assert ax.get_xlabel() == "tile i"
    assert ax.get_title() == "in a cell: the block that has the tile"
    assert ax.figure.get_label() == "which block has which tile: one each [0, 1]"


def test_timings_without_a_record_show_the_sentence():
    ax = plot_timings(Comparison(Record(None)))
    assert "Nothing is recorded" in ax.texts[0].get_text() and not ax.patches


def test_a_timeline_gives_a_kernel_the_colour_of_its_operator():
    def event(name, cat, ts, dur):
        return {"name": name, "cat": cat, "ts": 100 + ts, "dur": dur}

    events = [event("one", "kernel", 20, 30), event("two", "kernel", 50, 9)]
    events += [event("aten::a", "cpu_op", 0, 10), event("aten::b", "cpu_op", 12, 10)]
    events += [event("aten::inner", "cpu_op", 1, 8), event("launch", "python_function", 0, 99)]
    events += [event("cudaLaunchKernel", "cuda_runtime", ts, 2) for ts in (14, 5)]
    events += [event("cudaDeviceSynchronize", "cuda_runtime", 30, 29)]
    events += [event("cudaMalloc", "cuda_runtime", 3, 1)]  # launches no kernel
    ax = plot_timeline(events, "some GPU")
    bars = {}
    for bar in ax.collections:
        left, bottom = bar.get_paths()[0].vertices.min(0)
        bars[left, round(bottom + 0.4)] = tuple(bar.get_facecolor()[0])
    assert set(bars) == {
        (0, 2),
        (12, 2),
        (1, 2),
        (3, 1),
        (5, 1),
        (14, 1),
        (30, 1),
        (20, 0),
        (50, 0),
    }
    assert bars[0, 2] == bars[1, 2] == bars[5, 1] == bars[20, 0] != bars[12, 2]
    assert bars[12, 2] == bars[14, 1] == bars[50, 0] != bars[30, 1] != bars[0, 2]
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["aten::a", "aten::b"]
    assert ax.get_title() == "some GPU" and "µs" in ax.get_xlabel()
    assert "kernels: 20 to 50 µs, 50 to 59 µs" in ax.figure.get_label()


def test_an_operator_that_begins_with_the_one_it_calls_has_the_colour():
    op = {"name": "aten::outer", "cat": "cpu_op", "ts": 5, "dur": 10}
    ax = plot_timeline([op | {"name": "aten::inner", "dur": 3}, op], "some GPU")
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["aten::outer"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert plot_timeline([], "some GPU").get_legend() is None


def test_losses_are_drawn_from_lists_and_tensors():
    curves = {"PyTorch": [2.0, 1.0, 0.5], "ours": torch.tensor([2.0, 1.1], requires_grad=True)}
    ax = plot_losses(curves)
    assert [list(line.get_ydata()) for line in ax.lines] == [[2, 1, 0.5], [2, pytest.approx(1.1)]]
    assert [t.get_text() for t in ax.get_legend().get_texts()] == list(curves)
    assert ax.get_yscale() == "log" and ax.get_xlabel() == "step"
    assert ax.lines[0].get_linestyle() != ax.lines[1].get_linestyle()


def test_images_stand_in_rows_with_their_titles():
    images = (torch.arange(5 * 28 * 20) % 256).to(torch.uint8).view(5, 28, 20)
    fig = show_images(images, titles=[7, 2, 1, 0, 4], columns=3)
    used = [ax for ax in fig.axes if ax.images]
    assert len(fig.axes) == 6 and len(used) == 5
    assert [ax.get_title() for ax in used] == ["7", "2", "1", "0", "4"]
    for ax, image in zip(used, images, strict=True):
        assert np.array_equal(ax.images[0].get_array(), image.numpy())
        assert ax.images[0].get_clim() == (0, 255)


def test_colour_images_and_floats():
    fig = show_images(torch.rand(2, 8, 8, 3))
    assert len(fig.axes) == 2 and fig.axes[0].images[0].get_array().shape == (8, 8, 3)
    assert show_images(torch.rand(1, 8, 8)).axes[0].images[0].get_clim() == (0, 1)


@pytest.mark.parametrize(
    ("draw", "sentence"),
    [
        (lambda: plot_losses({}), "of at least one loss each, got no curve"),
        (lambda: plot_losses({"ours": []}), r"got ours of shape \(0,\)"),
        (lambda: plot_owners(torch.zeros(0, 0), []), r"of shape \(0, 0\) and 0 names"),
        (lambda: plot_owners(torch.zeros(2, 3), ["one"]), r"of shape \(2, 3\) and 1 name"),
        (lambda: show_images(torch.zeros(0, 3, 3)), r"images, got shape \(0, 3, 3\)"),
    ],
)
def test_nothing_to_draw_is_an_error_in_a_sentence(draw, sentence):
    with pytest.raises(ValueError, match=sentence):
        draw()


def test_confusion_counts_and_colours_mistakes():
    matrix = torch.tensor([[50, 2, 0], [0, 40, 0], [1, 0, 7]])
    ax = plot_confusion(matrix)
    assert text_at(ax) == {(0, 0): "50", (1, 0): "2", (1, 1): "40", (0, 2): "1", (2, 2): "7"}
    assert ax.images[0].get_array().tolist() == [[0, 2, 0], [0, 0, 0], [1, 0, 0]]
    assert ax.get_title() == "97.00% of 100 right"
    assert ax.get_ylabel() == "label" and ax.get_xlabel().startswith("prediction")


def test_every_picture_can_be_saved(tmp_path):
    pictures = [
        plot_grid(2, 4, 7).figure,
        plot_owners(torch.tensor([[0, 1]]), ["one each"]).figure,
        plot_roofline({"a": (1, 1)}, 300, 8, "T4").figure,
        plot_timings(comparison(3, 2)).figure,
        plot_bars({"a": 1, "b": 2}, "TFLOP/s", "T4").figure,
        plot_curves({"a": [(1, 2), (2, 3)]}, "x", "y", "T4").figure,
        plot_blocks([(0, 0.0, 1.0), (0, 1.0, 3.0)], "T4").figure,
        plot_losses({"a": [1, 0.5]}).figure,
        plot_confusion(torch.eye(10, dtype=torch.int64)).figure,
        show_images(torch.rand(9, 5, 5), titles=range(9)),
    ]
    for i, figure in enumerate(pictures):
        figure.savefig(tmp_path / f"{i}.png")
        assert plt.imread(tmp_path / f"{i}.png")[..., :3].std() > 0.02  # not blank


def test_race_of_two_threads_loses_one():
    ax = draw_race(["0 load", "0 add", "1 load", "0 store", "1 add", "1 store"], 5)
    said = {(time, round(y)): text for (time, y), text in text_at(ax).items()}
    assert [said[time + 0.5, 2] for time in (0, 1, 3)] == ["load: 5", "add: 6", "store: 6"]
    assert [said[time + 0.5, 1] for time in (2, 4, 5)] == ["load: 5", "add: 6", "store: 6"]
    assert [said[time + 0.5, 0] for time in range(6)] == list("555666")
    assert ax.figure.get_label().endswith("thread 1 add: 6, memory 6; thread 1 store: 6, memory 6")


def test_race_in_turns_counts_both():
    ax = draw_race(["1 load", "1 add", "1 store", "0 load", "0 add", "0 store"], 0)
    assert [text_at(ax)[time + 0.5, 0.45] for time in range(6)] == list("001112")


def test_streams_over_time():
    spans = [("B", "kernel", 130, 50), ("A", "to device", 30, 100), ("A", "to device", 130, 100)]
    names = ("stream", "kind", "ts", "dur")
    ax = plot_streams([dict(zip(names, span, strict=True)) for span in spans], "a model")
    bars = [(*bar.get_xy(), bar.get_width()) for bar in ax.patches]
    assert bars == [(0, 0.1, 100), (100, 1.1, 50), (100, 0.1, 100)]
    assert [t.get_text() for t in ax.texts] == ["0", "0", "1"]
    assert [t.get_text() for t in ax.get_yticklabels()] == ["stream A", "stream B"]
    assert "µs" in ax.get_xlabel() and ax.get_title() == "a model"
    assert "stream B: kernel 0 from 100 to 150" in ax.figure.get_label()
    assert len({bar.get_facecolor() for bar in ax.patches}) == 2


def test_lanes_of_work():
    events = [
        {"lane": "rank 1", "kind": "forward", "label": 0, "start": 3, "end": 4},
        {"lane": "rank 0", "kind": "forward", "label": 7, "start": 2, "end": 3},
        {"lane": "rank 1", "kind": "backward", "start": 4, "end": 6},
    ]
    ax = plot_lanes(events, "two ranks")
    assert [(*bar.get_xy(), bar.get_width()) for bar in ax.patches] == [
        *((1, 0.1, 1), (0, 1.1, 1), (2, 0.1, 2)),
    ]
    assert [t.get_text() for t in ax.texts] == ["0", "7", ""]
    assert [t.get_text() for t in ax.get_yticklabels()] == ["rank 1", "rank 0"]
    assert len({bar.get_facecolor() for bar in ax.patches}) == 2
    assert ax.get_xlabel() == "time (ms)" and ax.get_title() == "two ranks"
    assert "rank 1: forward 0 from 1 to 2, backward from 2 to 4" in ax.figure.get_label()
