"""`make run`: a line for each cell, the page of what it showed, and the cell that failed."""

import nbformat
import pytest

pytest.importorskip("nbconvert", reason="the pages are made with nbconvert")
from helpers.make.notebooks import choose, run_notebook  # noqa: E402
from helpers.make.site.links import faults  # noqa: E402


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
    path = tmp_path / "notebooks" / "03_test.ipynb"
    path.parent.mkdir()
    links = "[next](04_x.ipynb) [there](04_x.ipynb#2.-Then) [no](05_z.ipynb) "
    links += "[far](https://example.org/z.ipynb)"
    for name, text in ((path.name, links), ("04_x.ipynb", "# 04 X\n## 2. Then")):
        cells = [nbformat.v4.new_markdown_cell(text)]
        nbformat.write(nbformat.v4.new_notebook(cells=cells), path.with_name(name))
    html = tmp_path / "html"
    assert run_notebook(path, html)
    page = (html / "03_test.html").read_text(encoding="utf-8")
    for link in ("04_x.html", "04_x.html#2.-Then", "https://example.org/z.ipynb"):
        assert f'href="{link}"' in page
    assert "05_z" not in page, "there is no such page"
    assert "It has not run yet" in (html / "04_x.html").read_text(encoding="utf-8")
    assert not [fault for fault in faults(html) if "no file" in fault]


def test_names_the_cell_that_failed_and_keeps_the_page(notebook, tmp_path, capsys):
    path = notebook("print('first')", "value = 1 / 0", "print('third')")
    assert not run_notebook(path, tmp_path / "html")
    out = capsys.readouterr().out
    assert "ZeroDivisionError: division by zero" in out
    assert "in cell 3:" in out and "print('third')" not in out
    page = (tmp_path / "html" / "03_test.html").read_text()
    assert "first" in page and "ZeroDivisionError" in page
    index = (tmp_path / "html" / "index.html").read_text()
    assert "failed in cell 3" in index and 'href="03_test.html"' in index


def test_a_line_that_comes_in_parts_stays_one(notebook, tmp_path):
    parts = (
        "import sys, time\nprint('Building', end=' ', flush=True)\ntime.sleep(0.3)\nprint('4 s')"
    )
    assert run_notebook(notebook(parts), tmp_path / "html")
    assert "Building 4 s" in (tmp_path / "html" / "03_test.html").read_text()


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
