"""Kernels with an index outside a tensor."""

from helpers.simulator import blockDim, blockIdx, threadIdx
from helpers.tests.proof.broken_kernel import OUT_OF_RANGE, Broken
from helpers.tests.proof.kernel import floats, unwritten

N = 200  # 3 1/8 blocks of 64 threads
M_ROWS, N_COLS = 20, 12


def no_guard_kernel(out, inp, n):
    i = blockIdx.x * blockDim.x + threadIdx.x
    # fix: if i >= n: return
    out[i] = 2 * inp[i]  # fault


NO_GUARD = r"""
__global__ void no_guard_kernel(float* out, const float* inp, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    // fix: if (i >= n) return;
    out[i] = 2 * inp[i];  // fault
}
"""


def less_or_equal_kernel(out, inp, n):
    i = blockIdx.x * blockDim.x + threadIdx.x
    if i <= n:  # fix: if i < n:
        out[i] = 2 * inp[i]  # fault


LESS_OR_EQUAL = r"""
__global__ void less_or_equal_kernel(float* out, const float* inp, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n)  // fix: if (i < n)
        out[i] = 2 * inp[i];  // fault
}
"""


def last_pair_kernel(out, inp, n):
    i = blockIdx.x * blockDim.x + threadIdx.x
    if i < n:  # fix: if i < n - 1:
        out[i] = inp[i + 1] - inp[i]  # fault


LAST_PAIR = r"""
__global__ void last_pair_kernel(float* out, const float* inp, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)  // fix: if (i < n - 1)
        out[i] = inp[i + 1] - inp[i];  // fault
}
"""


def left_neighbour_kernel(out, inp, n):
    i = blockIdx.x * blockDim.x + threadIdx.x
    if i < n:
        out[i] = inp[i - 1]  # fault; fix: out[i] = inp[i - 1] if i > 0 else 0.0


LEFT_NEIGHBOUR = r"""
__global__ void left_neighbour_kernel(float* out, const float* inp, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = inp[i - 1];  // fault; fix: out[i] = i > 0 ? inp[i - 1] : 0.0f;
}
"""


def write_before_kernel(out, inp, n):
    i = blockIdx.x * blockDim.x + threadIdx.x
    if i < n:  # fix: if 0 < i < n:
        out[i - 1] = inp[i]  # fault


WRITE_BEFORE = r"""
__global__ void write_before_kernel(float* out, const float* inp, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)  // fix: if (0 < i && i < n)
        out[i - 1] = inp[i];  // fault
}
"""


def one_guard_of_two_kernel(out, inp, rows, cols):
    col = blockIdx.x * blockDim.x + threadIdx.x
    row = blockIdx.y * blockDim.y + threadIdx.y
    if col < cols:  # fix: if col < cols and row < rows:
        out[row * cols + col] = 255 - inp[row * cols + col]  # fault


ONE_GUARD_OF_TWO = r"""
__global__ void one_guard_of_two_kernel(float* out, const float* inp, int rows, int cols) {
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (col < cols)  // fix: if (col < cols && row < rows)
        out[row * cols + col] = 255 - inp[row * cols + col];  // fault
}
"""


def wrong_stride_kernel(out, inp, rows, cols):
    col = blockIdx.x * blockDim.x + threadIdx.x
    row = blockIdx.y * blockDim.y + threadIdx.y
    if col < cols and row < rows:
        value = inp[row * rows + col]  # fault; fix: value = inp[row * cols + col]
        out[col * rows + row] = value


WRONG_STRIDE = r"""
__global__ void wrong_stride_kernel(float* out, const float* inp, int rows, int cols) {
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (col < cols && row < rows) {
        float value = inp[row * rows + col];  // fault; fix: float value = inp[row * cols + col];
        out[col * rows + row] = value;
    }
}
"""


def _vectors(random):
    return unwritten(N), floats(random, N), N


def _without_last(random):
    return unwritten(N - 1), floats(random, N), N


def _matrices(random):
    return (
        unwritten(M_ROWS * N_COLS),
        floats(random, M_ROWS * N_COLS),
        M_ROWS,
        N_COLS,
    )


def _doubled(_out, inp, _n):
    return 2 * inp


def _right_shifted(_out, inp, _n):
    shifted = inp.roll(1)
    shifted[0] = 0
    return shifted


KERNELS = [
    Broken(
        no_guard_kernel,
        NO_GUARD,
        4,
        64,
        _vectors,
        _doubled,
        kind=OUT_OF_RANGE,
        fault="no guard: the last block writes past the end, into what lies behind",
        element="inp[200]",
        in_block=3,
        threads=(8,),
    ),
    Broken(
        less_or_equal_kernel,
        LESS_OR_EQUAL,
        4,
        64,
        _vectors,
        _doubled,
        kind=OUT_OF_RANGE,
        fault="`<=` for `<`: one element past the end is written, mostly unnoticed",
        element="inp[200]",
        in_block=3,
        threads=(8,),
    ),
    Broken(
        last_pair_kernel,
        LAST_PAIR,
        4,
        64,
        _without_last,
        lambda _out, inp, _n: inp.diff(),
        kind=OUT_OF_RANGE,
        fault="the last thread has no right neighbour and reads past the end",
        element="inp[200]",
        in_block=3,
        threads=(7,),
    ),
    Broken(
        left_neighbour_kernel,
        LEFT_NEIGHBOUR,
        4,
        64,
        _vectors,
        _right_shifted,
        kind=OUT_OF_RANGE,
        fault="the first thread reads at -1, what lies before the tensor",
        element="inp[-1]",
        threads=(0,),
    ),
    Broken(
        write_before_kernel,
        WRITE_BEFORE,
        4,
        64,
        _without_last,
        lambda _out, inp, _n: inp[1:],
        kind=OUT_OF_RANGE,
        fault="the first thread writes at -1 and spoils what lies before the tensor",
        element="out[-1]",
        threads=(0,),
    ),
    Broken(
        one_guard_of_two_kernel,
        ONE_GUARD_OF_TWO,
        (2, 3),
        (8, 8),
        _matrices,
        lambda _out, inp, _rows, _cols: 255 - inp,
        kind=OUT_OF_RANGE,
        fault="columns are guarded, rows are not: threads below the image write past its end",
        element="inp[24",  # two blocks get there
        in_block=None,
        threads=((0, 4),),
    ),
    Broken(
        wrong_stride_kernel,
        WRONG_STRIDE,
        (2, 3),
        (8, 8),
        _matrices,
        lambda _out, inp, rows, cols: inp.view(rows, cols).T.reshape(-1),
        kind=OUT_OF_RANGE,
        fault="rows are `cols` apart, not `rows`: wrong elements, and reads past the end",
        element="inp[2",  # several blocks get there
        in_block=None,
    ),
]
