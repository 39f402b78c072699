"""Write what comes from the records: README's picture and tables, kernels/README.md, figures.

`make results` calls it. The figures are those in the prose of notebooks and README: figures.py.
"""

import json
import re
from dataclasses import dataclass
from html import escape
from pathlib import Path
from statistics import geometric_mean

from helpers.base.machine import ROOT
from helpers.exercises.way import read_way
from helpers.make import figures, readme_picture, way
from helpers.make.kernels import KERNELS, NOTEBOOKS, kernel_sources, notebook_paths
from helpers.recorded import RECORDS

README = ROOT / "README.md"
HEADER = ["kernel", "work", "time", "rate", "of the floor", "PyTorch", "compiled", "others"]
FLOORS = ("copy", "cuBLAS product")  # candidates that are no rivals, as bench_cases.py names them


def with_tables(readme: str, notebooks: Path = NOTEBOOKS, records: Path = RECORDS) -> str:
    """Return README's text with the picture and the tables as they have to be now.

    Each stands between `<!-- begin NAME -->` and `<!-- end NAME -->`.
    """
    parts = {
        "picture": picture(),
        "way": way_table(notebooks),
        "notebooks": notebook_table(notebooks),
        "step": step_table(records),
        "results": results_table(records),
    }
    for name, part in parts.items():
        begin, end = f"<!-- begin {name} -->\n", f"<!-- end {name} -->"
        head, rest = readme.split(begin)
        readme = head + begin + part + end + rest.split(end)[1]
    return readme


def picture() -> str:
    """Return the <img> of README's picture, its alt text as the picture says it now."""
    source = readme_picture.FILE.relative_to(ROOT)
    return f'<img alt="{escape(readme_picture.draw().alt)}" width="720" src="{source}">\n'


def notebook_table(folder: Path = NOTEBOOKS) -> str:
    """Return a row for each notebook: title, hours of core and side trips, subject, kernels."""
    kernels: dict[Path, list[str]] = {}
    for op, source in kernel_sources(folder).items():
        kernels.setdefault(source.notebook, []).append(op)
    read = read_way(folder)
    rows = [["notebook", "core, h", "side trips, h", "what it is about", "kernels it makes"]]
    for path in notebook_paths(folder):
        head = head_of(path)
        made = ", ".join(f"[{op}](kernels/{op}.cu)" for op in kernels.get(path, []))
        rows.append(
            [
                f"[{head.title}](notebooks/{path.name})",
                *(way.in_hours(read.minutes(path.stem, core)) for core in (True, False)),
                head.subtitle,
                made,
            ]
        )
    return _table(rows)


def way_table(folder: Path = NOTEBOOKS) -> str:
    """Return the way through the course: its core and its side trips, part by part."""
    read = read_way(folder)
    return f"{way.in_words(read)}\n\n{way.course_map(read, folder, 'notebooks/')}"


def results_table(folder: Path = RECORDS) -> str:
    """Return two rows for each benched kernel file: what gains most and least on its rivals.

    Against the strongest of them; one row for a file with one work. Works whose launching could not
    be hidden tell of the host as well: they are chosen where there are no others.
    """
    machines: dict[str, list[list[str]]] = {}
    for op, record in benches(folder):
        rows = machines.setdefault(machine_of(record), [])
        hidden = [work for work in record["value"] if not _launching_included(work)]
        works = sorted(hidden or record["value"], key=_gain)
        best, worst = works[-1], works[0]
        rows.append(row_of(op, best, "kernels/"))
        if _gain(worst) < _gain(best):
            rows.append(["at its worst", *row_of(op, worst)[1:]])
    return _by_machine(machines)


def _launching_included(work: dict) -> bool:
    return work.get("method", "").endswith("launching included")


def _gain(work: dict) -> float:
    """Return how many times as fast as its strongest rival ours is."""
    return min(rivals_of(work).values())


BATCHES = (64, 256, 1024, 4096)


def step_table(folder: Path = RECORDS) -> str:
    """Return a row for each batch of 17c's race: PyTorch's best, our step, how many times as fast.

    Without all four records there is nothing to show.
    """
    paths = [folder / f"17_fast_{batch}.json" for batch in BATCHES]
    if not all(path.exists() for path in paths):
        return "Nothing is recorded yet.\n"
    records = [json.loads(path.read_text()) for path in paths]
    exact = ["PyTorch, `float32`", "ours, as exact", ""]
    rows = [["images a step", *exact, "PyTorch, any precision", "ours, in halves", ""]]
    for batch, record in zip(BATCHES, records, strict=True):
        ms = {row["name"]: row["median_ms"] for row in record["value"]["rows"]}
        theirs = [name for name in ms if name.startswith("PyTorch")]
        in_float = [name for name in theirs if "float32" in name]
        row = [str(batch)]
        for rivals, ours in ((in_float, ms["ours, exact"]), (theirs, ms["ours, halves"])):
            best = min(rivals, key=lambda name: ms[name])
            which = f"{_time(ms[best])}, {_variant(best, rivals is theirs)}"
            row += [which, _time(ours), f"{ms[best] / ours:.2f} ×"]
        rows.append(row)
    return f"{machine_of(records[0])}\n\n{_table(rows)}"


def _variant(name: str, with_type: bool) -> str:
    """Return what a candidate of 17c's race is, beside PyTorch: its type, its layout and more."""
    dtype, *rest = name.removeprefix("PyTorch ").split(", ")
    layout = rest if "NHWC" in rest else ["NCHW", *rest]
    return " ".join([dtype, *layout] if with_type else layout)


KERNELS_README = """# Kernels

Each file works alone, with PyTorch and nothing else; its first comment says what it takes and holds
the `load_inline` call. Most are written from the notebooks (`make kernels`); long ones have a
guided tour there. A file's head names its notebook. In this repository what networks need is also a
PyTorch operator with gradients: `from kernels import softmax`. For other projects, `python -m
kernels take softmax --into DIR` writes a file with what builds and tests it, and `python -m kernels
list` shows what there is.

`make bench` timed them (one file: `make bench K=softmax`): the candidates take turns, random data,
L2 flushed before each call, results compared before and after; cuDNN tries its algorithms out
(`torch.backends.cudnn.benchmark`). A rate counts the bytes that must be moved, or the FLOPs. The
floor is a copy of as many bytes, or cuBLAS's product of as many FLOPs, timed in turn with them;
from 100 % on a kernel is as fast. What is below 1.00 × is slower than the rival. Among the others
are NVIDIA's libraries, the same tensors in another layout, and what PyTorch has but does not take
by itself. A file without a row has not been timed since it last changed.

Above each table stands the card that its rows were timed on; where a row says "2 GPUs", two of it.
{older}
{tables}{problems}"""
KERNELBENCH = """
## Others' problems

KernelBench (A. Ouyang, S. Guo and others, github.com/ScalingIntelligence/KernelBench), level 1:
those of its problems that the operators cover, in the sizes of version 0.1, in `float32` unless
said otherwise, forward, under PyTorch's own settings: TF32 for cuDNN and not for products,
algorithms without a search. `python -m kernels.tests.kernelbench` timed them on {day}; kernels may
have changed since.

{means}

{table}"""
OLDER = """The rows of an H200 are older: there cuDNN took the algorithms that its rules propose, in
one layout. An H200 copies 1.4 times as fast as an H100: compare no times or GB/s of different
tables.
"""  # as long as there are such rows


def kernels_readme(folder: Path = RECORDS) -> str:
    """Return kernels/README.md: a row for each work that `make bench` has timed."""
    machines: dict[str, list[list[str]]] = {}
    for op, record in benches(folder):
        rows = [row_of(op, work) for work in record["value"]]
        machines.setdefault(machine_of(record), []).extend(rows)
    older = OLDER if any("H200" in machine for machine in machines) else ""
    problems = kernelbench_table(folder)
    return KERNELS_README.format(older=older, tables=_by_machine(machines), problems=problems)


def kernelbench_table(folder: Path = RECORDS) -> str:
    """Return a section with a row for each of kernelbench.py's problems; "" if none was timed."""
    path = folder / "kernelbench.json"
    if not path.exists():
        return ""
    record = json.loads(path.read_text())
    timed = [work for work in record["value"] if "rows" in work]
    means = [
        f"Geometric mean over {name}: {geometric_mean(rivals_of(w)[name] for w in timed):.2f} ×, "
        f"{sum(rivals_of(w)[name] >= 1 for w in timed)} of {len(record['value'])} at least as fast."
        for name in ("PyTorch", "torch.compile")
    ]
    rows = [["problem", "ours", "PyTorch", "torch.compile"]]
    for work in record["value"]:
        cells = [work.get("wrong"), "–", "–"]
        if work in timed:
            against = [f"{ratio:.2f} ×" for ratio in rivals_of(work).values()]
            cells = [_time(work["rows"][0]["median_ms"]), *against]
        rows.append([f"{work['number']} {work['work']}", *cells])
    about = {"day": record["date"], "means": "\n".join(means)}
    return KERNELBENCH.format(**about, table=f"{machine_of(record)}\n\n{_table(rows)}")


def speeds(work: dict) -> str:
    """Return what was measured of a work, in a line."""
    _, _, time, rate, floor, *against = row_of("", work)
    return f"{time}, {rate}, {floor} of the floor; " + ", ".join(against)


def benches(folder: Path = RECORDS) -> list[tuple[str, dict]]:
    """Return the records of `make bench`, each with the name of its kernel file."""
    paths = sorted(folder.glob("bench_*.json"))
    return [(path.stem.removeprefix("bench_"), json.loads(path.read_text())) for path in paths]


def machine_of(record: dict) -> str:
    """Return the card and the versions that something was measured with."""
    return f"{record['device']} · CUDA {record['cuda']} · torch {record['torch']}"


def row_of(op: str, work: dict, folder: str = "") -> list[str]:
    """Return the cells below HEADER for a work."""
    ours = work["rows"][0]
    is_moving = ours["gbps"] is not None
    rate = f"{ours['gbps']:,.0f} GB/s" if is_moving else f"{ours['tflops']:.1f} TFLOP/s"
    floor = next((row["ratio"] for row in work["rows"] if row["name"] in FLOORS), None)
    named = ("PyTorch", "torch.compile")  # each has a column, all others share one
    others = [
        f"{name} {ratio:.2f} ×" for name, ratio in rivals_of(work).items() if name not in named
    ]
    against = [rivals_of(work).get(name) for name in named]
    return [
        f"[{op}]({folder}{op}.cu)",
        work["work"] + (", launching included" if _launching_included(work) else ""),
        _time(ours["median_ms"]),
        rate,
        f"{100 / floor:.0f} %" if floor else "–",
        *(f"{ratio:.2f} ×" if ratio else "–" for ratio in against),
        ", ".join(others) or "–",
    ]


def rivals_of(work: dict) -> dict[str, float]:
    """Return how many times as fast as each rival ours is."""
    ours, *others = work["rows"]
    return {
        row["name"]: row["median_ms"] / ours["median_ms"]
        for row in others
        if row["name"] not in FLOORS
    }


def _by_machine(machines: dict[str, list[list[str]]]) -> str:
    parts = [f"{machine}\n\n{_table([HEADER, *rows])}" for machine, rows in machines.items()]
    return "\n".join(parts) or "Nothing is recorded yet.\n"


@dataclass
class Head:
    """What a notebook's first cell says of it."""

    title: str
    subtitle: str


def head_of(path: Path) -> Head:
    """Read a notebook's first cell: heading, a line in italics.

    Raises ValueError naming the notebook if its first cell lacks the line.
    """
    first = json.loads(path.read_text())["cells"][0]  # nbformat takes seconds to import
    cell = re.sub("<!--.*?-->", "", "".join(first["source"]), flags=re.DOTALL)
    title = cell.split("\n", 1)[0].removeprefix("# ")
    subtitle = re.search(r"\n\*([^*].*?)\*\n", cell, re.DOTALL)
    if subtitle is None:
        raise ValueError(f"{title}: expected a line in italics in the first cell, got none")
    return Head(title, " ".join(subtitle[1].split()).rstrip("."))


def _time(ms: float) -> str:
    return f"{ms:.3g} ms" if ms >= 1 else f"{ms * 1000:.3g} µs"


def _table(rows: list[list[str]]) -> str:
    """Return the rows as a Markdown table, the first of them its head."""
    lines = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    cells = [[cell.replace("|", "\\|") for cell in line] for line in lines]
    return "".join(f"| {' | '.join(line)} |\n" for line in cells)


def write() -> None:
    """Write the picture, README's tables, kernels/README.md, the way, the figures in prose."""
    readme_picture.write()
    for path in way.fill_all():
        print(f"{path.relative_to(ROOT)}: minutes of the way written")
    for path, text in (
        (README, with_tables(README.read_text())),
        (KERNELS / "README.md", kernels_readme()),
    ):
        is_current = path.exists() and path.read_text() == text
        print(f"{path.relative_to(ROOT)}: " + ("current" if is_current else "written"))
        path.write_text(text)
    for path in figures.pages():
        if figures.fill(path):
            print(f"{path.relative_to(ROOT)}: figures written; read its claims anew")


if __name__ == "__main__":
    write()
