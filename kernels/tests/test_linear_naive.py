"""linear and its gradients: what they promise (see contract.py), and NaN."""

import torch
from torch.nn.functional import linear

from kernels.tests.contract import Case, floats, wrong

# rows N, inputs K, outputs M
SIZES = [(2, 3, 5), (1, 1, 1), (16, 3136, 128), (7, 128, 10), (33, 5, 129), (3, 781, 257)]
SIZES += [(130, 2, 1), (0, 3, 4), (2, 3, 0), (2, 0, 4)]


def of_terms(count):
    """One sum alone may end near 0: it is judged by the size of its terms added at random."""
    return {"atol": 1e-5 * max(1, count) ** 0.5}


CASES = [
    Case(
        "linear_forward",
        lambda N, K, M: {"inp": floats(N, K), "weight": floats(M, K), "bias": floats(M)},
        linear,
        SIZES,
        ragged=wrong("weight", floats, (5, 4), (5,), (1, 5, 3))
        + wrong("bias", floats, (3,), (5, 1), ())
        + wrong("inp", floats, (3,), (1, 2, 3)),
        tolerance=lambda N, K, M: of_terms(K + 1),
    ),
    Case(
        "linear_backward_input",
        lambda N, K, M: {"dout": floats(N, M), "weight": floats(M, K)},
        lambda dout, weight: dout @ weight,
        SIZES,
        ragged=wrong("weight", floats, (4, 3), (5,), (1, 5, 3)) + wrong("dout", floats, (5,)),
        tolerance=lambda N, K, M: of_terms(M),
    ),
    Case(
        "linear_backward_weight",
        lambda N, K, M: {"dout": floats(N, M), "inp": floats(N, K)},
        lambda dout, inp: (dout.T @ inp, dout.sum(0)),
        SIZES,
        ragged=wrong("inp", floats, (4, 3), (3,), (1, 2, 3)) + wrong("dout", floats, (5,)),
        tolerance=lambda N, K, M: of_terms(N),
    ),
]


def test_linear_keeps_nan_in_its_row(kernel):
    inp = floats(5, 9)
    inp[3, 4] = torch.nan
    out = kernel("linear_naive").linear_forward(inp, floats(6, 9), floats(6))
    assert out.isnan().all(1).tolist() == [False, False, False, True, False]
    assert out.isnan().sum() == 6
