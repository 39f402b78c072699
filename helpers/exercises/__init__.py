"""Exercises and predictions with a gate, and how far one has come.

`exercise` says whether an attempt is to do, wrong or right (gate.py), with a card that shows what a
wrong one did (card.py, pictures.py). `capstone` has a kernel pass hidden tests (hidden.py), and
marks it against the course's own (capstones.py, ticks.py); `improve` asks for a kernel that does
the same `Work` with less, counted (improvements.py); marks.py keeps the marks of both. `predict`
takes a guess before the clock runs, `reveal` puts the measured value beside it, `show_predictions`
shows them all (predictions.py); `show_progress` is the map of what is solved (course.py), which
progress.py keeps; way.py reads the way through the course. `make test` checks the solutions that
notebooks show (solutions.py).
"""

from helpers.exercises.course import show_progress
from helpers.exercises.gate import ExerciseError, exercise
from helpers.exercises.predictions import predict, reveal, show_predictions

__all__ = [
    "ExerciseError",
    "Work",
    "capstone",
    "exercise",
    "improve",
    "predict",
    "reveal",
    "show_predictions",
    "show_progress",
]


def __getattr__(name: str):
    """Import what needs PyTorch when it is asked for: where the browser runs kernels is none."""
    if name == "capstone":
        from helpers.exercises.capstones import capstone

        return capstone
    if name in ("Work", "improve"):
        from helpers.exercises import improvements

        return getattr(improvements, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
