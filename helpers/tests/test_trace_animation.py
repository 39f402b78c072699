"""The animation of a tiled matmul shows the numbers of a real run, with and without JavaScript."""

import random
import re
from base64 import b64decode
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
import torch

from helpers.simulator import cdiv, launch
from helpers.trace.animation import animate_tiled_matmul, tiled_matmul_kernel

SVG = "{http://www.w3.org/2000/svg}"


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


def numbers(svg):
    """Return all numbers in an image, in the order they are drawn."""
    texts = [text.text for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]
    return [int(text) for text in texts if text.isdigit()]


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
    for svg, text in animate_tiled_matmul().frames:
        words = [text.text for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]
        assert ("barrier" in words) == text.startswith("Barrier")


def test_without_javascript_the_first_frame_and_the_words_stay():
    animation = animate_tiled_matmul()
    page = Page(animation._repr_html_())
    count = len(animation.frames)
    figures = [hidden for tag, hidden in page.hidden if tag == "figure"]
    assert figures == [False] + [True] * (count - 1)
    assert [hidden for tag, hidden in page.hidden if tag == "p"] == [True]  # the buttons
    assert [hidden for tag, hidden in page.hidden if tag == "details"] == [False]
    assert "hidden" not in re.sub(r'hidden="hidden"|hidden = ', "", animation._repr_html_())
    assert page.texts["li"] == shown(animation)
    assert page.texts["button"] == ["back", "next", "play"]
    for image, (svg, text) in zip(page.images, animation.frames, strict=True):
        assert image["alt"] == text
        kind, data = image["src"].split(",")
        assert kind == "data:image/svg+xml;base64" and b64decode(data).decode() == svg
    assert all(step in repr(animation) for step in shown(animation))


def test_the_page_is_small_and_needs_no_network():
    html = animate_tiled_matmul(8, 8, 8, TILE=2)._repr_html_()
    assert len(html) < 400_000
    assert not re.search(r"https?:|<link|src=\"(?!data:)|@import", html)
    svg = animate_tiled_matmul().frames[0][0].replace("http://www.w3.org/2000/svg", "")
    assert "http" not in svg


def test_the_same_arguments_make_the_same_page():
    assert animate_tiled_matmul()._repr_html_() == animate_tiled_matmul()._repr_html_()


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
