"""Pictures in a notebook have an alt text, are sharp and small, and can be read on any page."""

import re
from base64 import b64decode
from io import BytesIO

import matplotlib
import numpy as np
import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell
from matplotlib import pyplot as plt
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib_inline.config import InlineBackend
from PIL import Image

from helpers.base.images import (
    STYLE,
    Picture,
    figure_bundle,
    picture_bundle,
    picture_html,
    set_up_pictures,
)
from helpers.base.palette import ALARM, COLORS, INK, PLATE
from helpers.network import Message, Run
from helpers.plots import (
    draw_attention_tiles,
    draw_bank_tiles,
    draw_butterflies,
    draw_calls,
    draw_gather,
    draw_gpu,
    draw_graph,
    draw_host_and_device,
    draw_launch,
    draw_layers,
    draw_loads,
    draw_memory,
    draw_messages,
    draw_mma,
    draw_online_softmax,
    draw_packs,
    draw_product,
    draw_race,
    draw_rounds,
    draw_route,
    draw_shares,
    draw_stream,
    draw_waves,
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
    show_images,
)
from helpers.tests.legible import LEAST_CONTRAST, contrast, illegible

matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def style():
    with matplotlib.rc_context(STYLE):
        yield
    plt.close("all")


def shown(bundle):
    """Return alt text, width on the page, type and pixels of a picture."""
    data, metadata = bundle
    ((kind, about),) = metadata.items()
    assert about["alt"] == data["text/plain"] and data.keys() == {kind, "text/plain"}
    image = Image.open(BytesIO(b64decode(data[kind])))
    assert image.height == pytest.approx(2 * about["height"], abs=1)
    return about["alt"], about["width"], kind, image


@pytest.mark.parametrize("color", [INK, ALARM, "black"])
def test_texts_on_the_plate_have_contrast(color):
    assert contrast(to_rgb(color), to_rgb(PLATE)) >= LEAST_CONTRAST


def test_what_cannot_be_read_is_found():
    figure, ax = plt.subplots(figsize=(4, 3))
    ax.set_axis_off()
    ax.text(0.5, 0.5, "pale", color=COLORS[4])
    ax.text(0.5, 0.2, "small", fontsize=7)
    ax.text(0.5, 0.8, "on its ground", color=COLORS[0], bbox={"fc": "black"})
    ax.text(0.1, 0.2, "seen")
    pale, small, ground = illegible(figure)
    assert pale.startswith("'pale' has a contrast of 2")
    assert small.startswith("'small' is 9.7 pixels") and ground.startswith("'on its ground' has")
    wide, ax = plt.subplots(figsize=(20, 2))
    ax.text(0.5, 0.5, "shrunk", fontsize=10)
    assert any(re.match("'shrunk' is [5-9]", found) for found in illegible(wide))


def figure_with_a_line():
    figure, ax = plt.subplots(figsize=(4, 3))
    ax.plot([1, 2, 3])
    return figure


def test_a_picture_is_sharp_and_stands_on_a_plate():
    figure = figure_with_a_line()
    _, width, kind, image = shown(picture_bundle(figure, "a line"))
    assert 300 < width < 450 and image.width == pytest.approx(2 * width, abs=1)
    assert kind == "image/png" and image.mode == "P" and len(image.getcolors()) < 60
    pixels = np.asarray(image.convert("RGBA"))
    assert not pixels[[0, 0, -1, -1], [0, -1, 0, -1], 3].any(), "the plate has round corners"
    assert (pixels[20:-20, :, 3] == 255).all() and (pixels[:, 20:-20, 3] == 255).all()
    plate = np.round(255 * np.array(to_rgb(PLATE)))
    assert np.abs(pixels[30:-30, 5, :3] - plate).max() <= 3
    seen = pixels[pixels[..., 3] == 255][:, :3].astype(int)
    for color in (INK, "#1F77B4"):
        part = np.round(255 * np.array(to_rgb(color)))
        assert (np.abs(seen - part).max(axis=1) <= 8).any(), "axes in ink, the line in blue"


def test_pale_colours_stay_apart():
    figure, ax = plt.subplots()
    for i, color in enumerate(("#D3EAF8", "#CDEBE1", "white")):
        ax.add_patch(plt.Rectangle((i / 3, 0), 1 / 3, 1, fc=color))
    pixels = np.asarray(shown(picture_bundle(figure, ""))[3].convert("RGBA"))[..., :3]
    found = [pixels[len(pixels) // 2, int(pixels.shape[1] * x)] for x in (0.25, 0.5, 0.8)]
    for color, pixel in zip(("#D3EAF8", "#CDEBE1", "white"), found, strict=True):
        assert np.abs(255 * np.array(to_rgb(color)) - pixel).max() <= 3


def test_a_picture_in_html_has_an_alt_text():
    html = picture_html(figure_with_a_line(), 'a "line" & more')
    begin = '<img alt="a &quot;line&quot; &amp; more" width="'
    assert html.startswith(begin) and 'src="data:image/png;base64,' in html


def test_the_alt_text_is_the_label_or_what_the_axes_say():
    figure = figure_with_a_line()
    figure.axes[0].set(title="growth", xlabel="step", ylabel="size\n(m)")
    assert shown(figure_bundle(figure))[0] == "growth: size (m) over step"
    figure.set_label('a "line" & more')
    assert shown(figure_bundle(figure))[0] == 'a "line" & more'
    assert shown(figure_bundle(Figure()))[0] == "a drawing"
    figure, (bars, words) = plt.subplots(2)
    bars.set_yticks([0, 1, 2], ["naive", "tiled", "3"])
    bars.set_xlabel("ms")
    words.text(0, 0, "a note")
    assert shown(figure_bundle(figure))[0] == "ms: naive, tiled; a note"


def test_a_long_title_is_not_cut():
    figure = figure_with_a_line()
    figure.axes[0].set_title("a title that is much longer than the plot " * 3)
    _, width, _, image = shown(figure_bundle(figure))
    edges = np.asarray(image.convert("RGBA"))[30:-30, [10, -10], :3].astype(int)
    assert width > 500 and np.abs(edges - 255 * np.array(to_rgb(PLATE))).max() <= 3


def test_a_photograph_takes_little():
    rng = np.random.default_rng(0)
    rough = rng.integers(0, 256, (30, 25, 3), dtype=np.uint8)
    photo = torch.from_numpy(np.array(Image.fromarray(rough).resize((500, 600))))
    bundle = figure_bundle(show_images(photo[None]))
    alt, _, kind, image = shown(bundle)
    assert kind == "image/jpeg" and alt == "1 image of 600 by 500 pixels"
    assert len(bundle[0][kind]) < 90_000
    assert min(image.getpixel((0, 0))) > 230  # the plate
    digits = show_images(torch.zeros(4, 28, 28), titles=[7, 2, 1, 0])
    assert shown(figure_bundle(digits))[::2] == (
        "4 images of 28 by 28 pixels: 7, 2, 1, 0",
        "image/png",
    )


MMA = {"A": torch.arange(256).view(16, 16) // 8}
MMA |= dict.fromkeys("BC", torch.arange(128).view(16, 8) // 4)
SPAN = {"lane": "rank 0", "kind": "forward", "start": 0, "end": 4, "label": 7}
SPAN |= {"stream": "A", "ts": 0, "dur": 4, "name": "add", "cat": "kernel"}
RUN = Run(3, [], [Message(0, 1, 8, 1, 0, 1), Message(1, 2, 4, 2, 1, 2)])


@pytest.mark.parametrize(
    ("draw", "words"),
    [
        (lambda: plot_grid((2, 2), (2, 2), (3, 4)), "4 blocks of 4 threads, 3 × 4 elements, 4 th"),
        (lambda: plot_roofline({"add": (0.1, 0.3)}, 4000, 60, "H200"), "add 0.3 at 0.1 FLOP/byte"),
        (lambda: plot_losses({"ours": [2.0, 1.0]}), "loss of each step: ours from 2 to 1"),
        (lambda: plot_confusion(torch.tensor([[5, 2], [0, 5]])), "83.33% of 12 right.* 1 for 0, 2"),
        (lambda: plot_confusion(torch.tensor([[5, 0], [0, 5]])), "100.00% of 10 right$"),
        (lambda: draw_route([("a", "first"), ("b", "then")]), r"a \(first\) → b \(then\)"),
        (lambda: draw_layers([("top", ["x", ""], ["y"])]), "top: x, elsewhere y"),
        (lambda: draw_memory(torch.arange(4).reshape(2, 2).T), r"\(1, 2\); in memory: 0, 1, 2, 3"),
        (lambda: draw_launch(2, 4, 6), "2 blocks .* 4 threads; i = .* 0 to 7; .* 6 on have"),
        (lambda: draw_stream(2, 10), "says 6 µs, with waiting 32 µs; .* kernels alone 30 µs"),
        (lambda: draw_stream(9, 1, calls=1), "1 launch of 9 µs, 1 kernel of 1.* kernel alone 1"),
        (lambda: draw_messages(RUN, "there"), "there, messages between 3 ranks: step 1: 0 to 1"),
        (lambda: draw_loads(3, 4), "one element each, or 4 neighbours each"),
        (lambda: draw_bank_tiles({"a": [[0, 1], [2, 3]]}), "a: 2 wavefronts .*column 0, 0$"),
        (lambda: draw_gather((1, 2), {"tap 3": [-1, 0]}), "1 × 2 image .*; tap 3: zero, 0$"),
        (lambda: draw_shares({"layer": [[0, 0], [1, 1]]}), "layer: 0, 0; 1, 1$"),
        (lambda: draw_online_softmax([1, 3]), "1: largest 1, sum 1; 3: largest 3, sum 1.25"),
        (lambda: draw_packs(2, 4, 1), "at the places 1, 0, 3, 2: all different"),
        (lambda: draw_rounds([3, 1], [[(0, 1)]]), "rounds: 3 1; .* 0 to 1, then 3 4"),
        (lambda: draw_butterflies([[(0, 1, 1, 0, 3)]], [1, 0]), "pass 1: 0 and 1 to 1 and 0, w3"),
        (lambda: draw_graph(["w", "x", "×"], [(0, 2, "3"), (1, 2, "5")]), "w to ×: 3; x to ×: 5"),
        (lambda: draw_waves(2, 2), "wave 1: scan of tiles 0 to 1; wave 1: sum of tiles 2 to 3"),
        (lambda: draw_attention_tiles(2048, 2048, 128, 64, True), "240 computed, 32 computed, ma"),
        (lambda: draw_mma(MMA, lane=3), r"lane 3 of a warp holds of A \(1, 8\)"),
        (lambda: draw_calls("void b() {}\nvoid a() { b(); }"), "a calls b"),
        (lambda: draw_product(MMA["A"], 5, (4, 4)), "64 × 64 elements of out"),
        (lambda: draw_race(["0 load", "0 add", "0 store"], 5), "thread 0 store: 6, memory 6"),
        (lambda: plot_owners(MMA["A"][:2], ["one", "two"]), "one .*, two"),
        (lambda: plot_curves({"a": [(1, 2), (2, 3)]}, "n", "µs", "here", marks={"L2": 1.5}), "L2"),
        (lambda: plot_bars({"a": 1, "b": 30}, "GB/s", "here", {"a": 9}, {"peak": 40}), "peak 40"),
        (lambda: plot_blocks([(0, 0, 9), (1, 0, 8), (0, 9, 20)], "here"), "block 2 from 9 to 20"),
        (lambda: plot_lanes([SPAN], "here"), "rank 0: forward 7 from 0 to 4"),
        (
            lambda: plot_streams([SPAN | {"kind": "kernel"}], "here"),
            "stream A: kernel 0 from 0 to 4",
        ),
        (lambda: plot_timeline([SPAN], "here"), "here: kernels: 0 to 4"),
        (draw_host_and_device, "PCIe joins the two, NVLink joins GPUs"),
        (lambda: draw_gpu("H200", 132, 128, 150, 50), "132 SMs.*32 FP32 lanes.*150 GB"),
    ],
)
def test_every_plot_says_what_it_shows_and_can_be_read(draw, words):
    figure = draw().figure
    assert re.search(words, shown(figure_bundle(figure))[0])
    assert not illegible(figure)


@pytest.mark.filterwarnings("ignore:InlineBackend")
def test_a_notebook_shows_figures_and_pictures_alike(monkeypatch):
    shell = InteractiveShell.instance()
    monkeypatch.setattr("IPython.get_ipython", lambda: shell)
    with matplotlib.rc_context():
        set_up_pictures()
        assert InlineBackend.instance().figure_formats == set()
        assert plt.rcParams["text.color"] == INK
        figure = figure_with_a_line()
        data, _ = shell.display_formatter.format(figure)
        assert data == figure_bundle(figure)[0]
        data, metadata = shell.display_formatter.format(Picture(Figure(), "nothing"))
    assert metadata["image/png"]["alt"] == data["text/plain"] == "nothing"
    InteractiveShell.clear_instance()
