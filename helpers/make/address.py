"""Write the course's public address wherever it stands: `make address`.

REPOSITORY is the one place that holds it. From it come the link to Colab at the top of each
notebook, the first lines of its first code cell, which fetch the course where the notebook lies
alone, and what README says of both. The cells are read, not run.
"""

import json
import re
from pathlib import Path

from helpers.base.machine import ROOT
from helpers.make.kernels import notebook_paths

REPOSITORY = ""  # "owner/name" on GitHub; after a change: make address
REVISION = "main"  # the branch, or a release's tag, of the notebooks that are opened elsewhere
HOST = "https://github.com"
README = ROOT / "README.md"

# requirements.txt is an archive's last file: where it is, all are.
FETCH = """import os, sys
if not os.path.exists("../helpers"):  # alone, as on Colab: fetch the rest of the course
    if not os.path.exists("{folder}/requirements.txt"):
        import shutil, urllib.request as web
        print("Fetching the course; Kaggle has to allow it: Settings, Internet on.")
        url = "{archive}"
        shutil.unpack_archive(web.urlretrieve(url)[0], format="gztar")
    os.chdir("{folder}/notebooks"); sys.path.append("..")
    from helpers.make.environment import complete; complete()
"""
REFUSE = """import os, sys
if not os.path.exists("../helpers"):  # alone, as on Colab
    raise FileNotFoundError("this copy of the course has no address yet: see README")
"""
LAST_LINE = 'sys.path.append("..")  # the course\'s folder\n'
FIRST_LINES = re.compile(
    r'\A.*?^(?:import sys; )?sys\.path\.append\("\.\."\)[^\n]*\n', re.DOTALL | re.MULTILINE
)
TITLE = re.compile(r"\A(# [^\n]+\n\n)(?:\[Open in Colab\]\([^)]*\)\n\n)?")

CLONE = """    git clone {address} cuda-course && cd cuda-course
    make lab
"""
SERVICES = (
    "Without a machine of your own: [open the first notebook in Colab]({colab}) or\n"
    "[on Kaggle]({kaggle}).\n"
)
NO_SERVICES = (
    "This copy has no public address yet, so Colab and Kaggle cannot fetch it: whoever publishes\n"
    "it writes the address into `helpers/make/address.py`, then `make address` makes the links.\n"
)


def first_lines(repository: str = REPOSITORY, host: str = HOST) -> str:
    """Return the lines with which each notebook's first code cell begins.

    Raises ValueError for a repository that is not spelled "owner/name".
    """
    if not _checked(repository):
        return REFUSE + LAST_LINE
    # so GitHub names an archive's folder
    folder = f"{repository.split('/')[1]}-{re.sub(r'^v(?=[0-9])', '', REVISION)}"
    archive = f"{host}/{repository}/archive/{REVISION}.tar.gz"
    return FETCH.format(folder=folder, archive=archive) + LAST_LINE


def colab(notebook: str, repository: str) -> str:
    """Return the address at which Colab opens a notebook."""
    place = f"{repository}/blob/{REVISION}/notebooks/{notebook}"
    return f"https://colab.research.google.com/github/{place}"


def with_address(notebook: str, name: str, repository: str = REPOSITORY, host: str = HOST) -> str:
    """Return a notebook's text with link and first lines as they must be, all else as it is.

    Without an address it has no link. Raises ValueError if it has no heading, or no first lines to
    put these in the place of.
    """
    content = json.loads(notebook)
    cells = content["cells"]
    link = f"[Open in Colab]({colab(name, repository)})\n\n" if _checked(repository) else ""
    _replace(cells[0], TITLE, lambda found: found[1] + link, name)
    code = next(cell for cell in cells if cell["cell_type"] == "code")
    _replace(code, FIRST_LINES, lambda found: first_lines(repository, host), name)
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def readme_with_address(readme: str, repository: str = REPOSITORY) -> str:
    """Return README with the lines that clone the course, and the links to where it runs."""
    place = f"{HOST}/{_checked(repository)}/blob/{REVISION}/notebooks/00_start_here.ipynb"
    links = {
        "colab": colab("00_start_here.ipynb", repository),
        "kaggle": f"https://kaggle.com/kernels/welcome?src={place}",
    }
    address = f"{HOST}/{repository}" if repository else "<address of this repository>"
    for name, part in (
        ("clone", CLONE.format(address=address)),
        ("services", SERVICES.format(**links) if repository else NO_SERVICES),
    ):
        begin, end = f"<!-- begin {name} -->\n", f"<!-- end {name} -->"
        head, rest = readme.split(begin)
        readme = head + begin + part + end + rest.split(end)[1]
    return readme


def pages() -> dict[Path, str]:
    """Return what has to stand in README and in each notebook."""
    found = {path: with_address(path.read_text(), path.name) for path in notebook_paths()}
    return found | {README: readme_with_address(README.read_text())}


def _checked(repository: str) -> str:
    if repository and not re.fullmatch(r"[A-Za-z0-9-]+/[A-Za-z0-9._-]+", repository):
        raise ValueError(f'expected REPOSITORY "owner/name", got {repository!r}')
    return repository


def _replace(cell: dict, pattern: re.Pattern, new, name: str) -> None:
    source, count = pattern.subn(new, "".join(cell["source"]), count=1)
    if not count:
        raise ValueError(f"{name}: nothing in {cell['id']} looks like {pattern.pattern}")
    cell["source"] = source.splitlines(keepends=True)


def write() -> None:
    """Write all that has another address, and say how much."""
    changed = {path: text for path, text in pages().items() if path.read_text() != text}
    for path, text in changed.items():
        path.write_text(text)
    print(f"{REPOSITORY or 'no address'}: {len(changed)} files written")


if __name__ == "__main__":
    write()
