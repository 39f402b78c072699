"""The picture of a training renews itself in one place, seldom, and says what is going on."""

import pytest
import torch

from helpers.plots import LiveTraining, live
from helpers.tests.svg import read_svg


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until it is moved, and what has been shown by it."""

    class Clock:
        now, shown = 0.0, []

    found = Clock()
    found.shown = []
    monkeypatch.setattr(live.time, "perf_counter", lambda: found.now)
    monkeypatch.setattr(live, "_display", lambda: found.shown.append)
    return found


def digits():
    return torch.zeros(3, 28, 28, dtype=torch.uint8), [7, 2, 1], [7, 3, 1]


def train(clock, losses, seconds_a_step, read=digits):
    training = LiveTraining("ours", len(losses), read)
    for done in range(1, len(losses) + 1):
        clock.now += seconds_a_step
        training.update(torch.tensor(losses[:done]).unbind())
    return training


def test_it_shows_at_most_one_picture_a_second_and_the_last_state(clock):
    train(clock, [1.0] * 100, seconds_a_step=0.06)
    assert len(clock.shown) == 6
    assert repr(clock.shown[0]) == "ours: step 17 of 100, loss 1, 5 s left"
    assert repr(clock.shown[-1]) == "ours: step 100 of 100, loss 1, done in 6.0 s"


def test_a_slow_picture_comes_seldom(clock):
    def read():
        clock.now += 0.2
        return digits()

    train(clock, [1.0] * 1000, 0.05, read)
    assert len(clock.shown) == 1 + 5  # 1 s, then every 10 s of 50


def test_the_picture_has_the_curve_the_digits_and_an_alt_text(clock):
    train(clock, [1.0] * 20 + [0.1] * 20, 0.01)
    (picture,) = clock.shown
    alt, drawn = read_svg(picture._repr_html_())
    assert alt.endswith("loss 0.1, done in 0.4 s; 3 images read as 7 3 1")
    (line,) = drawn.iter("polyline")
    assert line.get("points") == f"{live.WIDTH / 2},0.0 {live.WIDTH:.1f},{live.HEIGHT}.0"
    reads = [text for text in drawn.iter("text") if text.get("text-anchor") == "middle"]
    assert [text.text for text in reads] == ["7", "3", "1"]
    assert [bool(text.get("fill")) for text in reads] == [False, True, False]
    assert drawn.findall(".//image")


def test_a_notebook_renews_the_picture_where_it_stands(monkeypatch):
    shown = []

    class Handle:
        update = shown.append

    monkeypatch.setattr("IPython.get_ipython", lambda: True)
    monkeypatch.setattr("IPython.display.display", lambda picture, display_id: Handle)
    training = LiveTraining("ours", 2, digits)
    for _ in range(3):
        training.update(torch.ones(2).unbind())
    assert [repr(picture)[:22] for picture in shown] == ["ours: step 2 of 2, los"] * 2


def test_losses_that_are_no_numbers_are_left_out(clock):
    nan = float("nan")
    train(clock, [2.0] * 20 + [nan] * 20, 0.01)
    alt, drawn = read_svg(clock.shown[0]._repr_html_())
    (line,) = drawn.iter("polyline")
    assert len(line.get("points").split()) == 1
    assert "loss nan" in alt
