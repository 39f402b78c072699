"""Stands in for the tools in the browser, whose files are in memory."""

from contextlib import contextmanager


@contextmanager
def writing(folder):
    """Make a folder that is written to."""
    folder.mkdir(parents=True, exist_ok=True)
    yield
