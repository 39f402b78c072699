"""The animation of a tiled matmul shows the numbers of a real run, with and without JavaScript."""

import json
import random
import re
import shutil
import subprocess
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
import torch

from helpers.simulator import cdiv, launch
from helpers.tests.legible import illegible
from helpers.trace.animation import animate_tiled_matmul, tiled_matmul_kernel
from helpers.trace.picture import figure_of

NAMESPACE = "http://www.w3.org/2000/svg"
SVG = f"{{{NAMESPACE}}}"


class Page(HTMLParser):
    """What of a page is shown without JavaScript: images, and the texts of elements by tag."""

    def __init__(self, html):
        super().__init__()
        self.images, self.texts, self.hidden, self._open = [], {}, [], []
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if tag == "img":
            self.images.append(attributes)
        if tag not in ("img", "input"):
            self._open.append(tag)
            self.texts.setdefault(tag, []).append("")
        is_closed = tag == "details" and "open" not in attributes
        self.hidden.append((tag, is_closed or "hidden" in attributes))

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.texts[self._open[-1]][-1] += data


def words(drawing):
    """Return all texts in a drawing, in their order, the same in both its forms."""
    texts = [text.text for text in ElementTree.fromstring(drawing.svg()).iter(f"{SVG}text")]
    assert texts == [text.get_text() for text in figure_of(drawing).axes[0].texts]
    return texts


def numbers(drawing):
    """Return all numbers in a drawing, in the order they are drawn."""
    return [int(text) for text in words(drawing) if text.isdigit()]


def shown(animation):
    return [text for _, text in animation.frames]


def random_shape():
    return [random.randint(2, 8) for _ in range(3)] + [random.randint(2, 4)]


def test_the_steps_of_two_tiles():
    steps = shown(animate_tiled_matmul(4, 4, 4, TILE=2))
    kinds = [re.match(r"Block|Tile|Barrier|k|Each", step).group() for step in steps]
    tile = ["Tile", "Barrier", "k", "k", "Barrier"]
    assert kinds == ["Block", *tile, *tile, "Each"]
    assert "loaded 16 elements of A and B; without tiles it would load 32." in steps[-1]


def test_the_numbers_are_those_of_the_product():
    M, N, K, TILE = random_shape()
    animation = animate_tiled_matmul(M, N, K, TILE)
    first, last = animation.frames[0][0], animation.frames[-1][0]
    drawn = numbers(first)
    A = torch.tensor(drawn[: M * K]).reshape(M, K)
    B = torch.tensor(drawn[M * K : M * K + K * N]).reshape(K, N)
    left, top = cdiv(N, TILE) // 2 * TILE, cdiv(M, TILE) // 2 * TILE
    C = (A @ B)[top : top + TILE, left : left + TILE]
    in_matrix = numbers(last)[M * K + K * N :][: C.numel()]
    assert in_matrix == C.flatten().tolist()
    assert drawn[M * K + K * N :] == [0] * TILE**2  # accumulators


def test_each_k_adds_one_product():
    M, N, K, TILE = random_shape()
    animation = animate_tiled_matmul(M, N, K, TILE)
    pattern = r"k = .*: (\d+) \+ (\d+) × (\d+) = (\d+)\."
    sums = [re.match(pattern, step) for step in shown(animation)]
    sums = [[int(number) for number in found.groups()] for found in sums if found]
    acc = 0
    for before, a, b, after in sums:
        assert (before, after) == (acc, acc + a * b)
        acc = after
    accumulators = numbers(animation.frames[-1][0])[-TILE * TILE :]
    assert accumulators[0] == acc


def test_the_edge_of_a_matrix_is_mentioned_where_it_is():
    steps = shown(animate_tiled_matmul(4, 4, 3, TILE=2))
    edges = ["writes 0" in step for step in steps if step.startswith("Tile")]
    assert edges == [False, True]
    assert not any("writes 0" in step for step in shown(animate_tiled_matmul()))


def test_threads_beyond_the_edge_of_C_are_mentioned_where_there_are_some():
    inside, beyond = (shown(animate_tiled_matmul(*C, 4, TILE=2)) for C in ((4, 4), (3, 4)))
    assert inside[0].startswith(
        "Block (1, 1) has 4 threads, one for each element of its part of C."
    )
    assert inside[-1].startswith("Each thread stores its acc in C.")
    assert "its part of C, and some beyond its edge." in beyond[0]
    assert beyond[-1].startswith("Each thread whose element lies in C stores its acc in C.")


def test_barriers_are_drawn():
    for drawing, text in animate_tiled_matmul().frames:
        assert ("barrier" in words(drawing)) == text.startswith("Barrier")


def test_what_is_drawn_can_be_read():
    for drawing, _ in animate_tiled_matmul(8, 8, 8, TILE=4).frames:
        assert not illegible(figure_of(drawing))


def test_without_javascript_a_picture_and_the_words_stay(monkeypatch):
    animation, shown_here = animate_tiled_matmul(), []
    monkeypatch.setattr("IPython.display.display", lambda what, **_: shown_here.append(what))
    animation._ipython_display_()
    picture, player = shown_here
    assert picture.alt == animation.frames[0][1] and player["text/plain"] == repr(animation)
    page = Page(re.sub("<script>.*</script>", "", player["text/html"], flags=re.S))
    assert page.images == [] and "button" not in page.texts
    assert [hidden for tag, hidden in page.hidden if tag == "details"] == [False]
    assert page.texts["li"] == shown(animation)
    assert all(step in repr(animation) for step in shown(animation))


def test_the_player_has_every_frame():
    animation = animate_tiled_matmul()
    script = re.search("const frames = (.*);", animation.html())[1]
    frames = json.loads(script)
    assert frames == [[drawing.svg(), text] for drawing, text in animation.frames]


@pytest.mark.skipif(not shutil.which("node"), reason="node is not installed")
def test_the_script_of_the_player_is_javascript(tmp_path):
    script = re.search("<script>(.*)</script>", animate_tiled_matmul().html(), re.S)[1]
    (tmp_path / "player.js").write_text(script, encoding="utf-8")
    subprocess.run(["node", "--check", tmp_path / "player.js"], check=True)


def test_the_page_is_small_and_needs_no_network():
    html = animate_tiled_matmul(8, 8, 8, TILE=2).html()
    assert len(html) < 400_000
    assert not re.search(r"https?:|<link|src=\"(?!data:)|@import", html.replace(NAMESPACE, ""))


def test_the_same_arguments_make_the_same_page():
    assert animate_tiled_matmul().html() == animate_tiled_matmul().html()


@pytest.mark.parametrize("sizes", [(9, 4, 4, 2), (4, 0, 4, 2), (4, 4, 4, 1), (4, 4, 4, 5)])
def test_sizes_that_a_page_has_no_room_for(sizes):
    with pytest.raises(ValueError, match="M, N and K are 1 to 8, TILE 2 to 4, not"):
        animate_tiled_matmul(*sizes)


@pytest.mark.parametrize("sizes", [(4.0, 4, 4, 2), (4, "4", 4, 2), (4, 4, 4, (2, 2))])
def test_sizes_are_integers(sizes):
    with pytest.raises(TypeError, match="M, N, K and TILE are integers, not"):
        animate_tiled_matmul(*sizes)


def test_the_kernel_that_is_shown_multiplies():
    M, N, K, TILE = random_shape()
    A, B, C = torch.randn(M, K), torch.randn(K, N), torch.zeros(M, N)
    grid = (cdiv(N, TILE), cdiv(M, TILE))
    launch(tiled_matmul_kernel, grid, (TILE, TILE), C, A, B, M, N, K, TILE, lambda *_: None)
    torch.testing.assert_close(C.double(), A.double() @ B.double(), rtol=1e-5, atol=1e-5)
