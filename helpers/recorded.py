"""Measurements taken on a GPU, kept as JSON, and shown where there is no GPU.

A record knows what it was made for: what the caller says of it, and the versions of the kernels
that were called. Where the notebook has changed since, it says so; under RECORD=check, which
`make test` sets, it is an error.
"""

import datetime
import json
import os
import re
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from helpers.base.called_kernels import called_kernels, versions
from helpers.device import BACKEND

RECORDS = Path(__file__).resolve().parent / "recorded"
KEY = re.compile(r"(?:\d\d|bench)_[a-z0-9_]+|kernelbench")


class StaleRecord(AssertionError):
    """A record was made for an earlier version of what the notebook measures now."""


@dataclass(frozen=True)
class Record:
    """A measured value and where it was measured; `live` if that was just now, on this machine.

    `value` is None when there is neither a GPU nor a record. `stale` names what has changed since
    the record was made, if anything has: it need not answer what is asked now. `brief` if another
    record of the same notebook has said in all detail where it was measured. `gpus`: how many GPUs
    it takes.
    """

    value: Any
    device: str | None = None
    torch: str | None = None
    cuda: str | None = None
    driver: str | None = None
    date: str | None = None
    live: bool = False
    stale: str | None = None
    brief: bool = False
    gpus: int = 1

    @property
    def machine(self) -> str:
        """The machine in a few words, for the title of a picture."""
        cuda = f" · CUDA {self.cuda}" if self.cuda else ""
        return f"{self._devices} · torch {self.torch}{cuda}"

    @property
    def _devices(self) -> str:
        return self.device if self.gpus == 1 else f"{self.gpus} × {self.device}"

    @property
    def caption(self) -> str:
        """One line that says where the value comes from: in all detail unless it is brief."""
        if self.value is None:
            gpus = "an NVIDIA GPU" if self.gpus == 1 else f"{self.gpus} NVIDIA GPUs"
            return f"Nothing is recorded for this cell yet: run it on a machine with {gpus}."
        version = f" for an earlier version of {self.stale}" if self.stale else ""
        text = f"{'measured' if self.live else 'recorded'}{version} on "
        if self.brief:
            return text + self._devices
        driver = f"driver {self.driver}" if self.driver else None
        text += " · ".join(filter(None, (self.machine, driver, self.date)))
        if self.torch != torch.__version__:
            text += f" (this machine has torch {torch.__version__})"
        return text


def recorded(
    key: str, measure: Callable[[], Any], about: Any = None, kernels: Iterable = ()
) -> Record:
    """Measure on a GPU; without one, return what was recorded under `key` ("01_square", say).

    `measure()` returns a value that JSON can hold. With a GPU and RECORD=1 in the environment the
    value is stored too. `about` describes what is measured (candidates, a script); `kernels` are
    the functions of compile_cuda and the kernels of Triton that `measure` calls. A record made for
    something else comes back marked `stale`; with RECORD=check it raises StaleRecord.

    Raises ValueError for a malformed key, a value that JSON cannot hold (NaN included), and when a
    record is to be stored that calls other kernels.
    """

    def measure_and_look() -> Any:
        with called_kernels() as called:
            value = measure()
        missing = _names(called - versions(kernels))
        if missing and os.environ.get("RECORD") == "1":
            raise ValueError(f"{key} measures {missing} as well: name all in `kernels`")
        return value

    return measured_or_stored(key, measure_and_look, about, kernels)


def measured_or_stored(
    key: str, measure: Callable[[], Any], about: Any, kernels: Iterable
) -> Record:
    """Do as `recorded` does, without a look at which kernels are called: that takes time."""
    _check_key(key)
    if BACKEND == "cpu":
        return stored(key, about, kernels)
    record = _told(key, _measured(measure))
    if os.environ.get("RECORD") == "1":
        _store(key, record, about, kernels)
    else:
        _stored(key, about, kernels)  # only to raise if that is stale
    return record


def stored(key: str, about: Any = None, kernels: Iterable = ()) -> Record:
    """Return what was recorded under `key`; its value is None if nothing was."""
    _check_key(key)
    return _told(key, _stored(key, about, kernels))


def _stored(key: str, about: Any, kernels: Iterable) -> Record:
    path = RECORDS / f"{key}.json"
    if not path.exists():
        return Record(value=None)
    fields = json.loads(path.read_text())
    stale = _names(versions(kernels) ^ set(fields.pop("kernels")))
    if fields.pop("about") != _as_json(about):
        stale = "this cell"
    if stale and os.environ.get("RECORD") == "check":
        raise StaleRecord(
            f"{path.name} was recorded for an earlier version of {stale}: run the notebook on a "
            "GPU, with RECORD=1 in the environment"
        )
    return Record(**fields, stale=stale or None)


_tellers: dict[str, str] = {}  # description of a machine → key of the first record that gave it


def _told(key: str, record: Record) -> Record:
    """Return the record, brief if another one has told the same; run again, a cell tells it all."""
    if record.value is None or record.stale:
        return record
    return replace(record, brief=_tellers.setdefault(record.caption, key) != key)


def _names(kernels: set[str]) -> str:
    return ", ".join(sorted({kernel.split()[0] for kernel in kernels}))


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


def _store(key: str, record: Record, about: Any, kernels: Iterable) -> None:
    names = ("value", "device", "torch", "cuda", "driver", "date")
    fields = {name: getattr(record, name) for name in names}
    fields |= {"about": _as_json(about), "kernels": sorted(versions(kernels))}
    fields = dict(sorted(fields.items()))  # not what is in the value: it is read in its own order
    RECORDS.mkdir(exist_ok=True)
    part = RECORDS / f".{key}.{os.getpid()}.part"
    part.write_text(json.dumps(fields, indent=1, ensure_ascii=False) + "\n")
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
