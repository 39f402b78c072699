"""README's tables say what the notebooks and the records say."""

import json
import re

import nbformat
import pytest

from helpers.base.called_kernels import version
from helpers.cuda_on_cpu.scanner import mask_comments
from helpers.make import readme_picture
from helpers.make.bench_cases import CASES
from helpers.make.kernels import KERNELS
from helpers.make.readme import (
    README,
    kernels_readme,
    notebook_table,
    results_table,
    step_table,
    with_tables,
)
from helpers.recorded import RECORDS

FIRST_CELL = """# 03 From Python to CUDA

*One line,
or `a | b`,<!-- if 1 > 0 --> in two.*

You will
- write a kernel.

**Needs:** nothing."""


def write_notebook(folder, name, first, *code):
    cells = [nbformat.v4.new_markdown_cell(first), *map(nbformat.v4.new_code_cell, code)]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), folder / f"{name}.ipynb")


def write_record(folder, key, value, device="NVIDIA H200"):
    about = {"device": device, "cuda": "13.0", "torch": "2.11.0", "date": "2026-11-28"}
    (folder / f"{key}.json").write_text(json.dumps({"value": value, **about}))


def comparison(*rows):
    names = ("name", "median_ms", "ratio")
    return {"self_ratio": 1.0, "rows": [dict(zip(names, row, strict=True)) for row in rows]}


def test_readme_is_current():
    text = README.read_text()
    assert with_tables(text) == text, "README's picture or tables are old: make results"


def test_the_step_stands_against_the_best_of_pytorch(tmp_path):
    assert step_table(tmp_path) == "Nothing is recorded yet.\n"
    rows = [("PyTorch float32", 3.0), ("PyTorch float32, NHWC", 2.0), ("PyTorch TF32, NHWC", 1.0)]
    rows += [("ours, exact", 0.5), ("ours, halves", 0.4)]
    for batch in (64, 256, 1024, 4096):
        value = comparison(*((name, time, 1.0) for name, time in rows))
        write_record(tmp_path, f"17_fast_{batch}", value)
    machine, _, *table = step_table(tmp_path).splitlines()
    assert machine == "NVIDIA H200 · CUDA 13.0 · torch 2.11.0"
    assert table[-1] == (
        "| 4096 | 2 ms, NHWC | 500 µs | 4.00 × | 1 ms, TF32 NHWC | 400 µs | 2.50 × |"
    )
    assert [line.count("|") for line in table] == 6 * [8]


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
        "| [03 From Python to CUDA](notebooks/03_b.ipynb) |  | ¼ "
        "| One line, or `a \\| b`, in two | [matmul](kernels/matmul.cu) |"
    )


def test_a_first_cell_without_a_subtitle_is_named(tmp_path):
    write_notebook(tmp_path, "03_b", re.sub(r"\*One.*two\.\*", "", FIRST_CELL, flags=re.DOTALL))
    with pytest.raises(ValueError, match="^03 From Python to CUDA: expected a line in italics"):
        notebook_table(tmp_path)


def bench_work(name, **times_ms):
    """Return a work as `make bench` records it: ours first, 1 MB moved."""
    ours_ms = times_ms["ours"]
    rows = [
        {
            "name": who,
            "median_ms": ms,
            "gbps": 1e3 / ms / 1e6,
            "tflops": None,
            "ratio": ours_ms / ms,
        }
        for who, ms in times_ms.items()
    ]
    return {"work": name, "rows": rows}


def test_results_by_machine(tmp_path):
    assert results_table(tmp_path) == "Nothing is recorded yet.\n"
    small = bench_work("small", ours=0.5, PyTorch=0.4, copy=0.3)
    large = bench_work("large", ours=2.0, PyTorch=3.0, **{"torch.compile": 2.5}, CUB=1.9, copy=1.5)
    write_record(tmp_path, "bench_sum", [small, large])
    write_record(tmp_path, "bench_gelu", [small], device="NVIDIA T4")
    write_record(tmp_path, "04_gelu", comparison(("eager", 1.0, 1.0)))
    lines = results_table(tmp_path).splitlines()
    assert lines[0] == "NVIDIA T4 · CUDA 13.0 · torch 2.11.0"
    assert lines[6] == "NVIDIA H200 · CUDA 13.0 · torch 2.11.0"
    # 1.9 / 2 of its strongest rival's speed is more than 0.4 / 0.5
    assert lines[10] == (
        "| [sum](kernels/sum.cu) | large | 2 ms | 0 GB/s | 75 % | 1.50 × | 1.25 × | CUB 0.95 × |"
    )
    assert lines[11] == "| at its worst | small | 500 µs | 0 GB/s | 60 % | 0.80 × | – | – |"
    assert lines[4].startswith("| [gelu](kernels/gelu.cu) | small |") and not lines[5]
    rows = kernels_readme(tmp_path).splitlines()
    assert "| [sum](sum.cu) | small | 500 µs | 0 GB/s | 60 % | 0.80 × | – | – |" in rows
    assert sum("sum.cu" in row for row in rows) == 2


def test_others_problems_have_a_section_once_they_were_timed(tmp_path):
    assert "KernelBench" not in kernels_readme(tmp_path)
    timed = [bench_work("ReLU", ours=2.0, PyTorch=4.0, **{"torch.compile": 1.0}),
             bench_work("GELU", ours=2.0, PyTorch=1.0, **{"torch.compile": 2.0})]  # fmt: skip
    wrong = {"number": 97, "work": "attention", "wrong": "D: expected at most 256, got 1024"}
    works = [work | {"number": 19} for work in timed]
    write_record(tmp_path, "kernelbench", [*works, wrong])
    text = kernels_readme(tmp_path)
    assert "mean over PyTorch: 1.00 ×, 1 of 3 at least as fast" in text
    assert "mean over torch.compile: 0.71 ×, 1 of 3 at least as fast" in text
    assert "| 19 ReLU | 2 ms | 2.00 × | 0.50 × |" in text
    assert f"| 97 attention | {wrong['wrong']} | – | – |" in text


def test_a_work_whose_launching_could_not_be_hidden_is_not_chosen(tmp_path):
    usual = bench_work("usual", ours=2.0, PyTorch=3.0)
    slow = bench_work("slow", ours=2.0, PyTorch=9.0) | {"method": "median, launching included"}
    write_record(tmp_path, "bench_sum", [slow, usual])
    table = results_table(tmp_path)
    assert "usual" in table and "slow" not in table
    assert "| slow, launching included |" in kernels_readme(tmp_path)
    write_record(tmp_path, "bench_sum", [slow])
    assert "| slow, launching included |" in results_table(tmp_path)


def test_kernels_readme_is_current():
    assert (KERNELS / "README.md").read_text() == kernels_readme(), "it is old: make results"


def test_every_kernel_file_has_works_to_time():
    assert sorted(CASES) == sorted(path.stem for path in KERNELS.glob("*.cu"))


def test_benches_are_of_the_kernels_as_they_are():
    """A record names the versions that were timed; another version is to be timed again."""
    for path in sorted(RECORDS.glob("bench_*.json")):
        op = path.stem.removeprefix("bench_")
        code = mask_comments((KERNELS / f"{op}.cu").read_text())
        timed = [kernel.split()[0] for kernel in json.loads(path.read_text())["kernels"]]
        ours = {version(name, code) for name in timed if not name.startswith(("cub_", "curand_"))}
        assert ours <= set(json.loads(path.read_text())["kernels"]), f"{op} has changed: make bench"
