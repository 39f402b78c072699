"""Figures in prose are those of the records."""

import json
import re

import nbformat
import pytest

from helpers.make import figures
from helpers.make.figures import faults, fill, filled, ties

ROWS = [
    {"name": "PyTorch", "median_ms": 3.0, "low_ms": 2.9, "high_ms": 3.1, "gbps": 1234.5},
    {"name": "ours", "median_ms": 0.7, "low_ms": 0.6, "high_ms": 0.8, "gbps": 5290.7},
]


@pytest.fixture
def records(tmp_path):
    profile = [{"name": "sum_kernel", "gpu_us": 234.87}]
    ncu = {"rows": [{"metric": "Duration", "value": 184.06}, {"metric": "Duration", "value": 1.0}]}
    values = {"07_sum": {"rows": ROWS}, "07_profile": profile, "07_ncu": ncu}
    values["bench_sum"] = [{"work": "2²⁸", "rows": ROWS}, {"work": "few", "rows": ROWS[:1]}]
    for key, value in values.items():
        (tmp_path / f"{key}.json").write_text(json.dumps({"value": value}))
    return tmp_path


@pytest.mark.parametrize("page", figures.pages(), ids=lambda page: page.stem)
def test_a_sentence_says_what_was_recorded(page):
    assert not faults(page), "make results writes figures; claims are for you to mend"


@pytest.mark.parametrize("page", figures.pages(), ids=lambda page: page.stem)
def test_no_line_of_a_tie_begins_a_list_or_a_quote(page):
    """Markdown would end the paragraph there, and show the rest of the comment."""
    block = re.compile(r" {0,3}(?:[-+*>]|\d+[.)]|#{1,6}|```)(?:\s|$)")
    for where, text in figures.texts(page):
        lines = [line for tie in figures.TIE.finditer(text) for line in tie[0].splitlines()[1:]]
        assert not list(filter(block.match, lines)), where


@pytest.mark.parametrize(
    "text, fault",
    [
        ('4.29<!-- = times("07_sum", "PyTorch", "ours") --> times', ""),
        ('4.3<!-- = us("07_sum", "PyTorch") / us("07_sum", "ours") --> times', ""),
        ('**4**<!-- = times("07_sum", "PyTorch", "ours") --> times', ""),
        ('5,291 GB/s<!-- = gbps("07_sum", "ours") -->', ""),
        ('5291 GB/s<!-- = gbps("07_sum",\n  "ours") -->', ""),
        ('600 to 800 µs<!-- = high_us("07_sum", "ours") -->', ""),
        ('234.9 µs<!-- = gpu_us("07_profile", "sum_kernel") -->', ""),
        ('184 µs<!-- = ncu("07_ncu", "Duration") -->', ""),
        ('0.7 ms<!-- = bench("sum", "2²⁸", "ours") -->', ""),
        ('2 rows<!-- = len(value("07_sum")["rows"]) -->', ""),
        ('four times<!-- if 3.9 < times("07_sum", "PyTorch", "ours") < 4.5 -->', ""),
        ('4.28<!-- = times("07_sum", "PyTorch", "ours") -->', "says 4.28, recorded is 4.29: "),
        ('4.4<!-- = times("07_sum", "PyTorch", "ours") -->', "says 4.4, recorded is 4.3: "),
        ('twice<!-- if times("07_sum", "PyTorch", "ours") < 2.5 -->', "does not hold: "),
        ('1<!-- = float("nan") -->', "expected a number, got nan: "),
        ('1<!-- = value("07_sum") -->', "expected a number, got {"),
    ],
)
def test_a_figure_must_be_what_stands_behind_it(records, text, fault):
    (tie,) = ties(text, records)
    assert tie.fault.startswith(fault) and bool(tie.fault) == bool(fault)


@pytest.mark.parametrize(
    "text, error",
    [
        ('<!-- = us("07_sum", "ours") -->', "expected a figure in front"),
        ('7<!-- = 7 --> and <!-- = us("07_sum", "ours") -->', "expected a figure in front"),
        ('7<!-- = us("07_sum", "theirs") -->', "no row 'theirs'; there is 'PyTorch', 'ours'"),
        ('7<!-- = ncu("07_ncu", "Time") -->', "no metric 'Time'; there is Duration"),
        ('7<!-- = us("07_no_such", "ours") -->', "07_no_such"),
        ("7<!-- = 7 + -->", "SyntaxError"),
    ],
)
def test_what_cannot_be_looked_up_is_an_error(records, text, error):
    with pytest.raises(ValueError, match=error):
        list(ties(text, records))


def test_figures_are_written_as_they_were(records):
    text = (
        'by 1.0<!-- = times("07_sum", "PyTorch", "ours") -->, 9 µs<!-- = us("07_sum", "ours") -->, '
        '12,345<!-- = gbps("07_sum", "ours") -->, 3 of 4, much<!-- if 1 > 2 --> <!-- a comment -->'
    )
    want = text.replace("by 1.0<", "by 4.3<").replace("9 µs<", "700 µs<")
    assert filled(text, records) == want.replace("12,345<", "5,291<")


def test_a_notebook_is_filled_and_nothing_else_of_it_changes(records):
    path = records / "07_x.ipynb"
    cells = [nbformat.v4.new_markdown_cell('7 µs<!-- = us("07_sum", "ours") -->, "ö"\nmore')]
    cells.append(nbformat.v4.new_code_cell('x = "7<!-- = us(1, 2) -->"'))
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    before = path.read_text()
    assert "says 7, recorded is 700" in faults(path, records)[0]
    assert fill(path, records) and not fill(path, records) and not faults(path, records)
    assert path.read_text() == before.replace("7 µs<", "700 µs<")


def test_an_error_says_where_it_is(records):
    path = records / "07_x.ipynb"
    cells = [nbformat.v4.new_code_cell("x"), nbformat.v4.new_markdown_cell("7<!-- = 7 + -->")]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    for use in (faults, fill):
        with pytest.raises(ValueError, match=r"^07_x.ipynb, cell 1: SyntaxError"):
            use(path, records)
