"""Measurements taken on a GPU, kept as JSON, and shown where there is no GPU."""

import datetime
import json
import os
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from helpers.device import BACKEND

RECORDS = Path(__file__).resolve().parent / "recorded"
KEY = re.compile(r"\d\d_[a-z0-9_]+")


@dataclass(frozen=True)
class Record:
    """A measured value and where it was measured; `live` if that was just now, on this machine.

    `value` is None when there is neither a GPU nor a record. `stale` says that the record was made
    by an older version of the cell, so that it need not answer what the cell asks now.
    """

    value: Any
    device: str | None = None
    torch: str | None = None
    cuda: str | None = None
    driver: str | None = None
    date: str | None = None
    live: bool = False
    stale: bool = False

    @property
    def machine(self) -> str:
        """The machine in a few words, for the title of a picture."""
        cuda = f" · CUDA {self.cuda}" if self.cuda else ""
        return f"{self.device} · torch {self.torch}{cuda}"

    @property
    def caption(self) -> str:
        """One line that says where the value comes from."""
        if self.value is None:
            return "Nothing is recorded for this cell yet: run it on a machine with an NVIDIA GPU."
        if self.live:
            return f"measured on {self.machine}"
        text = f"recorded on {self.machine} · {self.date}"
        if self.torch != torch.__version__:
            text += f" (this machine has torch {torch.__version__})"
        if self.stale:
            text += ", for an older version of this cell"
        return text


def recorded(key: str, measure: Callable[[], Any], about: Any = None) -> Record:
    """Measure on a GPU; without one, return what was recorded under `key` ("01_square", say).

    `measure()` returns a value that JSON can hold. With a GPU and RECORD=1 in the environment the
    value is stored too. `about` describes what is measured (candidates, a script): a record made
    for something else comes back marked `stale`. Raises ValueError for a malformed key and
    for a value that JSON cannot hold (NaN included).
    """
    _check_key(key)
    if BACKEND == "cpu":
        return stored(key, about)
    record = _measured(measure)
    if os.environ.get("RECORD") == "1":
        _store(key, record, about)
    return record


def stored(key: str, about: Any = None) -> Record:
    """Return what was recorded under `key`; its value is None if nothing was."""
    _check_key(key)
    path = RECORDS / f"{key}.json"
    if not path.exists():
        return Record(value=None)
    fields = json.loads(path.read_text())
    stale = fields.pop("about") != _as_json(about)
    return Record(**fields, stale=stale)


def _measured(measure: Callable[[], Any]) -> Record:
    return Record(
        value=_as_json(measure()),
        device=torch.cuda.get_device_name(),
        torch=torch.__version__,
        cuda=torch.version.cuda,
        driver=_driver_version(),
        date=datetime.date.today().isoformat(),
        live=True,
    )


def _store(key: str, record: Record, about: Any) -> None:
    names = ("value", "device", "torch", "cuda", "driver", "date")
    fields = {name: getattr(record, name) for name in names} | {"about": _as_json(about)}
    RECORDS.mkdir(exist_ok=True)
    part = RECORDS / f".{key}.{os.getpid()}.part"
    part.write_text(json.dumps(fields, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
    os.replace(part, RECORDS / f"{key}.json")  # whole or not at all, whoever reads meanwhile


def _check_key(key: str) -> None:
    if not KEY.fullmatch(key):
        raise ValueError(f"expected a key such as '01_square' (notebook, name), got {key!r}")


def _as_json(value: Any) -> Any:
    """Return `value` as its JSON file would give it back, so that live and recorded are alike."""
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ValueError(f"a record holds numbers, texts, lists and dicts: {error}") from None


def _driver_version() -> str | None:
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        found = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None  # containers without nvidia-smi still run kernels
    return found.stdout.split("\n")[0].strip()
