"""The page on which Python kernels run in the reader's browser, by Pyodide, from the site's files.

packages  Pyodide and NumPy for it, from npm
lessons   the Python kernels and exercises of notebooks 00 and 02
page/     the page: HTML, CSS, JavaScript; worker.js runs Python
python/   what stands in there for PyTorch, matplotlib, IPython and the compiler; `run` runs the
          editor's text and says what came of it
"""

import json
import shutil
import zipfile
from pathlib import Path

from helpers.base.machine import ROOT
from helpers.make.browser import lessons, packages

HERE = Path(__file__).parent
FOLDER = "browser"  # of the site, with all of the page in it
NOTEBOOKS = ("00_start_here", "02_grids_blocks_threads")
COURSE = (  # of helpers: what runs Python kernels and checks exercises
    "__init__.py",
    "checks.py",
    "base",
    "exercises",
    "simulator",
    "trace",
    "cuda_on_cpu/scanner.py",
)


def write(folder: Path) -> Path:
    """Write the page and all that it loads into the site's folder; return the page's path.

    Raises packages.PackageMissing where npm, or a package that is asked of it, is not to be had.
    """
    target = folder / FOLDER
    shutil.copytree(HERE / "page", target, dirs_exist_ok=True)
    loaded = packages.write(target)
    write_course(target / "course.zip")
    loaded["course.zip"] = (target / "course.zip").stat().st_size
    found = [
        lesson for name in NOTEBOOKS for lesson in lessons.of(ROOT / f"notebooks/{name}.ipynb")
    ]
    data = {"lessons": found, "loaded": loaded}
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    (target / "lessons.json").write_text(text, encoding="utf-8")
    return target / "index.html"


def write_course(file: Path) -> None:
    """Write the part of helpers that the page needs, with its stand-ins, as a zip."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, name in course_files():
            archive.write(path, name)


def course_files() -> list[tuple[Path, str]]:
    """Return the files of course.zip, each with its name in it; stand-ins go before helpers'."""
    files = {}
    for part in COURSE:
        path = ROOT / "helpers" / part
        for file in [path] if path.is_file() else sorted(path.rglob("*.py")):
            files[file.relative_to(ROOT).as_posix()] = file
    for file in sorted((HERE / "python").rglob("*.py")):
        files[file.relative_to(HERE / "python").as_posix()] = file
    return [(path, name) for name, path in sorted(files.items())]
