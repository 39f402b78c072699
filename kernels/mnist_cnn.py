"""The finished network: a CNN that reads handwritten digits, trained by kernels/mnist_cnn.cu.

    python -m kernels.mnist_cnn --save digits.pt
    python -m kernels.mnist_cnn --resume digits.pt --predict photo.png

`MnistCNN` is the network on the GPU (without one, on the CPU), `make_net` the same in PyTorch; each
loads the other's state_dict. `read_digit` makes an image file look like MNIST's.
"""

import argparse
import math
import os
import shlex
import signal
import sys
import time
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from kernels.operators._register import built


def make_net(device: torch.device | str = "cpu") -> nn.Sequential:
    """Return the network of notebook 17, in PyTorch."""

    def block(c_in, c_out):
        conv = nn.Conv2d(c_in, c_out, 3, padding=1, bias=False, device=device)
        return [conv, nn.BatchNorm2d(c_out, device=device), nn.ReLU(), nn.MaxPool2d(2)]

    head = [nn.Linear(3136, 128, device=device), nn.ReLU(), nn.Linear(128, 10, device=device)]
    return nn.Sequential(*block(1, 32), *block(32, 64), nn.Flatten(), *head)


LIKE = make_net("meta").state_dict()  # names, shapes and types without numbers
TRACKED = [key for key in LIKE if key.endswith("num_batches_tracked")]
KEYS = [key for key in LIKE if key not in TRACKED]  # the kernels' parameters, in their order
PART = 1000  # images that predict reads at a time
# to the kernels these are (out, tap, in) and (window, out, channel), and float16s below 255
MOVED = {"4.weight": ((64, 32, 9), (0, 2, 1)), "9.weight": ((128, 64, 49), (2, 0, 1))}
HALVES = sum(LIKE[key].numel() for key in MOVED)  # float16s of a part; a workspace begins with them


def check_state(state: Mapping) -> None:
    """Raise ValueError, with the key, if this is no state_dict of the network."""
    if not isinstance(state, Mapping):
        raise ValueError(f"state: expected a state_dict, got {type(state).__name__}")
    odd = [f"lacks {key!r}" for key in LIKE if key not in state]
    odd += [f"has an unknown {key!r}" for key in state if key not in LIKE]
    if odd:
        raise ValueError("state: " + "; ".join(odd[:3] + ["…"] * (len(odd) > 3)))
    for key, like in LIKE.items():
        value = state[key]
        if _kind(value) != _kind(like):
            raise ValueError(f"state[{key!r}]: expected {_kind(like)}, got {_kind(value)}")
        low = 0 if "var" in key or "tracked" in key else -math.inf
        high = 255 if key in MOVED else math.inf
        if not ((value >= low) & (value.abs() < high)).all():
            span = "0 or more" if low == 0 else f"finite numbers below {high} in size"
            raise ValueError(f"state[{key!r}]: expected {span}, got {value.min()} to {value.max()}")


def _kind(value):
    if not isinstance(value, Tensor):
        return type(value).__name__
    return f"{value.dtype} of shape {tuple(value.shape)}".removeprefix("torch.")


def as_input(images: Tensor) -> Tensor:
    """Return images (N, 28, 28) as the network takes them: uint8 is normalised, float32 stays."""
    is_image = isinstance(images, Tensor) and images.shape[1:] == (28, 28)
    if not is_image or images.dtype not in (torch.uint8, torch.float32):
        raise ValueError(f"images: expected uint8 or float32 (N, 28, 28), got {_kind(images)}")
    if images.dtype == torch.uint8:
        images = (images.float() / 255 - 0.1307) / 0.3081  # mean and deviation of MNIST's pixels
    return images.contiguous()


class MnistCNN:
    """The network in the kernels of mnist_cnn.cu, for steps of `batch` images.

    `exact`: products as exact as float32, else of halves. `state` is a state_dict, of this class or
    of `make_net()`; without one, weights are PyTorch's first ones for `seed`. The kernel file is
    built when it is first needed. ValueError says what is wrong with an argument; RuntimeError is
    the kernel file's, as on a GPU whose blocks have too little shared memory.
    """

    def __init__(self, batch=64, exact=True, state: Mapping | None = None, seed=0):
        if not isinstance(batch, int) or not 0 < batch < 1 << 20:
            raise ValueError(f"batch: expected a number from 1 to 2^20 - 1, got {batch!r}")
        self.batch, self.exact = batch, bool(exact)
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        if state is None:
            with torch.random.fork_rng(devices=[]):
                torch.default_generator.manual_seed(seed)
                state = make_net().state_dict()
        sizes = [LIKE[key].numel() for key in KEYS]  # but for the last, multiples of 16 bytes
        self._flat = torch.empty(sum(sizes), device=self.device)
        self._parameters = list(self._flat.split(sizes))
        self._workspace = None
        self.load_state_dict(state)

    def load_state_dict(self, state: Mapping) -> None:
        """Take over a state_dict; if it is not one of this network, change nothing."""
        check_state(state)
        self._tracked = {key: int(state[key]) for key in TRACKED}
        for mine, key in zip(self._parameters, KEYS, strict=True):
            mine.copy_(_to_kernel(key, state[key].detach()))
        if self._workspace is not None:  # keeps its place: a CUDA graph may hold it
            self._workspace.copy_(self._prepared(self.batch))

    def state_dict(self) -> dict[str, Tensor]:
        """Return a copy of weights and statistics, as `make_net().state_dict()` has them."""
        values = dict(zip(KEYS, self._parameters, strict=True))
        values |= {key: torch.tensor(n, device=self.device) for key, n in self._tracked.items()}
        return {key: _to_torch(key, values[key]) for key in LIKE}

    def step(self, images: Tensor, labels: Tensor, index: Tensor, lr: float) -> Tensor:
        """Learn from rows `index` (batch,) of images (M, 28, 28) and labels (M,); return the loss.

        The loss (1,) is that before the step. A row or a label that is not there is a ValueError on
        the CPU; on a GPU, which is not waited for, the loss is NaN then, and the weights are
        spoilt. A call can be captured in a CUDA graph, its lr with it.
        """
        for name, value in {"images": images, "labels": labels, "index": index}.items():
            if not isinstance(value, Tensor):
                raise ValueError(f"{name}: expected a tensor, got {_kind(value)}")
        if index.shape != (self.batch,):
            raise ValueError(f"index: expected shape ({self.batch},), got {tuple(index.shape)}")
        if labels.shape != images.shape[:1]:
            got = f"{tuple(labels.shape)} for images {tuple(images.shape)}"
            raise ValueError(f"labels: expected one for each image, got {got}")
        if not 0 <= lr < math.inf:
            raise ValueError(f"lr: expected a finite number, 0 or more, got {lr}")
        _check_range("index", index, len(images))
        if images.dtype == torch.uint8:  # only those of the batch are normalised
            there = (index >= 0) & (index < len(images))  # else PyTorch would stop the GPU, or wrap
            images, labels = images[index * there], labels[index * there]
            index = torch.arange(self.batch, device=self.device)
            index = index.where(there.to(self.device), -1)
        images, labels, index = map(_aligned, (as_input(images), labels, index))
        _check_range("labels", labels, 10)
        if self._workspace is None:
            self._workspace = self._prepared(self.batch)
        kept = [] if images.is_cuda else [value.clone() for value in self._parameters]
        try:
            loss = built("mnist_cnn").mnist_cnn_step(
                self._parameters, self._workspace, images, labels, index, lr, self.exact
            )
        except BaseException:  # Ctrl-C stops a kernel on the CPU: undo the half step
            for mine, old in zip(self._parameters, kept, strict=False):
                mine.copy_(old)
            self._workspace = None
            raise
        self._tracked = {key: count + 1 for key, count in self._tracked.items()}
        return loss

    def average(self, total: Callable[[Tensor], Tensor] | None = None) -> None:
        """Replace parameters and statistics by their mean over the processes of torch.distributed.

        After a step that all of them began with the same parameters, this is the step by the mean
        of their gradients: a step is linear in its gradient. All processes have to call it. `total`
        returns the sum of a tensor over the processes, as `kernels.all_reduce` does for the GPUs of
        one machine; torch.distributed's if it is None. It can be captured in a CUDA graph, if NCCL
        connects the processes.
        """
        if total is not None:
            torch.mul(total(self._flat), 1 / dist.get_world_size(), out=self._flat)
        elif dist.get_backend() == "nccl":
            dist.all_reduce(self._flat, dist.ReduceOp.AVG)
        else:  # gloo knows no mean
            dist.all_reduce(self._flat)
            self._flat /= dist.get_world_size()
        if self._workspace is not None:  # the weights in it, as float16s, are those of the step
            small, size = self._prepared(1), 2 * HALVES * (2 if self.exact else 1)
            self._workspace[:size].copy_(small[:size])

    def predict(self, images: Tensor) -> Tensor:
        """Return the logits (N, 10) of images (N, 28, 28), by the running statistics."""
        logits = [torch.empty(0, 10, device=self.device)]
        for part in _aligned(as_input(images).to(self.device)).split(PART):
            if len(part):
                workspace = self._prepared(len(part))
                predict = built("mnist_cnn").mnist_cnn_predict
                logits.append(predict(self._parameters, workspace, part, self.exact))
        return torch.cat(logits)

    def _prepared(self, count):
        return built("mnist_cnn").mnist_cnn_prepare(self._parameters, count, self.exact)


def _aligned(value):  # as the kernels take them: in order, from a multiple of 16 bytes on
    value = value.contiguous()
    return value.clone() if value.data_ptr() % 16 else value


def _check_range(name, rows, end):
    if not rows.is_cuda and len(rows) and not 0 <= rows.min() <= rows.max() < end:
        got = f"{rows.min()} to {rows.max()}"
        raise ValueError(f"{name}: expected numbers from 0 to {end - 1}, got {got}")


def _to_kernel(key, value):
    if key in MOVED:
        shape, order = MOVED[key]
        value = value.reshape(shape).permute(order)
    return value.flatten()


def _to_torch(key, value):
    if key in MOVED:
        shape, order = MOVED[key]
        back = [order.index(axis) for axis in range(3)]
        value = value.view([shape[axis] for axis in order]).permute(back)
    return value.reshape(LIKE[key].shape).clone(memory_format=torch.contiguous_format)


def read_digit(path: str | os.PathLike) -> Tensor:
    """Return the digit of an image file as MNIST has them: (28, 28) uint8, light on dark.

    Ink is how far a colour is from the background's, the median along the edges: one digit on a
    plain background is expected. As MNIST's were, it is cropped, scaled to 20 × 20, and its centre
    of mass put into the centre. ValueError if there is no image, or nothing on it.
    """
    from PIL import Image, ImageOps

    try:
        with Image.open(path) as file:
            image = ImageOps.exif_transpose(file)
            if image.mode.startswith("I"):  # 16 bits
                image = Image.fromarray(np.uint8(np.asarray(image) // 257))
            image = image.convert("RGBA")
    except Exception as error:  # noqa: BLE001 - a decoder raises anything
        raise ValueError(f"{path}: not an image that can be read ({error})") from None
    image.thumbnail((1000, 1000))
    color, alpha = (torch.from_numpy(np.array(image)).double() / 255).split([3, 1], 2)
    is_dark = (color * alpha).sum() < 1.5 * alpha.sum()  # then what is transparent is light
    color = color * alpha + (1 - alpha) * is_dark
    edges = torch.cat([color[0], color[-1], color[:, 0], color[:, -1]])
    ink = (color - edges.median(0).values).norm(dim=2)
    if ink.max() < 0.15:
        raise ValueError(f"{path}: shows no digit, all of it has one colour")
    ink = ((ink / ink.max() - 0.1) / 0.8).clamp(0, 1)  # without a decoder's noise
    rows, cols = (ink > 0.2).nonzero().unbind(1)
    ink = ink[rows.min() : rows.max() + 1, cols.min() : cols.max() + 1]
    size = [max(1, round(20 * side / max(ink.shape))) for side in ink.shape]
    ink = F.interpolate(ink[None, None], size, mode="bilinear", antialias=True)[0, 0]
    places = []
    for axis, side in enumerate(size):
        center = (ink.sum(1 - axis) * torch.arange(side)).sum() / ink.sum()
        begin = min(max(round(14 - center.item()), 0), 28 - side)
        places.append(slice(begin, begin + side))
    digit = torch.zeros(28, 28, dtype=torch.uint8)
    digit[tuple(places)] = (255 * ink / ink.max()).round().to(torch.uint8)
    return digit


# From here on: the command line.
PROG = "python -m kernels.mnist_cnn"
DEFAULTS = {"epochs": 3, "batch": 64, "lr": 0.05, "seed": 0, "limit": 0, "precision": "exact"}
START = {"epoch": 0, "step": 0, "seconds": 0.0, "to_99": math.inf, "accuracy": math.nan}
NEW = {**DEFAULTS, **START, "data": "", "images": 0, "losses": torch.empty(0), "state_dict": None}
MNIST = "MNIST, 60,000 handwritten digits"  # what load_mnist says of all of them


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    options = _parser().parse_args(arguments)
    try:
        return _predict(options) if options.predict else _train(options)
    except KeyboardInterrupt:
        print(f"{PROG}: stopped", file=sys.stderr)
        return 130
    except (ValueError, OSError, RuntimeError) as error:
        print(f"{PROG}: {error}", file=sys.stderr)
        return 1 if isinstance(error, RuntimeError) else 2  # 1: no compiler, a GPU too small


def _parser():
    about = (
        "Train the network of notebook 17 on MNIST with kernels/mnist_cnn.cu, or read digits with "
        "it. The learning rate falls in a straight line to 0. Ctrl-C stops after a step; --resume "
        "goes on from what --save wrote, with the same results to the bit as without the stop."
    )
    end = "--resume takes the other settings from FILE. The exit status is 2 for what is refused."
    parser = argparse.ArgumentParser(prog=PROG, description=about, epilog=end)

    def add(name, kind, metavar, text, **others):
        parser.add_argument(name, type=kind, metavar=metavar, help=text, **others)

    add("--epochs", int, "N", "times through the images (3)")
    add("--batch", int, "N", "images of a step (64)")
    add("--lr", float, "X", "learning rate of the first step (0.05)")
    add("--seed", int, "N", "of the weights and of the order of the images (0)")
    add("--limit", int, "N", "train on the first N images only; 0: on all (0)")
    text = "products of halves, which is faster; else they are as exact as float32"
    halves = {"dest": "precision", "action": "store_const", "const": "halves"}
    parser.add_argument("--halves", help=text, **halves)
    add("--save", Path, "FILE", "written after every epoch, and when training is stopped")
    add("--resume", Path, "FILE", "go on from what was saved")
    text = "print the digit in each image file (any size and colours, one digit on a plain "
    text += "background), as the network of --resume reads it"
    add("--predict", Path, "IMAGE", text, nargs="+")
    return parser


def _read(path):
    """Return what `_save` has written into a file; ValueError if it is something else."""
    try:
        with zipfile.ZipFile(path) as file:  # torch.save's are; torch.load checks no sums
            damaged = file.testzip()
        run = None if damaged else torch.load(path, weights_only=True, map_location="cpu")
    except Exception as error:  # noqa: BLE001 - a damaged file may raise anything
        why = error.strerror if isinstance(error, OSError) else "cut off, or not from --save"
        raise ValueError(f"{path}: {why}") from None
    if damaged:
        raise ValueError(f"{path}: damaged, in its part {damaged}")
    if not isinstance(run, dict) or run.keys() != NEW.keys():
        raise ValueError(f"{path}: a file of torch.save, but not from --save")
    try:
        check_state(run["state_dict"])
        for key, value in NEW.items():
            if value is not None and type(run[key]) is not type(value):
                raise ValueError(f"{key}: expected {type(value).__name__}, got {run[key]!r}")
        if run["losses"].shape != (run["step"],):
            raise ValueError(f"losses: {len(run['losses'])} of {run['step']} steps")
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return run


def _save(path, net, run):
    """Write a file that is either the old one or, whole, the new one."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        torch.save({**run, "state_dict": net.state_dict()}, part)
        os.replace(part, path)
    except (OSError, RuntimeError) as error:
        raise ValueError(f"{path}: cannot be written ({error})") from None
    finally:
        part.unlink(missing_ok=True)


def _predict(options):
    if options.resume is None or options.save:
        raise ValueError("--predict goes with --resume FILE, the network that reads, and no --save")
    run, status = _read(options.resume), 0
    net = MnistCNN(1, run["precision"] == "exact", run["state_dict"])
    for path in options.predict:
        try:
            shares = net.predict(read_digit(path)[None])[0].softmax(0).tolist()
        except ValueError as error:
            print(f"{PROG}: {error}", file=sys.stderr)
            status = 2
            continue
        print(f"{path}: {shares.index(max(shares))}")
        print("  ", "  ".join(f"{digit}: {share:.1%}" for digit, share in enumerate(shares)))
    return status


def _train(options):
    from helpers.mnist import load_mnist

    run = _read(options.resume) if options.resume else dict(NEW)
    for key in DEFAULTS:
        asked = getattr(options, key)
        if options.resume and asked not in (None, run[key]):
            why = f"trained with {key} {run[key]}, not {asked}; it goes on as it began"
            raise ValueError(f"{options.resume}: {why}")
        run[key] = run[key] if asked is None else asked
    if options.save and (options.save.is_dir() or not options.save.absolute().parent.is_dir()):
        raise ValueError(f"{options.save}: is a folder, or in one that is not there")
    train, test = load_mnist("train"), load_mnist("test")
    images = as_input(train.images)[: max(run["limit"], 0) or None]
    labels = train.labels[: len(images)]
    for key, value in {"data": train.source, "images": len(images)}.items():
        if options.resume and run[key] != value:
            raise ValueError(f"{options.resume}: {key} was {run[key]!r}, here it is {value!r}")
        run[key] = value
    most = {"epochs": math.inf, "batch": len(images), "lr": 1e30, "seed": 2**63 - 1}
    for key, high in most.items():
        low = {"lr": 1e-30, "seed": 0}.get(key, 1)
        if not low <= run[key] <= high:
            raise ValueError(f"{key}: expected {low} to {high}, got {run[key]}")
    print(f"training: {len(images):,} images of {train.source}\ntest: {test.source}")
    print(f"saving to: {options.save or 'nowhere (no --save FILE)'}", flush=True)
    net = MnistCNN(run["batch"], run["precision"] == "exact", run["state_dict"], run["seed"])
    net.predict(images[:1])  # built, and on the device, before the clock runs
    if not _fit(net, run, images, labels, test, options.save):
        file = shlex.quote(str(options.save))
        go_on = f"go on with {PROG} --resume {file} --save {file}"
        print(f"stopped after step {run['step']:,};", go_on if options.save else "nothing saved")
        return 130
    rate = run["step"] * run["batch"] / run["seconds"]
    result = f"test accuracy {run['accuracy']:.2%}, {run['seconds']:.2f} s, {rate:,.0f} images/s"
    print(f"{result} (training alone)")
    reached = f"{run['to_99']:.2f} s, by the epoch" if run["to_99"] < math.inf else "not reached"
    is_all = train.source == MNIST and len(images) == 60_000
    print("time to 99 %:", reached if is_all else "told for MNIST's 60,000 training images only")
    return 0


def _fit(net, run, images, labels, test, save):
    """Train, test and save, epoch by epoch; return whether it came to the end."""
    stop = []  # what Ctrl-C leaves; looked at between steps
    numbers = signal.SIGINT, signal.SIGTERM
    before = [signal.signal(number, lambda *_: stop.append(True)) for number in numbers]
    try:
        while run["epoch"] < run["epochs"] and not stop:
            try:
                _steps(net, run, images, labels, stop)
                if not stop:
                    _test(net, run, test)
            except KeyboardInterrupt:  # the CPU backend's, out of a kernel
                stop.append(True)
            try:
                check_state(net.state_dict())
            except ValueError as error:
                why = f"training went astray in step {run['step']:,} or before, try a smaller --lr"
                raise RuntimeError(f"{why} ({error})") from None
            if save:
                _save(save, net, run)
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
    return run["epoch"] == run["epochs"]


def _steps(net, run, images, labels, stop):
    """Train to the end of an epoch, or until something is in `stop`."""
    batch, count = run["batch"], len(images) // run["batch"]
    total, first = count * run["epochs"], run["step"]
    order = np.random.default_rng([run["seed"], run["epoch"]]).permutation(len(images))
    rows = torch.from_numpy(order[: count * batch]).to(net.device).view(count, batch)
    losses, begun = [], time.perf_counter()
    shown = begun if sys.stdout.isatty() else math.inf
    try:
        for step in range(first, (run["epoch"] + 1) * count):
            if stop:
                break
            lr = run["lr"] * (1 - step / total)
            losses.append(net.step(images, labels, rows[step % count], lr))
            if time.perf_counter() > shown + 0.25:
                loss, shown = losses[-1].item(), time.perf_counter()
                rate = len(losses) / (shown - begun)
                speed = f"{rate * batch:,.0f} images/s, {(total - step - 1) / rate:.0f} s left"
                _live(f"step {step + 1:,} of {total:,}, loss {loss:.4f}, {speed}")
    finally:  # after Ctrl-C in a kernel, too: that step is undone
        run["losses"] = torch.cat([run["losses"].to(net.device), *losses]).cpu()
        run["step"] += len(losses)
        run["seconds"] += time.perf_counter() - begun
        _live("")


def _test(net, run, test):
    """Finish an epoch: test, and say what it came to."""
    _live("testing …")
    found = net.predict(test.images).argmax(1)
    run["accuracy"] = (found == test.labels).double().mean().item()
    run["epoch"] += 1
    if run["accuracy"] >= 0.99:
        run["to_99"] = min(run["to_99"], run["seconds"])
    loss = run["losses"][-(run["step"] // run["epoch"]) :].mean()
    _live("")
    text = f"loss {loss:.4f}, test accuracy {run['accuracy']:.2%}, {run['seconds']:.2f} s"
    print(f"epoch {run['epoch']} of {run['epochs']}: {text}", flush=True)


def _live(text):
    """Write over the line, if this is a terminal's."""
    if sys.stdout.isatty():
        print(f"\r\x1b[K{text}", end="", flush=True)


if __name__ == "__main__":
    sys.exit(main())
