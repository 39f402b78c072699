"""The CPU backend counts of every kernel file what Nsight Compute counted on a GPU: counts.csv."""

import pytest

from kernels.tests.counts import by_cpu_backend, by_nsight_compute, calls, label, on_gpu_only

# What Nsight Compute counts differently, and nothing else: of a function, or of one call of it.
STORES = {"store requests", "store sectors"}
STORES_TOO = {"load sectors", *STORES}
ALL = {"load requests", *STORES_TOO}
LOADS = {"load requests", "load sectors"}
PASSES = ("forward", "backward_input", "backward_weight")
DIFFERENT = {
    # nvcc takes several turns of the loop over a row at a time, and then the rest one by one:
    # lanes at the image's edges, whose loops are shorter, do not load together with the others
    "blur": LOADS,
    # K is cut into parts for the SMs that there are: 132, or those that the CPU backend tells of
    "matmul 3×5000×2": ALL,
    "matmul_into 3×5000×2": ALL,
    # an asynchronous copy that is told to read nothing asks for its sector all the same; and nvcc
    # lets lanes that pad a row store after those that copy
    "matmul_tensor_core 5×4×6×False": STORES_TOO,
    "matmul_tensor_core 17×15×33×True": {"load sectors"},
    "quantized_linear 2×5×32×4×True": {"load sectors"},
    "matmul_fp8": {"load sectors"},
    "conv2d_forward 2×4×5×6×6×3×2×(2, 1)×(1, 2)×(1, 2)×2×False": STORES_TOO,
    "conv2d_forward 2×3×7×5×4×3×3×(1, 1)×(1, 1)×(1, 1)×1×True": ALL,
    "conv2d_backward_input 2×4×5×6×6×3×2×(2, 1)×(1, 2)×(1, 2)×2×False": ALL,
    "conv2d_backward_input 2×3×7×5×4×3×3×(1, 1)×(1, 1)×(1, 1)×1×True": ALL,
    "conv2d_backward_weight 2×4×5×6×6×3×2×(2, 1)×(1, 2)×(1, 2)×2×False": {"load sectors"},
    "conv2d_backward_weight 2×3×7×5×4×3×3×(1, 1)×(1, 1)×(1, 1)×1×True": LOADS,
    # nvcc stores the two numbers of a Pair by one instruction, the CPU backend by two; copies that
    # are told to read nothing, as above; and one or two requests fewer for biases, why is not known
    **{f"{name} 5×24×6×True": ALL for name in ("linear", "linear_residual")},
    **{f"{name} 8×64×32×True": STORES for name in ("linear", "linear_residual")},
    "linear_gelu 5×24×6×True×False": STORES_TOO,
    "linear_gelu 1×300×1×True×True": {"load sectors"},
    "linear_silu_gate 5×24×6×True": LOADS,
    # nvcc makes one store of lanes that pad a row and of those that copy, the CPU backend two
    "conv2d_half_forward 2×3×12×9×5×3×3×(1, 2)×(1, 1)×(3, 1)×1": STORES,
    **{f"conv2d_half_{name}": STORES_TOO for name in PASSES},
    **{f"depthwise_conv2d_{name} 2×3×9×12×3×3×1×1×1": {"load sectors"} for name in PASSES},
    # as many blocks as multiprocessors have work for, and each adds up the sums of all
    "mnist_cnn_step": ALL,
    "mnist_cnn_predict": ALL,
}

# Blocks that wait for the words of others read them once or again and again: the moment decides,
# here and on a GPU, where they read them once.
WAITS = {"scan"}

# Ranks that wait for the words of others read them again and again, on a GPU as here: of the loads
# no more can be said than that each word is read.
POLLS = {"all_reduce_here"}

# Files that have changed, or come, since Nsight Compute counted: they have no rows in counts.csv.
# Who runs `python -m kernels.tests.counts NAME` on a GPU takes the name out.
TO_BE_COUNTED: set[str] = set()

MEASURED = by_nsight_compute()


@pytest.fixture(scope="module")
def counted():
    return by_cpu_backend()


def test_every_call_was_measured():
    due = {label(function, size): path.stem for path, function, size, _ in calls()}
    assert set(MEASURED) == {call for call, file in due.items() if file not in TO_BE_COUNTED}


@pytest.mark.parametrize("call", MEASURED)
def test_the_counts_are_those_of_nsight_compute(counted, call):
    name = call.split()[0]
    if on_gpu_only(name):
        pytest.skip("its arguments are the GPU's own")
    measured, ours = MEASURED[call], counted[call]
    differ = {what for what in ours if ours[what] != measured[what]}
    if name in POLLS:
        assert differ <= LOADS and ours["load requests"] >= ours["store requests"] / 2
        return
    if name in WAITS and differ:
        assert differ == LOADS
        again = {what: ours[what] - measured[what] for what in differ}
        assert 0 < again["load requests"] <= again["load sectors"] <= 32 * again["load requests"]
        return
    assert differ == DIFFERENT.get(call, DIFFERENT.get(name, set()))
