"""Formulas: TeX as MathML, which browsers show by themselves, and the font that it is set in.

What turns one into the other is no part of requirements.txt: it is installed beside them, once.
"""

import subprocess
import sys
from functools import cache
from hashlib import sha256
from html import escape
from pathlib import Path

from helpers.base.machine import CACHE

REQUIREMENTS = Path(__file__).with_name("requirements.txt")
LETTERS = (range(0x20, 0x7F), range(0xA0, 0x100), range(0x391, 0x3CA), range(0x3D1, 0x3F6))
ITALIC = (range(0x1D434, 0x1D468), range(0x1D6E2, 0x1D71C), (0x210E,))  # what <mi>x</mi> shows
SIGNS = (range(0x300, 0x340), range(0x2010, 0x2070), range(0x2190, 0x21D6), range(0x2200, 0x2300))
FENCES = (range(0x2308, 0x230C), range(0x27E8, 0x27EA))


class FormulasMissing(Exception):
    """What formulas need could not be installed."""


def to_mathml(tex: str, is_block: bool) -> str:
    """Return a formula as <math>; raises ValueError for TeX that is not understood."""
    try:
        return _converter().convert_with_local_state(tex, displaystyle=is_block)
    except _math_core().LatexError as error:
        raise ValueError(f"not understood in the formula {tex!r}: {error}") from None


def as_written(tex: str, is_block: bool) -> str:
    """Return a formula as its TeX, for where `FormulasMissing` was raised."""
    return f'<code class="tex">{escape(tex)}</code>'


def write_font(path: Path) -> None:
    """Write the font of formulas: STIX Two Math without the scripts that no formula has."""
    from fontTools.subset import Options, Subsetter
    from fontTools.ttLib import TTFont

    font = TTFont(_folder() / "ziamath" / "fonts" / "STIXTwoMath-Regular.ttf")
    parts = (*LETTERS, *ITALIC, *SIGNS, *FENCES)
    subsetter = Subsetter(Options(layout_features=["ssty", "dtls", "flac"], hinting=False))
    subsetter.populate(unicodes=[code for part in parts for code in part])
    subsetter.subset(font)
    font.flavor = "woff"
    font.save(path)


def prepare() -> None:
    """Install what formulas need, unless it is there; raises FormulasMissing with pip's words."""
    folder = _folder()
    if folder.exists():
        return
    making = folder.with_name(f"{folder.name}.making")
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    command += ["--no-deps", "--upgrade", "--target", str(making), "-r", str(REQUIREMENTS)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise FormulasMissing(f"pip could not install {REQUIREMENTS}:\n{done.stderr.strip()}")
    making.rename(folder)


def _folder() -> Path:
    """Return where these very versions lie, for this Python."""
    asked = f"{REQUIREMENTS.read_text()} {sys.implementation.cache_tag}"
    return CACHE / f"site-packages-{sha256(asked.encode()).hexdigest()[:8]}"


@cache
def _math_core():
    sys.path.append(str(_folder()))
    import math_core

    return math_core


@cache
def _converter():
    return _math_core().LatexToMathML(fancy_error=False)
