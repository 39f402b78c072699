"""The model of a network: data arrive, bytes and times add up, deadlocks are found."""

import threading

import pytest
import torch

from helpers.network import DeadlockError, link_table, simulate


def shift(net, x):
    """Give each rank its left neighbour's tensor."""
    out = torch.empty_like(x)
    net.swap(x, (net.rank + 1) % net.ranks, out, (net.rank - 1) % net.ranks)
    return out


def chain(net, x):
    """Send rank 0's tensor from each to the next."""
    if net.rank > 0:
        net.recv(x, net.rank - 1)
    if net.rank < net.ranks - 1:
        net.send(x, net.rank + 1)
    return x


def inputs(ranks, count=6):
    return [torch.randn(count) for _ in range(ranks)]


@pytest.mark.parametrize("ranks", [2, 3, 7])
def test_all_send_at_once(ranks):
    given = inputs(ranks)
    kept = [x.clone() for x in given]
    run = simulate(shift, given, latency_us=5, gbps=0.001)
    assert all(torch.equal(run.outs[i], kept[i - 1]) for i in range(ranks))
    assert all(map(torch.equal, given, kept))
    assert (run.steps, run.time_us) == (1, 5 + 24)
    assert run.sent() == [24] * ranks
    assert run.bytes(0, 1) == 24 and run.bytes(1, 1) == 0


@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_one_after_the_other(ranks):
    given = inputs(ranks)
    run = simulate(chain, given, latency_us=5, gbps=0.001)
    assert all(torch.equal(out, given[0]) for out in run.outs)
    assert (run.steps, run.time_us) == (ranks - 1, 29 * (ranks - 1))
    assert [(m.source, m.to, m.step) for m in run.messages] == [
        (i, i + 1, i + 1) for i in range(ranks - 1)
    ]


def test_a_rank_sends_one_message_at_a_time():
    def from_one(net, x):
        if net.rank == 0:
            for to in range(1, net.ranks):
                net.send(x, to)
        else:
            net.recv(x, 0)

    run = simulate(from_one, inputs(4), latency_us=1, gbps=1e9)
    assert run.steps == 3 and run.time_us == pytest.approx(3)


def test_what_only_a_letter_box_could_save_deadlocks():
    def all_send_first(net, x):
        out = torch.empty_like(x)
        net.send(x, (net.rank + 1) % net.ranks)
        net.recv(out, (net.rank - 1) % net.ranks)

    line = all_send_first.__code__.co_firstlineno + 2
    with pytest.raises(DeadlockError) as caught:
        simulate(all_send_first, inputs(2))
    at = f"(line {line} of test_network.py: net.send(x, (net.rank + 1) % net.ranks))"
    assert str(caught.value) == (
        f"deadlock: rank 0 waits to send to rank 1 {at}; rank 1 waits to send to rank 0 {at}"
    )


def test_one_that_has_left_is_named():
    def leave(net, x):
        if net.rank:
            net.recv(x, 0)

    with pytest.raises(DeadlockError, match=r"rank 1 waits to receive from 0 .*; rank 0 finished"):
        simulate(leave, inputs(2))


def test_mistakes_are_said_and_no_thread_stays():
    def too_short(net, x):
        if net.rank == 0:
            net.send(x[:2], 1)
        else:
            net.recv(x, 0)

    before = threading.active_count()
    with pytest.raises(ValueError, match="rank 1 expects 6 × float32 from rank 0, which sends 2 ×"):
        simulate(too_short, inputs(2))
    with pytest.raises(ValueError, match="rank 0 of 2 has no link to rank 2"):
        simulate(lambda net, x: net.send(x, 2), inputs(2))
    with pytest.raises(ValueError, match="rank 0 of 1 has no link to rank 0"):
        simulate(lambda net, x: net.send(x, 0), inputs(1))
    with pytest.raises(KeyError, match="missing"):
        simulate(lambda net, x: {}["missing"], inputs(3))
    assert threading.active_count() == before


def test_the_table_has_each_link():
    table = link_table([[0, 1000], [24, 0]])
    assert table.lines == [
        ["from 0", "", "1,000", "1,000"],
        ["from 1", "24", "", "24"],
        ["in all", "24", "1,000", "1,024"],
    ]
    assert str(simulate(shift, inputs(2)).links).count("24") == 6
