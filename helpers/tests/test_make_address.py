"""A notebook alone fetches the course, and one place holds from where."""

import functools
import http.server
import json
import os
import subprocess
import sys
import tarfile
import threading

import pytest

from helpers.base.machine import ROOT
from helpers.make import address
from helpers.make.kernels import notebook_paths

REPOSITORY = "someone/a.course"
COMPLETE = """
from pathlib import Path
def complete():
    print("completed in", Path.cwd().name)
"""


def run(source, folder):
    command = [sys.executable, "-I", "-c", source]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


@pytest.fixture
def served(tmp_path):
    """Serve an archive as GitHub has them, of files that say what they were asked; its host."""
    course = tmp_path / "served" / "a.course-main"
    for name, text in {
        "helpers/__init__.py": "",
        "helpers/make/__init__.py": "",
        "helpers/make/environment.py": COMPLETE,
        "notebooks/00_start_here.ipynb": "{}",
        "requirements.txt": "torch",
    }.items():
        (course / name).parent.mkdir(parents=True, exist_ok=True)
        (course / name).write_text(text)
    archive = tmp_path / "served" / REPOSITORY / "archive" / "main.tar.gz"
    archive.parent.mkdir(parents=True)
    with tarfile.open(archive, "w:gz") as file:
        file.add(course, course.name)

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    handler = functools.partial(Handler, directory=tmp_path / "served")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_every_page_has_the_address():
    old = [path.name for path, text in address.pages().items() if path.read_text() != text]
    assert not old, "make address"


def test_an_archive_ends_with_the_file_that_tells_that_all_is_there():
    command = ["git", "ls-files"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        pytest.skip("no git here")
    assert sorted(done.stdout.splitlines(), key=str.encode)[-1] == "requirements.txt"


@pytest.mark.parametrize("repository", ["", REPOSITORY])
def test_beside_the_course_nothing_happens(repository, tmp_path):
    (tmp_path / "helpers").mkdir()
    (tmp_path / "notebooks").mkdir()
    lines = address.first_lines(repository, "http://127.0.0.1:9")
    done = run(lines + "print(sorted(os.listdir('..')), sys.path[-1])", tmp_path / "notebooks")
    assert done.stdout == "['helpers', 'notebooks'] ..\n", done.stderr
    assert max(map(len, lines.splitlines())) <= 88


def test_alone_without_an_address_it_says_so(tmp_path):
    done = run(address.first_lines(""), tmp_path)
    assert done.stderr.splitlines()[-1] == (
        "FileNotFoundError: this copy of the course has no address yet: see README"
    )


def test_alone_it_fetches_the_course_once(served, tmp_path):
    alone = tmp_path / "content"
    alone.mkdir()
    use = "import helpers; print(os.path.relpath(helpers.__file__, sys.argv[1]))"
    source = f"import sys; sys.argv = ['', {str(alone)!r}]\n{{}}\n{use}"
    lines = address.first_lines(REPOSITORY, served)
    done = run(source.format(lines), alone)
    said = done.stdout.splitlines()
    assert said[0].startswith("Fetching the course") and "Internet" in said[0], done.stderr
    assert said[1:] == ["completed in notebooks", "a.course-main/helpers/__init__.py"]

    changed = alone / "a.course-main/notebooks/00_start_here.ipynb"
    changed.write_text("mine")
    again = run(source.format(address.first_lines(REPOSITORY, "http://127.0.0.1:9")), alone)
    assert again.stdout.splitlines() == said[1:], again.stderr
    assert changed.read_text() == "mine"

    (alone / "a.course-main/requirements.txt").unlink()  # as if it had been stopped half-way
    whole = run(source.format(lines), alone)
    assert whole.stdout.splitlines() == said, whole.stderr


def test_without_a_network_the_last_words_say_why(tmp_path):
    done = run(address.first_lines(REPOSITORY, "http://127.0.0.1:9"), tmp_path)
    assert "Internet" in done.stdout and "refused" in done.stderr.splitlines()[-1]
    assert not os.listdir(tmp_path)


def test_a_notebook_changes_only_where_the_address_stands():
    path = notebook_paths()[0]
    before = json.loads(path.read_text())
    text = address.with_address(path.read_text(), path.name, REPOSITORY)
    after = json.loads(text)
    code = next(i for i, cell in enumerate(before["cells"]) if cell["cell_type"] == "code")
    title, first = after["cells"][0]["source"], "".join(after["cells"][code]["source"])
    colab = "https://colab.research.google.com/github/someone/a.course/blob/main/notebooks/"
    assert title[2] == f"[Open in Colab]({colab}{path.name})\n"
    assert first.startswith(address.first_lines(REPOSITORY))
    assert "https://github.com/someone/a.course/archive/main.tar.gz" in first
    for number in (0, code):
        before["cells"][number]["source"] = after["cells"][number]["source"]
    assert before == after
    assert address.with_address(text, path.name, REPOSITORY) == text
    none = address.with_address(text, path.name, "")
    assert none == address.pages()[path] and "Colab](" not in none


def test_a_release_is_named_as_its_archive_is(monkeypatch):
    monkeypatch.setattr(address, "REVISION", "v1.2")
    lines = address.first_lines(REPOSITORY)
    assert "/archive/v1.2.tar.gz" in lines and '"a.course-1.2/notebooks"' in lines
    assert "/blob/v1.2/notebooks/" in address.colab("00_start_here.ipynb", REPOSITORY)


def test_readme_has_the_address_or_says_that_there_is_none():
    text = address.README.read_text()
    public = address.readme_with_address(text, REPOSITORY)
    assert "git clone https://github.com/someone/a.course cuda-course" in public
    assert "no public address" not in public
    none = address.readme_with_address(public, "")
    assert "no public address" in none and "colab.research" not in none
    assert "someone/" not in none


@pytest.mark.parametrize("wrong", ["name", "https://github.com/a/b", 'a/b"', "a/b/c"])
def test_what_is_no_repository(wrong):
    with pytest.raises(ValueError, match='expected REPOSITORY "owner/name", got'):
        address.first_lines(wrong)
    with pytest.raises(ValueError, match="expected REPOSITORY"):
        address.readme_with_address("<!-- begin clone -->\n<!-- end clone -->", wrong)


def test_a_notebook_without_the_lines():
    cells = [{"cell_type": "markdown", "id": "a", "source": ["# 00 Title\n", "\n", "*More.*"]}]
    cells += [{"cell_type": "code", "id": "b", "source": ["import torch\n"]}]
    with pytest.raises(ValueError, match="00.ipynb: nothing in b looks like"):
        address.with_address(json.dumps({"cells": cells}), "00.ipynb")
