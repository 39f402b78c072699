"""What was built, by what it was built from: made once, whole or not there at all.

Every build works in a directory of its own, which becomes the result by being renamed. So builds
need no lock, and one that was killed leaves nothing that another could wait for.
"""

import hashlib
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


def digest(*parts: str) -> str:
    """Return a short name for this content, as unique as one needs."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:20]


def user_folder() -> Path:
    """Return where builds are kept that belong to no project: $CUDA_ON_CPU_CACHE says another."""
    if chosen := os.environ.get("CUDA_ON_CPU_CACHE"):
        return Path(chosen).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "cuda-on-cpu")


@dataclass(frozen=True)
class Cache:
    """Directories by name in a folder; a name holds a digest of all that its content depends on."""

    folder: Path

    def get(self, name: str, make: Callable[[Path], None], announce: str = "") -> Path:
        """Return the directory `name`, which `make` fills if it is not there.

        `announce` says on stderr what is being made, and how long that took.
        """
        made = self.folder / name
        if made.exists():
            return made
        self.folder.mkdir(parents=True, exist_ok=True)
        self.remove_dead_builds()
        private = Path(tempfile.mkdtemp(prefix=f"{builder(os.getpid())}.", dir=self.folder))
        private.chmod(0o755)
        begin = time.perf_counter()
        if announce:
            print(f"{announce} …", end="", file=sys.stderr, flush=True)
        try:
            make(private)
            self._publish(private, made)
        finally:
            shutil.rmtree(private, ignore_errors=True)
            if announce:
                print(f" {time.perf_counter() - begin:.0f} s", file=sys.stderr, flush=True)
        return made

    def remove(self, name: str) -> None:
        """Forget what is there under the name."""
        shutil.rmtree(self.folder / name, ignore_errors=True)

    def remove_dead_builds(self) -> None:
        """Remove what builds left behind whose process was killed."""
        for directory in self.folder.glob(f"{builder('')}*"):
            pid = directory.name.removeprefix(builder("")).split(".")[0]
            if not pid.isdecimal():
                continue
            try:
                os.kill(int(pid), 0)  # signal 0 only asks whether the process is there
            except ProcessLookupError:
                shutil.rmtree(directory, ignore_errors=True)
            except PermissionError:  # somebody else's, and alive
                pass

    def _publish(self, private: Path, made: Path) -> None:
        try:
            private.rename(made)
        except OSError:  # another process was faster; a library of ours may be loaded already
            for path in private.iterdir():
                path.replace(made / path.name)


def builder(pid: int | str) -> str:
    """Return how the names of a process's unfinished directories begin.

    Containers of one machine, or of one name, count their processes each for itself.
    """
    try:
        counted_in = os.stat("/proc/self/ns/pid").st_ino
    except OSError:  # macOS has nothing of the kind
        counted_in = 0
    return f"building.{platform.node()}.{counted_in}.{pid}"
