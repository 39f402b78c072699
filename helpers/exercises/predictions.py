"""A guess first, then the clock: predictions of a number, and how far off they were."""

import math

from helpers.base.tables import Table
from helpers.exercises.card import Card
from helpers.exercises.pictures import log_scale
from helpers.exercises.progress import chapters, entry, update


def predict(name: str, guess: float | None, unit: str) -> Card:
    """Keep a guess of a positive number, to be revealed later; to do while it is None or `...`.

    Once the value is revealed, the guess that was made before stands. ValueError if the guess is
    no positive number.
    """
    if guess is None or guess is ...:
        return Card(name, "to do", f"a guess of yours ({unit}), before you go on")
    if isinstance(guess, bool) or not isinstance(guess, int | float) or not 0 < guess < math.inf:
        raise ValueError(f"{name}: expected a positive number of {unit}, got {guess!r}")
    known = entry(name)
    if "measured" in known:
        before = f"{known['guess']:,.4g} {known['unit']}"
        return Card(name, "revealed", f"the guess that counts was {before}")
    update(name, guess=float(guess), unit=unit, solved=True)
    return Card(name, "guessed", f"{guess:,.4g} {unit} it is; now measure")


def reveal(name: str, measured: float, unit: str) -> Card:
    """Show what was measured, with the guess beside it on a scale of powers of ten.

    Without a guess it keeps the number to itself. `measured` is positive and in the same unit as
    the guess; NaN where nothing is measured or recorded. ValueError if it is not positive, or the
    guess was made in another unit.
    """
    if math.isnan(measured):
        return Card(name, "to do", "not measured here, and nothing is recorded")
    if not 0 < measured < math.inf:
        raise ValueError(f"{name}: expected a positive number of {unit}, measured {measured}")
    known = entry(name)
    if "guess" not in known:
        return Card(
            name, "to do", "guess first, in the cell above that asks; then run this one again"
        )
    if known["unit"] != unit:
        raise ValueError(f"{name}: the guess was made in {known['unit']}, measured in {unit}")
    update(name, measured=float(measured))
    guess = known["guess"]
    text = (
        f"your guess {guess:,.4g} {unit}, measured {measured:,.4g} {unit}: {_off(guess, measured)}"
    )
    return Card(name, "revealed", text, picture=log_scale(guess, measured, unit))


def show_predictions() -> Table:
    """Return all revealed guesses in the order of the course, and by how much each was off."""
    lines, factors = [], []
    for chapter in chapters():
        for name in chapter.tasks:
            known = entry(name)
            if "measured" not in known:
                continue
            guess, measured, unit = known["guess"], known["measured"], known["unit"]
            factors.append(max(guess / measured, measured / guess))
            # about one star for each doubling that the guess was off
            stars = "★" * round(math.log2(factors[-1])) or "·"
            row = [chapter.notebook.split("_")[0], name, f"{guess:,.4g} {unit}"]
            lines.append([*row, f"{measured:,.4g} {unit}", f"{factors[-1]:.2f}", stars])
    header = ["notebook", "what", "guess", "measured", "off by a factor of", "doublings"]
    return Table(header, lines, _trend(factors))


def _off(guess: float, measured: float) -> str:
    factor = guess / measured
    if factor == 1:
        return "exactly right"
    if 0.8 <= factor <= 1.25:
        return "within a quarter"
    return f"{factor:.3g} times too much" if factor > 1 else f"{1 / factor:.3g} times too little"


def _trend(factors: list[float]) -> str:
    """Return how the first and the second half of the guesses compare."""
    if len(factors) < 4:
        return (
            f"{len(factors)} guesses revealed so far; from four on this line says how they improve"
        )
    half = len(factors) // 2
    first, second = (
        math.prod(part) ** (1 / len(part)) for part in (factors[:half], factors[half:])
    )
    return f"off by a factor of {first:.2f} in the first half of your guesses, {second:.2f} since"
