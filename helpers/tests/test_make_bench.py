"""What `make bench` times is compared: a rival that computes something else is not timed."""

import re

import pytest
import torch

from helpers.checks import check_close
from helpers.make.bench import leave_out_wrong
from helpers.make.bench_cases import Work
from helpers.make.readme import FLOORS


def work(*rivals, floor=None):
    candidates = {"ours": lambda: torch.arange(4.0), FLOORS[0]: lambda: floor}
    candidates |= {f"rival {i}": lambda x=x: x for i, x in enumerate(rivals)}
    return Work("four", candidates, agree=check_close)


def test_results_that_agree_pass_whatever_a_floor_returns():
    for floor in (None, torch.zeros(7)):
        raced = work(torch.arange(4.0), floor=floor)
        assert leave_out_wrong(raced) == {} and len(raced.candidates) == 3


@pytest.mark.parametrize("wrong", [[0, 1, 2, 4], [0, 1, 2, torch.nan]])
def test_a_rival_that_computes_something_else_is_not_timed(wrong):
    """Another one has to bear ours out, and whoever was right has to stay so."""
    wrong, said = torch.tensor(wrong, dtype=torch.float32), "expected 3, got (4|nan)"
    raced = work(wrong, torch.arange(4.0))
    with pytest.raises(AssertionError, match=f"rival 0: .*{said}"):
        leave_out_wrong(raced, may=False)
    (how,) = leave_out_wrong(raced).values()
    assert re.search(said, how) and [*raced.candidates] == ["ours", FLOORS[0], "rival 1"]
    for rivals in ([wrong], [wrong, wrong]):
        with pytest.raises(AssertionError, match=said):
            leave_out_wrong(work(*rivals))
