"""README's tables say what the notebooks and the records say."""

import json
import re

import nbformat
import pytest

from helpers.make import readme_picture
from helpers.make.readme import README, notebook_table, results_table, with_tables

FIRST_CELL = """# 03 From Python to CUDA

*One line.*

You will
- write a kernel in Python, and see
  it run;
- compare `a | b`.

**Needs:** nothing."""


def write_notebook(folder, name, first, *code):
    cells = [nbformat.v4.new_markdown_cell(first), *map(nbformat.v4.new_code_cell, code)]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), folder / f"{name}.ipynb")


def write_record(folder, key, value, device="NVIDIA H200"):
    about = {"device": device, "cuda": "13.0", "torch": "2.11.0"}
    (folder / f"{key}.json").write_text(json.dumps({"value": value, **about}))


def comparison(*rows):
    names = ("name", "median_ms", "ratio")
    return {"self_ratio": 1.0, "rows": [dict(zip(names, row, strict=True)) for row in rows]}


def test_readme_is_current():
    text = README.read_text()
    assert with_tables(text) == text, "README's picture or tables are old: make results"


def test_the_picture_is_what_the_tracer_draws(tmp_path):
    readme_picture.write(tmp_path / "now.svg")
    now, stored = ((tmp_path / "now.svg").read_text(), readme_picture.FILE.read_text())
    words = re.findall("<!-- (.*?) -->", stored)  # matplotlib writes what its outlines say
    assert re.findall("<!-- (.*?) -->", now) == words, "the picture is old: make results"
    assert "block (0, 0, 0), warp 0: 32 sectors moved, 4 would do: 128 of 1,024 bytes used" in words
    assert "fill: #ffffff" not in stored.split("<g id=")[1], "it is transparent"


def test_notebook_table(tmp_path):
    write_notebook(tmp_path, "03_b", FIRST_CELL, 'src = r"""// kernels/matmul.cu\nint x;\n"""')
    assert notebook_table(tmp_path).splitlines()[2] == (
        "| [03 From Python to CUDA](notebooks/03_b.ipynb) "
        "| write a kernel in Python, and see it run; compare `a \\| b` "
        "| [matmul](kernels/matmul.cu) |"
    )


def test_a_notebook_without_goals_is_named(tmp_path):
    write_notebook(tmp_path, "03_b", "# 03 Title\n\nText")
    with pytest.raises(ValueError, match="03 Title: the first cell has no list"):
        notebook_table(tmp_path)


def test_results_by_machine(tmp_path):
    assert results_table(tmp_path) == "Nothing is recorded yet.\n"
    write_record(tmp_path, "03_matmul", comparison(("PyTorch", 0.0213, 1.0), ("ours", 2.5, 0.0085)))
    write_record(tmp_path, "04_gelu", comparison(("eager", 1.0, 1.0)), device="NVIDIA T4")
    write_record(tmp_path, "01_profile", [["aten::mul", 3]])
    lines = results_table(tmp_path).splitlines()
    assert lines[0] == "NVIDIA H200 · CUDA 13.0 · torch 2.11.0"
    assert lines[4] == "| 03 | matmul | PyTorch: 21.3 µs<br>ours: 2.5 ms, 0.009× |"
    assert lines[6] == "NVIDIA T4 · CUDA 13.0 · torch 2.11.0"
    assert lines[10] == "| 04 | gelu | eager: 1 ms |"
    assert not any("profile" in line for line in lines)
