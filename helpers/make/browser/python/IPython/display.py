"""Shows an object on the page, see run."""

import run


def display(thing):
    run.show(thing)
