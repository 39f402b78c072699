"""Teams of processes: functions travel, results return, and nothing outlives a team."""

import dataclasses
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from pathlib import Path

import cloudpickle
import pytest
import torch
import torch.distributed as dist

from helpers import processes
from helpers.base.machine import ROOT
from helpers.device import DEVICE
from helpers.processes import ProcessError, Team, clock
from helpers.processes.travel import PackError, pack, pack_result, unpack

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX")
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # as what a notebook defines
SCALE = 3


@pytest.fixture(scope="module")
def team():
    with Team(3, backend="gloo") as team:
        yield team


def scaled(inp):
    return SCALE * inp


def add_ranks(rank, ranks, inp):
    """Sum over all ranks of `scaled(inp) + rank`."""
    out = scaled(inp) + rank
    dist.all_reduce(out)
    return out


def recv_forever(rank, ranks):
    dist.recv(torch.empty(1), (rank + 1) % ranks)


class Doubler(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([2.0]))

    def forward(self, inp):
        return scaled(inp) * self.weight


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inp):
        ctx.save_for_backward(inp)
        return inp**2

    @staticmethod
    def backward(ctx, dout):
        (inp,) = ctx.saved_tensors
        return 2 * inp * dout


@dataclasses.dataclass
class Point:
    x: int
    y: int = SCALE

    @property
    def sum(self):
        return self.x + self.y


def gone(pids):
    """Wait until none of these processes runs; whether that was so within 5 s."""
    limit = time.monotonic() + 5
    while time.monotonic() < limit:
        if not any(is_running(pid) for pid in pids):
            return True
        time.sleep(0.05)
    return False


def is_running(pid):
    if sys.platform.startswith("linux"):  # a container need not have ps
        try:
            return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
        except (FileNotFoundError, ProcessLookupError):
            return False
    done = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True)
    return done.stdout.strip()[:1] not in ("", "Z")


def test_results_come_in_order_of_rank_and_processes_stay(team):
    inp = torch.randn(1000)
    outs = team(add_ranks, inp)
    for out in outs:
        torch.testing.assert_close(out, 9 * inp + 3)
    pids = team(lambda rank, ranks: (rank, ranks, os.getpid()))
    assert pids == [(rank, 3, pid) for rank, pid in enumerate(team.pids)]
    assert len(set(team.pids)) == 3
    start = time.monotonic()
    team(add_ranks, inp)
    assert time.monotonic() - start < 2


@pytest.mark.parametrize("length", [82, 120])
def test_a_temporary_folder_of_a_long_path(length, tmp_path, monkeypatch):
    folder = f"{tmp_path}/{'x' * max(1, length - len(str(tmp_path)) - 1)}"
    os.mkdir(folder)
    monkeypatch.setenv("TMPDIR", folder)
    monkeypatch.setattr(tempfile, "tempdir", None)  # it is asked for once
    with Team(1) as team:
        assert team(lambda rank, ranks: tempfile.gettempdir()) == [folder]
        assert (team._processes.directory.parent == Path(folder)) == (len(folder) <= 82)


def test_what_is_printed_comes_in_order_of_rank(team, capfd):
    def talk(rank, ranks):
        time.sleep(0.1 * (ranks - rank))
        print("one")
        os.write(1, f"two from {rank}\n".encode())

    team(talk)
    team(lambda rank, ranks: None)
    expected = [f"rank {rank}: {line}" for rank in range(3) for line in ("one", f"two from {rank}")]
    assert capfd.readouterr().out.splitlines() == expected


def test_each_has_its_share_of_the_cores_and_no_gpu(team):
    def look(rank, ranks):
        return torch.get_num_threads(), torch.cuda.is_available(), DEVICE.type

    threads = max(1, processes._cores() // 3)
    assert team(look) == [(threads, False, "cpu")] * 3


def arrived(worker, *args):
    """Return a function and arguments as another process would get them."""
    return unpack(pack(worker, args), set())


def test_functions_take_along_what_they_use(team):
    counts = {"calls": 0}

    def worker(rank, ranks, inp, *, more=SCALE):
        counts["calls"] += 1
        net = Doubler()
        out = Square.apply(net(inp)).sum()
        out.backward()
        point = dataclasses.replace(Point(rank), x=4)
        assert torch.backends.cudnn and torch.ops  # modules of kinds of their own
        results = out, net.weight.grad, point.sum, more, recursive(4), counts["calls"], torch.pi
        return results, inp.requires_grad, set(globals())

    def recursive(n):
        return n * recursive(n - 1) if n else 1

    inp = torch.randn(5, requires_grad=True)
    there = team(worker, inp)
    here, _, _ = worker(0, 3, inp)
    assert counts["calls"] == 1  # the copies count for themselves: 1 + 1 would be 2 here
    for results, has_grad, names in there:
        for got, expected in zip(results, here, strict=True):
            torch.testing.assert_close(got, expected)
        assert has_grad
        assert names < {*globals(), "__builtins__"}


def test_classes_arrive_as_they_are_now_and_come_home_as_they_were(team, monkeypatch):
    method = Point.sum
    for later in (1, 2):
        monkeypatch.setattr(Point, "later", later, raising=False)
        points, seen = zip(*team(lambda rank, ranks: (Point(rank), Point.later)), strict=True)
        assert points == (Point(0), Point(1), Point(2))  # of this very class, or none is equal
        assert seen == (later,) * 3
    assert Point.sum is method


def test_a_name_of_an_attribute_does_not_travel():
    there, _ = arrived(lambda rank, ranks: torch.ones(2).scaled)
    assert "scaled" not in there.__globals__


def test_a_part_of_a_large_tensor_travels_alone():
    large = torch.randn(1000, 1000)
    assert len(pack_result(large[3:5])) < 20_000
    _, (part,) = arrived(scaled, large[3:5])
    torch.testing.assert_close(part, large[3:5])


def test_what_cannot_travel_says_so(team):
    file = open(os.devnull)
    with pytest.raises(PackError, match="^reads uses file, which cannot travel .*: .*TextIO"):

        def reads(rank, ranks):
            return file.read()

        team(reads)
    with pytest.raises(PackError, match="^recv_forever uses its argument 1, which .*: .*TextIO"):
        team(recv_forever, 3, file)
    file.close()
    lock = threading.Lock()
    with pytest.raises(PackError, match="^<lambda> uses lock, which .*: .*lock"):
        team(lambda rank, ranks: (lambda: lock)())
    with pytest.raises(PackError, match="expected a function, got 3"):
        team(3)
    with pytest.raises(ProcessError, match=r"rank \d of 3 returned what cannot travel: .*TextIO"):
        team(lambda rank, ranks: sys.stdout)


def test_one_that_raises_ends_the_others(team):
    def worker(rank, ranks):
        if rank == 2:
            check = {}
            raise ValueError(f"bad {check}")
        recv_forever(rank, ranks)

    team(scaled_rank)
    pids = team.pids
    with pytest.raises(ProcessError) as caught:
        team(worker)
    said = str(caught.value)
    line = worker.__code__.co_firstlineno + 3
    assert said.startswith(
        f"rank 2 of 3 raised ValueError: bad {{}}, in worker, line {line} of test_processes.py: "
        'raise ValueError(f"bad {check}"); rank 0 stood in recv_forever, line '
    )
    assert said.count("dist.recv(torch.empty(1), (rank + 1) % ranks)") == 2
    assert gone(pids)
    assert team(scaled_rank) == [0, 3, 6]
    assert not set(team.pids) & set(pids)


def scaled_rank(rank, ranks):
    return scaled(rank)


def test_one_that_dies_ends_the_others(team):
    def worker(rank, ranks):
        if rank == 1:
            for other in (0, 2):
                dist.recv(torch.empty(1), other)
            time.sleep(0.2)  # for the line after the send
            os.kill(os.getpid(), signal.SIGKILL)
        dist.send(torch.zeros(1), 1)
        recv_forever(rank, ranks)

    team.start()
    pids = team.pids
    with pytest.raises(
        ProcessError, match="^rank 1 of 3 was killed by SIGKILL; rank 0 stood in recv_forever"
    ):
        team(worker)
    assert gone(pids)


def test_one_that_hangs_is_ended_and_says_where_it_stood(team, monkeypatch):
    def worker(rank, ranks):
        while rank == 0:
            pass

    monkeypatch.setattr(team, "timeout_s", 0.5)
    team.start()
    pids = [team._processes.torchrun.pid, *team.pids]
    line = worker.__code__.co_firstlineno
    with pytest.raises(
        ProcessError,
        match=rf"^after 0.5 s rank 0 stood in worker, line ({line + 1}|{line + 2}) of "
        r"test_processes.py: .*; ranks 1, 2 had finished$",
    ):
        team(worker)
    assert gone(pids)
    assert team.pids == []


def test_an_interrupt_ends_all(team):
    def interrupt(number, frame):
        raise KeyboardInterrupt

    team.start()
    pids = team.pids
    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(KeyboardInterrupt):
            team(recv_forever)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert gone(pids)


SCRIPT = """
import os, signal, sys
import torch
import torch.distributed as dist
{imports}

def worker(rank, ranks):
    total = torch.tensor([rank + 1.0])
    dist.all_reduce(total)
    return total.item()

"""


def write(path, imports, main):
    path.write_text(SCRIPT.format(imports=imports) + textwrap.dedent(main))
    return path


def test_no_process_outlives_its_script_nor_its_files(tmp_path):
    script = write(
        tmp_path / "teams.py",
        "from helpers.processes import Team",
        """
        teams = [Team(2, backend="gloo"), Team(1, backend="gloo")]  # at once
        print([team(worker)[0] for team in teams])
        pids = [team._processes.torchrun.pid for team in teams] + sum([t.pids for t in teams], [])
        print(*pids, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
        """,
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    command = [sys.executable, script]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == -signal.SIGKILL, done.stderr
    sums, pids = done.stdout.splitlines()
    assert sums == "[3.0, 1.0]"
    assert len(pids.split()) == 5 and gone([int(pid) for pid in pids.split()])
    assert os.listdir(tmp_path) == ["teams.py"]


def test_the_same_worker_runs_by_torchrun_from_a_shell(tmp_path):
    script = write(
        tmp_path / "sums.py",
        "",
        """
        dist.init_process_group("gloo")
        print(worker(dist.get_rank(), dist.get_world_size()))
        dist.destroy_process_group()
        """,
    )
    *torchrun, _ = Team(2, backend="gloo").command.split()
    torchrun[0:1] = [sys.executable, "-m", "torch.distributed.run"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*torchrun, "--local-addr=localhost", script],
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.stdout.count("3.0") == 2, done.stderr


def test_expects_a_number_of_processes_and_a_backend_that_is_there(monkeypatch):
    for ranks in (0, -1, 2.0):
        with pytest.raises(ValueError, match="expected a number of processes"):
            Team(ranks)
    with pytest.raises(ValueError, match="expected backend 'gloo' or 'nccl', got 'mpi'"):
        Team(2, backend="mpi")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert (Team(2).backend, Team(3).backend) == ("nccl", "gloo")
    with pytest.raises(ValueError, match="NCCL needs a GPU a process: 3 processes, 2 GPUs"):
        Team(3, backend="nccl")


def test_a_team_that_does_not_start_says_so(monkeypatch):
    monkeypatch.setattr(processes, "START_S", 0)
    with pytest.raises(ProcessError, match="torchrun took 0 s, and its processes were not there"):
        Team(1, backend="gloo").start()


def test_a_process_that_cannot_join_says_why(monkeypatch):
    monkeypatch.setitem(processes.START_METHOD, "gloo", "spawn")  # as those with a GPU start
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "none")
    with pytest.raises(ProcessError, match="rank 0 of 1 did not start: .*address for: none"):
        Team(1, backend="gloo").start()


def test_times_are_those_of_the_slowest(team):
    def worker(rank, ranks):
        return clock(lambda: time.sleep(0.02 * rank), samples=3)

    times = team(worker)
    assert times[0] == times[1] == times[2]
    assert len(times[0]) == 3 and min(times[0]) >= 40


def sleeper(seconds):
    def prepare(rank, ranks, inp):
        def call():
            time.sleep(seconds)
            return inp

        return call

    return prepare


def test_candidates_are_compared_where_each_rank_has_a_gpu(team, records):
    slow, fast = sleeper(0.02), sleeper(0.0)
    times = team.time_ms({"slow": slow, "fast": fast}, 1.0)
    assert list(times) == ["slow", "fast"] and times["slow"] >= 20 and times["slow"] > times["fast"]
    table = team.compare({"slow": slow, "fast": fast}, "16_test", args=(1.0,))
    assert not table.rows
    assert "Nothing is recorded" in str(table) and "with 3 NVIDIA GPUs" in str(table)
    assert not records.exists()


def other(rank, ranks, inp):
    return lambda: inp + rank + 1


def test_a_comparison_is_recorded_with_the_number_of_ranks(team, records, pretend_gpu, monkeypatch):
    team.start()
    pretend_gpu()
    monkeypatch.setenv("RECORD", "1")
    monkeypatch.setattr(team, "backend", "nccl")  # the processes that are there go on with gloo
    candidates = {"slow": sleeper(0.02), "fast": sleeper(0.001)}
    table = team.compare(candidates, "16_test", args=(1.0,), bytes=10**6)
    assert [row["name"] for row in table.rows] == ["slow", "fast"]
    assert table.rows[1]["ratio"] > 1.5 and 0.2 < table.self_ratio < 5
    monkeypatch.setenv("RECORD", "check")
    monkeypatch.setattr(team, "backend", "gloo")
    again = team.compare(candidates, "16_test", args=(1.0,), bytes=10**6)
    assert again.rows == table.rows and "recorded on 3 × " in str(again)
    with pytest.raises(ProcessError, match="'other' against 'slow': result"):
        team.compare({"slow": sleeper(0.02), "other": other}, "16_other", args=(1.0,))
