"""Real digits from a folder or from mirrors that may be broken; rendered ones without a network."""

import gzip
import hashlib
import http.server
import os
import re
import struct
import threading
import time
from pathlib import Path

import pytest
import torch

from helpers import mnist
from helpers.base.machine import ROOT
from helpers.mnist import load_mnist, render_digits

REAL = os.environ.get("MNIST_DIR")  # before the fixture below takes it away
IMAGES, LABELS = "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"


@pytest.fixture(autouse=True)
def fresh(monkeypatch, tmp_path):
    """No folder, an empty cache, no mirrors, nothing remembered."""
    monkeypatch.delenv("MNIST_DIR", raising=False)
    monkeypatch.setattr(mnist, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(mnist, "MIRRORS", [])
    monkeypatch.setattr(mnist, "_unreachable", False)
    monkeypatch.setattr(mnist, "RENDERED", {"train": 40, "test": 20})


def idx_files(count, prefix="t10k"):
    """Return {name: bytes} of an IDX pair; image i is filled with i, its label is i % 10."""
    images = b"".join(bytes([i % 256]) * 784 for i in range(count))
    return {
        f"{prefix}-images-idx3-ubyte": struct.pack(">HBBIII", 0, 8, 3, count, 28, 28) + images,
        f"{prefix}-labels-idx1-ubyte": struct.pack(">HBBI", 0, 8, 1, count)
        + bytes(i % 10 for i in range(count)),
    }


@pytest.fixture
def folder(monkeypatch, tmp_path):
    path = tmp_path / "mnist"
    path.mkdir()
    monkeypatch.setenv("MNIST_DIR", str(path))
    return path


def write(folder, files):
    for name, data in files.items():
        Path(folder, name).write_bytes(data)


# ---- a folder of one's own


@pytest.mark.parametrize("packed", [False, True])
def test_all_four_files(folder, packed):
    files = idx_files(30, "train") | idx_files(10)
    if packed:
        files = {f"{name}.gz": gzip.compress(data) for name, data in files.items()}
    write(folder, files)
    train, test = load_mnist("train"), load_mnist("test")
    assert train.images.shape == (30, 28, 28) and train.images.dtype == torch.uint8
    assert test.labels.tolist() == list(range(10)) and test.labels.dtype == torch.int64
    assert (train.images[7] == 7).all()
    assert "30 handwritten" in train.source and "10 handwritten" in test.source


def test_the_test_files_alone_are_split(folder):
    write(folder, idx_files(50))
    train, test = load_mnist("train", "cpu"), load_mnist("test", "cpu")
    numbers = [split.images[:, 0, 0].tolist() for split in (train, test)]
    assert numbers[1] == list(range(4, 50, 5))
    assert sorted(numbers[0] + numbers[1]) == list(range(50))
    for split in (train, test):
        assert torch.equal(split.labels, split.images[:, 0, 0].long() % 10)
    assert "40 of the 50" in train.source and "10 of the 50" in test.source


@pytest.mark.skipif(not REAL, reason="MNIST_DIR names no folder with the real digits")
def test_the_real_digits(monkeypatch):
    monkeypatch.setenv("MNIST_DIR", REAL)
    train, test = load_mnist("train"), load_mnist("test")
    whole = Path(REAL, "train-images-idx3-ubyte.gz").exists()
    assert (len(train.images), len(test.images)) == ((60_000, 10_000) if whole else (8_000, 2_000))
    for split in (train, test):
        assert len(split.labels) == len(split.images)
        assert split.images.float().mean().item() == pytest.approx(33.5, abs=1.5)
        assert split.labels.bincount(minlength=10).float().std() / len(split.labels) < 0.02
    # ones are narrow, zeros are hollow: labels belong to their images
    middle = test.images[:, 12:16, 12:16].float().mean((1, 2))
    assert middle[test.labels == 1].mean() > 3 * middle[test.labels == 0].mean()
    for name, md5 in mnist.MD5.items():
        if (file := Path(REAL, name)).exists():
            assert hashlib.md5(file.read_bytes()).hexdigest() == md5


def test_an_empty_folder_is_an_error(folder):
    with pytest.raises(FileNotFoundError, match="has no IDX files such as"):
        load_mnist("test")


@pytest.mark.parametrize(
    "name, damage",
    [
        (IMAGES, lambda data: data[:-1]),
        (IMAGES, lambda data: data[:10]),
        (IMAGES, lambda data: b""),
        (IMAGES, lambda data: data + b"0"),
        (IMAGES, lambda data: b"\x00\x00\x0d" + data[3:]),
        (LABELS, lambda data: b"<html>no such page</html>"),
        (LABELS, lambda data: idx_files(9)[LABELS]),
        (LABELS, lambda data: idx_files(10)[IMAGES]),
    ],
)
def test_damaged_files_are_an_error(folder, name, damage):
    files = idx_files(10)
    write(folder, files | {name: damage(files[name])})
    with pytest.raises(ValueError, match=re.escape(str(folder))):
        load_mnist("test")


def test_a_damaged_gzip_file_is_an_error(folder):
    packed = {f"{name}.gz": gzip.compress(data) for name, data in idx_files(10).items()}
    for damaged in (packed[f"{IMAGES}.gz"][:-20], b"not gzip"):
        write(folder, packed | {f"{IMAGES}.gz": damaged})
        with pytest.raises(ValueError, match="is damaged"):
            load_mnist("test")


def test_unknown_splits_are_refused():
    with pytest.raises(ValueError, match="'train' or 'test', got 'valid'"):
        load_mnist("valid")


# ---- mirrors


class Mirror(http.server.ThreadingHTTPServer):
    """A mirror on this machine that serves `files`; `answer(handler, data)` may misbehave."""

    def __init__(self, files, answer=None):
        self.asked = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                name = self.path.rsplit("/")[-1]
                self.server.asked.append(name)
                if name not in files:
                    self.send_error(404)
                elif answer:
                    answer(self, files[name])
                else:
                    self.whole(files[name])

            def whole(self, data, length=None):
                self.send_response(200)
                self.send_header("Content-Length", str(length or len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_):
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}/mnist/"
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()


@pytest.fixture
def files(monkeypatch):
    """The four files, small, with their checksums."""
    plain = idx_files(300, "train") | idx_files(100)
    packed = {f"{name}.gz": gzip.compress(data) for name, data in plain.items()}
    sums = {name: hashlib.md5(data).hexdigest() for name, data in packed.items()}
    monkeypatch.setattr(mnist, "MD5", sums)
    return packed


@pytest.fixture
def mirrors(monkeypatch):
    """Return a function that sets the mirrors to the servers given, which are closed at the end."""
    opened = []

    def use(*servers):
        opened.extend(servers)
        monkeypatch.setattr(mnist, "MIRRORS", [server.url for server in servers])

    yield use
    for server in opened:
        server.shutdown()
        server.server_close()


def cached():
    return sorted(path.name for path in (mnist.CACHE / "mnist").iterdir())


def test_a_download_is_verified_kept_and_used_again(files, mirrors, capsys):
    server = Mirror(files)
    mirrors(server)
    train = load_mnist("train")
    assert len(train.images) == 300 and "handwritten" in train.source
    assert "train-images-idx3-ubyte.gz" in capsys.readouterr().out  # progress
    assert sorted(server.asked) == cached() == sorted(files)

    assert len(load_mnist("test").images) == 100
    assert len(server.asked) == 4 and capsys.readouterr().out == ""


def test_a_damaged_cache_is_fetched_again(files, mirrors):
    server = Mirror(files)
    mirrors(server)
    load_mnist("test")
    name = f"{LABELS}.gz"
    Path(mnist.CACHE, "mnist", name).write_bytes(b"disk full")
    assert len(load_mnist("test").labels) == 100
    assert server.asked[4:] == [name]


def truncated(handler, data):
    handler.whole(data[: len(data) // 2], length=len(data))


def wrong(handler, data):
    handler.whole(data[:-1] + b"?")


def login_page(handler, data):
    handler.whole(b"<html>please log in</html>")


def hung_up(handler, data):
    handler.connection.close()


def failing(handler, data):
    handler.send_error(500)


@pytest.mark.parametrize("broken", [truncated, wrong, login_page, hung_up, failing])
def test_a_broken_download_is_thrown_away_and_the_next_mirror_asked(files, mirrors, capsys, broken):
    bad, good = Mirror(files, broken), Mirror(files)
    mirrors(bad, good)
    assert len(load_mnist("test").images) == 100
    assert len(bad.asked) >= 4 and len(good.asked) == 4
    assert cached() == sorted(files)
    out = capsys.readouterr().out
    assert f"{bad.url}{IMAGES}.gz" in out and f"so taken from {good.url}" in out


def test_a_mirror_that_lacks_a_file_is_passed_over(files, mirrors):
    some = {name: data for name, data in files.items() if "labels" in name}
    lacking, good = Mirror(some), Mirror(files)
    mirrors(lacking, good)
    assert len(load_mnist("train").images) == 300
    assert sorted(good.asked) == [name for name in sorted(files) if "images" in name]


def test_a_mirror_that_trickles_or_is_silent_is_given_up(monkeypatch, files, mirrors):
    monkeypatch.setattr(mnist, "CONNECT_S", 0.3)
    monkeypatch.setattr(mnist, "STALL_S", 0.3)
    patience = threading.Event()

    def trickle(handler, data):
        handler.whole(data[:1], length=len(data))
        for i in range(1, len(data)):
            if patience.wait(0.05):
                return
            handler.wfile.write(data[i : i + 1])

    def silent(handler, data):
        patience.wait(10)

    slow, mute, good = Mirror(files, trickle), Mirror(files, silent), Mirror(files)
    mirrors(slow, mute, good)
    began = time.monotonic()
    assert len(load_mnist("test").images) == 100
    patience.set()
    assert time.monotonic() - began < 6
    assert cached() == sorted(files)


def test_the_line_for_a_machine_without_a_network_fetches_all_four():
    names, end = re.search(r'"https://.*/{(.*)}(.*)"', mnist.FETCH).groups()
    assert {f"{name}{end}" for name in names.split(",")} == set(mnist.MD5)
    assert mnist.FETCH in (ROOT / "README.md").read_text()


def test_half_a_set_is_not_mixed_with_rendered_digits(files, mirrors):
    """A net trained on handwriting must not be tested on fonts."""
    mirrors(Mirror({name: data for name, data in files.items() if name.startswith("train")}))
    assert "rendered" in load_mnist("train").source
    assert "rendered" in load_mnist("test").source


def test_without_a_network_it_says_so_once_and_what_to_do(monkeypatch, files, capsys):
    asked = []

    def no_network(url, timeout):
        asked.append(url)
        raise OSError("Name or service not known")

    monkeypatch.setattr(mnist.urllib.request, "urlopen", no_network)
    monkeypatch.setattr(mnist, "MIRRORS", ["http://a.invalid/", "http://b.invalid/"])
    train, test = load_mnist("train"), load_mnist("test")
    out = capsys.readouterr().out
    first, second, line = out.splitlines()
    assert "rendered from fonts" in first and "not known" in first
    assert "copy .cache/mnist" in second and line.strip() == mnist.FETCH
    assert len(asked) == 2
    assert len(train.images) == 40 and len(test.images) == 20
    assert "no network" in train.source and cached() == []


def test_a_name_server_that_never_answers_costs_seconds(monkeypatch, files):
    monkeypatch.setattr(mnist, "CONNECT_S", 0.2)
    monkeypatch.setattr(mnist.urllib.request, "urlopen", lambda url, timeout: time.sleep(3))
    monkeypatch.setattr(mnist, "MIRRORS", ["http://a.invalid/", "http://b.invalid/"])
    began = time.monotonic()
    assert "rendered" in load_mnist("test").source
    assert time.monotonic() - began < 2.5


# ---- rendered digits


def test_rendered_digits_are_the_same_for_the_same_seed():
    images, labels = render_digits(50, seed=3)
    again, same = render_digits(50, seed=3)
    other, _ = render_digits(50, seed=4)
    assert images.shape == (50, 28, 28) and images.dtype == torch.uint8
    assert labels.dtype == torch.int64
    assert torch.equal(images, again) and torch.equal(labels, same)
    assert not torch.equal(images, other)


def test_rendered_digits_look_like_mnist():
    images, labels = render_digits(2000)
    ink = images.float().mean((1, 2))
    assert ink.min() > 5 and ink.max() < 150 and 20 < ink.mean() < 60
    assert images.amax((1, 2)).min() > 120  # strokes, not just noise
    border = torch.cat([images[:, 0], images[:, -1], images[:, :, 0], images[:, :, -1]], 1)
    assert border.float().mean() < 12  # the digits are inside
    counts = labels.bincount(minlength=10)
    assert len(counts) == 10 and counts.min() > 140
    assert len(images.flatten(1).unique(dim=0)) == 2000


def test_rendered_digits_can_be_told_apart():
    """The nearest mean image names most digits, so the labels are right."""
    images, labels = (part.float() for part in render_digits(3000, seed=1))
    test_images, test_labels = render_digits(500, seed=2)
    means = torch.stack([images[labels == digit].mean(0).flatten() for digit in range(10)])
    guess = torch.cdist(test_images.flatten(1).float(), means).argmin(1)
    assert 0.6 < (guess == test_labels).float().mean() < 0.99


def test_ten_thousand_digits_take_seconds():
    began = time.monotonic()
    images, labels = render_digits(10_000)
    assert time.monotonic() - began < 10
    assert len(images) == len(labels) == 10_000
