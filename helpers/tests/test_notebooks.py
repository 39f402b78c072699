"""What every notebook as it lies in the repository must have, besides running."""

import functools
import itertools
import re

import nbformat
import pytest
from ipykernel.ipkernel import IPythonKernel

from helpers.exercises.hidden import TASKS as CAPSTONES
from helpers.exercises.progress import TASKS, calls
from helpers.exercises.solutions import folded_solution
from helpers.make.kernels import notebook_paths

NOTEBOOKS = notebook_paths()
LONGEST_CELL = 60  # lines; only CUDA strings come near it
LARGEST = 515_000  # bytes, outputs included
every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


@functools.cache  # to read and validate one takes longer than most of the tests
def all_cells(path):
    return nbformat.read(path, as_version=4).cells


def cells_of(path, kind="code"):
    """Return the cells of one kind, each with its number counted from 1 over all cells."""
    return [(i, cell) for i, cell in enumerate(all_cells(path), 1) if cell.cell_type == kind]


def text_of(cell):
    """Return what a code cell printed or showed as text."""
    texts = []
    for output in cell.outputs:
        data = output.get("data", {})
        texts.append(output.get("text", "") + data.get("text/plain", ""))
    return "".join(texts)


def tags(cell):
    return cell.metadata.get("tags", [])


def is_folded(cell):
    return cell.metadata.get("jupyter", {}).get("source_hidden", False)


def test_there_are_notebooks():
    assert NOTEBOOKS


@every_notebook
def test_it_was_run_from_top_to_bottom_without_an_error(path):
    counts = [cell.execution_count for _, cell in cells_of(path)]
    assert counts == list(range(1, len(counts) + 1)), "run it once, from a fresh kernel"
    for number, cell in cells_of(path):
        errors = [out.ename for out in cell.outputs if out.output_type == "error"]
        assert not errors or "raises-exception" in tags(cell), f"cell {number}: {errors}"


@every_notebook
def test_outputs_that_do_not_depend_on_the_machine_are_compared(path):
    compared = [cell for _, cell in cells_of(path) if "nbval-check-output" in tags(cell)]
    assert compared and all(cell.outputs for cell in compared)


@every_notebook
def test_every_exercise_is_open_and_has_a_folded_solution(path):
    exercises = 0
    for number, cell in cells_of(path):
        for call in calls(cell.source, ("exercise", "improve")):
            exercises += 1
            folded_solution(path, call.args[0].value)
            assert "○" in text_of(cell), f"cell {number}: {text_of(cell)}"
    assert exercises >= 3


@every_notebook
def test_every_capstone_is_open_and_comes_last(path):
    cells = cells_of(path)
    for number, cell in cells:
        for call in calls(cell.source, ("capstone",)):
            assert number == cells[-1][0] and "○" in text_of(cell), f"cell {number}"
            assert call.args[2].value in CAPSTONES


@every_notebook
def test_every_prediction_comes_first_and_is_revealed(path):
    predicted, revealed = set(), set()
    for number, cell in cells_of(path):
        for call in calls(cell.source, ("predict",)):
            predicted.add(call.args[0].value)
            assert "○" in text_of(cell), f"cell {number}: a guess is left in the notebook"
        for call in calls(cell.source, ("reveal",)):
            assert call.args[0].value in predicted, f"cell {number}: revealed before the guess"
            revealed.add(call.args[0].value)
    assert predicted and predicted == revealed


def test_every_exercise_and_prediction_of_the_course_has_a_name_of_its_own():
    """What is known of a task is kept under its name: two would share one state."""
    cells = [cell for path in NOTEBOOKS for _, cell in cells_of(path)]
    names = [call.args[0].value for cell in cells for call in calls(cell.source, TASKS)]
    assert names and {name for name in names if names.count(name) > 1} == set()


@every_notebook
def test_text_and_cells_keep_to_the_style(path):
    code = [cell.source.splitlines() for _, cell in cells_of(path)]
    text = cells_of(path, "markdown")
    assert text[0][1].source.startswith("# "), "the first cell is the title"
    assert max(map(len, code)) <= LONGEST_CELL
    open_code = [cell for _, cell in cells_of(path) if not is_folded(cell)]
    assert len(text) >= 0.5 * len(open_code), "it should read well without its code"


@every_notebook
def test_no_line_of_a_sentence_looks_like_a_list(path):
    for number, cell in cells_of(path, "markdown"):
        text = re.sub(r"^```.*?^```", "", cell.source, flags=re.DOTALL | re.MULTILINE)
        for before, line in itertools.pairwise(text.splitlines()):
            begins = re.match(r"(?:\+|\d+[.)]) ", line)  # as a product's second line may
            assert not begins or re.match(r"\s*(\d+[.)] .*|  .*)?$", before), f"{number}: {line}"


@every_notebook
def test_it_shows_nothing_of_the_machine_it_ran_on(path):
    found = re.findall(r"(?<![\w.])/(?:root|home|work|tmp|var|Users)/\S+", path.read_text())
    assert not found, found[:3]


@every_notebook
def test_every_stored_picture_has_an_alt_text(path):
    for number, cell in cells_of(path):
        for output in cell.outputs:
            data = output.get("data", {})
            for kind in (kind for kind in data if kind.startswith("image/")):
                alt = output.metadata.get(kind, {}).get("alt", "")
                assert re.search(r"\w", alt), f"cell {number}: {kind} has no alt text"
            for tag in re.findall(r"<img\b[^>]*>", data.get("text/html", "")):
                assert re.search(r'\balt="[^"]*\w[^"]*"', tag), f"cell {number}: {tag[:80]}"
    for number, cell in cells_of(path, "markdown"):
        assert "![](" not in cell.source, f"cell {number}: a picture without an alt text"


@every_notebook
def test_it_is_small(path):
    assert path.stat().st_size <= LARGEST


@every_notebook
def test_it_opens_unchanged_and_without_warnings(path):
    """What the kernel says of itself JupyterLab stores, and the notebook is unsaved from then on.

    A notebook that was run elsewhere than in .venv has the Python version too: remove it.
    """
    notebook = nbformat.read(path, as_version=4)
    said = {name: value for name, value in IPythonKernel.language_info.items() if name != "version"}
    assert notebook.metadata.language_info == said
    spec = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
    assert notebook.metadata.kernelspec == spec
    assert len({cell.id for cell in notebook.cells}) == len(notebook.cells)
    for number, cell in cells_of(path):
        said = [out.text for out in cell.outputs if out.get("name") == "stderr"]
        assert not said, f"cell {number}: {said}"
