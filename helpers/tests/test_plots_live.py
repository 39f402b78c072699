"""The picture of a training renews itself in one place, seldom, and says what is going on."""

import pytest
import torch

from helpers.base.palette import ALARM
from helpers.plots import LiveTraining, live
from helpers.tests.legible import illegible


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
    assert repr(clock.shown[0]).startswith("ours: step 17 of 100, loss 1, 5 s left;")
    assert repr(clock.shown[-1]).startswith("ours: step 100 of 100, loss 1, done in 6.0 s;")


def test_a_slow_picture_comes_seldom(clock):
    def read():
        clock.now += 0.2
        return digits()

    train(clock, [1.0] * 1000, 0.05, read)
    assert len(clock.shown) == 1 + 5  # 1 s, then every 10 s of 50


def test_the_picture_has_the_curve_the_digits_and_an_alt_text(clock):
    train(clock, [1.0] * 20 + [0.1] * 20, 0.01)
    (picture,) = clock.shown
    assert picture.alt.endswith("loss 0.1, done in 0.4 s; 3 images read as 7 3 1")
    curve, digits = picture.figure.axes
    (line,) = curve.lines
    assert list(line.get_xdata()) == [20, 40]
    assert list(line.get_ydata()) == pytest.approx([1, 0.1])
    assert [text.get_text() for text in digits.texts] == ["7", "3", "1"]
    assert [text.get_color() == ALARM for text in digits.texts] == [False, True, False]
    assert digits.images[0].get_array().shape == (28, 3 * 28)
    assert not illegible(picture.figure)


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
    (line,) = clock.shown[0].figure.axes[0].lines
    assert len(line.get_xdata()) == 1
    assert "loss nan" in clock.shown[0].alt
