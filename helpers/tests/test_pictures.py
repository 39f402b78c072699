"""Drawings say what they were told, and each element of a matrix stands where it lies in memory."""

import matplotlib
import pytest
import torch
from matplotlib import pyplot as plt
from matplotlib.patches import Rectangle

from helpers import plots

matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def texts(ax):
    return [t.get_text() for t in ax.texts]


def cells(ax):
    """Map (x, y) of every square to its colour."""
    squares = [p for p in ax.patches if isinstance(p, Rectangle)]
    return {p.get_xy(): p.get_facecolor() for p in squares}


def test_route_names_every_step_and_joins_them():
    ax = plots.draw_route([("one", "first"), ("two", "second"), ("three", "third")])
    assert {"one", "two", "three", "first", "second", "third"} <= set(texts(ax))
    assert texts(ax).count("") == 2  # arrows between three boxes


def test_layers_leave_the_place_of_an_empty_name_free():
    ax = plots.draw_layers([("top", ["a", "b"], ["c", ""]), ("bottom", ["d"], ["e", "f"])])
    assert {"top", "bottom", "a", "b", "c", "d", "e", "f"} <= set(texts(ax))
    assert len(ax.patches) == 6


@pytest.mark.parametrize("transposed", [False, True])
def test_memory_shows_each_row_where_it_lies(transposed):
    a = torch.arange(6.0).reshape(2, 3)
    a = a.T if transposed else a
    ax = plots.draw_memory(a)
    drawn = cells(ax)
    rows, cols = a.shape
    for row in range(rows):
        for col in range(cols):
            in_matrix = drawn[(col, rows - 1 - row)]
            in_memory = drawn[(row * a.stride(0) + col * a.stride(1), -1.3)]
            assert in_matrix == in_memory
    assert f"strides {a.stride()}" in texts(ax)
    values = [t.get_text() for t in ax.texts if t.get_position()[1] == pytest.approx(-0.85)]
    assert values == ["0", "1", "2", "3", "4", "5"]


def test_memory_leaves_elements_outside_a_view_white():
    a = torch.arange(6.0).reshape(2, 3)[:, 1:]
    drawn = cells(plots.draw_memory(a))
    assert [drawn[(i, -1.3)][:3] == (1, 1, 1) for i in range(6)] == [True, False, False] * 2


@pytest.mark.parametrize("elements", [None, 10])
def test_launch_numbers_its_threads_over_all_blocks(elements):
    ax = plots.draw_launch(3, 4, elements)
    working = [p for p in ax.patches if isinstance(p, Rectangle) and p.get_width() == 1]
    grey = [p for p in working if p.get_facecolor()[:3] != (1, 1, 1)]
    assert len(working) == 12 and len(grey) == (2 if elements else 0)
    at = {t.get_position(): t.get_text() for t in ax.texts}
    numbers = [text for (_, y), text in sorted(at.items()) if y == -0.45]
    end = ["(10)", "(11)"] if elements else ["10", "11"]
    assert numbers == ["number i", *map(str, range(10)), *end]
    threads = [text for (_, y), text in sorted(at.items()) if y == pytest.approx(0.75)]
    assert threads == ["threadIdx.x", *"0123" * 3]


@pytest.mark.parametrize(
    ("launch_us", "kernel_us", "starts", "end"), [(2, 10, [2, 12, 22], 32), (5, 1, [5, 10, 15], 16)]
)
def test_stream_runs_each_kernel_once_it_is_launched_and_free(launch_us, kernel_us, starts, end):
    ax = plots.draw_stream(launch_us, kernel_us)
    spans = [p for p in ax.patches if isinstance(p, Rectangle)]
    on_gpu = [(p.get_x(), p.get_width()) for p in spans if p.get_y() == 0.3]
    on_host = [(p.get_x(), p.get_width()) for p in spans if p.get_y() == 1.6]
    assert on_gpu == [(start, kernel_us) for start in starts]
    asked = 3 * launch_us
    assert on_host == [*((i * launch_us, launch_us) for i in range(3)), (asked, end - asked)]
    assert {line.get_xdata()[0] for line in ax.lines} == {0, asked, end}


def test_shares_colour_the_planes_of_a_mean_alike():
    ax = plots.draw_shares({"batch": [[0, 1], [0, 1]], "layer": [[0, 0], [1, 1]]})
    drawn = cells(ax)
    batch, layer = ([drawn[(x + i % 2, 1 - i // 2)] for i in range(4)] for x in (0, 3.5))
    assert batch[0] == batch[2] == layer[0] == layer[1]
    assert batch[1] == batch[3] == layer[2] == layer[3] != batch[0]
    assert [t for t in texts(ax) if t in "01"] == list("01010011")


def test_loads_show_every_thread_its_elements():
    ax = plots.draw_loads(3, 4)
    drawn = cells(ax)
    one, four = ([drawn[(i, y)] for i in range(12)] for y in (2.4, 0))
    assert len(set(one[:3])) == 3 and set(one[3:]) == {(1, 1, 1, 1)}
    assert four == [one[i // 4] for i in range(12)]
    assert any("12 bytes, or for 48" in text for text in texts(ax))


def test_what_is_gathered_has_the_colour_of_its_row_in_the_image():
    ax = plots.draw_gather((2, 2), {"up": [-1, 0], "down": [2, 3]})
    drawn = cells(ax)  # image from x = 0 on, tile from 4.5
    assert drawn[(5.5, 1)] == drawn[(0, 1)] == drawn[(1, 1)]
    assert drawn[(4.5, 0)] == drawn[(5.5, 0)] == drawn[(0, 0)] != drawn[(0, 1)]
    assert drawn[(4.5, 1)] not in (drawn[(0, 0)], drawn[(0, 1)])
    assert [t for t in texts(ax) if t in "0123"] == ["0", "1", "2", "3", "", "0", "2", "3"]


def test_tiles_show_the_bank_of_every_element():
    plain = [[4 * row + col for col in range(4)] for row in range(3)]
    shifted = [[5 * row + col for col in range(4)] for row in range(3)]
    ax = plots.draw_bank_tiles({"plain": plain, "shifted": shifted})
    drawn = cells(ax)
    first = {name: [drawn[(x, y)] for y in (2, 1, 0)] for name, x in (("plain", 0), ("more", 5.5))}
    assert len(set(first["plain"])) == 1 and len(set(first["more"])) == 3
    assert {"plain: 3 wavefronts for a column", "shifted: 1 wavefront for a column"} <= set(
        texts(ax)
    )
    assert [text for text in texts(ax) if text.isdigit()][-4:] == ["2", "3", "0", "1"]


def test_packs_are_turned_around_and_stored_in_different_banks():
    ax = plots.draw_packs(width=2, packs=4, y=1)
    read, turned = texts(ax)[1:5], texts(ax)[6:10]
    assert (read, turned) == (["00", "01", "10", "11"], ["00", "10", "01", "11"])
    drawn = cells(ax)
    left = 6.5
    tile = [[drawn[(left + place, 3 - x)] for place in range(4)] for x in range(4)]
    assert [row.index(tile[0][1]) for row in tile] == [1, 0, 3, 2]
    assert "4 lanes with y = 1: 4 banks" in texts(ax)


def test_rounds_show_what_each_changes_and_from_where():
    ax = plots.draw_rounds([3, 1, 4], [[(0, 1)], [(0, 2), (1, 2)]])
    colours = [[cells(ax)[(i, y)] for i in range(3)] for y in (0, -1.6, -3.2)]
    white = (1, 1, 1, 1)
    changed = [[colour != white for colour in row] for row in colours]
    assert changed == [[False] * 3, [False, True, False], [False, False, True]]
    assert {"at first", "round 1: 1 addition", "round 2: 2 additions", "11"} <= set(texts(ax))
    arrows = [t for t in ax.texts if getattr(t, "arrow_patch", None)]
    assert [(a.xyann[0], a.xy[0]) for a in arrows] == [(0.5, 1.5), (0.5, 2.5), (1.5, 2.5)]
    assert min(y for _, y in cells(ax)) - ax.get_ylim()[0] < 0.2, "no empty room below"


def test_butterflies_join_what_they_read_with_what_they_write():
    ax = plots.draw_butterflies([[(0, 2, 0, 1, 0), (1, 3, 2, 3, 1)]], [0, 1, 2, 3])
    ends = {tuple(-line.get_ydata()) for line in ax.lines}
    assert ends == {(0, 0), (2, 0), (0, 1), (2, 1), (1, 2), (3, 2), (1, 3), (3, 3)}
    assert "w¹" in texts(ax) and "w⁰" not in texts(ax)


def test_graph_goes_from_left_to_right_and_inputs_stand_before_what_they_go_into():
    links = [(0, 1, "2"), (1, 3, "1"), (2, 3, "1"), (3, 4, "0.5"), (3, 4, "0.5")]
    ax = plots.draw_graph(["x", "tanh", "b", "+", "×"], links)
    boxes = [box.get_bbox() for box in ax.patches]
    columns = [round(box.x0 / 1.75) for box in boxes]
    assert columns == [0, 1, 1, 2, 3]
    assert boxes[1].y0 != boxes[2].y0  # beside each other
    labels = [text.get_text() for text in ax.texts]
    assert labels.count("0.5 + 0.5") == 1 and labels.count("1") == 2
    assert ax.figure.get_label().startswith("a graph of 5 values: x to tanh: 2; tanh to +: 1;")


def test_graph_refuses_links_that_go_back():
    with pytest.raises(ValueError, match="later nodes, got 1 to 0"):
        plots.draw_graph(["a", "b"], [(1, 0, "1")])


def test_waves_show_each_tile_loaded_summed_and_scanned():
    ax = plots.draw_waves(2, 3)
    drawn, white = cells(ax), (1, 1, 1, 1)
    steps = {(round(x), round(y)) for x, y in drawn if y != 1}
    for tile in range(6):
        rows = [wave for wave in range(4) if (tile, -wave) in steps]
        assert rows == [wave for wave in range(4) if abs(wave - tile // 2) <= 1]
        colour = drawn[(tile, 1)]
        assert colour == drawn[(tile % 2, 1)] and drawn[(tile, -(tile // 2))] == colour
        assert drawn[(tile, -(tile // 2) - 1)] == colour
    assert drawn[(2, 0)] == white and texts(ax).count("scan") == texts(ax).count("sum") == 6


def test_host_and_device_are_joined_by_their_links():
    ax = plots.draw_host_and_device()
    assert {"PCIe", "NVLink", "host memory", "device memory (VRAM)"} <= set(texts(ax))
    pcie = next(line for line in ax.lines if line.get_ydata()[0] == 4.4)
    wide = next(line for line in ax.lines if line.get_xdata()[0] == 15)
    assert pcie.get_linewidth() < wide.get_linewidth()


@pytest.mark.parametrize(("sms", "lanes"), [(132, 128), (40, 64)])
def test_gpu_has_as_many_sms_and_lanes_as_given(sms, lanes):
    ax = plots.draw_gpu("some GPU", sms, lanes, memory_gb=16, l2_mb=4)
    squares = [p for p in ax.patches if isinstance(p, Rectangle)]
    assert len(squares) == sms + lanes + 1  # and the frame around one SM
    assert f"some GPU: {sms} SMs" in texts(ax)


@pytest.mark.parametrize("causal, kinds", [
    (False, ["20 computed"]),
    (True, ["10 computed", "4 computed, masked", "6 skipped"]),
])  # fmt: skip
def test_attention_tiles_are_skipped_where_no_query_sees_a_key(causal, kinds):
    ax = plots.draw_attention_tiles(100, 80, rows=20, keys=20, causal=causal)
    assert [text for text in texts(ax) if "computed" in text or "skipped" in text] == kinds
    query, key = torch.arange(100)[:, None], torch.arange(80)
    seen = (key <= query) | (not causal)
    for row in range(5):
        for col in range(4):
            tile = seen[row * 20 : row * 20 + 20, col * 20 : col * 20 + 20]
            kind = 0 if tile.all() else 1 if tile.any() else 2
            colour = matplotlib.colors.to_rgba(("#5DBB9B", "#F0E442", "#D0D0D0")[kind])
            assert cells(ax)[(col, 4 - row)] == colour


def test_attention_tiles_are_as_wide_as_a_page():
    for keys in (64, 512, 8192):
        ax = plots.draw_attention_tiles(2048, keys, rows=128, keys=64, causal=True)
        width, height = ax.figure.get_size_inches()
        (left, right), (low, high) = ax.get_xlim(), ax.get_ylim()
        assert width < 8.1, "wider ones are shrunk, with their text"
        assert width / (right - left) == pytest.approx(height / (high - low)), "squares"


def test_a_product_marks_who_makes_what_and_what_that_needs():
    owners = torch.arange(8).view(2, 4).repeat(2, 1)
    owners[3, 3] = -1
    ax = plots.draw_product(owners, 5, cell=(4, 2), name="lane")
    orange, blue, green = (
        matplotlib.colors.to_rgba(colour) for colour in ("#E69F00", "#56B4E9", "#5DBB9B")
    )
    drawn = cells(ax)
    assert [at for at, colour in drawn.items() if colour == orange] == [(3, 2), (3, 0)]
    assert [at for at, colour in drawn.items() if colour == blue] == [(0, 2), (0, 0)]
    assert [at for at, colour in drawn.items() if colour == green] == [(3, 5)]
    assert [text.get_text() for text in ax.texts].count("") == 1, "nobody has the last cell"
    label = ax.figure.get_label()
    assert "16 × 8 elements of out, a cell is 4 × 2" in label
    assert "lane 5 makes rows of cells 1 3 in columns of cells 1: 16 elements" in label
    assert "from 8 numbers of A and 2 of B" in label


def test_mma_marks_what_a_lane_holds():
    A = torch.arange(256).view(16, 16) // 8
    B, C = torch.arange(128).view(16, 8) // 4, torch.arange(128).view(16, 8) // 4
    ax = plots.draw_mma({"A": A, "B": B, "C": C}, lane=3)
    orange = matplotlib.colors.to_rgba("#E69F00")
    assert sum(colour == orange for colour in cells(ax).values()) == 8 + 4 + 4
    assert cells(ax)[(8, 14)] == orange and cells(ax)[(7, 14)] != orange  # row 1 of A
    assert "of B (1, 4) (1, 5) (1, 6) (1, 7)" in ax.figure.get_label()


CALLS = r"""
#define TWICE(x) (2 * x)
struct Pair { int sum() { return twice(1); } };
template <int N> struct Tile {
    static __device__ int all() { return more<2>(); }
    template <int M> static __device__ int more() { return find(M); }
};
static int cdiv(int a, int b) { return a / b; }
static __device__ int find(int a) { return a; }
static __device__ int find(int a, int b) { return find(a) + cdiv(a, b); }
__device__ int grow(int n) { auto find = [&] { return n; }; return find(); }  // twice(
template <int N> __global__ void kernel(int* x) { x[0] = find(x[1], N); }
static void ask() { cudaFuncGetAttributes(&a, kernel<1>); }
static void many() { ask(), ask(); }
#ifdef __CUDACC_VER_MAJOR__
static __global__ void fast_kernel() { grow(3 + Tile<1>::all() + std::more(1)); }
#endif
void launch_all_of_the_kernels() {
    auto way = kernel<1>;
    way<<<1, 1>>>(x);
    fast_kernel<<<1, 1>>>();
    ask();
}
void other() { many(), launch_all_of_the_kernels(); }
"""


def test_a_map_draws_what_calls_what_once():
    ax = plots.draw_calls(CALLS)
    assert ax.figure.get_label() == "; ".join(
        [
            "Tile::all calls Tile::more",
            "Tile::more calls find",
            "find calls find, cdiv",
            "kernel calls find",
            "many calls ask",
            "fast_kernel calls grow, Tile::all",
            "launch_all_of_the_kernels calls kernel, fast_kernel, ask",
            "other calls many, launch_all_of_the_kernels",
        ]
    )
    drawn = texts(ax)
    assert drawn.count("launch_all_of_the_\nkernels") == 1 and "find" in drawn
    boxes = {t.get_text(): p for t, p in zip(ax.texts, ax.patches, strict=False)}
    assert boxes["fast_kernel"].get_linestyle() == "--" != boxes["kernel"].get_linestyle()
    assert boxes["kernel"].get_facecolor() == boxes["fast_kernel"].get_facecolor()
    x = {name: box.get_x() for name, box in boxes.items()}
    assert x["other"] < x["many"] == x["launch_all_of_the_\nkernels"] < x["kernel"] < x["find"]
    assert drawn[-1] == "name …: what it calls stands above. Not drawn: methods of objects"


def test_a_map_leaves_out_what_is_called_everywhere_or_named():
    callers = "".join(f"void f{i}() {{ cdiv(); g(); }}\n" for i in range(6))
    src = f"static void h() {{}}\nvoid cdiv() {{}}\nstatic void g() {{ h(); }}\n{callers}"
    ax = plots.draw_calls(src)
    assert "f5 calls g" in ax.figure.get_label() and "cdiv" not in ax.figure.get_label()
    assert texts(ax)[-1].endswith("Not drawn: cdiv, methods of objects")
    assert texts(ax).count("g …") == 5 and texts(ax).count("h") == 1
    without_g = plots.draw_calls(src, ["g"])
    assert texts(without_g)[-1].endswith("Not drawn: cdiv, g, methods of objects")


def test_a_map_needs_functions():
    with pytest.raises(ValueError, match="with functions, found none"):
        plots.draw_calls("int x;")
