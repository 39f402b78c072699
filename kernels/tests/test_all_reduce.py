"""all_reduce: what it promises, all ranks in one launch and a process a rank; who never comes."""

import functools
import re
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist

from helpers.base.machine import ROOT
from helpers.checks import check_close
from helpers.compiler import compile_cuda
from helpers.device import BACKEND, DEVICE
from helpers.processes import ProcessError, Team
from kernels.tests.contract import Case, floats, wrong

FILE = ROOT / "kernels" / "all_reduce.cu"
TYPES = (torch.float32, torch.float16, torch.bfloat16)
FEW_WORDS = ("640 << 10", "64"), ("2 << 20", "64")  # the ways of large tensors, for small ones
SET_UP = ("all_reduce_open", "all_reduce_connect", "all_reduce_close")  # no tensors: see below


def open_here(file, ranks):
    """Return the links of ranks that this process plays, all on one device."""
    like = torch.zeros(1, device=BACKEND)
    cards = [number for _ in range(ranks) for number in file.all_reduce_open(like, ranks)]
    return file.all_reduce_connect(like, cards, -1 if ranks > 1 else 0, 30.0)


@functools.cache
def links_of(ranks):
    return open_here(compile_cuda(FILE), ranks)


def in_every_row(inp, links):
    return inp.sum(0).expand(inp.shape)


CASES = [
    Case(
        "all_reduce",
        lambda *shape: {"inp": floats(*shape), "links": links_of(1)},
        lambda inp, links: inp,
        [(6, 8), (), (1,), (0,), (3, 5, 7, 11), (70_001,)],
        ragged=[("links", lambda of: links_of(2)), ("links", lambda of: [0, 1])],
        dtypes=TYPES,
        machine=True,
    ),
    Case(
        "all_reduce_",
        lambda *shape: {"inp": floats(*shape), "links": links_of(1)},
        lambda inp, links: None,
        [(6, 8), (), (1,), (0,), (3, 5, 7, 11), (70_001,)],
        ragged=[("links", lambda of: links_of(2)), ("links", lambda of: [])],
        writes=("inp",),
        dtypes=TYPES,
        machine=True,
    ),
    Case(
        "all_reduce_here",
        lambda ranks, *shape: {"inp": floats(ranks, *shape), "links": links_of(ranks)},
        in_every_row,
        [(2, 6, 8), (3, 5, 7), (2, 1000), (8, 3), (2,), (2, 0), (3, 50_001), (8, 45_001)],
        ragged=[*wrong("inp", floats, (3, 5), ()), ("links", lambda of: links_of(1))],
        dtypes=TYPES,
        machine=True,
    ),
]


def ordered(x):
    """Return the sum of the rows in float32, in order of rank."""
    total = torch.zeros_like(x[0], dtype=torch.float32)
    for row in x:
        total += row.float()
    return total.to(x.dtype)


def in_rounds():
    """Return the file's source, changed to take the ways of large tensors for small ones."""
    source = FILE.read_text()
    for old, new in FEW_WORDS:
        assert source.count(old) == 1
        source = source.replace(old, new)
    return source


@pytest.fixture(scope="module", params=["as it is", "in rounds"])
def file(request):
    return compile_cuda(FILE if request.param == "as it is" else in_rounds())


@pytest.mark.parametrize("ranks", [2, 3, 5, 8])
def test_all_ranks_get_the_same_bits_call_by_call(file, ranks):
    links = open_here(file, ranks)
    for n in (1, 7, 1000, 4097, 20_001):
        for dtype in TYPES:
            x = torch.randn(ranks, n, device=DEVICE).to(dtype)
            for row in file.all_reduce_here(x, links):
                assert torch.equal(row, ordered(x)), (n, dtype)
    file.all_reduce_close(x, links)


def test_sizes_follow_each_other_in_any_order(file):
    """Words and numbers of earlier calls lie about: none may be taken for this call's."""
    links = open_here(file, 2)
    for i in range(60):
        n = int(torch.randint(1, 9000 if i % 3 == 0 else 60, ()))
        x = torch.randn(2, n, device=DEVICE)
        got = file.all_reduce_here(x, links)
        assert torch.equal(got[0], x[0] + x[1]) and torch.equal(got[0], got[1]), (i, n)
    file.all_reduce_close(x, links)


@pytest.mark.skipif(BACKEND == "cpu", reason="PyTorch captures graphs on a GPU only")
def test_in_a_graph_each_replay_is_a_call_of_its_own(file):
    links, x = open_here(file, 2), torch.randn(2, 100_003, device=DEVICE)
    file.all_reduce_here(x, links)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        first = file.all_reduce_here(x, links)
        again = file.all_reduce_here(x[:, :9].contiguous(), links)
    for _ in range(10):
        x.normal_()
        graph.replay()
        assert torch.equal(first[1], x[0] + x[1]) and torch.equal(again[0], first[0, :9])
    del graph
    file.all_reduce_close(x, links)


def test_special_values():
    file, links = compile_cuda(FILE), links_of(2)
    inf, nan = torch.inf, torch.nan
    x = torch.tensor([[inf, inf, nan, -0.0, 3e38], [1, -inf, 1, -0.0, 3e38]], device=DEVICE)
    expected = torch.tensor([inf, nan, nan, 0.0, inf], device=DEVICE)
    for row in file.all_reduce_here(x, links):
        torch.testing.assert_close(row, expected, equal_nan=True, rtol=0, atol=0)


@pytest.mark.parametrize("ranks", [2, 3])
def test_rounds_have_no_fault_either(ranks):
    """On the CPU backend, every access of all ranks checked, and a block has many rounds."""
    few = in_rounds().replace("MAX_BLOCKS = 256", "MAX_BLOCKS = 4")
    checked = compile_cuda(few, check=True)
    links = open_here(checked, ranks)
    for n in (9, 1001, 50_001, 20_001):
        x = torch.randn(ranks, n, device=DEVICE)
        assert torch.equal(checked.all_reduce_here(x, links)[0], ordered(x))
    checked.all_reduce_close(x, links)


@pytest.mark.skipif(BACKEND == "cuda", reason="a GPU shows such a fault now and then only")
def test_the_checker_finds_that_a_pair_has_a_slot_too_few():
    few = in_rounds().replace("MAX_BLOCKS = 256", "MAX_BLOCKS = 4")
    assert "PAIR_SLOTS = 4" in few
    checked = compile_cuda(few.replace("PAIR_SLOTS = 4", "PAIR_SLOTS = 3"), check=True)
    links = open_here(checked, 2)
    with pytest.raises(RuntimeError, match="nothing orders the blocks"):
        checked.all_reduce_here(torch.randn(2, 100_001, device=DEVICE), links)


@pytest.mark.skipif(BACKEND == "cuda", reason="a GPU shows such a fault now and then only")
def test_the_checker_finds_a_number_that_overtakes_its_data():
    source = in_rounds()
    assert "st.release.sys" in source
    checked = compile_cuda(source.replace("st.release.sys", "st.relaxed.sys"), check=True)
    links = open_here(checked, 2)
    with pytest.raises(RuntimeError, match="nothing orders the blocks"):
        checked.all_reduce_here(torch.randn(2, 1001, device=DEVICE), links)


# ---------------------------------------------------------------- a process a rank


def _connect(rank, ranks, source, timeout_s):
    file, like = compile_cuda(source), torch.zeros(1, device=DEVICE)
    cards = [None] * ranks
    dist.all_gather_object(cards, file.all_reduce_open(like, ranks))
    numbers = [number for card in cards for number in card]
    return file, file.all_reduce_connect(like, numbers, rank, timeout_s)


def _calls(rank, ranks, source, sizes):
    """Return the calls whose sum is wrong."""
    file, links = _connect(rank, ranks, source, 30.0)
    faults = []
    for n in sizes:
        for dtype in TYPES:
            torch.manual_seed(n)
            x = torch.randn(ranks, n).to(DEVICE, dtype)
            want, place = ordered(x), x[rank].clone()
            out = file.all_reduce(x[rank], links)
            file.all_reduce_(place, links)
            if not torch.equal(out, want) or not torch.equal(place, want):
                faults.append((n, dtype))
    dist.barrier()  # nobody closes what another rank may still write to
    file.all_reduce_close(x, links)
    return faults


@pytest.fixture(scope="module")
def team():
    with Team(2, timeout_s=120) as team:
        yield team


@pytest.mark.parametrize("source", [FILE.read_text, in_rounds], ids=["as it is", "in rounds"])
def test_a_process_a_rank(team, source):
    source = source()
    compile_cuda(source)
    assert team(_calls, source, [1, 0, 1000, 5, 70_001]) == [[]] * 2


def test_three_processes():
    with Team(3, timeout_s=120) as team:
        assert team(_calls, FILE.read_text(), [1, 1000, 20_001]) == [[]] * 3


def _gradient(rank, ranks):
    from kernels import all_reduce

    x = torch.arange(3.0, device=DEVICE).add(rank).requires_grad_()
    weight = torch.tensor([1.0, 10.0, 100.0], device=DEVICE) * (rank + 1)
    total = all_reduce(x)
    (total * weight).sum().backward()
    return total.detach(), x.grad


def test_the_gradient_is_summed_over_the_ranks(team):
    for total, gradient in team(_gradient):
        check_close(total, torch.tensor([1.0, 3.0, 5.0]))
        check_close(gradient, torch.tensor([3.0, 30.0, 300.0]))


def _stays_away(rank, ranks, source):
    file, links = _connect(rank, ranks, source, 0.3)
    if rank == 0:
        file.all_reduce(torch.ones(5, device=DEVICE), links).cpu()


def test_who_waits_in_vain_stops_with_a_sentence(team):
    said = "has not come in time" if BACKEND == "cpu" else "assert"
    with pytest.raises(ProcessError, match=f"rank 0 of 2 raised .*{said}"):
        team(_stays_away, FILE.read_text())


# ---------------------------------------------------------------- what is refused


def test_set_up_refuses_what_does_not_fit():
    file, like = compile_cuda(FILE), torch.zeros(1, device=DEVICE)
    card = file.all_reduce_open(like, 2)
    for call, said in {
        lambda: file.all_reduce_open(like, 9): "ranks: expected 1 to 8, got 9",
        lambda: file.all_reduce_open(like.double(), 2): "like: expected",
        lambda: file.all_reduce_connect(like, card[:-1], 0, 1.0): "cards: expected",
        lambda: file.all_reduce_connect(like, card, 0, 1.0): "cards: expected 1 GPUs",
        lambda: file.all_reduce_connect(like, card * 2, 2, 1.0): "rank: expected -1 to 1, got 2",
        lambda: file.all_reduce_connect(like, card * 2, 0, 0.0): "timeout_s: expected",
        lambda: file.all_reduce_close(like, [1, 2]): "links: expected",
    }.items():
        with pytest.raises(RuntimeError, match=re.escape(said)):
            call()
    file.all_reduce_close(like, file.all_reduce_connect(like, card * 2, 0, 1.0))


def test_a_card_without_a_handle_serves_its_own_process_only():
    file, like = compile_cuda(FILE), torch.zeros(1, device=DEVICE)
    first, second = file.all_reduce_open(like, 2), file.all_reduce_open(like, 2)
    handle = len(first) - 4
    assert any(first[:handle])
    bare = [[0] * handle + card[handle:] for card in (first, second)]
    links = file.all_reduce_connect(like, bare[0] + bare[1], -1, 1.0)
    x = torch.ones(2, 5, device=DEVICE)
    assert torch.equal(file.all_reduce_here(x, links), 2 * x)
    elsewhere = bare[1].copy()
    elsewhere[handle + 1] += 1  # another process
    with pytest.raises(RuntimeError, match="rank 1 is out of reach .* no handle"):
        file.all_reduce_connect(like, bare[0] + elsewhere, 0, 1.0)
    file.all_reduce_close(like, links)


def _second_group(rank, ranks):
    """Return whether a group closes what one of the same name had, and what it adds up to."""
    from kernels import all_reduce
    from kernels.operators import collectives

    file, closed = collectives.built("all_reduce"), []

    def close(like, links):
        closed.append(links)
        file.all_reduce_close(like, links)

    parts = {name: getattr(file, f"all_reduce{name}") for name in ("", "_open", "_connect")}
    watched = SimpleNamespace(**{f"all_reduce{name}": part for name, part in parts.items()})
    watched.all_reduce_close = close
    x = torch.ones(1000, device=DEVICE) * (rank + 1)
    first, second = (dist.new_group(list(range(ranks))) for _ in range(2))
    all_reduce(x, first)
    dead = collectives._links.pop((first.group_name, x.device))
    collectives._links[second.group_name, x.device] = dead  # as if it had had this name
    collectives.built = lambda op: watched
    try:
        return closed == [], all_reduce(x, second), closed == [dead[1]]
    finally:
        collectives.built = lambda op: file


def test_a_new_group_of_an_old_name_gives_back_what_that_had():
    with Team(2, timeout_s=120) as team:
        for not_yet, total, then in team(_second_group):
            assert not_yet and then and torch.equal(total, torch.full((1000,), 3.0))


def test_closing_gives_memory_back():
    if BACKEND == "cpu":
        pytest.skip("without a GPU memory is the system's, and not counted")
    file, like = compile_cuda(FILE), torch.zeros(1, device=DEVICE)
    before = torch.cuda.mem_get_info()[0]
    for _ in range(3):
        file.all_reduce_close(like, open_here(file, 2))
    assert torch.cuda.mem_get_info()[0] == before
