"""Test a .cu file without a GPU, every access checked: the first passes, two fail on purpose."""

import pytest
import torch


@pytest.mark.parametrize("version", ["right", "racy", "too_long"])
def test_row_sums(cuda, version):
    row_sums = cuda("row_sums.cu", check=True)
    inp = torch.randn(3, 200)
    torch.testing.assert_close(getattr(row_sums, version)(inp), inp.sum(dim=1))
