"""What `make bench` times is compared: a rival that computes something else is refused."""

import pytest
import torch

from helpers.checks import check_close
from helpers.make.bench import compare_results
from helpers.make.bench_cases import Work
from helpers.make.readme import FLOORS


def work(rival, floor=None):
    candidates = {"ours": lambda: torch.arange(4.0), "rival": lambda: rival}
    return Work("four", candidates | {FLOORS[0]: lambda: floor}, agree=check_close)


def test_results_that_agree_pass_whatever_a_floor_returns():
    compare_results(work(torch.arange(4.0)))
    compare_results(work(torch.arange(4.0), floor=torch.zeros(7)))


@pytest.mark.parametrize("wrong", [[0, 1, 2, 4], [0, 1, 2, torch.nan]])
def test_a_rival_that_computes_something_else_is_refused(wrong):
    with pytest.raises(AssertionError, match="expected 3, got (4|nan)"):
        compare_results(work(torch.tensor(wrong, dtype=torch.float32)))
