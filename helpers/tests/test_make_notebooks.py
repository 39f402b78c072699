"""`make run`: a line for each cell, the page of what it showed, and the cell that failed."""

import nbformat
import pytest

pytest.importorskip("nbconvert", reason="the pages are made with nbconvert")
from helpers.make.notebooks import choose, run_notebook  # noqa: E402


@pytest.fixture
def notebook(tmp_path):
    """Return a function that writes a notebook of the given code cells and returns its path."""

    def write(*cells):
        path = tmp_path / "03_test.ipynb"
        text = nbformat.v4.new_markdown_cell("# 03 Test")
        code = [nbformat.v4.new_code_cell(cell) for cell in cells]
        nbformat.write(nbformat.v4.new_notebook(cells=[text, *code]), path)
        return path

    return write


def test_runs_in_the_folder_of_the_notebook(notebook, tmp_path, capsys):
    path = notebook("from pathlib import Path\nhere = Path.cwd()", "print('in', here.name, 6 * 7)")
    before = path.read_text()
    assert run_notebook(path, tmp_path / "html")
    page = (tmp_path / "html" / "03_test.html").read_text()
    assert f"in {tmp_path.name} 42" in page
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "03_test.ipynb"
    assert lines[1].startswith("    1/2") and lines[1].endswith("from pathlib import Path")
    assert lines[2].startswith("    2/2")
    assert path.read_text() == before, "the notebook itself stays as it is"


def test_links_lead_to_pages(tmp_path):
    path = tmp_path / "03_test.ipynb"
    links = "[next](04_x.ipynb) [there](04b_y.ipynb#2.-Then) [far](https://example.org/z.ipynb)"
    cells = [nbformat.v4.new_markdown_cell(links)]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    assert run_notebook(path, tmp_path / "html")
    page = (tmp_path / "html" / "03_test.html").read_text(encoding="utf-8")
    for link in ("04_x.html", "04b_y.html#2.-Then", "https://example.org/z.ipynb"):
        assert f'href="{link}"' in page


def test_names_the_cell_that_failed_and_keeps_the_page(notebook, tmp_path, capsys):
    path = notebook("print('first')", "value = 1 / 0", "print('third')")
    assert not run_notebook(path, tmp_path / "html")
    out = capsys.readouterr().out
    assert "ZeroDivisionError: division by zero" in out
    assert "in cell 3:" in out and "print('third')" not in out
    page = (tmp_path / "html" / "03_test.html").read_text()
    assert "first" in page and "ZeroDivisionError" in page


def test_choose(tmp_path):
    paths = [tmp_path / f"{name}.ipynb" for name in ("02_a", "03_b", "13_c")]
    assert choose([], paths) == paths
    assert choose(["3"], paths) == choose(["03"], paths) == choose(["03_b"], paths) == paths[1:2]
    assert choose(["2"], paths) == choose(["02_"], paths) == paths[:1]
    more = [tmp_path / f"{name}.ipynb" for name in ("02_a", "02b_a", "14b_b", "14c_c")]
    assert choose(["2"], more) == choose(["02"], more) == more[:1]
    assert choose(["2b"], more) == choose(["02b"], more) == more[1:2]
    assert choose(["14"], more) == more[2:]
    with pytest.raises(ValueError, match="No notebook begins with 04; there are:\n  02_a"):
        choose(["04"], paths)
