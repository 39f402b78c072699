"""Tensors of more than 2^31 elements, where an offset in 32 bits goes wrong: for large GPUs only.

Each tensor that a kernel reads or writes is that large in one of the tests. The numbers are such
that float32 has the results exactly, or that what stands last weighs as much as all the rest.
"""

from functools import partial

import pytest
import torch
from torch.nn.functional import conv2d, cross_entropy

from helpers.checks import check_close, poisoned
from helpers.device import BACKEND, DEVICE

PLANES, SIDE = 8193, 512  # images of one channel of SIDE x SIDE pixels: 2^31 + 2^18 in all
ROWS, COLS = 65537, 32768  # a matrix of 2^31 + 2^15 elements
MEMORY = 60e9  # bytes that a test may take

pytestmark = pytest.mark.skipif(
    BACKEND == "cpu" or torch.cuda.get_device_properties(0).total_memory < MEMORY,
    reason=f"takes a GPU with {MEMORY / 1e9:.0f} GB",
)


@pytest.fixture(autouse=True)
def memory():
    """Give back at once what a test took; what is allocated holds NaN."""
    with poisoned():
        yield
    if BACKEND == "cuda":
        torch.cuda.empty_cache()


def bits(*shape):
    """Return zeros and ones: sums of up to 2^24 products are exact."""
    return torch.empty(shape, device=DEVICE).bernoulli_(0.5)


def images():
    """Return random images, of which the last is about 1,000."""
    inp = torch.randn(PLANES, 1, SIDE, SIDE, device=DEVICE)
    inp[-1] += 1000
    return inp


def ends(tensor):
    """Return the first two and the last two of a tensor, in float64."""
    return torch.cat([tensor[:2], tensor[-2:]]).double()


def exactly(got, expected):
    assert torch.equal(got, expected.to(got.dtype))


def test_relu(kernel):
    relu = kernel("relu")
    inp = bits(ROWS, COLS) - 0.5
    out = relu.relu_forward(inp)
    exactly(out, inp.relu_())
    exactly(relu.relu_backward(inp, out), inp)


def test_philox(kernel):
    philox, like = kernel("philox"), torch.empty(ROWS, COLS, device=DEVICE)
    n, few = like.numel(), torch.empty(8, device=DEVICE)
    out = philox.philox_uniform(like, 3, 0, 1).view(-1)
    exactly(out[-8:], philox.philox_uniform(few, 3, n - 8, 1))
    out = philox.philox_uniform(like, 3, 0, 1000).view(-1)
    number = n // 4000 * 4  # of each sequence, in the last elements
    rest = out[number * 1000 :]
    exactly(rest, philox.philox_uniform(torch.empty_like(rest), 3, number, 1000))
    out = philox.philox_dropout(like.fill_(1), 0.5, 3, 0).view(-1)
    exactly(out[-8:], philox.philox_dropout(few.fill_(1), 0.5, 3, n - 8))


def test_gelu(kernel):
    gelu, inp = kernel("gelu"), torch.randn(ROWS, COLS, device=DEVICE)
    out = gelu.gelu_forward(inp)
    close = partial(check_close, rtol=1e-5, atol=1e-6)  # ends() are float64
    close(ends(out), torch.nn.functional.gelu(ends(inp)))
    del out
    exact = ends(inp).requires_grad_()
    torch.nn.functional.gelu(exact).backward(ends(inp))
    close(ends(gelu.gelu_backward(inp, inp)), exact.grad)


def test_sgd(kernel):
    param, grad = bits(ROWS, COLS), bits(ROWS, COLS)
    expected = param - 0.5 * grad
    kernel("sgd").sgd_step(param, grad, 0.5)
    exactly(param, expected)


def test_conv2d_naive_of_many_images(kernel):
    module, inp, weight = kernel("conv2d_naive"), bits(PLANES, 1, SIDE, SIDE), bits(1, 1, 3, 3)
    out = module.conv2d_forward(inp, weight, 1)
    exactly(ends(out), conv2d(ends(inp), weight.double(), padding=1))
    del out
    dinp = module.conv2d_backward_input(inp, weight, 1)
    exactly(ends(dinp), conv2d(ends(inp), weight.double().flip(2, 3), padding=1))
    del dinp
    inp[:-1] = 0  # the last image alone decides
    dweight = module.conv2d_backward_weight(inp, inp, 1)
    last = inp[-1:].double().cpu()
    exactly(dweight.cpu(), conv2d(last, last, padding=1))


def test_conv2d_naive_of_many_weights(kernel):
    module, weight = kernel("conv2d_naive"), bits(ROWS, COLS, 1, 1)
    inp, dout = bits(1, COLS, 1, 1), bits(1, ROWS, 1, 1)
    matrix = weight.view(ROWS, COLS)
    exactly(module.conv2d_forward(inp, weight, 0).view(-1), matrix @ inp.view(-1))
    exactly(module.conv2d_backward_input(dout, weight, 0).view(-1), dout.view(-1) @ matrix)
    del weight, matrix
    dweight = module.conv2d_backward_weight(dout, inp, 0)
    exactly(dweight.view(ROWS, COLS), torch.outer(dout.view(-1), inp.view(-1)))


def test_batch_norm2d(kernel):
    module, inp, dout = kernel("batch_norm2d"), images(), images()
    one = torch.ones(1, device=DEVICE)
    mean, var = module.batch_norm2d_stats(inp, one.clone(), one.clone(), 0.1)
    check_close(mean, inp.mean().view(1), rtol=1e-3)
    check_close(var, inp.var().view(1), rtol=1e-3)
    out = module.batch_norm2d_forward(inp, mean, var, one, one, 0.3)
    normed = (ends(inp) - mean.double()) / (var.double() + 0.3).sqrt()
    check_close(ends(out), normed + 1, rtol=1e-4)
    del out
    dinp, dweight, dbias = module.batch_norm2d_backward(dout, inp, mean, var, one, 0.3)
    check_close(dbias, dout.sum().view(1), rtol=1e-3)
    # the last image has nearly all of it: its dout is about 1,000 where its inp is too
    check_close(dweight, (ends(dout)[-1] * normed[-1]).sum().view(1), rtol=1e-2)
    rest = ends(dout) - (dbias.double() + normed * dweight.double()) / inp.numel()
    check_close(ends(dinp), rest / (var.double() + 0.3).sqrt(), rtol=1e-3)


def test_max_pool2d(kernel):
    module, inp = kernel("max_pool2d"), images()
    out, index = module.max_pool2d_forward(inp, 1)  # windows of one pixel: all tensors are large
    exactly(out, inp)
    exactly(index[-1].view(-1), torch.arange(SIDE * SIDE, device=DEVICE))
    del out
    exactly(module.max_pool2d_backward(inp, index, 1, SIDE, SIDE), inp)


def test_linear_naive(kernel):
    module, large = kernel("linear_naive"), bits(ROWS, COLS)
    row, col, zero = bits(1, COLS), bits(1, ROWS), torch.zeros(ROWS, device=DEVICE)
    exactly(module.linear_forward(large, row, zero[:1]), large @ row.T)
    exactly(module.linear_forward(row, large, zero), row @ large.T)
    exactly(module.linear_backward_input(col, large), col @ large)
    dweight, dbias = module.linear_backward_weight(col.T.contiguous(), large)
    exactly(dweight, col @ large)
    exactly(dbias, col.sum().view(1))
    dweight, dbias = module.linear_backward_weight(large, col.T.contiguous())
    exactly(dweight, large.T @ col.T)
    exactly(dbias, large.sum(0))
    del large
    products = torch.outer(col[0], row[0])
    exactly(module.linear_forward(col.T.contiguous(), row.T.contiguous(), zero[:COLS]), products)
    exactly(module.linear_backward_input(col.T.contiguous(), row), products)
    exactly(module.linear_backward_weight(col, row)[0], products)


def test_cross_entropy(kernel):
    module, logits = kernel("cross_entropy"), torch.randn(ROWS, COLS, device=DEVICE)
    labels = torch.randint(COLS, (ROWS,), device=DEVICE)
    logits[-1, labels[-1]] = -1e7  # as much loss as all the other rows have
    expected = cross_entropy(logits, labels)
    check_close(module.cross_entropy_forward(logits, labels), expected, rtol=1e-3)
    one = torch.ones((), device=DEVICE)
    dlogits = module.cross_entropy_backward(one, logits, labels)
    exact = ends(logits).softmax(1)
    exact[torch.arange(4), torch.cat([labels[:2], labels[-2:]])] -= 1
    check_close(ends(dlogits), exact / ROWS, rtol=1e-4)


def test_vector_add(kernel):
    a, b = bits(ROWS, COLS), bits(ROWS, COLS)
    out = kernel("vector_add").vector_add(a, b)
    exactly(out, a.add_(b))


def test_max_pool2d_by_four_windows(kernel):
    module, inp = kernel("max_pool2d"), images()
    out, index = module.max_pool2d_forward(inp, 2)
    expected, places = torch.nn.functional.max_pool2d(ends(inp), 2, return_indices=True)
    exactly(ends(out), expected)
    exactly(ends(index), places)
    dinp = module.max_pool2d_backward(out, index, 2, SIDE, SIDE)
    exactly(ends(dinp), torch.nn.functional.max_unpool2d(expected, places, 2))


def test_sum(kernel):
    inp = bits(ROWS * COLS)
    inp[:-COLS] = 0  # the last weigh as much as all the rest
    exactly(kernel("sum").sum(inp), inp.sum())


def test_argmax(kernel):
    inp = bits(ROWS * COLS)
    inp[-3] = 2
    assert kernel("argmax").argmax(inp).item() == inp.numel() - 3


def test_scan(kernel):
    inp = torch.zeros(ROWS * COLS, device=DEVICE)
    inp[:: 2**20] = 1
    inp[-5] = 1
    out = kernel("scan").scan(inp)
    places = torch.tensor([0, 2**20 - 1, 2**20, 2**31 - 1, 2**31, inp.numel() - 6, inp.numel() - 1])
    expected = [1, 1, 2, 2**11, 2**11 + 1, 2**11 + 1, 2**11 + 2]
    assert out[places.to(DEVICE)].tolist() == expected


def test_histogram(kernel):
    inp = torch.full((ROWS * COLS,), 7, dtype=torch.uint8, device=DEVICE)
    inp[-5:] = 200
    counts = kernel("histogram").histogram(inp).tolist()
    assert (counts[7], counts[200], sum(counts)) == (inp.numel() - 5, 5, inp.numel())


def test_softmax(kernel):
    module, inp = kernel("softmax"), torch.randn(ROWS, COLS, device=DEVICE)
    out = module.softmax_forward(inp)
    check_close(ends(out), ends(inp).softmax(1), rtol=1e-4, atol=1e-9)
    dinp = module.softmax_backward(inp, out)
    expected = ends(out) * (ends(inp) - (ends(inp) * ends(out)).sum(1, keepdim=True))
    check_close(ends(dinp), expected, rtol=1e-3, atol=1e-8)


@pytest.mark.parametrize("op", ["layer_norm", "rms_norm"])
def test_norms(kernel, op):
    module, inp = kernel(op), torch.randn(ROWS, COLS, device=DEVICE)
    weight, bias = torch.randn(2, COLS, device=DEVICE)
    by = (weight, bias) if op == "layer_norm" else (weight,)
    out, *stats = getattr(module, f"{op}_forward")(inp, *by, 1e-5)
    exact = ends(inp).requires_grad_()
    normed = getattr(torch.nn.functional, op)(exact, (COLS,), *(t.double() for t in by), eps=1e-5)
    check_close(ends(out), normed.detach(), rtol=1e-4, atol=1e-4)
    del out
    normed.backward(ends(inp))
    dinp, *_ = getattr(module, f"{op}_backward")(inp, inp, weight, *stats)
    check_close(ends(dinp), exact.grad, rtol=1e-3, atol=1e-3)


def test_transpose(kernel):
    """An odd number of rows goes element by element, a multiple of 4 by packs."""
    for rows in (ROWS, ROWS + 3):
        inp = bits(rows, COLS)
        exactly(kernel("transpose").transpose(inp), inp.t())


def test_attention(kernel):
    heads, S, D = 65600, 256, 128  # 2^31 and some elements each
    q, k, v = (torch.randn(1, heads, S, D, device=DEVICE, dtype=torch.bfloat16) for _ in range(3))
    out = kernel("attention").attention_forward(q, k, v, False)
    exact = [tensor[:, -2:].double() for tensor in (q, k, v)]
    expected = torch.nn.functional.scaled_dot_product_attention(*exact)
    check_close(out[:, -2:].double(), expected, rtol=0.02, atol=0.02)


def test_matmul_tensor_core(kernel):
    """A as rows, as columns, as a view that has to be copied, and an out of that many elements."""
    matmul = kernel("matmul_tensor_core").matmul_tensor_core

    def integers(*shape):
        return torch.randint(-128, 128, shape, device=DEVICE, dtype=torch.int8)

    A, B = integers(ROWS, COLS), integers(ROWS, 16)
    exactly(ends(matmul(A, B[:COLS], False)), ends(A) @ B[:COLS].double())
    exactly(ends(matmul(A.t(), B, False)), ends(A.t()) @ B.double())
    exactly(ends(matmul(A[:, 1:], B[1:COLS], False)), ends(A[:, 1:]) @ B[1:COLS].double())
    exactly(ends(matmul(B, A[:16], False)), ends(B) @ A[:16].double())


def test_matmul(kernel):
    matmul, large = kernel("matmul").matmul, bits(ROWS, COLS)
    row, col, narrow, few = bits(1, COLS), bits(1, ROWS), bits(COLS, 3), bits(3, ROWS)
    exactly(matmul(large, row.T), large @ row.T)
    exactly(matmul(col, large), col @ large)
    exactly(matmul(large, narrow), large @ narrow)
    exactly(matmul(few, large), few @ large)
    del large
    exactly(matmul(col.T, row), torch.outer(col[0], row[0]))
