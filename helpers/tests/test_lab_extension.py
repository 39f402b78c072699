"""JupyterLab's extension for CUDA: built from the sources beside it, and put into .venv."""

import hashlib
import json
import re
import shutil
import subprocess

import pytest

from helpers.make import install

LAB = install.EXTENSION.parent
ABOUT = json.loads((install.EXTENSION / "package.json").read_text())

# what JupyterLab's themes put behind a cell's text
BEHIND = {"JupyterLab Light": "#f5f5f5", "JupyterLab Dark": "#212121"}


def files(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*.*")}


def test_it_is_copied_in_place_of_an_older_one(tmp_path, monkeypatch):
    monkeypatch.setattr(install, "VENV", tmp_path)
    extensions = tmp_path / "share/jupyter/labextensions"
    old, other = (extensions / name for name in (ABOUT["name"], "other"))
    for folder in (old, other):
        folder.mkdir(parents=True)
        (folder / "old.js").write_text("old")
    for _ in range(2):
        install.copy_extension()
        assert files(old) == files(install.EXTENSION)
        assert (other / "old.js").read_text() == "old"


def test_a_new_build_is_installed(tmp_path, monkeypatch):
    copied = shutil.copytree(install.EXTENSION, tmp_path / "labextension")
    monkeypatch.setattr(install, "EXTENSION", copied)
    before = install.fingerprint(gpu=False)
    (copied / "package.json").write_text(json.dumps(ABOUT | {"sources": "others"}))
    assert install.fingerprint(gpu=False) != before


def test_what_is_built_belongs_to_its_sources():
    digest = hashlib.sha256()
    names = ["package.json", "package-lock.json", "build.js", "grammar.js"]
    names += sorted(f"src/{path.name}" for path in (LAB / "src").iterdir())
    for name in names:
        digest.update(f"{name}\n{(LAB / name).read_text()}".encode())
    told = "build it anew: cd helpers/make/lab && npm ci && npm run build"
    assert ABOUT["sources"] == digest.hexdigest(), told


def test_jupyterlab_finds_what_it_loads():
    build = ABOUT["jupyterlab"]["_build"]
    entry = (install.EXTENSION / build["load"]).read_text()
    assert f'["{ABOUT["name"]}"]=' in entry and "_JUPYTERLAB" in entry
    assert build["extension"] in entry


def luminance(colour):
    """Return the relative luminance of #rrggbb, as WCAG 2 has it."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("theme", BEHIND)
def test_mended_colours_have_contrast(theme):
    text = (LAB / "src" / "colours.js").read_text()
    colours = re.findall(r'\w+: "(#\w{6})"', re.search(f'"{theme}": {{(.*?)}}', text, re.S)[1])
    assert colours
    for colour in colours:
        dark, light = sorted(luminance(c) for c in (colour, BEHIND[theme]))
        assert (light + 0.05) / (dark + 0.05) >= 4.5, colour


@pytest.mark.skipif(
    not (shutil.which("npm") and (LAB / "build").exists() and (LAB / "node_modules").exists()),
    reason="needs npm, and what `npm ci && npm run build` leaves in helpers/make/lab",
)
def test_which_strings_are_cuda():
    done = subprocess.run(["npm", "test"], cwd=LAB, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
