"""Tests of the report: what it adds up, says and shows."""

import math
import random
import re
from dataclasses import replace

import pytest

from helpers import device_code
from helpers.toolchain import ToolMissing
from helpers.trace import Trace, trace
from helpers.trace import report as report_module
from helpers.trace.record import Access, Launch, Line, Request

COPY = "        out[col * M + row] = inp[row * N + col]"
ADD = "        acc += tile[k * 32 + threadIdx.x]"


def copy_launch(**changes) -> Launch:
    """A launch whose load is perfect and whose store takes 8 times the sectors it needs."""
    load = Access(7, COPY, "load", "global", "inp", 4, 8, 256, sectors=32, ideal_sectors=32)
    store = Access(7, COPY, "store", "global", "out", 4, 8, 256, sectors=256, ideal_sectors=32)
    lines = [Line(7, COPY, 8, 256, flops=0)]
    launch = Launch("copy_kernel", (4, 1, 1), (8, 8, 1), 0, "simulator", [load, store], lines, [])
    return replace(launch, **changes)


def tile_launch(**changes) -> Launch:
    """A launch with 31 conflicts a request, and half of its lanes idle in one of two lines."""
    load = Access(9, ADD, "load", "shared", "tile", 4, 4, 64, wavefronts=128, ideal_wavefronts=4)
    store = Access(12, "out[i] = acc", "store", "global", "out", 4, 2, 64, 8, 8)
    lines = [Line(9, ADD, 4, 64, flops=128), Line(12, "out[i] = acc", 2, 64, flops=0)]
    launch = Launch("tile_kernel", (2000, 1, 1), (256, 1, 1), 4096, "CPU backend", [], lines, [])
    return replace(launch, **{"accesses": [load, store], **changes})


def test_launches_that_are_alike_are_summed_and_shown_once():
    launches = [copy_launch(), copy_launch(), copy_launch(grid=(5, 1, 1)), copy_launch()]
    sample = Request((0, 0, 0), 0, tuple(range(0, 128, 4)))
    launches[0].accesses[1].samples.append(sample)
    report = Trace(launches)
    assert report.launches == launches
    assert [a.requests for a in report.accesses] == [24, 24, 8, 8]
    assert report.accesses[1].samples == [sample]
    assert launches[0].accesses[0].requests == 8  # the launches themselves stay as they are
    assert [(line.executions, line.lanes) for line in report.lines] == [(24, 768), (8, 256)]
    text = str(report)
    assert text.count("copy_kernel") == 2
    assert "copy_kernel: grid 4, block 8 × 8, on the simulator, × 3 launches\n" in text
    assert "copy_kernel: grid 5, block 8 × 8, on the simulator\n" in text


def test_what_is_added_up():
    report = Trace([copy_launch(), tile_launch()])
    assert report.bytes == 32 * (32 + 256 + 8)
    assert report.flops == 128
    assert report.intensity == 128 / report.bytes
    assert report.lanes == (256 + 64 + 64) / (8 + 4 + 2)
    empty = Trace([tile_launch(accesses=[], lines=[])])
    assert empty.intensity == math.inf
    assert math.isnan(empty.lanes)
    assert "0 bytes loaded, 0 stored · 0 FLOPs\n" in str(empty)


def test_random_counts_add_up():
    counts = [[random.randint(1, 999) for _ in range(8)] for _ in range(5)]
    launches = [
        copy_launch(accesses=[Access(7, COPY, "atomic", "global", "out", 4, *numbers[:7])])
        for numbers in counts
    ]
    [total] = Trace(launches).accesses
    found = [total.requests, total.lanes, total.sectors, total.ideal_sectors]
    found += [total.wavefronts, total.ideal_wavefronts, total.same_address]
    assert found == [sum(column) for column in zip(*counts, strict=True)][:7]


def test_the_table_says_what_is_wrong_and_only_that():
    rows = str(Trace([copy_launch()])).splitlines()
    load = next(row for row in rows if "load" in row)
    store = next(row for row in rows if "store" in row)
    assert re.search(r"7 .* global load +inp +8 +4 +4 +32$", load)
    assert re.search(r"out +8 +32 +4 +32 +← 8 times the sectors it needs$", store)
    assert "1,024 bytes loaded, 8,192 stored · 0 FLOPs · 0 FLOPs a byte · 32 of 32" in rows[-4]
    rows = str(Trace([tile_launch()])).splitlines()
    load = next(row for row in rows if "load" in row)
    assert load.endswith("← 31 conflicts a request, 16 of 32 lanes idle")


def test_other_verdicts():
    def verdict(**changes):
        access = Access(3, "x", "atomic", "global", "out", 4, 10, 320, 10, 10)
        text = str(Trace([copy_launch(accesses=[replace(access, **changes)])]))
        return text.splitlines()[3].partition("← ")[2]

    assert verdict(same_address=10) == ""
    assert verdict(same_address=320) == "32 lanes at one address"
    assert verdict(lanes=250) == ""
    assert verdict(lanes=10) == "31 of 32 lanes idle"
    assert verdict(sectors=11) == ""
    assert verdict(sectors=13) == "1.3 times the sectors it needs"
    shared = {"space": "shared", "wavefronts": 20, "ideal_wavefronts": 10}
    assert verdict(**shared) == "1 conflict a request"


def test_a_table_is_as_wide_as_a_notebook():
    long = "    " + "out[row * N + col] = alpha * acc + beta * inp[row * N + col]; " * 2
    accesses = [replace(access, text=long) for access in copy_launch().accesses]
    plain = str(Trace([copy_launch(accesses=accesses[:1])])).splitlines()
    assert max(map(len, plain)) == 100
    assert "out[row * N + col] = alpha" in plain[3]
    assert "…" in plain[3]
    wrong = str(Trace([copy_launch(accesses=accesses)])).splitlines()
    assert max(map(len, wrong)) <= 115


def test_html_is_escaped():
    html = Trace([copy_launch(kernel="scale<float>")])._repr_html_()
    assert "scale&lt;float&gt;" in html
    assert "<table>" in html
    assert Trace([])._repr_html_() == "<p>no kernel was launched</p>"


def test_the_caption_says_how_the_launch_fits_the_chip(monkeypatch):
    monkeypatch.setitem(report_module.occupancy.__globals__, "BACKEND", "cpu")
    text = str(Trace([tile_launch(registers=40)]))
    assert text.endswith(
        "H200: 75% occupancy, 6 blocks of 8 warps an SM, limited by registers; "
        "40 registers a thread\n2.53 waves of 792 blocks, the last one 53% full"
    )
    text = str(Trace([copy_launch()]))
    assert text.endswith(
        "H200: 100% occupancy, 32 blocks of 2 warps an SM\n"
        "registers are not known: up to 32 a thread would not limit it\n"
        "4 of the 4,224 blocks of one wave"
    )
    text = str(Trace([tile_launch(block=(1024, 1, 1), registers=80)]))
    assert text.endswith("H200: not one block fits an SM, limited by registers")


def test_occupancy_is_for_a_named_chip_and_one_kernel():
    report = Trace([tile_launch(), copy_launch()])
    fit = report.kernel("tile_kernel").occupancy("T4")
    assert (fit.chip.name, fit.blocks, fit.limiters) == ("T4", 4, ["warps"])
    with pytest.raises(ValueError, match=r"2 kernels .*report.kernel\(0\).*copy_kernel on 4 block"):
        report.occupancy()
    with pytest.raises(ValueError, match="'P100' is not known"):
        report.kernel(1).occupancy("P100")


def test_one_kernel_alone():
    report = Trace([tile_launch(), copy_launch(), tile_launch()], result=3)
    tile = report.kernel("tile_kernel")
    assert len(tile.launches) == 2
    assert tile.result == 3
    assert tile.flops == 256
    assert report.kernel(1).launches == [copy_launch()]
    with pytest.raises(KeyError, match="no kernel 'tiles' ran; .*tile_kernel on 2000 blocks"):
        report.kernel("tiles")


def test_an_access_by_what_tells_it_apart():
    report = Trace([copy_launch(), tile_launch()])
    assert report["inp"].operation == "load"
    assert report["load", "tile"].wavefronts == 128
    assert report[7, "store"].sectors == 256
    assert report["shared"].array == "tile"
    with pytest.raises(KeyError, match="2 accesses are 'out'; .*line 7: store out"):
        report["out"]
    with pytest.raises(KeyError, match="0 accesses are 8"):
        report[8]


def test_pictures_show_what_is_asked_for_or_what_is_worst(monkeypatch):
    drawn = []

    class Pictures:
        def __getattr__(self, name):
            return lambda what: drawn.append((name, what))

    monkeypatch.setattr(report_module, "_pictures", Pictures)
    report = Trace([copy_launch()])
    load, store = report.accesses
    report.draw_addresses()
    report.draw_addresses("inp")
    report.draw_lines(7)
    assert drawn == [("draw_addresses", store), ("draw_addresses", load), ("draw_lines", store)]
    with pytest.raises(KeyError, match=r"no shared access is \(\); there is line 7: load inp"):
        report.draw_banks()
    with pytest.raises(KeyError, match="no global access is 'tile'"):
        report.draw_addresses("tile")
    drawn.clear()
    Trace([tile_launch()]).draw()
    assert [name for name, _ in drawn] == ["draw_lanes", "draw_banks"]
    drawn.clear()
    report.draw()
    report.draw_timeline()
    assert [name for name, _ in drawn] == ["draw_lanes", "draw_addresses", "draw_timeline"]


CUDA = """
namespace ours {
template <int N> __global__ void power_kernel(float* out, const float* inp) {
    out[threadIdx.x] = powf(inp[threadIdx.x], N + 0.5f);
}
__global__ void scale_kernel(float* out) { out[threadIdx.x] *= 2; }
__global__ void my_scale_kernel(float* out) { out[threadIdx.x] *= 3; }
}
template __global__ void ours::power_kernel<2>(float*, const float*);
template __global__ void ours::power_kernel<3>(float*, const float*);
"""


def test_registers_come_from_nvcc_where_it_is():
    try:
        usage = device_code.resource_usage(CUDA, "sm_75")
    except ToolMissing:
        pytest.skip("needs nvcc")

    def registers(kernel):
        launch = tile_launch(kernel=kernel)
        return Trace([launch], source=CUDA).occupancy("T4").registers

    assert registers("scale_kernel") == usage["ours::scale_kernel"].registers
    assert registers("power_kernel<2>") == usage["ours::power_kernel<2>"].registers
    assert registers("power_kernel") is None  # which of the two?
    assert registers("another_kernel") is None
    assert Trace([tile_launch()], source="no C++").occupancy("T4").registers is None


def test_registers_are_not_known_without_nvcc(monkeypatch):
    def missing(*_):
        raise ToolMissing("nvcc is not installed", "install it")

    monkeypatch.setattr(report_module, "resource_usage", missing)
    assert Trace([tile_launch()], source=CUDA).occupancy("T4").registers is None


@pytest.mark.parametrize("wrong", [3, "square", None])
def test_trace_refuses_what_it_cannot_run(wrong):
    with pytest.raises(TypeError, match="takes a Python kernel or a function from compile_cuda"):
        trace(wrong, 1, 1)
