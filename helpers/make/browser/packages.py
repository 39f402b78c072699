"""Pyodide and NumPy for it: two packages of npm, whose versions belong together.

Pyodide's own NumPy is not on npm. emscripten-forge's is: built for the same Python (3.12) and the
same Emscripten (3.1.58) as Pyodide 0.27, with which it loads.
"""

import base64
import hashlib
import io
import shutil
import subprocess
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from helpers.base.machine import CACHE

FOLDER = CACHE / "pyodide"
RUNTIME = (
    "pyodide.js",
    "pyodide.asm.js",
    "pyodide.asm.wasm",
    "python_stdlib.zip",
    "pyodide-lock.json",
)
UNUSED = (  # of NumPy: what no kernel of the page comes to
    "/tests/",
    "/f2py/",
    "/distutils/",
    "/include/",
    "/_pyinstaller/",
    "/_core/lib/",
    "/random/lib/",
    "/typing/",
    "/_core/_simd",
    "/_core/_umath_tests",
    "/_core/_rational_tests",
    "/_core/_struct_ufunc_tests",
    "/_core/_operand_flag_tests",
)


class PackageMissing(RuntimeError):
    """A package of npm that is not to be had, or is not what it was."""


@dataclass(frozen=True)
class Package:
    """A package of npm in one version, and its integrity as npm's lock files write it."""

    name: str
    version: str
    integrity: str

    @property
    def file(self) -> Path:
        """Where its tarball is kept."""
        return FOLDER / f"{self.name.strip('@').replace('/', '-')}-{self.version}.tgz"

    def tarball(self) -> bytes:
        """Return it, from the cache or by `npm pack`; PackageMissing if it is another one."""
        if not self.file.exists():
            self._fetch()
        data = self.file.read_bytes()
        algorithm, _, expected = self.integrity.partition("-")
        found = base64.b64encode(hashlib.new(algorithm, data).digest()).decode()
        if found != expected:
            raise PackageMissing(f"{self.file}: expected {algorithm} {expected}, got {found}")
        return data

    def _fetch(self) -> None:
        FOLDER.mkdir(parents=True, exist_ok=True)
        what = f"{self.name}@{self.version}"
        npm = shutil.which("npm")
        if npm is None:
            raise PackageMissing(f"{what} comes by npm, which is not here: install Node.js")
        command = [npm, "pack", what, "--silent", "--pack-destination", str(FOLDER)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        if done.returncode or not self.file.exists():
            raise PackageMissing(f"npm pack {what}: {done.stderr.strip() or done.stdout.strip()}")


PYODIDE = Package(
    "pyodide",
    "0.27.7",
    "sha512-RUSVJlhQdfWfgO9hVHCiXoG+nVZQRS5D9FzgpLJ/VcgGBLSAKoPL8kTiOikxbHQm1kRISeWUBdulEgO26qpSRA==",
)
NUMPY = Package(
    "@emscripten-forge/numpy",
    "2.0.1-py312h4e66579-0",
    "sha512-64iP3tolNhBnKJBHs2b5Mg9s17BL8Bp9Ev2+U0fSCO3/zQlWQRCrExw2MgmfwjhNz+mwbKPG2eBsBcpBWV2xbA==",
)


def write(folder: Path) -> dict[str, int]:
    """Write what the page loads of both into a folder; return the files' sizes in bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(PYODIDE.tarball())) as archive:
        for name in RUNTIME:
            (folder / name).write_bytes(archive.extractfile(f"package/{name}").read())
    _write_numpy(folder / "numpy.zip")
    return {name: (folder / name).stat().st_size for name in (*RUNTIME, "numpy.zip")}


def _write_numpy(file: Path) -> None:
    """Write NumPy as a zip: of the conda package in npm's package, its folder in site-packages."""
    with tarfile.open(fileobj=io.BytesIO(NUMPY.tarball())) as outer:
        (name,) = [name for name in outer.getnames() if name.endswith(".tar.gz")]
        conda = outer.extractfile(name).read()
    with (
        tarfile.open(fileobj=io.BytesIO(conda)) as archive,
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as numpy,
    ):
        for member in archive:
            _, found, name = member.name.partition("/site-packages/")
            wanted = found and member.isfile() and name.endswith((".py", ".so", "LICENSE.txt"))
            if wanted and not any(part in f"/{name}" for part in UNUSED):
                numpy.writestr(
                    zipfile.ZipInfo(name), archive.extractfile(member).read(), zipfile.ZIP_DEFLATED
                )
