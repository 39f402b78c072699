"""The finished network: its steps against float64, its state_dict, and its command line."""

import itertools
import math
import os
import pty
import re
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from matplotlib import get_data_path
from PIL import Image, ImageDraw, ImageFont

import kernels
from helpers.base.machine import ROOT
from helpers.checks import check_close
from helpers.device import BACKEND, DEVICE
from helpers.mnist import Mnist, load_mnist, render_digits
from kernels import mnist_cnn
from kernels.mnist_cnn import LIKE, MnistCNN, as_input, main, make_net, read_digit

SETTINGS = ["--limit", "28", "--batch", "8", "--epochs", "2", "--seed", "5", "--halves"]


def digits(count):
    """Return images as the network takes them and labels, on the device; never the same twice."""
    images, labels = render_digits(count, seed=int(torch.randint(1 << 30, ())))
    return as_input(images).to(DEVICE), labels.to(DEVICE)


def numbers(*values):
    return torch.tensor(values, device=DEVICE)


def bits(state):
    return {key: value.cpu().numpy().tobytes() for key, value in state.items()}


# ---- the class


def step_in_float64(state, images, labels):
    """Return the loss, the gradients by name, and the state_dict with its new statistics."""
    net = make_net(DEVICE).double()
    net.load_state_dict(state)
    loss = F.cross_entropy(net(images[:, None].double()), labels)
    names = [name for name, _ in net.named_parameters()]
    grads = torch.autograd.grad(loss, list(net.parameters()))
    return loss.detach(), dict(zip(names, grads, strict=True)), net.state_dict()


@pytest.mark.parametrize("exact", [True, False])
def test_steps_against_float64(exact):
    """A maximum may flip, and spoils the gradients in front of it; the head's stay exact."""
    images, labels = digits(13)
    net, most, best = MnistCNN(3, exact, seed=2), *((0.1, 1e-5) if exact else (0.5, 1e-2))
    for count, rows in enumerate(torch.randperm(13, device=DEVICE)[:9].view(3, 3), 1):
        before = net.state_dict()
        loss, grads, after = step_in_float64(before, images[rows], labels[rows])
        probe = MnistCNN(3, exact, before)  # its weights' change is 1,024 times the gradient
        probe.step(images, labels, rows, 1024.0)
        errors = {}
        for name, grad in grads.items():
            got = (before[name].double() - probe.state_dict()[name].double()) / 1024
            errors[name] = ((got - grad).norm() / grad.norm()).item()
        assert all(error < most for error in errors.values()), errors
        assert all(error < best for name, error in errors.items() if name[:2] == "11"), errors
        got_loss = net.step(images, labels, rows, 0.05)
        check_close(got_loss, loss.view(1), atol=1e-5 if exact else 1e-2, rtol=1e-5)
        for name, value in net.state_dict().items():
            if "running" in name:
                check_close(value, after[name].float(), rtol=1e-3 if exact else 1e-2, name=name)
            elif "tracked" in name:
                assert value == count
            else:
                change, wanted = value - before[name], -0.05 * grads[name]
                rounding = 1e-7 * before[name].norm()
                assert (change - wanted).norm() < most * wanted.norm() + rounding, name


def test_the_first_weights_are_pytorchs():
    state = torch.get_rng_state()
    got = MnistCNN(seed=3).state_dict()
    assert torch.equal(torch.get_rng_state(), state), "the caller's random numbers went on"
    torch.manual_seed(3)
    assert bits(got) == bits(make_net().state_dict())


def test_state_dict_goes_to_pytorch_and_back():
    images, labels = digits(3)
    mine = MnistCNN(3)
    mine.step(images, labels, numbers(2, 0, 1), 0.1)
    net = make_net(DEVICE)
    net.load_state_dict(mine.state_dict(), strict=True)
    theirs = net.state_dict()
    assert list(theirs) == list(mine.state_dict())
    assert all(value.dtype == LIKE[key].dtype for key, value in mine.state_dict().items())
    again = MnistCNN(3, seed=1)
    again.step(images, labels, numbers(0, 1, 2), 0.1)  # now it has a workspace with weights in it
    again.load_state_dict(theirs)
    assert bits(again.state_dict()) == bits(mine.state_dict()) == bits(theirs)
    losses = [net.step(images, labels, numbers(1, 2, 0), 0.1) for net in (mine, again)]
    assert torch.equal(*losses) and bits(again.state_dict()) == bits(mine.state_dict())


@pytest.mark.parametrize("exact", [True, False])
def test_predict_against_float64(exact, monkeypatch):
    images, labels = digits(7)
    mine = MnistCNN(7, exact)
    mine.step(images, labels, torch.arange(7, device=DEVICE), 0.1)  # statistics that are its own
    net = make_net(DEVICE).double().eval()
    net.load_state_dict(mine.state_dict())
    with torch.no_grad():
        wanted = net(images[:, None].double())
    monkeypatch.setattr(mnist_cnn, "PART", 3)  # images at a time
    check_close(mine.predict(images), wanted, atol=1e-4 if exact else 2e-2, rtol=0)
    assert mine.predict(images[:0]).shape == (0, 10)
    before = bits(mine.state_dict())
    mine.predict(images.cpu())
    assert bits(mine.state_dict()) == before
    for none in (images[:, None], images.half(), images.cpu().numpy()):
        with pytest.raises(
            ValueError, match=r"images: expected uint8 or float32 \(N, 28, 28\), got"
        ):
            mine.predict(none)


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("exact", [True, False])
def test_average_with_another_process(exact, given, monkeypatch):
    images, labels = digits(4)
    mine, other = MnistCNN(2, exact), MnistCNN(2, exact)
    for net, rows in (mine, numbers(0, 1)), (other, numbers(2, 3)):
        net.step(images, labels, rows, 0.1)
    pairs = zip(mine.state_dict().items(), other.state_dict().values(), strict=True)
    wanted = {key: ((a + b) / 2).to(a.dtype) for (key, a), b in pairs}
    monkeypatch.setattr(mnist_cnn.dist, "get_backend", lambda: "gloo")
    monkeypatch.setattr(mnist_cnn.dist, "get_world_size", lambda: 2)
    monkeypatch.setattr(mnist_cnn.dist, "all_reduce", lambda flat: flat.add_(other._flat))
    mine.average((lambda flat: flat + other._flat) if given else None)
    assert bits(mine.state_dict()) == bits(wanted)
    again = MnistCNN(2, exact, wanted)  # its workspace is made from the new weights
    losses = [net.step(images, labels, numbers(1, 2), 0.1) for net in (mine, again)]
    assert torch.equal(*losses) and bits(again.state_dict()) == bits(mine.state_dict())


def test_rows_may_be_strided():
    images, labels = digits(4)
    nets, rows = (MnistCNN(2), MnistCNN(2)), torch.tensor([[3, 0], [1, 0]], device=DEVICE)
    nets[0].step(images, labels, rows[:, 0], 0.1)
    pairs = torch.stack([labels, labels], 1)
    wide = torch.cat([images, images], 2)
    nets[1].step(wide[:, :, :28], pairs[:, 0], numbers(0, 3, 1)[1:], 0.1)  # 8 bytes further
    assert bits(nets[0].state_dict()) == bits(nets[1].state_dict())


def test_bytes_are_normalised():
    images, labels = render_digits(6, seed=4)
    images, labels = images.to(DEVICE), labels.to(DEVICE)
    check_close(as_input(images), (images / 255.0 - 0.1307) / 0.3081)
    nets = MnistCNN(2), MnistCNN(2)
    rows = numbers(5, 3)
    losses = [
        net.step(x, labels, rows, 0.1)
        for net, x in zip(nets, [images, as_input(images)], strict=True)
    ]
    assert torch.equal(*losses) and bits(nets[0].state_dict()) == bits(nets[1].state_dict())
    assert torch.equal(nets[0].predict(images), nets[1].predict(as_input(images)))


FOREIGN = {
    "a list": (lambda state: [], "expected a state_dict, got list"),
    "lacks": (lambda state: state.pop("5.running_var"), "lacks '5.running_var'"),
    "unknown": (lambda state: state.update(fc=torch.ones(1)), "unknown 'fc'"),
    "shape": (lambda state: state.update({"9.bias": torch.ones(64)}), "'9.bias'.*128.*64"),
    "dtype": (
        lambda state: state.update({"0.weight": state["0.weight"].double()}),
        r"'0.weight'.*float32 of shape \(32, 1, 3, 3\), got float64 of shape \(32, 1, 3, 3\)",
    ),
    "no tensor": (lambda state: state.update({"11.bias": [0.0] * 10}), "'11.bias'.*got list"),
    "nan": (lambda state: state["1.weight"][7:8].fill_(math.nan), "'1.weight'.*finite.*nan"),
    "inf": (lambda state: state["11.weight"][3].fill_(-math.inf), "'11.weight'.*finite.*-inf"),
    "variance": (lambda state: state["5.running_var"].fill_(-1), "'5.running_var'.*0 or more"),
    "large": (lambda state: state["4.weight"][1, 2, 0].fill_(300), "'4.weight'.*below 255"),
}


@pytest.mark.parametrize("change, message", FOREIGN.values(), ids=FOREIGN)
def test_a_foreign_state_changes_nothing(change, message):
    net = MnistCNN(2)
    before = bits(net.state_dict())
    state = MnistCNN(2, seed=9).state_dict()
    state = [] if change(state) == [] else state
    with pytest.raises(ValueError, match=message):
        net.load_state_dict(state)
    assert bits(net.state_dict()) == before
    with pytest.raises(ValueError, match=message):
        MnistCNN(2, state=state)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"index": torch.arange(3)}, r"index: expected shape \(2,\), got \(3,\)"),
        ({"labels": torch.arange(5)}, r"labels: .* got \(5,\) for images \(4, 28, 28\)"),
        ({"images": torch.zeros(4, 1, 28, 28)}, r"images: .*\(N, 28, 28\).*\(4, 1, 28, 28\)"),
        ({"images": torch.zeros(4, 28, 28).double()}, "images: expected uint8 or float32.*float64"),
        ({"index": [0, 1]}, "index: expected a tensor, got list"),
        ({"images": None}, "images: expected a tensor, got NoneType"),
        ({"lr": math.nan}, "lr: .* got nan"),
        ({"lr": -0.1}, "lr: .* got -0.1"),
    ],
)
def test_bad_arguments_are_named(change, message):
    good = {"images": torch.zeros(4, 28, 28), "labels": torch.arange(4), "lr": 0.1}
    good["index"] = torch.arange(2)
    given = {
        k: v.to(DEVICE) if isinstance(v, torch.Tensor) else v for k, v in (good | change).items()
    }
    net = MnistCNN(2)
    before = bits(net.state_dict())
    with pytest.raises(ValueError, match=message):
        net.step(**given)
    assert bits(net.state_dict()) == before


@pytest.mark.parametrize("batch", [0, -1, 1 << 20, 8.0, "8"])
def test_a_batch_that_is_none(batch):
    with pytest.raises(ValueError, match="batch: expected a number from 1"):
        MnistCNN(batch)


@pytest.mark.skipif(BACKEND == "cuda", reason="a GPU is not waited for")
def test_rows_and_labels_that_are_not_there():
    images, labels = digits(4)
    for row in (-1, 4):
        with pytest.raises(ValueError, match=f"index: expected numbers from 0 to 3, got .*{row}"):
            MnistCNN(2).step(images, labels, numbers(1, row), 0.1)
    labels[2] = 10
    with pytest.raises(ValueError, match="labels: expected numbers from 0 to 9, got . to 10"):
        MnistCNN(1).step(images, labels, numbers(2), 0.1)


@pytest.mark.parametrize("row", [-1, 4])
@pytest.mark.parametrize("kind", [torch.float32, torch.uint8])
def test_on_a_gpu_the_loss_of_a_row_that_is_not_there_is_nan(kind, row, monkeypatch):
    monkeypatch.setattr(mnist_cnn, "_check_range", lambda *_: None)  # there nobody looks
    images, labels = digits(4)
    net = MnistCNN(2, exact=False)
    good, bad = (net.step(images.to(kind), labels, numbers(1, r), 0.0) for r in (0, row))
    assert good.isfinite().all() and bad.isnan().all()


@pytest.mark.skipif(BACKEND == "cuda", reason="Ctrl-C stops kernels on the CPU only")
def test_a_step_that_is_stopped_is_undone(monkeypatch):
    images, labels = digits(2)
    net, other = MnistCNN(2), MnistCNN(2)
    real = mnist_cnn.built("mnist_cnn")

    def stopped(parameters, workspace, *others):
        real.mnist_cnn_step(parameters, workspace, *others)
        workspace.fill_(255)
        raise KeyboardInterrupt

    fake = SimpleNamespace(mnist_cnn_step=stopped, mnist_cnn_prepare=real.mnist_cnn_prepare)
    monkeypatch.setattr(mnist_cnn, "built", lambda file: fake)
    with pytest.raises(KeyboardInterrupt):
        net.step(images, labels, numbers(0, 1), 0.1)
    monkeypatch.undo()
    assert bits(net.state_dict()) == bits(other.state_dict())
    for each in (net, other):
        each.step(images, labels, numbers(0, 1), 0.1)
    assert bits(net.state_dict()) == bits(other.state_dict())


def test_importing_builds_nothing():
    code = "from kernels import MnistCNN; from kernels.operators import _register as r; "
    code += "MnistCNN(4).state_dict(); print(r.built.cache_info().currsize)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("0\n", "")
    assert kernels.MnistCNN is MnistCNN
    with pytest.raises(AttributeError, match="no attribute 'MnistCNNs'"):
        _ = kernels.MnistCNNs


# ---- the command line


def write_idx(folder, name, images, labels):
    for kind, tensor in (("images-idx3", images), ("labels-idx1", labels.to(torch.uint8))):
        head = struct.pack(f">HBB{tensor.dim()}I", 0, 8, tensor.dim(), *tensor.shape)
        (folder / f"{name}-{kind}-ubyte").write_bytes(head + tensor.numpy().tobytes())


@pytest.fixture(scope="module")
def mnist(tmp_path_factory):
    """Return a folder with a small MNIST: 64 images to train, 33 to test."""
    folder = tmp_path_factory.mktemp("mnist")
    write_idx(folder, "train", *render_digits(64, seed=1))
    write_idx(folder, "t10k", *render_digits(33, seed=2))
    return folder


@pytest.fixture(autouse=True)
def small_mnist(mnist, monkeypatch):
    monkeypatch.setenv("MNIST_DIR", str(mnist))


def call(*arguments, status=0):
    """Run the command line in a process of its own; return what it printed."""
    command = [sys.executable, "-m", "kernels.mnist_cnn", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == status, done.stdout + done.stderr
    assert "Traceback" not in done.stderr and "Warning" not in done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def whole(mnist, tmp_path_factory):
    """Return the file of a training without a stop, and what was printed."""
    file = tmp_path_factory.mktemp("whole") / "a file.pt"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MNIST_DIR", str(mnist))
        return file, call(*SETTINGS, "--save", file)


def saved(file):
    return torch.load(file, weights_only=True)


def assert_same(file, other):
    run, wanted = saved(file), saved(other)
    assert run.keys() == wanted.keys()
    for key in run.keys() - {"seconds", "state_dict", "losses"}:
        assert run[key] == wanted[key], key
    assert torch.equal(run["losses"], wanted["losses"])
    assert bits(run["state_dict"]) == bits(wanted["state_dict"])


def test_training(whole):
    file, said = whole
    run = saved(file)
    assert run["step"] == len(run["losses"]) == 6 and run["epoch"] == 2  # 28 // 8 steps an epoch
    assert run["precision"] == "halves" and run["seed"] == 5 and run["data"].startswith("MNIST, 64")
    assert "training: 28 images of MNIST, 64 handwritten digits" in said
    assert "test: MNIST, 33 handwritten digits" in said
    lines = re.findall(r"^epoch (\d) of 2: loss (\S+), test accuracy (\S+)%, ", said, re.MULTILINE)
    assert [line[0] for line in lines] == ["1", "2"]
    assert [float(line[1]) for line in lines] == pytest.approx(
        run["losses"].view(2, 3).mean(1).tolist(), abs=1e-4
    )
    test = load_mnist("test")
    net = MnistCNN(1, exact=False, state=run["state_dict"])
    accuracy = (net.predict(test.images).argmax(1) == test.labels).double().mean().item()
    assert run["accuracy"] == accuracy and f"test accuracy {accuracy:.2%}" in said.splitlines()[-2]
    assert said.splitlines()[-1].startswith("time to 99 %: told for MNIST's 60,000")


def test_training_follows_pytorch(whole):
    """The same steps in PyTorch, from the order, the rate and the first weights that are told."""
    run, train = saved(whole[0]), load_mnist("train")
    images, losses = as_input(train.images)[:28], []
    net = make_net(DEVICE)
    net.load_state_dict(MnistCNN(8, seed=5).state_dict())
    for epoch in range(2):
        order = torch.from_numpy(mnist_cnn.np.random.default_rng([5, epoch]).permutation(28))
        for rows in order[:24].view(3, 8).to(DEVICE):
            loss = F.cross_entropy(net(images[rows, None]), train.labels[rows])
            grads = torch.autograd.grad(loss, list(net.parameters()))
            lr = 0.05 * (1 - len(losses) / 6)
            torch._foreach_sub_([p.data for p in net.parameters()], [lr * g for g in grads])
            losses.append(loss.item())
    assert run["losses"][:3].tolist() == pytest.approx(losses[:3], rel=0.02)
    assert run["losses"].mean().item() == pytest.approx(sum(losses) / 6, rel=0.1)


@pytest.mark.parametrize("steps", [2, 3, 4])
def test_resumed_is_the_same_to_the_bit(whole, steps, tmp_path, capsys):
    """Ctrl-C after a step in the first epoch, after its last one, and in the second."""
    file, real = tmp_path / "it's.pt", MnistCNN.step
    calls = []

    def step(self, *arguments):
        loss = real(self, *arguments)
        calls.append(loss)
        if len(calls) == steps:
            signal.raise_signal(signal.SIGINT)
        return loss

    before = signal.getsignal(signal.SIGINT)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MnistCNN, "step", step)
        assert main([*SETTINGS, "--save", str(file)]) == 130
    assert signal.getsignal(signal.SIGINT) is before
    assert saved(file)["step"] == steps and saved(file)["epoch"] == steps // 4
    said = capsys.readouterr().out.splitlines()[-1]
    assert said.startswith(f"stopped after step {steps}; go on with python -m kernels.mnist_cnn ")
    arguments = shlex.split(said.split(" kernels.mnist_cnn ")[1])
    assert arguments == ["--resume", str(file), "--save", str(file)]
    if steps == 2:
        said = call(*arguments)
    else:
        assert main(arguments) == 0
        said = capsys.readouterr().out
    assert ("epoch 1 of 2" in said) == (steps <= 3) and "epoch 2 of 2" in said
    assert_same(file, whole[0])
    assert os.listdir(tmp_path) == [file.name]


@pytest.mark.skipif(BACKEND == "cuda", reason="a GPU is through before the signal comes")
def test_ctrl_c_in_a_terminal(whole, tmp_path):
    """A live line, and a signal wherever it hits, in a kernel most likely."""
    file, (ours, theirs) = tmp_path / "x.pt", pty.openpty()
    command = [sys.executable, "-m", "kernels.mnist_cnn", *SETTINGS, "--save", str(file)]
    child = subprocess.Popen(command, cwd=ROOT, stdout=theirs, stderr=theirs)
    os.close(theirs)
    said, interrupted = "", False
    while True:
        try:
            said += os.read(ours, 1000).decode()
        except OSError:  # the child has gone
            break
        if "s left" in said and not interrupted:
            child.send_signal(signal.SIGINT)
            interrupted = True
    os.close(ours)
    assert child.wait(60) == 130, said
    assert re.search(r"step \d+ of 6, loss \d\.\d{4}, \d+ images/s, \d+ s left", said)
    steps = saved(file)["step"]
    assert 0 < steps < 6 and f"stopped after step {steps}; go on" in said
    again = ["--resume", str(file), "--save", str(file), "--seed", "5"]  # 5: as it was
    assert main(again) == 0
    assert_same(file, whole[0])


def test_a_finished_file_is_only_told_about(whole, tmp_path, capsys):
    assert main(["--resume", str(whole[0])]) == 0
    said = capsys.readouterr().out
    assert "epoch" not in said
    assert said.splitlines()[-2:] == whole[1].splitlines()[-2:]


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--batch", "4"], "trained with batch 8, not 4"),
        (["--lr", "0.1"], "trained with lr 0.05, not 0.1"),
        (["--epochs", "3"], "trained with epochs 2, not 3"),
        (["--seed", "0"], "trained with seed 5, not 0"),
        (["--limit", "0"], "trained with limit 28, not 0"),
    ],
)
def test_other_settings_are_refused(whole, arguments, message, capsys):
    assert main(["--resume", str(whole[0]), *arguments]) == 2
    assert f"{whole[0]}: {message}" in capsys.readouterr().err


def test_halves_and_exact_do_not_mix(whole, tmp_path, capsys):
    torch.save(saved(whole[0]) | {"precision": "exact"}, tmp_path / "exact.pt")
    assert main(["--resume", str(tmp_path / "exact.pt"), "--halves"]) == 2
    assert "trained with precision exact, not halves" in capsys.readouterr().err


def test_other_data_are_refused(whole, tmp_path, monkeypatch, capsys):
    write_idx(tmp_path, "train", *render_digits(50, seed=3))
    write_idx(tmp_path, "t10k", *render_digits(20, seed=4))
    monkeypatch.setenv("MNIST_DIR", str(tmp_path))
    assert main(["--resume", str(whole[0])]) == 2
    said = "data was 'MNIST, 64 handwritten digits', here it is 'MNIST, 50 handwritten digits'"
    assert said in capsys.readouterr().err


def cut(path, run):
    path.write_bytes(path.read_bytes()[:-1000])


def flip(path, run):
    """Change one bit of the largest tensor."""
    with zipfile.ZipFile(path) as file:
        largest = max(file.infolist(), key=lambda part: part.file_size)
    data = bytearray(path.read_bytes())
    data[largest.header_offset + largest.file_size // 2] ^= 16
    path.write_bytes(data)


def write(make):
    return lambda path, run: path.write_bytes(make(path))


def save(make):
    return lambda path, run: torch.save(make(run), path)


def other_net(run):
    return run["state_dict"] | {"0.weight": torch.zeros(16, 1, 3, 3)}


BROKEN = {
    "missing": (lambda path, run: path.unlink(), "No such file"),
    "folder": (lambda path, run: (path.unlink(), path.mkdir()), "Is a directory"),
    "empty": (write(lambda path: b""), "cut off, or not from --save"),
    "text": (write(lambda path: b"hello" * 99), "cut off, or not from --save"),
    "cut off": (cut, "cut off, or not from --save"),
    "a bit": (flip, "damaged, in its part"),
    "zip": (lambda path, run: zipfile.ZipFile(path, "w").close(), "cut off, or not from --save"),
    "code": (save(lambda run: {**run, "data": Path("x")}), "cut off, or not from --save"),
    "tensor": (save(lambda run: torch.ones(3)), "a file of torch.save, but not from --save"),
    "state": (save(lambda run: run["state_dict"]), "a file of torch.save, but not from --save"),
    "other": (save(lambda run: {**run, "state_dict": other_net(run)}), "'0.weight'.*expected"),
    "nan": (
        save(lambda run: {**run, "state_dict": nan_in(run["state_dict"])}),
        "'11.bias'.*nan",
    ),
    "type": (save(lambda run: {**run, "epochs": "2"}), "epochs: expected int, got '2'"),
    "losses": (save(lambda run: {**run, "step": 3}), "losses: 6 of 3 steps"),
}


def nan_in(state):
    return state | {"11.bias": torch.full((10,), math.nan)}


@pytest.mark.parametrize("change, message", BROKEN.values(), ids=BROKEN)
def test_broken_files_are_refused(whole, change, message, tmp_path, capsys):
    file, image = tmp_path / "x.pt", draw(3, tmp_path / "3.png")
    shutil.copy(whole[0], file)
    change(file, saved(whole[0]))
    for arguments in ["--save", str(tmp_path / "new.pt")], ["--predict", str(image)]:
        assert main(["--resume", str(file), *arguments]) == 2
        said = capsys.readouterr()
        assert re.fullmatch(rf".*{re.escape(str(file))}: .*{message}.*\n", said.err)
        assert said.out == "" and not (tmp_path / "new.pt").exists()


def test_what_cannot_be_written_is_said_first(tmp_path, capsys):
    for file in (tmp_path, tmp_path / "no" / "x.pt"):
        assert main([*SETTINGS, "--save", str(file)]) == 2
        said = capsys.readouterr()
        assert f"{file}: is a folder, or in one that is not there" in said.err
        assert "epoch" not in said.out


def test_a_training_that_goes_astray_is_not_saved(tmp_path, capsys):
    file = tmp_path / "x.pt"
    few = ["--limit", "2", "--batch", "1", "--epochs", "1", "--halves"]
    assert main([*few, "--lr", "1e30", "--save", str(file)]) == 1
    assert "went astray" in capsys.readouterr().err and not file.exists()


def test_a_runtime_error_is_a_sentence(monkeypatch, capsys):
    def refuses(*arguments):
        raise RuntimeError("mnist_cnn_step needs 206336 bytes of shared memory for a block")

    real = mnist_cnn.built("mnist_cnn")
    fake = SimpleNamespace(**vars(real) | {"mnist_cnn_step": refuses})
    monkeypatch.setattr(mnist_cnn, "built", lambda file: fake)
    images, labels = digits(2)
    with pytest.raises(RuntimeError, match="^mnist_cnn_step needs 206336 bytes"):
        MnistCNN(2).step(images, labels, numbers(0, 1), 0.1)
    assert main(SETTINGS) == 1
    assert capsys.readouterr().err.endswith("needs 206336 bytes of shared memory for a block\n")


@pytest.mark.parametrize("arguments", ["--lr fast", "--epochs x", "--batch 1.5", "--what", "3"])
def test_options_that_make_no_sense(arguments, capsys):
    with pytest.raises(SystemExit) as exit:
        main(arguments.split())
    assert exit.value.code == 2 and "usage:" in capsys.readouterr().err


@pytest.mark.parametrize(
    "option, value, ends",
    [
        ("batch", "45", "1 to 44, got 45"),
        ("batch", "0", "1 to 44, got 0"),
        ("batch", "-1", "1 to 44, got -1"),
        ("epochs", "0", "1 to inf, got 0"),
        ("lr", "nan", "1e-30 to 1e+30, got nan"),
        ("lr", "-0.1", "1e-30 to 1e+30, got -0.1"),
        ("seed", "-1", "0 to 9223372036854775807, got -1"),
    ],
)
def test_numbers_that_cannot_be(option, value, ends, capsys):
    assert main(["--limit", "44", "--batch", "8", f"--{option}", value]) == 2
    assert f"{option}: expected {ends}\n" in capsys.readouterr().err


def test_help(capsys):
    with pytest.raises(SystemExit) as exit:
        main(["--help"])
    assert not exit.value.code
    said = capsys.readouterr().out
    options = "epochs batch lr seed limit halves save resume predict"
    assert all(f"--{name} " in said for name in options.split())
    assert "falls in a straight line to 0" in " ".join(said.split())


@pytest.mark.parametrize(
    "to_99, said", [(1.234, "1.23 s, by the epoch"), (math.inf, "not reached")]
)
def test_time_to_99_percent(to_99, said, monkeypatch, capsys):
    images, labels = torch.zeros(60_000, 28, 28, dtype=torch.uint8), torch.zeros(60_000).long()
    data = Mnist(images.to(DEVICE), labels.to(DEVICE), mnist_cnn.MNIST)
    monkeypatch.setattr("helpers.mnist.load_mnist", lambda split: data)

    def fit(net, run, *others):
        run |= {"step": 2811, "epoch": 3, "seconds": 2.0, "to_99": to_99, "accuracy": 0.5}
        return True

    monkeypatch.setattr(mnist_cnn, "_fit", fit)
    assert main([]) == 0
    assert capsys.readouterr().out.endswith(
        f"test accuracy 50.00%, 2.00 s, 89,952 images/s (training alone)\ntime to 99 %: {said}\n"
    )


def test_the_words_for_all_of_mnist(tmp_path, monkeypatch):
    write_idx(tmp_path, "train", *render_digits(3))
    write_idx(tmp_path, "t10k", *render_digits(2))
    monkeypatch.setenv("MNIST_DIR", str(tmp_path))
    assert load_mnist("train").source.replace("3", "60,000") == mnist_cnn.MNIST


def test_time_to_99_percent_is_that_of_the_first_such_epoch(capsys):
    run = {**mnist_cnn.NEW, "losses": torch.ones(4), "seconds": 1.0, "step": 1}
    right, wrong = [SimpleNamespace(argmax=lambda axis, d=d: torch.tensor([d])) for d in (4, 5)]
    test = SimpleNamespace(images=None, labels=torch.tensor([4]))
    for seconds, found in enumerate([wrong, right, wrong, right], 1):
        run |= {"seconds": float(seconds), "step": seconds}
        mnist_cnn._test(SimpleNamespace(predict=lambda images, f=found: f), run, test)
    assert run["to_99"] == 2.0 and run["epoch"] == 4 and run["accuracy"] == 1


# ---- digits out of image files

KINDS = {  # size, ink, paper, what the file is, turned in its EXIF
    "inverted": (60, "black", "white", "png"),
    "large": (900, "black", "white", "png"),
    "tiny": (30, "white", "black", "png"),
    "colours": (200, "red", "green", "png"),
    "as bright": (200, (255, 0, 0), (0, 130, 0), "png"),
    "jpeg": (150, "navy", "lightyellow", "jpg"),
    "palette": (150, "yellow", "blue", "gif"),
    "faint": (150, (200, 200, 200), "white", "png"),
}


def draw(digit, file, size=100, ink="white", paper="black", mode="RGB", at=(0.5, 0.1)):
    """Draw a digit somewhere on a page that is wider than high; return the file."""
    font = ImageFont.truetype(f"{get_data_path()}/fonts/ttf/DejaVuSans.ttf", int(size * 0.6))
    page = Image.new(mode, (int(size * 1.4), size), paper)
    place = (at[0] * size, at[1] * size)
    ImageDraw.Draw(page).text(place, str(digit), fill=ink, font=font)
    page.save(file)
    return file


def likeness(a, b):
    """Return the cosine between two images, one of them moved by a pixel at most."""
    a, b = a.double() / a.double().norm(), b.double() / b.double().norm()
    moves = itertools.product((-1, 0, 1), repeat=2)
    return max((a.roll(move, (0, 1)) * b).sum().item() for move in moves)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plain")
    return torch.stack([read_digit(draw(d, folder / f"{d}.png")) for d in range(10)])


def test_a_digit_lies_as_in_mnist(plain):
    for image in plain:
        rows, cols = image.nonzero().unbind(1)
        height, width = (int(x.max() - x.min()) + 1 for x in (rows, cols))
        assert max(height, width) == 20 and image.max() == 255 and image.dtype == torch.uint8
        at = torch.arange(28.0)
        weights = image.float() / image.sum()
        for mass in weights.sum(1), weights.sum(0):
            assert abs(mass @ at - 14) <= 0.5 + 1e-4  # as far as whole pixels go


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_size_and_colours_do_not_matter(kind, plain, tmp_path):
    *kind, ending = kind
    for digit in range(10):
        got = read_digit(draw(digit, tmp_path / f"x.{ending}", *kind, at=(0.2, 0.3)))
        alike = [likeness(got, image) for image in plain]
        assert max(alike) == alike[digit] > 0.9, alike


def test_other_pixels(plain, tmp_path):
    """16 bits, two colours, and a transparent page with dark ink or with light."""
    image = plain[7].numpy()
    Image.fromarray(image.astype("uint16") * 257).save(tmp_path / "16.png")
    Image.fromarray(image).convert("1").save(tmp_path / "1.png")
    Image.fromarray(image).convert("F").save(tmp_path / "f.tiff")
    draw(7, tmp_path / "dark.png", 100, "black", (0, 0, 0, 0), "RGBA")
    draw(7, tmp_path / "light.png", 100, "white", (255, 255, 255, 0), "RGBA")
    turned = Image.fromarray(image).transpose(Image.Transpose.ROTATE_90)
    exif = turned.getexif()
    exif[0x0112] = 6  # to be turned by a quarter clockwise
    turned.save(tmp_path / "turned.jpg", exif=exif, quality=95)
    for file in sorted(tmp_path.iterdir()):
        assert likeness(read_digit(file), plain[7]) > 0.9, file.name


def test_mnist_itself_stays(tmp_path):
    """An image of MNIST's is cropped and centred as it was: a digit of 20 × 20 stays in place."""
    images, _ = render_digits(3)
    for image in images:
        Image.fromarray(image.numpy()).save(tmp_path / "first.png")
        first = read_digit(tmp_path / "first.png")
        Image.fromarray(first.numpy()).save(tmp_path / "second.png")
        assert likeness(read_digit(tmp_path / "second.png"), first) > 0.97


def test_images_that_are_none(tmp_path):
    good = draw(3, tmp_path / "3.png").read_bytes()
    (tmp_path / "cut.png").write_bytes(good[: len(good) // 2])
    (tmp_path / "text.png").write_bytes(b"no image")
    Image.new("RGB", (50, 40), "pink").save(tmp_path / "plain.png")
    for name, why in {
        "missing.png": "No such file",
        "cut.png": "not an image that can be read",
        "text.png": "not an image that can be read",
        "plain.png": "shows no digit",
    }.items():
        with pytest.raises(ValueError, match=f"{name}: .*{why}|{name}.*{why}"):
            read_digit(tmp_path / name)


@pytest.fixture(scope="module")
def reader(whole, plain, tmp_path_factory):
    """Return a file with a network that has learned the ten plain digits, in PyTorch."""
    torch.manual_seed(0)
    net = make_net()
    net[1].momentum = net[5].momentum = 0.3  # their statistics have to keep up
    images, labels = as_input(plain)[:, None], torch.arange(10)
    weights = list(net.parameters())
    for _ in range(20):  # not by torch.optim, whose first use imports all of torch.compile
        loss = F.cross_entropy(net(images + 0.1 * torch.randn_like(images)), labels)
        grads = torch.autograd.grad(loss, weights)
        torch._foreach_sub_([w.data for w in weights], grads, alpha=0.1)
    file = tmp_path_factory.mktemp("reader") / "digits.pt"
    torch.save(saved(whole[0]) | {"precision": "exact", "state_dict": net.state_dict()}, file)
    return file


def test_digits_are_read(reader, tmp_path):
    kinds = [KINDS[name] for name in ("inverted", "large", "colours", "jpeg", "palette")]
    files = [
        draw(digit, tmp_path / f"{digit}-{i}.{kind[-1]}", *kind[:-1], at=(0.7, 0.2))
        for i, kind in enumerate(kinds)
        for digit in (2 * i, 2 * i + 1)
    ]
    said = call("--resume", reader, "--predict", *files).splitlines()
    assert said[::2] == [f"{file}: {digit}" for digit, file in enumerate(files)]
    for digit, line in enumerate(said[1::2]):
        shares = [float(share) for share in re.findall(r"\d: +([\d.]+)%", line)]
        assert len(shares) == 10 and sum(shares) == pytest.approx(100, abs=0.6)
        assert max(shares) == shares[digit]


def test_images_beside_a_bad_one_are_read(reader, tmp_path, capsys):
    good = draw(3, tmp_path / "3.png")
    assert main(["--resume", str(reader), "--predict", str(tmp_path / "none"), str(good)]) == 2
    said = capsys.readouterr()
    assert said.out.startswith(f"{good}: 3\n") and said.err.count("\n") == 1
    assert f"{tmp_path / 'none'}: not an image that can be read" in said.err


def test_predict_needs_a_network(tmp_path, capsys):
    assert main(["--predict", str(draw(3, tmp_path / "3.png"))]) == 2
    assert "--predict goes with --resume FILE" in capsys.readouterr().err
