"""Every kernel of this folder against PyTorch in float64: `python test_kernels.py`, or by pytest.

It needs what load.py needs. Sizes are awkward, numbers new in every run, in memory that is aligned
to 16 bytes and in memory that is aligned to elements only. What a kernel leaves unwritten holds
NaN, and NaN never passes. `python test_kernels.py taken_kernels` tests what setup.py built.
"""

import itertools
import math
import sys
import warnings
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch.nn.grad import conv2d_input, conv2d_weight

sys.path.insert(0, str(Path(__file__).parent))  # for pytest, which may leave it out

DEVICE = "cuda"
MODULE = "load"  # where the kernels come from
HALVES = torch.float16, torch.bfloat16
FLOATS = torch.float32, *HALVES


def kernel(name):
    """Return the functions of a .cu file."""
    return getattr(__import__(MODULE, fromlist=[name]), name)


def floats(*shape, dtype=torch.float32, shift=0, scale=1.0, mean=0.0):
    """Return normal random numbers that begin `shift` elements behind a multiple of 16 bytes."""
    numbers = torch.randn(math.prod(shape) + shift, device=DEVICE) * scale + mean
    return numbers.to(dtype)[shift:].view(shape)


def whole(low, high, *shape, dtype=torch.int64, shift=0):
    """Return random whole numbers from low to high - 1."""
    numbers = torch.randint(low, high, (math.prod(shape) + shift,), device=DEVICE)
    return numbers.to(dtype)[shift:].view(shape)


def of_types(*dtypes):
    """Yield functions like `floats`: for each type, aligned to 16 bytes and to elements only."""
    for dtype, shift in itertools.product(dtypes or [torch.float32], (0, 1)):
        yield partial(floats, dtype=dtype, shift=shift)


def exact(*tensors):
    """Return copies on the CPU, floats as float64."""
    copies = [tensor.detach().cpu().clone() for tensor in tensors]
    copies = [copy.to(torch.complex128) if copy.is_complex() else copy for copy in copies]
    copies = [copy.double() if copy.is_floating_point() else copy for copy in copies]
    return copies if len(copies) > 1 else copies[0]


def run(function, *arguments):
    """Call a kernel while new memory holds NaN, of integers the largest."""
    before = torch.get_deterministic_debug_mode()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of operations that add up in any order
        torch.set_deterministic_debug_mode("warn")
        try:
            return function(*arguments)
        finally:
            torch.set_deterministic_debug_mode(before)


def close(got, want, rtol=None, atol=0.0):
    """Raise AssertionError unless they agree up to rounding, element by element.

    What is rounded to a half type once may be off by half a unit. A sum that happens to end near 0
    has the errors of its terms: 1e-5 of the usual size of `want` is allowed everywhere.
    """
    assert got.shape == want.shape, f"expected the shape {want.shape}, got {got.shape}"
    if not (got.is_floating_point() or got.is_complex()):
        assert torch.equal(got.cpu().long(), want.cpu().long()), "integers differ"
        return
    unit = torch.finfo(got.dtype).eps
    rtol = rtol or (1e-5 if unit < 1e-5 else 0.51 * unit)
    size = want.abs()
    least = unit * torch.finfo(got.dtype).smallest_normal  # the step between the smallest numbers
    allowed = rtol * size + atol + 1e-5 * size.square().mean().sqrt() + least
    error = (exact(got) - want).abs()
    wrong = ~(error <= allowed)  # so is NaN
    assert not wrong.any(), (
        f"{wrong.sum()} of {wrong.numel()} {got.dtype} of shape {tuple(want.shape)} are off, "
        f"by up to {error[wrong].max():.3g} where {allowed[wrong].min():.3g} is allowed"
    )


def gradients(function, dout, *inputs):
    """Return what autograd has for the inputs of a function."""
    inputs = [value.requires_grad_() for value in inputs]
    return torch.autograd.grad(function(*inputs), inputs, dout)


def test_all_reduce():
    """All ranks in one process, on one GPU; and a rank alone."""
    file, like = kernel("all_reduce"), floats(1)
    for ranks in (1, 2, 3):
        cards = [part for _ in range(ranks) for part in file.all_reduce_open(like, ranks)]
        links = file.all_reduce_connect(like, cards, -1 if ranks > 1 else 0, 30.0)
        for new, n in itertools.product(of_types(*FLOATS), (0, 1, 7, 4097, 20_001)):
            inp = new(ranks, n)
            want = exact(inp).sum(0).expand(ranks, n)
            if ranks > 1:
                close(run(file.all_reduce_here, inp, links), want)
            else:
                close(run(file.all_reduce, inp, links), want)
                run(file.all_reduce_, inp, links)
                close(inp, want)
        file.all_reduce_close(like, links)


def test_argmax():
    for new, n in itertools.product(of_types(*FLOATS), (1, 3, 8193, 100_003)):
        for inp in (new(n), new(n).mul_(3).round_()):  # the second has equals: the first counts
            close(run(kernel("argmax").argmax, inp), exact(inp).argmax())


def test_attention():
    sizes = [(2, 3, 33, 18, 5), (1, 2, 70, 129, 64), (1, 1, 257, 65, 128), (2, 1, 9, 1, 80)]
    for new, size, causal in itertools.product(of_types(*FLOATS), sizes, (False, True)):
        B, H, S_q, S_kv, D = size
        q, k, v = new(B, H, S_q, D), new(B, H, S_kv, D), new(B, H, S_kv, D)
        out = run(kernel("attention").attention_forward, q, k, v, causal)
        reference = partial(F.scaled_dot_product_attention, is_causal=causal)
        unit = torch.finfo(q.dtype).eps
        terms = reference(*exact(q, k), exact(v).abs())  # half types round the weights, too
        close(out, reference(*exact(q, k, v)), atol=unit * terms if unit > 1e-5 else 0)


def test_batch_norm2d():
    file, eps, momentum = kernel("batch_norm2d"), 0.3, 0.2
    for new in of_types():
        for N, C, H, W in ((2, 3, 4, 5), (16, 32, 28, 28), (3, 5, 7, 9), (70, 2, 3, 5)):
            inp, dout = new(N, C, H, W), new(N, C, H, W)
            inp.mul_(0.5 + new(C, 1, 1).abs()).add_(new(C, 1, 1))  # a channel has its own mean
            weight, bias, running = new(C), new(C), (new(C), new(C).abs())
            x, g, w, b = exact(inp, dout, weight, bias)
            moments = x.mean((0, 2, 3)), x.var((0, 2, 3), correction=0)
            mean, var = (moment.float().to(DEVICE) for moment in moments)
            terms = 1e-5 * (N * H * W) ** 0.5  # of a sum over a channel

            def normed(x, w, b, statistics=(None, None), training=True):
                return F.batch_norm(x, *statistics, w, b, training, momentum, eps)

            moved = exact(*running)
            want = normed(x, w, b, moved)  # which moves them
            for function in (file.batch_norm2d_stats, file.batch_norm2d_train):
                now = [value.clone() for value in running]
                if function is file.batch_norm2d_stats:
                    got = run(function, inp, *now, momentum)
                else:
                    out, *got = run(function, inp, *now, weight, bias, momentum, eps)
                    close(out, want)
                for a, b_ in zip((*got, *now), (*moments, *moved), strict=True):
                    close(a, b_, atol=1e-5)
            out = run(file.batch_norm2d_forward, inp, *running, weight, bias, eps)
            close(out, normed(x, w, b, exact(*running), training=False))
            got = run(file.batch_norm2d_backward, dout, inp, mean, var, weight, eps)
            for a, b_ in zip(got, gradients(normed, g, x, w, b), strict=True):
                close(a, b_, atol=terms)


def test_blur():
    for H, W, radius in itertools.product((1, 33, 181), (1, 15, 78), (0, 2, 7)):
        inp = whole(0, 256, H, W, dtype=torch.uint8, shift=radius % 2)
        window = {"kernel_size": 2 * radius + 1, "stride": 1, "padding": radius}
        mean = F.avg_pool2d(inp[None].cpu().double(), **window, count_include_pad=False)[0]
        close(run(kernel("blur").blur, inp, radius), (mean + 0.5).long())


LARGE_LAYERS = [((16, 40, 56, 56), 72, (3, 3), (1, 1), (1, 1), (1, 1), 1)]  # as in test_conv2d


def test_conv2d():
    file = kernel("conv2d")
    sizes = [  # inp, C_out, filter, stride, padding, dilation, groups
        ((2, 4, 5, 6), 6, (3, 2), (2, 1), (1, 2), (1, 2), 2),
        ((2, 19, 9, 11), 37, (3, 3), (1, 1), (1, 1), (1, 1), 1),
        ((3, 32, 14, 14), 66, (3, 3), (1, 1), (1, 1), (1, 1), 1),
        ((2, 136, 5, 9), 33, (1, 1), (1, 1), (0, 0), (1, 1), 1),
        ((1, 8, 20, 21), 5, (5, 5), (2, 3), (2, 0), (1, 1), 1),
        ((1, 3, 8, 8), 2, (7, 6), (1, 1), (3, 3), (1, 1), 1),
    ]
    layouts = torch.contiguous_format, torch.channels_last

    def agree(got, want, tf32):  # TF32 has 11 bits
        close(got, want, atol=(5e-3 if tf32 else 3e-5) * want.square().mean().sqrt())

    for new, size, layout in itertools.product(of_types(), sizes + LARGE_LAYERS, layouts):
        shape, C_out, taps, *pairs, groups = size
        how = *map(list, pairs), groups
        weight, bias = new(C_out, shape[1] // groups, *taps), new(C_out)
        inp = new(*shape).contiguous(memory_format=layout)
        x, w, b = exact(inp, weight, bias)
        out = F.conv2d(x, w, b, *how)
        dout = new(*out.shape).contiguous(memory_format=layout)
        dinp = conv2d_input(shape, w, exact(dout), *how)
        dweight = conv2d_weight(x, w.shape, exact(dout), *how)
        for tf32 in (False, True):
            agree(run(file.conv2d_forward, inp, weight, bias, *how, tf32), out, tf32)
            got = run(file.conv2d_backward_input, dout, weight, *shape[2:], *how, tf32)
            agree(got, dinp, tf32)
            got = run(file.conv2d_backward_weight, dout, inp, *taps, *how, tf32)
            agree(got, dweight, tf32)


def test_conv2d_half():
    file, last = kernel("conv2d_half"), torch.channels_last
    sizes = [  # inp, C_out, filter, stride, padding, dilation, groups
        ((2, 4, 5, 6), 6, (3, 2), (2, 1), (1, 2), (1, 2), 2),
        ((1, 3, 30, 31), 10, (7, 7), (2, 2), (3, 3), (1, 1), 1),
        ((2, 24, 9, 11), 40, (3, 3), (1, 1), (1, 1), (1, 1), 1),
        ((1, 16, 20, 21), 8, (5, 5), (2, 3), (2, 0), (1, 1), 2),
        ((4, 8, 32, 33), 136, (1, 1), (1, 1), (0, 0), (1, 1), 1),
        ((1, 104, 4, 4), 16, (3, 3), (1, 1), (1, 1), (1, 1), 1),
    ]
    for new, (shape, C_out, taps, *pairs, groups) in itertools.product(of_types(*HALVES), sizes):

        def images(N, C, H, W, new=new):  # as they begin in memory, with their channels last
            return new(N, H, W, C).permute(0, 3, 1, 2)

        how = *map(list, pairs), groups
        inp, weight, bias = images(*shape), images(C_out, shape[1] // groups, *taps), new(C_out)
        x, w, b = exact(inp, weight, bias)
        want = F.conv2d(x, w, b, *how)
        dout = images(*want.shape)
        out = run(file.conv2d_half_forward, inp, weight, bias, *how)
        assert out.is_contiguous(memory_format=last)
        close(out, want)
        dinp = run(file.conv2d_half_backward_input, dout, weight, *shape[2:], *how)
        close(dinp, conv2d_input(shape, w, exact(dout), *how))
        dweight = run(file.conv2d_half_backward_weight, dout, inp, *taps, *how)
        close(dweight, conv2d_weight(x, w.shape, exact(dout), *how))


def test_conv2d_naive():
    file = kernel("conv2d_naive")
    sizes = [
        ((2, 3, 5, 6), 4, 3, 2, 1),
        ((3, 32, 14, 14), 64, 3, 3, 1),
        ((2, 2, 9, 11), 3, 7, 6, 3),
    ]
    for new, (shape, C_out, kH, kW, padding) in itertools.product(of_types(), sizes):
        inp, weight = new(*shape), new(C_out, shape[1], kH, kW)
        want = F.conv2d(*exact(inp, weight), padding=padding)
        dout = new(*want.shape)
        x, w, g = exact(inp, weight, dout)
        close(run(file.conv2d_forward, inp, weight, padding), want)
        want = conv2d_input(shape, w, g, padding=padding)
        close(run(file.conv2d_backward_input, dout, weight, padding), want)
        want = conv2d_weight(x, w.shape, g, padding=padding)
        close(run(file.conv2d_backward_weight, dout, inp, padding), want)


def test_cross_entropy():
    """Of the rows every fourth has the label -100, which does not count."""
    file = kernel("cross_entropy")
    for new, (N, C) in itertools.product(
        of_types(), ((6, 3), (257, 10), (5, 1823), (9, 1024), (2, 50_257))
    ):
        logits, labels, dloss = new(N, C, scale=10), whole(0, C, N), new()
        labels[2::4] = -100
        loss, (y, d) = partial(F.cross_entropy, target=labels.cpu()), exact(logits, dloss)
        close(run(file.cross_entropy_forward, logits, labels), loss(y), atol=1e-6)
        got = run(file.cross_entropy_backward, dloss, logits, labels)
        close(got, gradients(loss, d, y)[0], atol=1e-6)


def test_depthwise_conv2d():
    file = kernel("depthwise_conv2d")
    sizes = [  # N, C, H, W, then the filter's sides, stride, padding, dilation
        ((2, 3, 9, 12), (3, 3), 1, 1, 1),
        ((2, 2, 70, 60), (7, 7), 1, 3, 1),
        ((40, 3, 6, 5), (7, 7), 1, 3, 1),
        ((2, 3, 12, 16), (5, 5), 2, 2, 1),
        ((2, 2, 33, 300), (7, 7), 2, 3, 1),
        ((2, 3, 13, 17), (3, 3), 1, 2, 2),
        ((2, 3, 14, 11), (4, 2), 3, 2, 1),
    ]
    for new, (shape, taps, *how) in itertools.product(of_types(), sizes):
        C = shape[1]
        inp, weight, bias = new(*shape), new(C, *taps), new(C)
        x, w, b = exact(inp, weight[:, None], bias)
        want = F.conv2d(x, w, b, *how, groups=C)
        dout = new(*want.shape)
        close(run(file.depthwise_conv2d_forward, inp, weight, bias, *how), want)
        want = conv2d_input(shape, w, exact(dout), *how, groups=C)
        got = run(file.depthwise_conv2d_backward_input, dout, weight, *shape[2:], *how)
        close(got, want)
        want = conv2d_weight(x, w.shape, exact(dout), *how, groups=C)[:, 0]
        close(run(file.depthwise_conv2d_backward_weight, dout, inp, *taps, *how), want)


def test_fft():
    file = kernel("fft")
    lengths = (1, 2, 7, 30, 97, 128, 360, 1000, 1024, 2187, 8192, 10_007, 2**16)
    for i, n in enumerate(lengths):
        shift = i % 2  # every second one is aligned to elements only
        x = torch.randn(2 * n + shift, dtype=torch.complex64, device=DEVICE)[shift:].view(2, n)
        close(run(file.fft_forward, x), torch.fft.fft(exact(x)))
        close(run(file.fft_inverse, x), torch.fft.ifft(exact(x)))
        real = floats(2, n, shift=shift)
        close(run(file.rfft, real), torch.fft.rfft(exact(real)))
        half = x[:, : n // 2 + 1].contiguous()
        close(run(file.irfft, half, n), torch.fft.irfft(exact(half), n))
    for H, W in ((4, 6), (1, 1), (64, 5), (3, 128), (1029, 4), (100, 64)):
        x = torch.randn(2, H, W, dtype=torch.complex64, device=DEVICE)
        close(run(file.fft2, x), torch.fft.fft2(exact(x)))
        close(run(file.ifft2, x), torch.fft.ifft2(exact(x)))


def test_flash_attention():
    """Heads that share keys, lengths, a window, few queries that stand last: with gradients."""
    file = kernel("flash_attention")
    sizes = [(2, 4, 2, 33, 38, 5, 0), (1, 2, 1, 70, 129, 64, 20), (1, 2, 2, 3, 600, 128, 0)]
    sizes.append((1, 3, 1, 9, 20, 200, 4))
    for new, size in itertools.product(of_types(*FLOATS), sizes):
        B, H, H_kv, S_q, S_kv, D, window = size
        q, dout, k, v = (new(B, n, S, D) for n, S in ((H, S_q), (H_kv, S_kv)) for _ in range(2))
        lengths = whole(S_q, S_kv + 1, B, dtype=torch.int32)
        how = lengths, True, True, window
        out, lse = run(file.flash_attention_forward, q, k, v, *how)
        got = (out, *run(file.flash_attention_backward, dout, q, k, v, out, lse, *how))
        place = torch.arange(S_q)[:, None] + lengths.cpu().view(-1, 1, 1, 1) - S_q
        key = torch.arange(S_kv)
        seen = (key <= place) & (key > place - (window or S_kv))
        attend = partial(F.scaled_dot_product_attention, attn_mask=seen, enable_gqa=True)
        x_q, x_k, x_v = exact(q, k, v)
        want = attend(x_q, x_k, x_v), *gradients(attend, exact(dout), *exact(q, k, v))
        scores = x_q @ x_k.repeat_interleave(H // H_kv, 1).mT / math.sqrt(D)
        unit = torch.finfo(q.dtype).eps
        is_half = unit > 1e-5  # then weights are rounded, too, and what lse adds up
        want_lse = scores.masked_fill(~seen, -torch.inf).logsumexp(-1)
        close(lse, want_lse, atol=unit if is_half else 0)
        for ours, theirs in zip(got, want, strict=True):
            if is_half:
                assert (exact(ours) - theirs).norm() <= 2 * unit * theirs.norm()
            else:
                close(ours, theirs)


def test_gelu():
    file = kernel("gelu")
    for new, n in itertools.product(of_types(*FLOATS), (0, 1, 511, 513, 100_003)):
        inp, dout = new(n, scale=3), new(n)
        close(run(file.gelu_forward, inp), F.gelu(exact(inp)), atol=1e-6)
        want = gradients(F.gelu, exact(dout), exact(inp))[0]
        close(run(file.gelu_backward, dout, inp), want, atol=1e-6)


def test_histogram():
    for n, shift in itertools.product((0, 1, 17, 1000, 49_151, 300_007), (0, 1, 15)):
        for high in (256, 1):  # all bytes, and one alone
            inp = whole(0, high, n, dtype=torch.uint8, shift=shift)
            want = torch.bincount(inp.cpu(), minlength=256)
            close(run(kernel("histogram").histogram, inp), want)


def test_layer_norm():
    file, eps = kernel("layer_norm"), 0.3
    shapes = (6, 8), (3, 1000), (2, 3, 260), (300, 36), (7, 1), (2, 8192), (3, 9001), (1, 20_001)
    for new, shape in itertools.product(of_types(*FLOATS), shapes):
        cols = shape[-1]
        inp, dout, weight, bias = new(*shape, mean=1), new(*shape), new(cols), new(cols)
        x, g, w, b = exact(inp, dout, weight, bias)

        def normed(x, w, b, cols=cols):
            return F.layer_norm(x, (cols,), w, b, eps)

        out, mean, rstd = run(file.layer_norm_forward, inp, weight, bias, eps)
        close(out, normed(x, w, b), atol=1e-5)
        close(mean, x.mean(-1), atol=1e-5)
        close(rstd, (x.var(-1, correction=0) + eps).rsqrt())
        got = run(file.layer_norm_backward, dout, inp, weight, mean, rstd)
        for a, b_ in zip(got, gradients(normed, g, x, w, b), strict=True):
            close(a, b_, atol=1e-5 * max(shape) ** 0.5)


def test_linear():
    """Few rows and many, K in parts and of no multiple of 8, with a bias and without."""
    file = kernel("linear")
    sizes = (1, 72, 40), (8, 33, 6), (16, 4104, 66), (19, 200, 130), (70, 96, 34), (300, 64, 258)
    for new, (M, K, N), biased in itertools.product(of_types(*HALVES), sizes, (True, False)):
        inp, weight = new(M, K), new(N, K, scale=K**-0.5)
        bias, residual = new(N if biased else 0), new(M, N)
        y = F.linear(exact(inp), exact(weight), exact(bias) if biased else None)
        gate, up = y.chunk(2, -1)
        close(run(file.linear, inp, weight, bias), y)
        close(run(file.linear_gelu, inp, weight, bias, False), F.gelu(y))
        by_tanh = F.gelu(y, approximate="tanh")
        close(run(file.linear_gelu, inp, weight, bias, True), by_tanh)
        close(run(file.linear_residual, inp, weight, bias, residual), y + exact(residual))
        close(run(file.linear_silu_gate, inp, weight, bias), F.silu(gate) * up)


def test_linear_naive():
    file = kernel("linear_naive")
    for new, (N, K, M) in itertools.product(of_types(), ((2, 3, 5), (16, 3136, 128), (33, 5, 129))):
        inp, weight, bias, dout = new(N, K), new(M, K), new(M), new(N, M)
        x, w, b, g = exact(inp, weight, bias, dout)
        close(run(file.linear_forward, inp, weight, bias), F.linear(x, w, b))
        close(run(file.linear_backward_input, dout, weight), g @ w)
        dweight, dbias = run(file.linear_backward_weight, dout, inp)
        close(dweight, g.T @ x)
        close(dbias, g.sum(0), atol=1e-5 * N**0.5)


PRODUCTS = (5, 4, 6), (17, 15, 33), (130, 78, 132), (1, 300, 1), (3, 2000, 2), (64, 400, 70)
LARGE_PRODUCTS = [(2056, 144, 4104)]  # M, K, N; enough tiles to fill a GPU
WAYS = [*itertools.product(("rows", "columns"), repeat=2)]
PARTS = [("parts of rows", "parts of columns"), ("parts of columns", "parts of rows")]


def sizes_and_ways():
    """Yield M, K, N with how A and B lie in memory."""
    yield from itertools.product(PRODUCTS, WAYS + PARTS)
    yield from itertools.product(LARGE_PRODUCTS, WAYS)


def strided(matrix, way):
    """Return a copy of a matrix whose rows lie together, or its columns, or parts of either."""
    if way.endswith("columns"):
        return strided(matrix.t(), way.replace("columns", "rows")).t()
    if way == "rows":
        return matrix.contiguous()
    wide = matrix.new_empty(len(matrix), matrix.size(1) + 3)
    wide[:, 1:-2] = matrix
    return wide[:, 1:-2]


def test_matmul():
    file = kernel("matmul")
    for dtype, ((M, K, N), ways) in itertools.product(FLOATS, sizes_and_ways()):
        A, B = map(strided, (floats(M, K, dtype=dtype), floats(K, N, dtype=dtype)), ways)
        want = exact(A) @ exact(B)
        close(run(file.matmul, A, B), want, atol=1e-5 * K**0.5)
        out = floats(M, N, dtype=dtype, shift=1)
        want = 0.5 * want - 2 * exact(out)
        run(file.matmul_into, out, A, B, 0.5, -2.0)
        close(out, want, atol=1e-5 * K**0.5)


def test_matmul_fp8():
    """Tensor cores cut products of 8-bit floats off at 2^-13 of the largest, as they add them."""
    types = torch.float8_e4m3fn, torch.float8_e5m2
    sizes = (*PRODUCTS, (130, 260, 256), *LARGE_PRODUCTS)
    for (M, K, N), a, b, fast in itertools.product(sizes, types, types, (False, True)):
        A, B = floats(M, K).to(a), floats(N, K).to(b)
        scales = floats().abs() + 0.5, floats().abs() + 0.5
        out = run(kernel("matmul_fp8").matmul_fp8, A, B, *scales, fast)
        assert out.dtype == torch.bfloat16
        x, w, scale = A.cpu().double(), B.cpu().double().t(), exact(scales[0]) * exact(scales[1])
        lost = 2**-12 + (K + 8) * 2**-24 + (0.5 * (K / 32) ** 0.5 * 2**-13 if fast else 0)
        close(out, x @ w * scale, atol=lost * (x.abs() @ w.abs() * scale))


def test_matmul_naive():
    for new, (M, K, N) in itertools.product(of_types(), PRODUCTS):
        A, B = new(M, K), new(K, N)
        out = run(kernel("matmul_naive").matmul_naive, A, B)
        close(out, exact(A) @ exact(B), atol=1e-5 * K**0.5)


def test_matmul_tensor_core():
    function = kernel("matmul_tensor_core").matmul_tensor_core
    is_turing = torch.cuda.get_device_capability() < (8, 0)
    types = [torch.float16] if is_turing else FLOATS
    for dtype, ((M, K, N), ways) in itertools.product(types, sizes_and_ways()):
        A, B = map(strided, (floats(M, K, dtype=dtype), floats(K, N, dtype=dtype)), ways)
        x, w = exact(A, B)
        for tf32 in (False, True)[: 1 + (dtype == torch.float32)]:
            lost = (K / 8 + 2) * 2**-22 + (2.01 * 2**-11 if tf32 else 3 * 2**-22)
            close(run(function, A, B, tf32), x @ w, atol=lost * (x.abs() @ w.abs()))
    for (M, K, N), ways in sizes_and_ways():
        A, B = whole(-128, 128, M, K, dtype=torch.int8), whole(-128, 128, K, N, dtype=torch.int8)
        A, B = strided(A, ways[0]), strided(B, ways[1])
        close(run(function, A, B, False), A.cpu().long() @ B.cpu().long())


def test_max_pool2d():
    file = kernel("max_pool2d")
    shapes = (2, 3, 6, 9), (2, 32, 28, 28), (4, 3, 2, 701), (1, 5, 37, 264)
    for new, shape, size in itertools.product(of_types(), shapes, (1, 2)):
        inp = new(*shape)
        out, index = run(file.max_pool2d_forward, inp, size)
        want, where = F.max_pool2d(exact(inp), size, return_indices=True)
        close(out, want)
        close(index, where)
        dout = new(*out.shape)
        want = torch.zeros(*shape[:2], shape[2] * shape[3], dtype=torch.float64)
        want = want.scatter_(2, where.flatten(2), exact(dout).flatten(2)).view(shape)
        close(run(file.max_pool2d_backward, dout, index, size, *shape[2:]), want)


DIGITS = [(32, 3, 3), *4 * [(32,)], (64, 3, 3, 32), *4 * [(64,)]]
DIGITS += [(49, 128, 64), (128,), (10, 128), (10,)]
RUNNING = 3, 4, 8, 9  # of the parameters: mean and variance of both batch norms


def digits_net(values, images, training):
    """Return the logits of mnist_cnn.cu's network; its running statistics change in place."""
    conv1, gamma1, beta1, mean1, var1, conv2, gamma2, beta2, mean2, var2 = values[:10]
    fc1, bias1, fc2, bias2 = values[10:]
    x = F.conv2d(images[:, None], conv1[:, None], padding=1)
    x = F.max_pool2d(F.relu(F.batch_norm(x, mean1, var1, gamma1, beta1, training)), 2)
    x = F.conv2d(x, conv2.permute(0, 3, 1, 2), padding=1)
    x = F.max_pool2d(F.relu(F.batch_norm(x, mean2, var2, gamma2, beta2, training)), 2)
    x = F.relu(F.linear(x.flatten(1), fc1.permute(1, 2, 0).reshape(128, 3136), bias1))
    return F.linear(x, fc2, bias2)


def test_mnist_cnn():
    """A maximum that falls on another pixel moves a gradient; products of halves have 11 bits."""
    file, lr = kernel("mnist_cnn"), 0.5
    exactly = [False] if torch.cuda.get_device_capability() < (8, 0) else [True, False]
    for count, is_exact in itertools.product((1, 7), exactly):
        values = [0.3 * floats(*shape) for shape in DIGITS]
        values = [v / 3 / v[0].numel() ** 0.5 if v.dim() > 1 else v for v in values]
        values = [0.5 + v.abs() if i in (4, 9) else v for i, v in enumerate(values)]
        tolerance = {"rtol": 1e-3, "atol": 2e-3} if is_exact else {"rtol": 0.05, "atol": 0.05}
        images, labels, index = floats(11, 28, 28), whole(0, 10, 11), whole(0, 11, count)
        workspace = run(file.mnist_cnn_prepare, values, count, is_exact)

        some = images[:count].contiguous()
        got = run(file.mnist_cnn_predict, values, workspace, some, is_exact)
        close(got, digits_net(exact(*values), exact(some), False), **tolerance)

        want = [v if i in RUNNING else v.requires_grad_() for i, v in enumerate(exact(*values))]
        rows = index.cpu()
        logits = digits_net(want, exact(images)[rows], True)
        loss = F.cross_entropy(logits, labels.cpu()[rows])
        trained = [v for v in want if v.requires_grad]
        slopes = torch.autograd.grad(loss, trained)
        with torch.no_grad():
            for value, slope in zip(trained, slopes, strict=True):
                value -= lr * slope
        got = run(file.mnist_cnn_step, values, workspace, images, labels, index, lr, is_exact)
        close(got, loss.detach()[None], **tolerance)
        for a, b in zip(values, want, strict=True):
            close(a, b.detach(), **tolerance)


def test_optimizers():
    """Three steps of lists of parameters, of which a launch takes 100."""
    file = kernel("optimizers")
    sizes = (), (1,), (1023,), (64, 32, 3, 3), (0, 3), (5, 1000)
    for new, count in itertools.product(of_types(), (1, 7, 101)):
        params, grads = ([new(*sizes[i % 6]) for i in range(count)] for _ in range(2))
        for name, how in (("AdamW", {"weight_decay": 0.1}), ("SGD", {"momentum": 0.9})):
            now = [p.clone() for p in params]
            first, second = ([torch.zeros_like(p) for p in params] for _ in range(2))
            want = [exact(p).requires_grad_() for p in params]
            optimizer = getattr(torch.optim, name)(want, lr=0.01, **how)
            for step in range(1, 4):
                slopes = [step * g for g in grads]
                for p, g in zip(want, slopes, strict=True):
                    p.grad = exact(g)
                optimizer.step()
                if name == "AdamW":
                    run(file.adamw_step, now, slopes, first, second, step,
                        0.01, 0.9, 0.999, 1e-8, 0.1)  # fmt: skip
                else:
                    run(file.sgd_momentum_step, now, slopes, first, 0.01, 0.9, 0.0)
            for a, b in zip(now, want, strict=True):
                close(a, b.detach(), atol=1e-6)


def philox_words(n, seed, offset, sequences):
    """Return n words as int64: element i is number i // sequences of sequence i % sequences."""
    i, mask = torch.arange(n), 0xFFFFFFFF
    number = i // sequences
    place = offset // 4 + number // 4
    x, y, z, w = place & mask, place >> 32, i % sequences, torch.zeros_like(i)
    for r in range(10):
        keys = [(seed >> 32 * k & mask) + r * step & mask
                for k, step in enumerate((0x9E3779B9, 0xBB67AE85))]  # fmt: skip
        a, b = 0xD2511F53 * x, 0xCD9E8D57 * z  # their low 64 bits
        x, y = (b >> 32 & mask) ^ y ^ keys[0], b & mask
        z, w = (a >> 32 & mask) ^ w ^ keys[1], a & mask
    return torch.stack((x, y, z, w))[number % 4, i]


def test_philox():
    """Words are those of the generator's definition, floats are made of them in float64."""
    file = kernel("philox")
    for n, offset, sequences in ((1, 0, 1), (1025, 4, 1), (1003, 8, 7), (50_001, 2**34, 1000)):
        seed = int(whole(-(2**60), 2**60).item())
        for shift in (0, 1):
            like = floats(n, shift=shift)
            words = philox_words(n + sequences, seed, offset, sequences)
            uniform = (words.double() + 0.5) / 2**32
            got = run(file.philox_bits, like.int(), seed, offset, sequences)
            close(got, (words - (words >> 31 << 32))[:n])
            close(run(file.philox_uniform, like, seed, offset, sequences), uniform[:n])
            i = torch.arange(n)
            is_odd = i // sequences % 2  # numbers 2 k and 2 k + 1 of a sequence make a pair
            x, y = words[i - is_odd * sequences], words[i + (1 - is_odd) * sequences]
            u = ((x.float().double() + 0.5) / 2**32).float().double()  # as philox_uniform rounds it
            angle = 2 * math.pi * (y.double() + 0.5) / 2**32
            want = (-2 * u.log()).sqrt() * torch.where(is_odd == 0, angle.sin(), angle.cos())
            got = run(file.philox_normal, like, seed, offset, sequences)
            close(got, want, atol=1e-5)  # the fast sine is off by 2^-21 or so
            single = (philox_words(n, seed, offset, 1).double() + 0.5) / 2**32
            for p in (0.0, 0.3, 1.0):
                kept = single.float() > torch.tensor(p)
                want = exact(like) * kept * (1 / (1 - p) if p < 1 else 0)
                close(run(file.philox_dropout, like, p, seed, offset), want)


def test_quantized_linear():
    is_turing = torch.cuda.get_device_capability() < (8, 0)
    sizes = (3, 40, 256), (2, 5, 32), (8, 130, 1056), (1, 33, 2080), (11, 100, 512), (7, 257, 4096)
    for new, size, bits, grouped in itertools.product(
        of_types(*HALVES[: 1 if is_turing else 2]), sizes, (8, 4), (False, True)
    ):
        B, N, K = size
        q = whole(-(2 ** (bits - 1)), 2 ** (bits - 1), N, K)
        packed = q[:, ::2] + 8 + 16 * (q[:, 1::2] + 8)  # two numbers a byte
        weight = q.to(torch.int8) if bits == 8 else packed.to(torch.uint8)
        x, scales = new(B, K), new(-(-K // 128) if grouped else 1, N).abs() + 0.5
        spread = exact(scales).repeat_interleave(128 if grouped else K, 0)[:K]
        want = exact(x) @ (q.cpu() * spread.t()).t()
        out = run(kernel("quantized_linear").quantized_linear, x, weight, scales)
        close(out, want, atol=1e-4 * 2**bits)


def test_relu():
    file = kernel("relu")
    for new, n in itertools.product(of_types(), (0, 1, 257, 100_003)):
        inp, dout = new(n), new(n)
        out = run(file.relu_forward, inp)
        close(out, exact(inp).relu())
        close(run(file.relu_backward, dout, out), exact(dout) * (exact(inp) > 0))


def test_rgb_to_gray():
    for H, W, shift in ((1, 1, 0), (1, 257, 1), (182, 781, 0), (0, 5, 0)):
        inp = whole(0, 256, 3, H, W, dtype=torch.uint8, shift=shift)
        r, g, b = inp.cpu().long()
        want = (299 * r + 587 * g + 114 * b + 500) // 1000
        close(run(kernel("rgb_to_gray").rgb_to_gray, inp), want)


def test_rms_norm():
    file, eps = kernel("rms_norm"), 0.3
    shapes = (6, 8), (3, 1000), (2, 3, 260), (300, 36), (7, 1), (2, 8192), (3, 9001), (1, 20_001)
    for new, shape in itertools.product(of_types(*FLOATS), shapes):
        inp, dout, weight = new(*shape, mean=1), new(*shape), new(shape[-1])
        x, g, w = exact(inp, dout, weight)

        def normed(x, w, cols=shape[-1]):
            return F.rms_norm(x, (cols,), w, eps)

        out, rstd = run(file.rms_norm_forward, inp, weight, eps)
        close(out, normed(x, w))
        close(rstd, (x.square().mean(-1) + eps).rsqrt())
        got = run(file.rms_norm_backward, dout, inp, weight, rstd)
        for a, b in zip(got, gradients(normed, g, x, w), strict=True):
            close(a, b, atol=1e-5 * max(shape) ** 0.5)


def test_scan():
    for new, n in itertools.product(of_types(), (0, 1, 3, 129, 16_385, 300_007)):
        inp = new(n)
        close(run(kernel("scan").scan, inp), exact(inp).cumsum(0), atol=1e-4)


def test_sgd():
    for new, shape in itertools.product(of_types(), ((), (255,), (64, 32, 3, 3), (0, 3))):
        param, grad = new(*shape), new(*shape)
        want = exact(param) - 0.37 * exact(grad)
        run(kernel("sgd").sgd_step, param, grad, 0.37)
        close(param, want, atol=1e-6)


def test_softmax():
    file = kernel("softmax")
    shapes = (
        (6, 8),
        (5, 1),
        (33, 10),
        (9, 65),
        (3, 257),
        (3, 1823),
        (2, 16_385),
        (2, 40_001),
        (3, 0),
    )
    for new, shape in itertools.product(of_types(*FLOATS), shapes):
        inp, dout = new(*shape, scale=3), new(*shape)
        out = run(file.softmax_forward, inp)
        close(out, exact(inp).softmax(-1))
        y, g = exact(out, dout)
        want = y * (g - (g * y).sum(-1, keepdim=True))
        close(run(file.softmax_backward, dout, out), want, atol=1e-6)


def test_square():
    for new, shape in itertools.product(of_types(), ((), (1,), (257,), (1823, 781), (0, 5))):
        inp = new(*shape)
        close(run(kernel("square").square, inp), exact(inp) ** 2)


def test_sum():
    for new, n in itertools.product(of_types(*FLOATS), (0, 1, 9, 8193, 300_007)):
        inp = new(n)
        close(run(kernel("sum").sum, inp), exact(inp).sum(), atol=1e-6 * max(1, n) ** 0.5)


def test_transpose():
    for new, M in itertools.product(of_types(*FLOATS), (1, 33, 132, 781)):
        for N in (1, 31, 128, 260):
            inp = new(M, N)
            close(run(kernel("transpose").transpose, inp), exact(inp).t())


def test_vector_add():
    for new, shape in itertools.product(of_types(*FLOATS), ((), (1,), (257,), (182, 781), (0, 5))):
        a, b = new(*shape), new(*shape)
        close(run(kernel("vector_add").vector_add, a, b), exact(a) + exact(b))


if __name__ == "__main__":
    MODULE = sys.argv[1] if len(sys.argv) > 1 else MODULE
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            print(f"{name} … ", end="", flush=True)
            test()
            print("passed", flush=True)
