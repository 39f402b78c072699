"""The container's files name what is there; only a machine with Docker can build it."""

import json
import re
import shutil
import subprocess
import sys

from helpers.base import system
from helpers.base.machine import ROOT
from helpers.make import install

FOLDER = ROOT / ".devcontainer"
DOCKERFILE = (FOLDER / "Dockerfile").read_text()


def test_what_is_copied_is_there_and_all_that_an_installation_depends_on(tmp_path):
    copied = re.findall(r"^COPY --chown=learner:learner (.*) (\S+)$", DOCKERFILE, re.MULTILINE)
    assert copied.pop() == (".", ".")
    for name, folder in copied:
        there = tmp_path / folder
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, there)
        else:
            there.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, there)
    code = "from helpers.make import install; print(install.fingerprint(gpu=False))"
    command = [sys.executable, "-S", "-c", code]
    of_all, of_these = (
        subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout
        for folder in (ROOT, tmp_path)
    )
    assert of_these == of_all and (tmp_path / "requirements.txt").exists()


def test_python_is_one_that_the_course_takes():
    major, minor = re.search(r"^FROM python:(\d+)\.(\d+)-", DOCKERFILE, re.MULTILINE).groups()
    assert install.OLDEST <= (int(major), int(minor)) <= install.NEWEST


def test_the_environment_of_the_image_is_that_of_the_workspace():
    settings = json.loads((FOLDER / "devcontainer.json").read_text())
    folder = settings["workspaceFolder"]
    assert f"WORKDIR {folder}\n" in DOCKERFILE
    assert f"target={folder}," in settings["workspaceMount"]
    assert f"target={folder}/.venv," in settings["mounts"][0]
    assert f"USER {settings['remoteUser']}\n" in DOCKERFILE
    assert (FOLDER / settings["build"]["dockerfile"]).exists()
    assert (FOLDER / settings["build"]["context"]).resolve() == ROOT
    assert ".venv" in (FOLDER / "Dockerfile.dockerignore").read_text().split()
    assert f"EXPOSE {settings['forwardPorts'][0]}" in DOCKERFILE


def test_a_build_is_told_of_the_gpu_that_it_cannot_see(monkeypatch):
    monkeypatch.setattr(system.glob, "glob", lambda pattern: [])
    monkeypatch.setattr(system, "runs", lambda command: False)
    monkeypatch.setenv("COURSE_GPU", "")
    assert not system.find_gpu()
    monkeypatch.setenv("COURSE_GPU", "1")
    assert system.find_gpu()
    assert "ENV COURSE_GPU=$GPU\n" in DOCKERFILE
