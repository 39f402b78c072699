"""What every notebook as it lies in the repository must have, besides running."""

import re

import nbformat
import pytest

from helpers.exercises.progress import calls
from helpers.exercises.solutions import folded_solution
from helpers.make.kernels import notebook_paths

NOTEBOOKS = notebook_paths()
LONGEST_CELL = 60  # lines; only CUDA strings come near it
every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def cells_of(path, kind="code"):
    """Return the cells of one kind, each with its number counted from 1 over all cells."""
    cells = nbformat.read(path, as_version=4).cells
    return [(i, cell) for i, cell in enumerate(cells, 1) if cell.cell_type == kind]


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
        for call in calls(cell.source, ("exercise",)):
            exercises += 1
            folded_solution(path, call.args[0].value)
            assert "○" in text_of(cell), f"cell {number}: {text_of(cell)}"
    assert exercises >= 3


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


@every_notebook
def test_text_and_cells_keep_to_the_style(path):
    code = [cell.source.splitlines() for _, cell in cells_of(path)]
    text = cells_of(path, "markdown")
    assert text[0][1].source.startswith("# "), "the first cell is the title"
    assert max(map(len, code)) <= LONGEST_CELL
    open_code = [cell for _, cell in cells_of(path) if not is_folded(cell)]
    assert len(text) >= 0.5 * len(open_code), "it should read well without its code"


@every_notebook
def test_it_shows_nothing_of_the_machine_it_ran_on(path):
    found = re.findall(r"(?<![\w.])/(?:root|home|work|Users)/\S+", path.read_text())
    assert not found, found[:3]
