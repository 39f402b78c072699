"""Pictures in a notebook have an alt text, are sharp, small, and seen on light and dark pages."""

import re
from base64 import b64decode
from html import unescape
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

from helpers.base.images import STYLE, figure_html, image_html, set_up_pictures
from helpers.base.palette import INK
from helpers.network import Message, Run
from helpers.plots import (
    draw_bank_tiles,
    draw_butterflies,
    draw_gpu,
    draw_graph,
    draw_host_and_device,
    draw_launch,
    draw_layers,
    draw_loads,
    draw_memory,
    draw_messages,
    draw_online_softmax,
    draw_packs,
    draw_rounds,
    draw_route,
    draw_shares,
    draw_stream,
    draw_waves,
    plot_confusion,
    plot_grid,
    plot_losses,
    plot_roofline,
    show_images,
)
from helpers.trace.picture import Picture

matplotlib.use("Agg")
PAGES = {"white": 4.5, "#111111": 4.1}  # and the least contrast of text on them


@pytest.fixture(autouse=True)
def style():
    with matplotlib.rc_context(STYLE):
        yield
    plt.close("all")


def shown(html):
    """Return alt text, width on the page, kind and pixels of an <img>."""
    size = r'width="(\d+)" style="max-width:100%"'
    source = r'src="data:image/(\w+);base64,([^"]*)"'
    alt, width, kind, data = re.fullmatch(rf'<img alt="([^"]*)" {size} {source}>', html).groups()
    return unescape(alt), int(width), kind, Image.open(BytesIO(b64decode(data)))


def luminance(color):
    parts = np.array(to_rgb(color))
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return linear @ (0.2126, 0.7152, 0.0722)


@pytest.mark.parametrize("page", PAGES)
def test_text_on_the_page_has_contrast(page):
    light, dark = sorted((luminance(INK), luminance(page)), reverse=True)
    assert (light + 0.05) / (dark + 0.05) >= PAGES[page]


def figure_with_a_line():
    figure, ax = plt.subplots(figsize=(4, 3))
    ax.plot([1, 2, 3])
    return figure


def test_a_picture_is_sharp_transparent_and_has_few_colours():
    figure = figure_with_a_line()
    _, width, kind, image = shown(image_html(figure, "a line", dpi=100))
    assert 300 < width < 420 and image.width == pytest.approx(2 * width, abs=1)
    assert kind == "png" and image.mode == "P" and image.info.get("transparency") is not None
    pixels = np.asarray(image.convert("RGBA"))
    assert (pixels[0, :, 3] == 0).all(), "the page is seen around the picture"
    seen = pixels[pixels[..., 3] > 240][:, :3].astype(int)
    ink = np.round(255 * np.array(to_rgb(INK)))
    assert (np.abs(seen - ink).max(axis=1) <= 8).any(), "axes are drawn in ink"
    assert seen.max(axis=1).min() > 90, "nothing is black on a dark page"


def test_the_alt_text_is_the_label_or_what_the_axes_say():
    figure = figure_with_a_line()
    figure.axes[0].set(title="growth", xlabel="step", ylabel="size\n(m)")
    assert shown(figure_html(figure))[0] == "growth: size (m) over step"
    figure.set_label('a "line" & more')
    assert shown(figure_html(figure))[0] == 'a "line" & more'
    assert shown(figure_html(Figure()))[0] == "a drawing"
    figure, (bars, words) = plt.subplots(2)
    bars.set_yticks([0, 1, 2], ["naive", "tiled", "3"])
    bars.set_xlabel("ms")
    words.text(0, 0, "a note")
    assert shown(figure_html(figure))[0] == "ms: naive, tiled; a note"


def test_a_long_title_is_not_cut():
    figure = figure_with_a_line()
    figure.axes[0].set_title("a title that is much longer than the plot " * 3)
    _, width, _, image = shown(figure_html(figure))
    assert width > 500 and not np.asarray(image.convert("RGBA"))[:, [0, -1], 3].any()


def test_a_photograph_takes_little():
    rng = np.random.default_rng(0)
    rough = rng.integers(0, 256, (30, 25, 3), dtype=np.uint8)
    photo = torch.from_numpy(np.array(Image.fromarray(rough).resize((500, 600))))
    html = figure_html(show_images(photo[None]))
    alt, _, kind, image = shown(html)
    assert kind == "webp" and alt == "1 image of 600 by 500 pixels" and len(html) < 60_000
    assert image.convert("RGBA").getpixel((0, 0))[3] < 255  # transparent around it
    digits = show_images(torch.zeros(4, 28, 28), titles=[7, 2, 1, 0])
    assert shown(figure_html(digits))[::2] == ("4 images of 28 by 28 pixels: 7, 2, 1, 0", "png")


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
        (lambda: draw_shares({"layer": [[0, 0], [1, 1]]}), "layer: 0, 0; 1, 1$"),
        (lambda: draw_online_softmax([1, 3]), "1: largest 1, sum 1; 3: largest 3, sum 1.25"),
        (lambda: draw_packs(2, 4, 1), "at the places 1, 0, 3, 2: all different"),
        (lambda: draw_rounds([3, 1], [[(0, 1)]]), "rounds: 3 1; .* 0 to 1, then 3 4"),
        (lambda: draw_butterflies([[(0, 1, 1, 0, 3)]], [1, 0]), "pass 1: 0 and 1 to 1 and 0, w3"),
        (lambda: draw_graph(["w", "x", "×"], [(0, 2, "3"), (1, 2, "5")]), "w to ×: 3; x to ×: 5"),
        (lambda: draw_waves(2, 2), "wave 1: scan of tiles 0 to 1; wave 1: sum of tiles 2 to 3"),
        (draw_host_and_device, "PCIe joins the two, NVLink joins GPUs"),
        (lambda: draw_gpu("H200", 132, 128, 150, 50), "132 SMs.*32 FP32 lanes.*150 GB"),
    ],
)
def test_every_plot_says_what_it_shows(draw, words):
    assert re.search(words, shown(figure_html(draw().figure))[0])


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
        assert data["text/html"] == figure_html(figure) and "image/png" not in data
        data, _ = shell.display_formatter.format(Picture(Figure(), "nothing"))
    assert shown(data["text/html"])[0] == data["text/plain"] == "nothing"
    InteractiveShell.clear_instance()
