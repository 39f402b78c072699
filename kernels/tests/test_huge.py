"""Tensors of more than 2^32 elements, where an offset in 32 bits goes wrong: for large GPUs only.

A signed one does from 2^31 on, an unsigned one from 2^32. Each tensor that a kernel reads or writes
is that large in one of the tests, but between the passes of a transform, where memory is short:
there half as many. The numbers are such that float32 has the results exactly, or that what stands
last weighs as much as all the rest.
"""

from functools import partial

import pytest
import torch
from torch.nn.functional import conv2d, cross_entropy
from torch.nn.grad import conv2d_input, conv2d_weight

from helpers.checks import check_close, poisoned
from helpers.device import BACKEND, DEVICE
from kernels.tests import test_all_reduce as collective
from kernels.tests import test_mnist_cnn as network

PLANES, SIDE = 16_385, 512  # images of one channel of SIDE x SIDE pixels: 2^32 + 2^18 in all
CHANNELS, SMALL = 64, 64  # of as many images, smaller ones of more channels: the same number
ROWS, COLS = 131_073, 32_768  # a matrix of 2^32 + 2^15 elements
LONG = 2**30  # the longest K of a product
MEMORY = 76e9  # bytes that a test may take: four such tensors of float32, and some room

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
    expected = torch.sub(param, grad, alpha=0.5)
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


def test_linear(kernel):
    """Many weights, read by each kind of kernel; many rows of inp; many results."""
    linear = kernel("linear").linear

    def halves(*shape):
        return bits(*shape).half()

    weight, none = halves(ROWS, COLS), torch.empty(0, device=DEVICE).half()
    close = partial(check_close, rtol=2**-10, atol=1e-3)
    for rows in (3, 40):
        inp = halves(rows, COLS)
        inp[:, 64:-64] = 0  # sums stay small
        close(ends(linear(inp, weight, none).t()), ends(weight) @ inp.double().t())
    few = halves(40, COLS)
    few[:, 64:-64] = 0
    close(ends(linear(weight, few, none)), ends(weight) @ few.double().t())
    del weight
    inp, weight = halves(ROWS, 8), halves(COLS, 8)
    close(ends(linear(inp, weight, none)), ends(inp) @ weight.double().t())


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
    places = torch.tensor([0, 2**20 - 1, 2**20, 2**32 - 1, 2**32, inp.numel() - 6, inp.numel() - 1])
    expected = [1, 1, 2, 2**12, 2**12 + 1, 2**12 + 1, 2**12 + 2]
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


each_type = pytest.mark.parametrize(
    "dtype, D, close",
    [(torch.float32, 128, 1e-5), (torch.bfloat16, 128, 0.02), (torch.float16, 64, 3e-3)],
)


def random_heads(dtype, D, S=256):
    """Return q, k and v, one batch entry, of 2^32 elements and more each."""
    heads = PLANES * SIDE**2 // S // D
    return (torch.randn(1, heads, S, D, device=DEVICE, dtype=dtype) for _ in range(3))


@each_type
def test_attention(kernel, dtype, D, close):
    q, k, v = random_heads(dtype, D)
    out = kernel("attention").attention_forward(q, k, v, False)[0]
    exact = [ends(tensor[0]) for tensor in (q, k, v)]
    expected = torch.nn.functional.scaled_dot_product_attention(*exact)
    check_close(ends(out), expected, rtol=close, atol=close)


@each_type
def test_flash_attention(kernel, dtype, D, close):
    q, k, v = random_heads(dtype, D)
    out, lse = kernel("flash_attention").flash_attention_forward(q, k, v, None, True, False, 0)
    q, k, v = (ends(tensor[0]) for tensor in (q, k, v))
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    check_close(ends(out[0]), expected, rtol=close, atol=close)
    hidden = torch.ones_like(q @ k.mT, dtype=torch.bool).triu(1)
    scores = (q @ k.mT / D**0.5).masked_fill(hidden, -torch.inf)
    check_close(ends(lse[0]), scores.logsumexp(-1), rtol=close, atol=close)


@pytest.mark.parametrize("D", [128, 160], ids=["wgmma", "plain"])
def test_gradients_of_flash_attention(kernel, D):
    """Of eight tensors, each of which has 2^31 elements and more."""
    heads, S = PLANES * SIDE**2 // 2 // 256 // D + 1, 256
    q, k, v, dout = (
        torch.randn(1, heads, S, D, device=DEVICE, dtype=torch.bfloat16) for _ in range(4)
    )
    module = kernel("flash_attention")
    out, lse = module.flash_attention_forward(q, k, v, None, False, False, 0)
    grads = module.flash_attention_backward(dout, q, k, v, out, lse, None, False, False, 0)
    exact = [ends(tensor[0]).requires_grad_() for tensor in (q, k, v)]
    of = torch.nn.functional.scaled_dot_product_attention(*exact)
    for got, want in zip(grads, torch.autograd.grad(of, exact, ends(dout[0])), strict=True):
        check_close(ends(got[0]), want, rtol=0.03, atol=0.005)


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


def test_matmul_whose_sums_are_cut(kernel):
    """Few rows and columns, and a K that is shared out among blocks: what stands last decides."""
    matmul = kernel("matmul").matmul
    for rows, cols in ((5, 1), (5, 2), (1, 5), (2, 5)):  # one vector, and none; A large, and B
        large = torch.zeros(max(rows, cols), LONG, device=DEVICE)
        large[:, -COLS:] = bits(len(large), COLS)
        few = bits(min(rows, cols), LONG)
        A, B = (large, few) if rows > cols else (few, large)
        expected = A[:, -COLS:].double() @ B[:, -COLS:].double().t()
        exactly(matmul(A, B.t()), expected)
        by_rows = large.t().contiguous().t()  # columns one after another
        del large
        A, B = (by_rows, few) if rows > cols else (few, by_rows)
        exactly(matmul(A, B.t()), expected)
        del A, B, by_rows


def test_square(kernel):
    inp = bits(ROWS, COLS) - 3
    exactly(kernel("square").square(inp), inp.square_())


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.parametrize("k", [1, 3])
def test_conv2d(kernel, k, layout):
    module, how = kernel("conv2d"), ([1, 1], [k // 2] * 2, [1, 1], 1, False)
    inp = torch.empty(PLANES, CHANNELS, SMALL, SMALL, device=DEVICE, memory_format=layout)
    inp.bernoulli_(0.5)
    weight = bits(CHANNELS, CHANNELS, k, k)
    out = module.conv2d_forward(inp, weight, inp.new_empty(0), *how)
    exactly(ends(out), conv2d(ends(inp), weight.double(), padding=k // 2))
    del out
    dinp = module.conv2d_backward_input(inp, weight, SMALL, SMALL, *how)
    exact = ends(inp)
    exactly(ends(dinp), conv2d_input(exact.shape, weight.double(), exact, padding=k // 2))
    del dinp
    inp[:-1] = 0  # the last image alone decides
    dweight = module.conv2d_backward_weight(inp, inp, k, k, *how)
    last = inp[-1:].double().cpu()
    exactly(dweight.cpu(), conv2d_weight(last, weight.shape, last, padding=k // 2))


@pytest.mark.parametrize("k", [1, 3])
def test_conv2d_half(kernel, k):
    module, how = kernel("conv2d_half"), ([1, 1], [k // 2] * 2, [1, 1], 1)
    half = {"dtype": torch.float16, "memory_format": torch.channels_last}
    inp = torch.empty(PLANES, CHANNELS, SMALL, SMALL, device=DEVICE, **half)
    inp.bernoulli_(0.5)
    weight = bits(CHANNELS, CHANNELS, k, k).to(**half)
    out = module.conv2d_half_forward(inp, weight, inp.new_empty(0), *how)
    exactly(ends(out), conv2d(ends(inp), weight.double(), padding=k // 2).half().double())
    del out
    dinp = module.conv2d_half_backward_input(inp, weight, SMALL, SMALL, *how)
    exact = ends(inp)
    want = conv2d_input(exact.shape, weight.double(), exact, padding=k // 2)
    exactly(ends(dinp), want.half().double())
    del dinp
    inp[:-1] = 0  # the last image alone decides
    dweight = module.conv2d_half_backward_weight(inp, inp, k, k, *how)
    last = inp[-1:].double().cpu()
    exactly(dweight.cpu(), conv2d_weight(last, weight.shape, last, padding=k // 2))


@pytest.mark.parametrize("k, stride", [(3, 1), (3, 2), (4, 1)])  # the last: by the definition
def test_depthwise_conv2d(kernel, k, stride):
    module, inp, weight = kernel("depthwise_conv2d"), bits(PLANES, 1, SIDE, SIDE), bits(1, k, k)
    taps, how = weight[:, None].double(), {"stride": stride, "padding": k // 2}
    numbers = stride, k // 2, 1
    out = module.depthwise_conv2d_forward(inp, weight, inp.new_empty(0), *numbers)
    exactly(ends(out), conv2d(ends(inp), taps, **how))
    dinp = module.depthwise_conv2d_backward_input(out, weight, SIDE, SIDE, *numbers)
    exactly(ends(dinp), conv2d_input(ends(inp).shape, taps, ends(out), **how))
    del dinp
    inp[:-1] = 0  # the last image alone decides
    dweight = module.depthwise_conv2d_backward_weight(out, inp, k, k, *numbers)
    last, dout = inp[-1:].double().cpu(), out[-1:].double().cpu()
    exactly(dweight.cpu(), conv2d_weight(last, taps.shape, dout, **how)[:, 0])


def first_and_last(tensor):
    """Return the same as `ends`, complex."""
    return torch.cat([tensor[:2], tensor[-2:]]).to(torch.complex128)


def close_as_a_whole(got, want):
    assert (got - want).norm() < 1e-6 * want.norm()


def complexes(*shape):
    made = torch.empty(shape, dtype=torch.complex64, device=DEVICE)
    torch.view_as_real(made).normal_()
    return made


ALL = ROWS * COLS
# length of a row, numbers in all: one pass of each kind; portions; two passes, three, of other n
TRANSFORMS = [(4096, ALL), (16_384, ALL), (1000, ALL), (97, ALL)]
TRANSFORMS += [(2**16, ALL // 2), (2**21, ALL // 2), (3**10, ALL // 2)]


@pytest.mark.parametrize("n, numbers", TRANSFORMS)
def test_fft(kernel, n, numbers):
    fft, inp = kernel("fft"), complexes(numbers // n + 2, n)
    for ours, theirs in ((fft.fft_forward, torch.fft.fft), (fft.fft_inverse, torch.fft.ifft)):
        out = ours(inp)
        close_as_a_whole(first_and_last(out), theirs(first_and_last(inp)))
        del out


@pytest.mark.parametrize("n", [8192, 1000])
def test_fft_of_real_rows(kernel, n):
    fft, inp = kernel("fft"), torch.randn(ALL // n + 2, n, device=DEVICE)
    out = fft.rfft(inp)
    close_as_a_whole(first_and_last(out), torch.fft.rfft(ends(inp)))
    exact = ends(inp)
    del inp
    close_as_a_whole(ends(fft.irfft(out, n)), exact)


@pytest.mark.parametrize("side, numbers", [(64, ALL), (96, ALL), (4096, ALL // 2)])
def test_fft_of_images(kernel, side, numbers):
    fft, inp = kernel("fft"), complexes(numbers // side**2 + 2, side, side)
    for ours, theirs in ((fft.fft2, torch.fft.fft2), (fft.ifft2, torch.fft.ifft2)):
        out = ours(inp)
        close_as_a_whole(first_and_last(out), theirs(first_and_last(inp)))
        del out


@pytest.mark.parametrize("more", [0, 7])  # rows: an odd number, and one that wgmma takes
def test_matmul_fp8(kernel, more):
    """Sums of up to 2^14, of which tensor cores have all bits, rounded once."""
    matmul, one = kernel("matmul_fp8").matmul_fp8, torch.ones((), device=DEVICE)
    rows = ROWS + more

    def eighths(*shape):
        return bits(*shape).to(torch.float8_e4m3fn)

    def product(A, B):
        return matmul(A, B, one, one, False)

    large, few = eighths(rows, COLS), eighths(16, COLS)
    exactly(ends(product(large, few)), (ends(large) @ few.double().t()).bfloat16())
    exactly(ends(product(few, large).t()), (ends(large) @ few.double().t()).bfloat16())
    del large
    tall, wide = eighths(rows, 32), eighths(COLS, 32)
    exactly(ends(product(tall, wide)), (ends(tall) @ wide.double().t()).bfloat16())


def test_matmul_fp8_of_long_sums(kernel):
    A, B = (torch.zeros(rows, LONG, device=DEVICE, dtype=torch.uint8) for rows in (5, 3))
    A[:, -4096:], B[:, -4096:] = (bits(rows, 4096) * 0x38 for rows in (5, 3))  # 0x38: 1.0
    A, B = (x.view(torch.float8_e4m3fn) for x in (A, B))
    one = torch.ones((), device=DEVICE)
    out = kernel("matmul_fp8").matmul_fp8(A, B, one, one, False)
    expected = A[:, -4096:].double() @ B[:, -4096:].double().t()
    exactly(out, expected.bfloat16())


@pytest.mark.parametrize("name, others", [("adamw_step", 3), ("sgd_momentum_step", 2)])
def test_optimizers(kernel, name, others):
    """A large tensor and a small one behind it; what stands at its ends moves as if it were all."""
    step = getattr(kernel("optimizers"), name)
    numbers = (3, 0.01, 0.9, 0.99, 1e-6, 0.1) if name == "adamw_step" else (0.03, 0.9, 0.01)
    large = [bits(ROWS, COLS) for _ in range(1 + others)]  # bits: no second moment is below 0
    small = [ends(x).float() for x in large]
    behind = [bits(7) for _ in large]
    also = [x.clone() for x in behind]
    step(*map(list, zip(large, behind, strict=True)), *numbers)
    step(*map(list, zip(small, also, strict=True)), *numbers)
    for a, b, c, d in zip(large, small, behind, also, strict=True):
        assert torch.equal(ends(a).float(), b) and torch.equal(c, d)


@pytest.mark.parametrize("bits_of", [8, 4])
def test_quantized_linear(kernel, bits_of):
    """Many weights; many rows of x; many results."""
    linear = kernel("quantized_linear").quantized_linear

    def arguments(B, N, numbers):
        """Return x, weights of 8 or 4 bits in (N, numbers) bytes, and one scale for all."""
        K = numbers * 8 // bits_of
        weight = torch.empty(N, numbers, device=DEVICE, dtype=torch.uint8).random_(256)
        x = torch.empty(B, K, device=DEVICE, dtype=torch.float16).bernoulli_(0.5)
        scales = torch.full((1, N), 2.0**-8, device=DEVICE, dtype=torch.float16)
        return x, weight.view(torch.int8) if bits_of == 8 else weight, scales

    def exact(weight):
        weight = torch.cat([weight[:2], weight[-2:]])
        if bits_of == 8:
            return weight.double() / 2**8
        both = torch.stack([weight % 16, weight // 16], -1).flatten(1)
        return (both.double() - 8) / 2**8

    close = partial(check_close, rtol=2**-10, atol=1e-3)  # rounded once to float16
    x, weight, scales = arguments(3, ROWS, COLS)
    close(ends(linear(x, weight, scales).t()), exact(weight) @ x.double().t())
    x, weight, scales = arguments(ROWS, 4, COLS)
    close(ends(linear(x, weight, scales)), ends(x) @ exact(weight).t())
    del x
    x, weight, scales = arguments(ROWS, COLS, 32)
    out = linear(x, weight, scales)
    close(ends(ends(out).t()), exact(weight) @ ends(x).t())


def test_all_reduce():
    x, file = bits(2, ROWS // 2 + 1, COLS), collective.compile_cuda(collective.FILE)
    out = file.all_reduce_here(x, collective.links_of(2))
    exactly(out[1], x[0].add_(x[1]))
    exactly(out[0], x[0])


def test_mnist_cnn_of_many_images():
    """A step on the last images of a large set is one on a set of these alone."""
    step, count = network.built(), ROWS * COLS // 784 + 5
    images = torch.randn(count, 28, 28, device=DEVICE)
    labels = torch.randint(10, (count,), device=DEVICE)
    start, results = network.parameters(), []
    for at in (0, count - 4):
        values = [value.clone() for value in start]
        workspace = step.mnist_cnn_prepare(values, 4, True)
        index = torch.arange(count - 4 - at, count - at, device=DEVICE)
        of = images[at:].clone(), labels[at:].clone(), index  # as memory that begins at 16 bytes
        results.append([step.mnist_cnn_step(values, workspace, *of, 0.5, True), *values])
    assert all(map(torch.equal, *results))


def test_mnist_cnn_of_a_large_batch():
    """What lies between the layers has more than 2^32 numbers."""
    step, count = network.built(), min(2**19, PLANES * SIDE**2 // (196 * 32) - 1)
    images, values = torch.randn(count, 28, 28, device=DEVICE), network.parameters()
    for exact in (True, False):
        workspace = step.mnist_cnn_prepare(values, count, exact)
        out = step.mnist_cnn_predict(values, workspace, images, exact)
        del workspace
        want = network.logits_of([v.double() for v in values], ends(images), False)
        check_close(ends(out), want, rtol=1e-4, atol=1e-5 if exact else 1e-4)


def test_files_for_smaller_tensors_refuse_large_ones(kernel):
    """Their indices have 32 bits, which their first comments say."""
    pixels = torch.zeros(2**30 + 1024, device=DEVICE, dtype=torch.uint8)
    with pytest.raises(RuntimeError, match=r"inp: expected .*2\^30 pixels"):
        kernel("blur").blur(pixels.view(-1, 1024), 1)
    pixels = torch.zeros(3 * 2**30, device=DEVICE, dtype=torch.uint8)
    with pytest.raises(RuntimeError, match=r"inp: expected .*2\^31 - 1"):
        kernel("rgb_to_gray").rgb_to_gray(pixels.view(3, 2**15, 2**15))
    tall = torch.zeros(2**16, 2**15, device=DEVICE)
    with pytest.raises(RuntimeError, match=r"expected at most 2\^31 - 1 elements each"):
        kernel("matmul_naive").matmul_naive(tall, tall[:1].t().contiguous())
