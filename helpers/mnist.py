"""MNIST on the device; without a network, digits rendered with matplotlib's own fonts."""

import functools
import gzip
import hashlib
import http.client
import os
import queue
import struct
import tempfile
import threading
import time
import urllib.request
import zlib
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.nn import functional

from helpers.base.machine import CACHE
from helpers.compiler.tools import writing
from helpers.device import DEVICE

MIRRORS = [
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
]
MD5 = {
    "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
}
# The one line that gets them where there is a network, for a machine that has none.
FETCH = (
    f'curl --create-dirs --output-dir .cache/mnist -O "{MIRRORS[1]}'
    '{train-images-idx3,train-labels-idx1,t10k-images-idx3,t10k-labels-idx1}-ubyte.gz"'
)
PREFIX = {"train": "train", "test": "t10k"}
CONNECT_S = 4.0  # to an answer of a mirror
STALL_S = 10.0  # a transfer slower than MIN_RATE over so long is given up
MIN_RATE = 20_000  # bytes a second
RENDERED = {"train": 20_000, "test": 4_000}  # images when there is no network

FONTS = [
    *("DejaVuSans", "DejaVuSans-Bold", "DejaVuSans-Oblique", "DejaVuSansMono"),
    *("DejaVuSerif", "DejaVuSerif-Bold", "DejaVuSerif-Italic", "cmr10", "cmss10", "cmtt10"),
    *("STIXGeneral", "STIXGeneralItalic", "STIXGeneralBol", "cmb10"),
]

_unreachable = False  # remembered: only the first load of a process waits for the network


@dataclass(frozen=True)
class Mnist:
    """images (N, 28, 28) uint8, labels (N,) int64, both on one device; source: a line."""

    images: torch.Tensor
    labels: torch.Tensor
    source: str


def load_mnist(split: str = "train", device: torch.device | str = DEVICE) -> Mnist:
    """Load the "train" or "test" split: from MNIST_DIR, the cache, a mirror, or rendered.

    MNIST_DIR names a folder with the four IDX files, plain or gzipped. If it holds only the 10,000
    test images, every fifth of them is the test split and the others are the train split. Raises
    ValueError for an unknown split and for a damaged file in MNIST_DIR, and FileNotFoundError if
    MNIST_DIR holds no files of MNIST.
    """
    if split not in PREFIX:
        raise ValueError(f"expected split 'train' or 'test', got {split!r}")
    folder = os.environ.get("MNIST_DIR")
    if folder:
        images, labels, source = _from_folder(Path(folder), split)
    elif files := _from_mirrors(split):
        images, labels = _read_pair(*files)
        source = f"MNIST, {len(images):,} handwritten digits"
    else:
        images, labels = render_digits(RENDERED[split], seed=list(PREFIX).index(split))
        source = f"{len(images):,} digits rendered from fonts (no network for MNIST)"
    return Mnist(images.to(device), labels.to(device), source)


def render_digits(count: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw `count` digits: (count, 28, 28) uint8 and their labels, the same for the same seed.

    Glyphs of matplotlib's own fonts, thinned or thickened, then bent, turned, slanted, scaled and
    shifted at random, blurred, with noise on top.
    """
    rng = torch.Generator().manual_seed(seed)
    glyphs = _glyphs()
    labels = torch.randint(10, (count,), generator=rng)
    images = torch.empty(count, 28, 28, dtype=torch.uint8)
    for begin in range(0, count, 2048):  # a slice at a time: memory stays small
        batch = labels[begin : begin + 2048]
        font = torch.randint(len(glyphs), (len(batch),), generator=rng)
        images[begin : begin + 2048] = _distorted(glyphs[font, batch], rng)
    return images, labels


@functools.cache
def _glyphs() -> torch.Tensor:
    """Return the digits, 0 to 1, in every font, thin, plain and thick: (fonts, 10, 3, 56, 56)."""
    from matplotlib import get_data_path
    from matplotlib.backends.backend_agg import RendererAgg
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextPath
    from matplotlib.transforms import Affine2D

    fonts = Path(get_data_path(), "fonts", "ttf")
    drawn = []
    for font in FONTS:
        properties = FontProperties(fname=fonts / f"{font}.ttf")
        for digit in "0123456789":
            path = TextPath((0, 0), digit, size=40, prop=properties)
            box = path.get_extents()
            scale = 40 / max(box.width, box.height)  # 20 of 28 pixels, doubled
            place = Affine2D().translate(-(box.x0 + box.x1) / 2, -(box.y0 + box.y1) / 2)
            place.scale(scale).translate(28, 28)
            renderer = RendererAgg(56, 56, dpi=72)
            pen = renderer.new_gc()
            pen.set_linewidth(0)
            renderer.draw_path(pen, path, place, (0, 0, 0))
            drawn.append(torch.frombuffer(bytearray(renderer.buffer_rgba()), dtype=torch.uint8))
    plain = torch.stack(drawn).view(-1, 1, 56, 56, 4)[..., 3].float() / 255
    thick = functional.max_pool2d(plain, 3, stride=1, padding=1)
    thin = -functional.max_pool2d(-plain, 3, stride=1, padding=1)
    return torch.cat([thin, plain, thick], 1).view(len(FONTS), 10, 3, 56, 56)


def _distorted(glyphs: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    """Turn glyphs (n, 3, 56, 56) into images (n, 28, 28) uint8, each bent in its own way."""
    n = len(glyphs)

    def uniform(low: float, high: float, *shape: int) -> torch.Tensor:
        return low + (high - low) * torch.rand(n, *shape, generator=rng)

    weight = uniform(0.3, 2, 1, 1)  # 0: thin, 1: plain, 2: thick
    thin, plain, thick = glyphs.unbind(1)
    strokes = torch.lerp(plain, torch.where(weight < 1, thin, thick), (weight - 1).abs())

    angle, slant = uniform(-0.25, 0.25), uniform(-0.3, 0.3)
    scale_x, scale_y = uniform(0.8, 1.3), uniform(0.9, 1.2)
    cos, sin = angle.cos(), angle.sin()
    rows = [cos * scale_x, (slant * cos - sin) * scale_x, uniform(-0.12, 0.12)]
    rows += [sin * scale_y, (slant * sin + cos) * scale_y, uniform(-0.12, 0.12)]
    grid = functional.affine_grid(torch.stack(rows, 1).view(n, 2, 3), [n, 1, 28, 28], False)
    bend = functional.interpolate(uniform(-0.1, 0.1, 2, 4, 4), (28, 28), mode="bicubic")
    images = functional.grid_sample(
        strokes[:, None], grid + bend.permute(0, 2, 3, 1), align_corners=False
    )

    blurred = functional.avg_pool2d(images, 3, stride=1, padding=1)
    images = torch.lerp(images, blurred, uniform(0, 0.6, 1, 1, 1))
    ink, noise = uniform(0.8, 1.2, 1, 1, 1), uniform(0, 0.04, 1, 1, 1)
    images = images * ink + noise * torch.randn(images.shape, generator=rng)
    return (255 * images.clamp(0, 1)).to(torch.uint8).squeeze(1)


def _from_folder(folder: Path, split: str) -> tuple[torch.Tensor, torch.Tensor, str]:
    if files := _find_pair(folder, split):
        if split == "train" or _find_pair(folder, "train"):
            images, labels = _read_pair(*files)
            return images, labels, f"MNIST, {len(images):,} handwritten digits"
    files = _find_pair(folder, "test")
    if not files:
        raise FileNotFoundError(f"MNIST_DIR={folder} has no IDX files such as {next(iter(MD5))}")
    images, labels = _read_pair(*files)
    for_test = torch.arange(len(images)) % 5 == 4
    mine = for_test if split == "test" else ~for_test
    source = f"MNIST, {mine.sum():,} of the {len(images):,} handwritten test digits ({split} part)"
    return images[mine], labels[mine], source


def _find_pair(folder: Path, split: str) -> tuple[Path, Path] | None:
    """Return the image and the label file of a split, gzipped or plain, if both are there."""
    pair = []
    for kind in ("images-idx3", "labels-idx1"):
        name = f"{PREFIX[split]}-{kind}-ubyte"
        pair += [p for p in (folder / f"{name}.gz", folder / name) if p.is_file()][:1]
    return tuple(pair) if len(pair) == 2 else None


def _read_pair(image_file: Path, label_file: Path) -> tuple[torch.Tensor, torch.Tensor]:
    images, labels = _read_idx(image_file), _read_idx(label_file)
    if images.shape[1:] != (28, 28) or labels.shape != images.shape[:1]:
        raise ValueError(
            f"expected N x 28 x 28 images and N labels in {image_file.parent}, "
            f"got {tuple(images.shape)} and {tuple(labels.shape)}"
        )
    return images, labels.long()


def _read_idx(path: Path) -> torch.Tensor:
    """Read an IDX file: two zeros, 8 for uint8, the number of dimensions, the sizes, the bytes."""
    try:
        data = path.read_bytes()
        data = gzip.decompress(data) if path.suffix == ".gz" else data
        zeros, kind, dims = struct.unpack_from(">HBB", data)
        shape = struct.unpack_from(f">{dims}I", data, 4)
        tensor = torch.frombuffer(bytearray(data), dtype=torch.uint8, offset=4 + 4 * dims)
        if (zeros, kind) != (0, 8):
            raise ValueError(f"expected the header of an IDX file of bytes, got {data[:4]!r}")
        return tensor.view(shape)
    except (ValueError, RuntimeError, EOFError, OSError, struct.error, zlib.error) as error:
        raise ValueError(f"{path} is damaged: {error}") from None


def _from_mirrors(split: str) -> tuple[Path, Path] | None:
    """Return the two files of a split from the cache; what it lacks of the four is downloaded.

    All or none: a net trained on handwriting is not to be tested on fonts.
    """
    folder = CACHE / "mnist"
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    if all(_fetch(name, folder) for name in MD5):
        return _find_pair(folder, split)
    return None


def _fetch(name: str, folder: Path) -> bool:
    """Make sure of a whole file in the cache, from the first mirror that has it, if any."""
    global _unreachable
    path = folder / name
    if path.is_file() and _md5(path) == MD5[name]:
        return True
    path.unlink(missing_ok=True)
    failures: list[str] = []
    for mirror in [] if _unreachable else MIRRORS:
        try:
            part = _download(mirror + name, folder)
        except (OSError, http.client.HTTPException) as error:
            failures.append(f"{mirror}{name}: {error}")
            continue
        if _md5(part) == MD5[name]:
            os.replace(part, path)
            print("".join(f"{failure}; so taken from {mirror}\n" for failure in failures), end="")
            return True
        part.unlink()
        failures.append(f"{mirror}{name}: wrong checksum, thrown away")
    if not _unreachable:
        _unreachable = True
        print(f"MNIST cannot be downloaded, so digits are rendered from fonts ({failures[-1]}).")
        print(
            f"For handwritten ones, copy .cache/mnist from a machine with a network:\n    {FETCH}"
        )
    return False


def _md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()


def _download(url: str, folder: Path) -> Path:
    """Save a URL in a new temporary file, showing progress; OSError if it fails or crawls."""
    answer = _open(url)
    total = int(answer.headers.get("Content-Length") or 0)
    done, tenths, began = 0, 0, time.monotonic()
    handle, part = tempfile.mkstemp(suffix=".part", dir=folder)
    try:
        with answer, os.fdopen(handle, "wb") as file:
            while chunk := answer.read1(1 << 16):
                file.write(chunk)
                done += len(chunk)
                seconds = time.monotonic() - began
                if seconds > STALL_S and done < MIN_RATE * seconds:
                    raise TimeoutError(f"only {done:,} bytes in {seconds:.0f} s")
                if total and 10 * done // total > tenths:
                    tenths = 10 * done // total
                    size = f"{done / 1e6:.1f} of {total / 1e6:.1f} MB"
                    print(f"\r{Path(url).name}  {size}", end="", flush=True)
    except BaseException:
        os.unlink(part)
        raise
    finally:
        print(end="\n" if tenths else "")
    return Path(part)


def _open(url: str) -> http.client.HTTPResponse:
    """Open a URL within CONNECT_S; looking up a host name knows no time limit, hence the thread."""
    answers: queue.SimpleQueue = queue.SimpleQueue()

    def connect():
        try:
            answers.put(urllib.request.urlopen(url, timeout=CONNECT_S))
        except Exception as error:  # noqa: BLE001 - handed to the caller, who raises it
            answers.put(error)

    threading.Thread(target=connect, daemon=True).start()
    try:
        answer = answers.get(timeout=CONNECT_S)
    except queue.Empty:
        raise TimeoutError(f"no answer in {CONNECT_S:.0f} s") from None
    if isinstance(answer, Exception):
        raise answer
    return answer
