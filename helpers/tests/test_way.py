"""The way through the course: what marks say, that minutes are a formula's, that the core holds."""

import ast
import builtins
import json
import shutil

import pytest

from helpers.exercises.progress import calls
from helpers.exercises.way import read_way
from helpers.make.kernels import NOTEBOOKS, notebook_paths
from helpers.make.way import (
    ASIDE,
    MOST_MINUTES,
    MOST_SITTINGS,
    PARTS,
    course_map,
    fill_all,
    in_hours,
    in_words,
    time_of,
)

WAY = read_way()
PATHS = notebook_paths()


def md(text):
    return {"cell_type": "markdown", "source": text}


def code(text, hidden=False, shows=""):
    metadata = {"jupyter": {"source_hidden": True}} if hidden else {}
    outputs = [{"data": {"text/plain": shows.splitlines(keepends=True)}}] if shows else []
    return {"cell_type": "code", "source": text, "metadata": metadata, "outputs": outputs}


def course(folder, *notebooks):
    for name, cells in notebooks:
        (folder / f"{name}.ipynb").write_text(json.dumps({"cells": cells}))
    return read_way(folder)


@pytest.mark.parametrize("sitting", WAY.sittings, ids=lambda sitting: sitting.number)
def test_a_sitting_is_short_and_something_is_done_in_it(sitting):
    assert sitting.minutes <= MOST_MINUTES, f"it takes {sitting.minutes:.0f} minutes"
    assert sitting.exercises, "nothing is written by the reader"
    assert sitting.predictions, "nothing is predicted"


SLOW = {"17 what a request moves", "17 in the right order"}  # a slowness, not named so


@pytest.mark.parametrize("sitting", WAY.sittings[1:], ids=lambda sitting: sitting.number)
def test_a_sitting_has_an_exercise_that_is_open_or_a_slowness_to_find(sitting):
    """From the second one on; a capstone has a table of one's best, too."""
    texts = [path.read_text() for path in PATHS if path.stem in sitting.notebooks]
    sources = ["".join(cell["source"]) for t in texts for cell in json.loads(t)["cells"]]
    opened = {call.args[0].value for source in sources for call in calls(source, ("improve",))}
    slow = {name for name in sitting.exercises if "slow" in name or name in SLOW}
    capstones = {name for part in sitting.parts for name in part.capstones}
    assert opened & set(sitting.exercises) | slow | capstones


def test_the_core_is_short_and_in_the_order_of_the_notebooks():
    assert 0 < len(WAY.sittings) <= MOST_SITTINGS
    core = [part.sitting for part in WAY.parts if part.sitting and part.minutes and part.cells]
    begun = list(dict.fromkeys(core))
    assert begun == [sitting.number for sitting in WAY.sittings]


def test_a_side_trip_says_so_in_its_title():
    for path in PATHS:
        title = "".join(json.loads(path.read_text())["cells"][0]["source"]).split("\n")[0]
        core = WAY.minutes(path.stem, core=True)
        assert title.endswith(ASIDE) == (not core), title


def test_what_pages_say_of_the_way_is_current(tmp_path):
    for path in PATHS:
        shutil.copy(path, tmp_path)
    assert [path.name for path in fill_all(tmp_path)] == [], "make results writes it"
    assert sorted(" ".join(PARTS.values()).split()) == [p.stem.split("_")[0] for p in PATHS]


def names_of(source):
    """Return the names that a cell gives and those that it uses."""
    try:
        tree = ast.parse(source)
    except SyntaxError:  # a magic
        return set(), set()
    given, used = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            given.add(node.name)
        elif isinstance(node, ast.alias):
            given.add((node.asname or node.name).split(".")[0])
        elif isinstance(node, ast.arg):
            given.add(node.arg)
        elif isinstance(node, ast.Name):
            (given if isinstance(node.ctx, ast.Store) else used).add(node.id)
    return given, used


def missing(cells, core):
    """Return (cell, name) for each name in the core that only a side trip before has given."""
    found, given, given_aside = [], set(dir(builtins)), set()
    for number, cell in enumerate(cells):
        if cell["cell_type"] != "code":
            continue
        gives, uses = names_of("".join(cell["source"]))
        if number in core:
            given |= gives
            found += [(number, name) for name in sorted(uses & given_aside - given)]
        else:
            given_aside |= gives
    return found


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_no_cell_of_the_core_needs_one_of_a_side_trip(path):
    parts = [p for p in WAY.parts if p.notebook == path.stem and p.sitting is not None]
    core = {number for part in parts for number in part.cells}
    assert missing(json.loads(path.read_text())["cells"], core) == []


def test_a_name_from_a_side_trip_is_found():
    cells = [code("a = 1"), code("b = a"), code("print(a, b)"), code("b = 2"), code("b")]
    assert missing(cells, {0, 2, 3, 4}) == [(2, "b")]


HEAD = "# 01 One\n\nText."
FIRST = "## 1. First\n\n> **Sitting 1 of 9: one.** 0 minutes, with [A long way](#A-long-way)."


def test_marks(tmp_path):
    way = course(
        tmp_path,
        (
            "01_one",
            [
                md(HEAD),
                code("setup = 1"),
                md(f"{FIRST}\n\nWords.\n\n## 2. Second\n\n> **Side trip.** 0 minutes.\n\n### More"),
                code("aside = 1"),
                md("## 3. Third\n\nCore.\n\n> **Side trip.** 0 minutes.\n\nNot core."),
                code("aside = 2"),
                md("> **Sitting 1 goes on.**\n\nCore."),
                code("exercise('in a section', x, f)\npredict('p', ..., 'µs')"),
                md("## 4. Exercises\n\n### A long way\n\nGo."),
                code("exercise('a', x, f)"),
                md("### A hard one"),
                code("exercise('b', x, f)"),
                md("## Summary\n\nThat."),
            ],
        ),
        ("02_two", [md("# 02 Two\n\n## 1. Alone"), code("x = 1")]),
        ("03_three", [md("# 03\n\n## 1. Then\n\n> **Sitting 1 goes on.**"), code("y = 1")]),
        ("04_four", [md("## 1. Why\n\n> **Sitting 2 of 9: why?** 0 minutes."), code("z = 1")]),
    )
    assert [sitting.title for sitting in way.sittings] == ["one", "why?"]
    assert way.sittings[0].notebooks == ["01_one", "03_three"]
    assert way.sittings[0].exercises == ["in a section", "a"]
    assert way.sittings[0].predictions == ["p"]
    core = {(p.notebook, number) for p in way.parts if p.sitting for number in p.cells}
    assert core == {("01_one", 1), ("01_one", 7), ("01_one", 9), ("03_three", 1), ("04_four", 1)}
    assert way.minutes("02_two", core=True) == 0 < way.minutes("02_two", core=False)
    text = (tmp_path / "01_one.ipynb").read_text()
    assert fill_all(tmp_path) != [] and fill_all(tmp_path) == []
    assert "Sitting 1 of 2: one.** 15 minutes, with" in (tmp_path / "01_one.ipynb").read_text()
    assert text.count("0 minutes") == 3


def test_minutes(tmp_path):
    lines = "\n".join(["a = 1", "", *["b = 2"] * 9])  # ten that are no blank
    words = "word " * 116 + "<!-- not this --> and\n```\nnor this\n```"
    way = course(
        tmp_path,
        (
            "01_one",
            [
                md(f"## 1. A\n\n{words}"),
                code(lines),
                code(lines, hidden=True),
                code("exercise('a', x, f)", hidden=True),
                code("predict('b', g, 'ms')", hidden=True),
            ],
        ),
    )
    assert way.minutes("01_one", core=False) == pytest.approx(120 / 120 + 10 / 5 + 6 + 1)
    assert [in_hours(m) for m in (0, 1, 52, 67, 68, 120)] == ["", "¼", "¾", "1", "1¼", "2"]
    assert time_of("01_one", way) == (
        "**Time:** a side trip of ¼ hour; nothing in the core needs it."
    )


def test_lines_of_a_file_that_an_output_shows_take_minutes(tmp_path):
    shown = "int a;\n\nint b;\n"
    read = code('src = Path("../kernels/a.cu").read_text()\nother = "int a;"')
    cells = [
        code('show_cuda(src, "a")', shows=shown),
        read,
        code('show_cuda(src, "a", "b")', shows=shown),
        code("show_twins(f, src)", shows=shown),
        code("show_cuda(other)", shows=shown),
        code("print(src)", shows=shown),
    ]
    way = course(tmp_path, ("01_one", cells))
    assert way.minutes("01_one", core=False) == pytest.approx((7 + 2 * 2) / 5)


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ([md("## 1. A\n\n> **Sitting 2 of 9: two.** 0 minutes.")], "expected sitting 1, got 2"),
        ([md(FIRST)], "expected exercises headed A long way, got none"),
    ],
)
def test_a_wrong_mark_is_named(tmp_path, cells, said):
    with pytest.raises(ValueError, match=f"01_one.ipynb.*{said}"):
        course(tmp_path, ("01_one", cells))


def test_the_map_names_every_notebook_once():
    table = course_map(WAY)
    assert [table.count(f"]({path.name})") for path in PATHS] == [1] * len(PATHS)
    assert f"{len(WAY.sittings)} sittings" in in_words(WAY)
    assert NOTEBOOKS == PATHS[0].parent
