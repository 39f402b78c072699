"""The container's files name what is there; only a machine with Docker can build it."""

import json
import re

from helpers.base.machine import ROOT
from helpers.make import install

FOLDER = ROOT / ".devcontainer"
DOCKERFILE = (FOLDER / "Dockerfile").read_text()


def test_what_is_copied_is_there_and_all_that_an_installation_depends_on():
    copied = re.findall(r"^COPY --chown=learner:learner (.*) \S+$", DOCKERFILE, re.MULTILINE)
    assert copied[-1] == "." and all((ROOT / name).exists() for name in copied)
    assert {ROOT / name for name in copied[:-1]} == {
        install.REQUIREMENTS,
        ROOT / "helpers/make/install.py",
    }


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
    monkeypatch.setattr(install.glob, "glob", lambda pattern: [])
    monkeypatch.setattr(install, "runs", lambda command: False)
    monkeypatch.setenv("COURSE_GPU", "")
    assert not install.find_gpu()
    monkeypatch.setenv("COURSE_GPU", "1")
    assert install.find_gpu()
    assert "ENV COURSE_GPU=$GPU\n" in DOCKERFILE
