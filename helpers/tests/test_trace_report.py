"""Tests of the report: what it adds up, says and shows."""

import math
import random
import re
from dataclasses import replace
from functools import partial

import pytest
import torch

from helpers.checks import check_close
from helpers.compiler import compile_cuda, device_code
from helpers.compiler.tools import ToolMissing
from helpers.simulator import OutOfRangeError, blockDim, blockIdx, threadIdx
from helpers.trace import Trace, from_nvcc, pictures, trace
from helpers.trace.record import Access, Launch, Line, Request, Stage

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
    load, store, remark = rows[3:6]
    assert re.search(r"7 .* global load +inp +8 +4 +4 +32$", load)
    assert re.search(r"7 .* global store +out +8 +32 +4 +32$", store)
    assert remark.strip() == "← 8 times the sectors it needs"
    assert "1,024 bytes loaded, 8,192 stored · 0 FLOPs · 0 FLOPs a byte · 32 of 32" in rows[-4]
    rows = str(Trace([tile_launch()])).splitlines()
    assert rows[3].startswith("   9  acc += ")
    assert rows[4].strip() == "← 31 conflicts a request, 16 of 32 lanes idle"
    html = Trace([tile_launch()])._repr_html_()
    assert ">← 31 conflicts a request, 16 of 32 lanes idle</td></tr>" in html


def test_other_verdicts():
    def verdict(**changes):
        access = Access(3, "x", "atomic", "global", "out", 4, 10, 320, 10, 10)
        text = str(Trace([copy_launch(accesses=[replace(access, **changes)])]))
        return text.splitlines()[4].partition("← ")[2]

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
    plain = str(Trace([copy_launch(accesses=accesses)])).splitlines()
    assert max(map(len, plain)) == 100
    assert "out[row * N + col] = alpha" in plain[3]
    assert "…" in plain[3]
    many = 10 ** random.randint(9, 12)
    wide = {"array": "partial_sums" * 3, "requests": many, "lanes": many, "same_address": 3 * many}
    atomics = [replace(access, operation="atomic", **wide) for access in accesses]
    kernel = "reduce_kernel<" + "float, " * random.randint(1, 30) + "4>"
    report = Trace([copy_launch(kernel=kernel, accesses=atomics), tile_launch(accesses=atomics)])
    assert max(map(len, str(report).splitlines())) == 100
    assert "partial_sums" * 3 in report._repr_html_()


def test_one_is_singular():
    line = Line(7, COPY, 1, 32, flops=32)
    load = replace(copy_launch().accesses[0], sectors=1, ideal_sectors=1)
    assert " · 32 FLOPs · 1 FLOP a byte · " in str(
        Trace([copy_launch(accesses=[load], lines=[line])])
    )
    line.flops = 1
    assert " · 1 FLOP · 0.0312 FLOPs" in str(Trace([copy_launch(accesses=[load], lines=[line])]))


def test_html_is_escaped():
    html = Trace([copy_launch(kernel="scale<float>")])._repr_html_()
    assert "scale&lt;float&gt;" in html
    assert "<table>" in html
    assert Trace([])._repr_html_() == "<p>no kernel was launched</p>"


def test_the_caption_says_how_the_launch_fits_the_chip(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    text = str(Trace([tile_launch(registers=40)]))
    assert text.endswith(
        "H200: 75% occupancy, 6 blocks of 8 warps an SM, limited by registers; "
        "40 registers a thread\n2.53 waves of 792 blocks, the last one 53% full"
    )
    text = str(Trace([tile_launch(grid=(793, 1, 1), registers=40)]))
    assert text.endswith("1.00 waves of 792 blocks, the last one 1% full")
    text = str(Trace([copy_launch()]))
    assert text.endswith(
        "H200: 100% occupancy, 32 blocks of 2 warps an SM\n"
        "registers are not known; up to 32 a thread would allow this\n"
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
    with pytest.raises(KeyError, match='there is copy_kernel on 1 block"$'):
        Trace([copy_launch(grid=(1, 1, 1))]).kernel("tiles")
    with pytest.raises(KeyError, match="no kernel 'tiles' ran; .*tile_kernel on 2000 blocks"):
        report.kernel("tiles")


def test_an_access_by_what_tells_it_apart():
    report = Trace([copy_launch(), tile_launch()])
    assert report["inp"].operation == "load"
    assert report["load", "tile"].wavefronts == 128
    assert report[7, "store"].sectors == 256
    assert report["shared"].array == "tile"
    assert report["tile_kernel", "out"].line == 12
    with pytest.raises(KeyError, match="2 accesses are 'out'; .*line 7: store out"):
        report["out"]
    with pytest.raises(KeyError, match="0 accesses are 4"):  # a line, not the bytes of a lane
        report[4]


def test_pictures_show_what_is_asked_for_or_what_is_worst(monkeypatch):
    drawn = []
    for name in ("draw_addresses", "draw_lines"):
        note = partial(lambda *what: drawn.append(what), name)
        monkeypatch.setattr(pictures, name, note)
    report = Trace([copy_launch()])
    load, store = report.accesses
    report.draw_addresses()
    report.draw_addresses("inp")
    report.draw_lines(7)
    assert drawn == [
        ("draw_addresses", store, "copy_kernel"),
        ("draw_addresses", load, "copy_kernel"),
        ("draw_lines", store, "copy_kernel"),
    ]
    with pytest.raises(ValueError, match="nothing to draw: no access to shared memory"):
        report.draw_banks()
    with pytest.raises(KeyError, match="no global access is 'tile'; there is line 7: load inp"):
        report.draw_lines("tile")


def shown_by(overview, monkeypatch):
    """Return what an overview displays in a notebook."""
    shown = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    overview._ipython_display_()
    return shown


def test_pictures_are_drawn(monkeypatch):
    copy, tile = copy_launch(), tile_launch(stages=[Stage(0, 0, 9, "load", "shared", 4)])
    rows = Request((0, 0, 0), 0, tuple(range(0, 128, 4)))
    columns = Request((0, 0, 0), 1, tuple(range(0, 128 * 32, 128)))
    copy.accesses[0].samples.append(rows)
    copy.accesses[1].samples.append(columns)
    tile.accesses[0].samples.append(columns)
    report = Trace([copy, tile])
    overview = report.draw()
    text = str(overview)
    assert text.count("lanes active") == 2
    assert "Line 7, global store of out" in text  # the worse of the two
    assert "Line 9, shared load of tile" in text
    assert len(shown_by(overview, monkeypatch)) == 4
    assert "global load of inp" in str(report.draw_addresses("inp"))
    assert "tile_kernel" in str(report.kernel("tile_kernel").draw_timeline())
    assert "copy_kernel" in str(report.kernel("copy_kernel").draw_lanes())


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


HALVES = """
#include <cuda_fp16.h>
__global__ void twice(half* x) { x[threadIdx.x] = x[threadIdx.x] + x[threadIdx.x]; }
"""


def test_nvcc_is_asked_with_the_flags_of_the_string():
    flags = ("-U__CUDA_NO_HALF_OPERATORS__",)
    try:
        usage = device_code.resource_usage(HALVES, "sm_75", flags=flags)
    except ToolMissing:
        pytest.skip("needs nvcc")
    assert from_nvcc.registers(HALVES, "twice", "sm_75", flags) == usage["twice"].registers
    assert from_nvcc.registers(HALVES, "twice", "sm_75") is None  # it does not compile


def test_registers_come_from_nvcc_where_it_is():
    try:
        usage = device_code.resource_usage(CUDA, "sm_75")
    except ToolMissing:
        pytest.skip("needs nvcc")

    def registers(kernel):
        launch = tile_launch(kernel=kernel)
        return (
            Trace([launch], registers=partial(from_nvcc.registers, CUDA)).occupancy("T4").registers
        )

    assert registers("scale_kernel") == usage["ours::scale_kernel"].registers
    assert registers("power_kernel<2>") == usage["ours::power_kernel<2>"].registers
    assert registers("power_kernel") is None  # which of the two?
    assert registers("another_kernel") is None
    assert (
        Trace([tile_launch()], registers=partial(from_nvcc.registers, "no C++"))
        .occupancy("T4")
        .registers
        is None
    )


SEVERAL = """
template <int N> __global__ void turn_kernel(float* x) {
    float v[N];
    for (int k = 0; k < N; k++) v[k] = x[threadIdx.x + 32 * k];
    for (int k = 0; k < N; k++) x[threadIdx.x + 32 * k] = v[N - 1 - k] * v[k];
}
template <int N> void launch(torch::Tensor x) { turn_kernel<N><<<1, 32>>>(x.data_ptr<float>()); }
void turn(torch::Tensor x) { launch<2>(x), launch<16>(x); }
"""


def test_registers_are_those_of_the_instance_that_ran():
    report = trace(compile_cuda(SEVERAL).turn, torch.rand(512))
    instances = [launch.instance for launch in report.launches]
    assert instances == ["turn_kernel<2>", "turn_kernel<16>"]
    assert len(report.accesses) == 4  # launches of two instances are not alike
    try:
        usage = device_code.resource_usage(SEVERAL, "sm_75")
    except ToolMissing:
        pytest.skip("needs nvcc")
    for i, instance in enumerate(instances):
        assert report.kernel(i).occupancy("T4").registers == usage[instance].registers
    assert usage[instances[0]] != usage[instances[1]]


JOINED = """
__global__ void rows_of_16(const float* x, float* out, int n) {
    __shared__ float s[64][4];
    __shared__ float in_registers[64];
    for (int i = 0; i < 4; i++) s[threadIdx.x][i] = x[threadIdx.x + 64 * i];
    in_registers[threadIdx.x] = s[threadIdx.x][0];
    __syncthreads();
    float sum = 0;
    for (int i = 0; i < 4; i++) sum += s[63 - threadIdx.x][i];
    #pragma unroll 1
    for (int i = 0; i < n; i++) sum += s[(threadIdx.x + i) % 64][1];
    out[threadIdx.x] = sum;
}
"""


def test_what_nvcc_makes_of_shared_accesses():
    load = Access(9, "", "load", "shared", "s", 4, 8)
    lines = {"load": (9, 11), "store": (5, 6)}
    accesses = [replace(load, line=n, operation=how) for how in lines for n in lines[how]]
    launch = tile_launch(kernel="rows_of_16", accesses=accesses)
    from_nvcc.add_device_code([launch], JOINED, "sm_90")
    if launch.registers is None:
        pytest.skip("needs nvcc and nvdisasm")
    assert [access.widest for access in accesses] == [16, 4, 16, None]
    only_stores = JOINED.split("    in_reg")[0] + "}"
    from_nvcc.add_device_code([launch], only_stores, "sm_90")
    assert [access.widest for access in accesses] == [0, 0, 0, 0]  # nobody reads it


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("_Z5timesILi3EEvPfPKfi", "times<3>"),
        ("extern_c", "extern_c"),
        ("_Z1kIL2Op1EEvPf", "k<(Op)1>"),
        ("_Z1fIPFffEEvT_Pf", "f<float (*)(float)>"),
        ("_ZN12_GLOBAL__N_16hiddenEPf", "hidden"),
    ],
)
def test_the_name_of_a_kernel(symbol, name):
    assert device_code.kernel_name(symbol) == name


def test_registers_are_not_known_without_nvcc(monkeypatch):
    def missing(*_, flags):
        raise ToolMissing("nvcc is not installed", "install it")

    monkeypatch.setattr(from_nvcc, "resource_usage", missing)
    assert (
        Trace([tile_launch()], registers=partial(from_nvcc.registers, CUDA))
        .occupancy("T4")
        .registers
        is None
    )


def test_to_show_a_report_runs_no_compiler(monkeypatch):
    def run(*_):
        raise AssertionError("nvcc is run")

    monkeypatch.setattr(from_nvcc, "_ask", run)
    report = Trace([tile_launch(registers=40)], registers=partial(from_nvcc.registers, CUDA))
    assert "; 40 registers a thread" in str(report)
    assert "; 40 registers a thread" in report._repr_html_()
    assert report.occupancy().registers == 40


@pytest.mark.parametrize(
    ("widest", "remark"),
    [
        (None, "at most: nvcc may join neighbouring loads, then about 8"),
        (16, "at most: nvcc joins neighbouring loads, then about 8"),
        (8, "at most: nvcc joins neighbouring loads"),
        (0, "not on the GPU: nvcc keeps this in registers"),
        (4, ""),
    ],
)
def test_loads_that_nvcc_joins_are_said(widest, remark):
    [load, store] = tile_launch().accesses
    load = replace(load, joined_requests=1, joined_wavefronts=32, widest=widest)
    text = " ".join(str(Trace([tile_launch(accesses=[load, store])])).split())
    assert remark in text
    assert ("join" in text or "not on" in text) == bool(remark)
    assert ("about" in text) == (widest in (None, 16))


@pytest.mark.parametrize("wrong", [3, "square", None])
def test_trace_refuses_what_it_cannot_run(wrong):
    with pytest.raises(TypeError, match="takes a Python kernel or a function from compile_cuda"):
        trace(wrong, 1, 1)


def test_a_kernel_needs_grid_and_block():
    for args, by_name in (((2,), {}), ((2, 32, torch.zeros(9)), {"n": 9})):
        with pytest.raises(TypeError, match=r"trace\(kernel, grid, block, \*args\)"):
            trace(add_kernel, *args, **by_name)


def add_kernel(out, a, b, n):
    i = blockIdx.x * blockDim.x + threadIdx.x
    if i < n:
        out[i] = a[i] + b[i]


def test_a_python_kernel():
    n = random.randint(40, 64)
    a, b, out = torch.randn(n), torch.randn(n), torch.zeros(n)
    report = trace(add_kernel, 2, 32, out, a, b, n)
    check_close(out, a + b)
    assert report.result is None
    assert [launch.kernel for launch in report.launches] == ["add_kernel"]
    sectors = math.ceil(n / 8)
    for access in (report["load", "a"], report["load", "b"], report["store", "out"]):
        assert (access.requests, access.lanes) == (2, n)
        assert access.sectors == access.ideal_sectors == sectors
    assert report.bytes == 3 * 32 * sectors
    assert report.flops == n
    text = str(report)
    assert "add_kernel: grid 2, block 32, on the simulator\n" in text
    assert "out[i] = a[i] + b[i]" in text


def test_a_kernel_without_lines_is_drawn():
    store = trace(lambda out: out.__setitem__(threadIdx.x, 1), 1, 32, torch.zeros(32))
    assert "32 lanes of warp 0 touch 4 sectors" in repr(store.draw())


def empty_kernel(out):
    pass


@pytest.mark.parametrize("kernel", [empty_kernel, lambda out: None])
def test_a_kernel_that_does_nothing_says_so(kernel, monkeypatch, capsys):
    report = trace(kernel, 1, 32, torch.zeros(32))
    nothing = "nothing to draw: no line was counted, and no access to memory"
    assert repr(report.draw()) == nothing
    assert shown_by(report.draw(), monkeypatch) == [] and capsys.readouterr().out == f"{nothing}\n"
    for draw in (report.draw_addresses, report.draw_lines, report.draw_banks):
        with pytest.raises(ValueError, match="nothing to draw: no access to"):
            draw()


def test_an_error_of_the_launch_passes_through():
    with pytest.raises(OutOfRangeError):
        trace(add_kernel, 2, 32, torch.zeros(40), torch.zeros(40), torch.zeros(40), 41)


ROWS = """
__global__ void rows_kernel(float* out, const float* inp, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = 2 * inp[32 * i];
}
torch::Tensor rows(torch::Tensor inp) {
    int n = inp.size(0);
    torch::Tensor out = torch::empty({n}, inp.options());
    rows_kernel<<<(n + 127) / 128, 128>>>(out.data_ptr<float>(), inp.data_ptr<float>(), n);
    return out;
}
"""


@pytest.mark.parametrize("check", [False, True])
def test_a_compiled_function(check):
    inp = torch.randn(128 * random.randint(1, 4), 32)
    rows = compile_cuda(ROWS, check=check).rows
    report = trace(rows, inp)
    check_close(report.result, 2 * inp[:, 0])
    warps = len(inp) // 32
    load, store = report["load", "inp"], report["store", "out"]
    assert (load.requests, load.sectors, load.ideal_sectors) == (warps, 32 * warps, 4 * warps)
    assert (store.requests, store.sectors, store.ideal_sectors) == (warps, 4 * warps, 4 * warps)
    assert load.text.strip() == "out[i] = 2 * inp[32 * i];"
    assert report.bytes == 36 * 32 * warps
    assert report.flops == len(inp)
    assert "← 8 times the sectors it needs" in str(report)
    assert "global load of inp" in str(report.draw())


def test_what_tensor_cores_do_is_said_not_to_be_counted():
    for text in ("wmma::mma_sync(acc, a, b, acc);", 'asm("mma.sync.aligned.m16n8k16" : : );'):
        report = Trace([tile_launch(lines=[Line(3, text, 1, 32, 0)])])
        assert "\nnot counted: FLOPs of tensor cores; " in str(report)
        assert "not counted: FLOPs of tensor cores" in report._repr_html_()
    assert "not counted" not in str(Trace([tile_launch()]))


def texture_launch() -> Launch:
    """A launch that reads 40 different texels in each of 2 requests, and stores perfectly."""
    row = tuple(4 * lane for lane in range(32))
    request = Request((0, 0, 0), 0, row, tuple((lane, 4 * lane + 32) for lane in range(32)))
    text = "out[i] = tex2D<float>(image, col, row);"
    load = Access(5, text, "load", "texture", "image", 4, 2, 64, texels=80, samples=[request])
    store = Access(5, text, "store", "global", "out", 4, 2, 64, 8, 8)
    lines = [Line(5, text, 2, 64, flops=64)]
    return Launch("k", (1, 1, 1), (64, 1, 1), 0, "CPU backend", [load, store], lines, [])


def test_texels_are_counted_apart_from_bytes():
    report = Trace([texture_launch(), texture_launch()])
    assert (report["load", "texture"].texels, report.bytes) == (160, 2 * 8 * 32)
    row = next(line for line in str(report).splitlines() if "texture load" in line)
    assert re.search(r"texture load +image +4 +40 +– +32$", row)
    assert "←" not in str(report)  # nothing is known to be wrong
    assert "each: 32-byte sectors or different texels a request" in str(report)
    assert "not counted: bytes that textures move" in str(report)
    assert "FLOPs a byte" not in str(report)
    store = replace(texture_launch(), accesses=texture_launch().accesses[1:])
    assert "0.25 FLOPs a byte" in str(Trace([store])) and "not counted" not in str(Trace([store]))
    assert "texture load of image" in str(report.draw_addresses("texture"))
    with pytest.raises(KeyError, match="no global access is 'image'"):
        report.draw_lines("image")


def test_a_launch_with_nothing_but_fetches_is_drawn_by_its_texels():
    launch = texture_launch()
    only_fetches = replace(launch, accesses=launch.accesses[:1])
    assert "texture load of image" in repr(Trace([only_fetches]).draw())
    nothing = replace(launch.accesses[0], samples=[Request((0, 0, 0), 0, (None,) * 32)])
    assert "texture" not in repr(Trace([replace(launch, accesses=[nothing])]).draw())


SAME = """
__global__ void found_kernel(int* found, const int* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && x[i] > 0) *found = 1;
}
void any_positive(torch::Tensor found, torch::Tensor x) {
    found_kernel<<<1, 64>>>(found.data_ptr<int>(), x.data_ptr<int>(), x.numel());
}
"""


def test_a_remark_of_the_checks_is_a_warning_at_the_call():
    found, x = torch.zeros(1, dtype=torch.int32), torch.ones(64, dtype=torch.int32)
    with pytest.warns(UserWarning, match=r"line 4: writes found\[0\].*the same value") as remarks:
        report = trace(compile_cuda(SAME).any_positive, found, x)
    assert {remark.filename for remark in remarks} == {__file__}
    assert report["store", "found"].requests == 2


def test_a_function_of_somebody_else_is_refused():
    with pytest.raises(TypeError, match="no function that compile_cuda returned"):
        trace(torch.add, torch.zeros(3), torch.zeros(3))
