"""Checks of exercises that a wrong answer might pass: they refuse it, by what is run."""

import ast
import json
import linecache
import os
import subprocess
import sys

import pytest
import torch

from helpers.base.machine import ROOT
from helpers.checks import poisoned, silent
from helpers.compiler import CompileError
from helpers.device import BACKEND, DEVICE
from helpers.exercises.solutions import folded_solution, solution_of
from helpers.simulator.errors import SimulatorError
from helpers.trace import trace

NOTEBOOKS = ROOT / "notebooks"


def names_of(notebook, cells, names):
    """Run some cells of a notebook, found by their ids, and return the names they define."""
    found = {cell["id"]: "".join(cell["source"]) for cell in notebook_cells(notebook)}
    for number in cells.split():
        run(found[number], f"<{notebook} {number}>", names)
    return names


def notebook_cells(notebook):
    return json.loads((NOTEBOOKS / notebook).read_text(encoding="utf-8"))["cells"]


def run(source, file, names):
    linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file
    exec(compile(source, file, "exec"), names)


@pytest.fixture(scope="module")
def fft():
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(NOTEBOOKS)
        cells = "setup setup2-2 half-k half-l half-f mend-k mend-l mend-f hard-l hard-f"
        cells = " ".join(f"11c-{cell}" for cell in cells.split())
        yield names_of("11c_fast_fft.ipynb", cells, {})


def solution(notebook, name):
    return solution_of(NOTEBOOKS / notebook, name, {})


def refused(check, attempt):
    with silent(), pytest.raises(AssertionError) as refusal:
        check(attempt)
    return str(refusal.value)


def accepted(check, attempt):
    with silent():
        check(attempt)


def test_a_hasty_exchange_has_two_barriers_whatever_they_are_called(fft):
    check = fft["check_unhurried"]
    accepted(check, solution("11c_fast_fft.ipynb", "11c mend the hasty exchange"))
    second = "    for (int r = 0; r < 16; r++) buffer[place(16 * t + r)] = v[r].y;\n"
    three = fft["hasty_src"].replace(second, f"    meet();\n{second}")
    three = three.replace("__syncthreads();", "meet();")
    meet = "__device__ void meet() { __syncthreads(); }\n"
    assert "meet at 3 barriers" in refused(check, meet + three)
    both = fft["exchange_src"]
    whole = both[both.index("__global__") : both.index("__global__ void exchange_halves")]
    whole = whole.replace("exchange_whole", "exchange_hasty")
    assert "8,704 bytes" in refused(check, whole)


SLOW_TRANSPOSITION = """
static __device__ void transpose_warp(float (&v)[32]) {
    int t = threadIdx.x % 32;
    float w[32];
    for (int x = 0; x < 32; x++)
        for (int r = 0; r < 32; r++) {
            float got = __shfl_xor_sync(0xffffffff, v[r], x);
            if (r == t) w[t ^ x] = got;
        }
    for (int r = 0; r < 32; r++) v[r] = w[r];
}
"""
THROUGH_MEMORY = """
static __device__ float scratch[1024];
static __device__ void transpose_warp(float (&v)[32]) {
    int t = threadIdx.x % 32;
    __shfl_xor_sync(0xffffffff, v[0], 1);
    for (int r = 0; r < 32; r++) scratch[32 * r + t] = v[r];
    __syncwarp();
    for (int r = 0; r < 32; r++) v[r] = scratch[32 * t + r];
}
"""


def test_a_transposition_in_a_warp_is_counted(fft):
    check = fft["check_transpose"]
    right = solution("11c_fast_fft.ipynb", "11c transpose in a warp")
    accepted(check, right)
    accepted(check, right + "// not by __shfl_sync, __shfl_up_sync or shared memory\n")
    assert "1024 shuffles" in refused(check, SLOW_TRANSPOSITION)
    assert "by way of memory: scratch" in refused(check, THROUGH_MEMORY)
    other = right.replace("__shfl_xor_sync(0xffffffff, give, b)", "__shfl_sync(~0u, give, t ^ b)")
    assert other != right and "alone" in refused(check, other)


def kernel(names, name, change=lambda code: code):
    """Return the kernel of a solution in notebook 13, changed."""
    call, _, code = folded_solution(NOTEBOOKS / "13_triton.ipynb", name)
    run(change(code), f"<{name} {hash(change(code))}>", names)
    return names[call.args[1].value.id].fn


def the_largest_of_each_row_reads_no_other_rows(triton):
    check, name = triton["check_row_max"], "13 the largest of each row"
    accepted(check, kernel(triton, name))
    not_masked = kernel(triton, name, lambda code: code.replace("< rows) &", "< rows + 3) &"))
    assert "read outside" in refused(check, not_masked)


def softmax_backward_fills_up_what_a_mask_leaves_out(triton):
    check, name = triton["check_softmax_backward"], "13 softmax, backward"
    accepted(check, kernel(triton, name))

    def without(code):
        return code.replace(", other=0.0", "")

    def idle(code):
        nothing = "    y = tl.where(col >= 0, y, 0)\n"
        return without(code).replace("    tl.store", f"{nothing}    tl.store")

    def filled(code):
        return without(code).replace("tl.sum(g * y", "tl.sum(tl.where(col < C, g * y, 0.0)")

    accepted(check, kernel(triton, name, filled))
    for change in (without, idle):
        assert "got nan" in refused(check, kernel(triton, name, change))


def rows_of_any_length_are_read_twice(triton):
    check, name = triton["check_long_softmax"], "13 rows of any length"
    accepted(check, kernel(triton, name))
    loop = "    for first in range(0, C, BLOCK_SIZE):\n        mask"
    again = loop.removesuffix("        mask") + "        for _ in range(2):\n            x = "

    def again_and_again(code):
        place = "tl.load(inp + row * C + first + place, mask=first + place < C, other=0.0)\n"
        return code.replace(loop, f"{again}{place}        mask", 1)

    assert "is read 4 times" in refused(check, kernel(triton, name, again_and_again))


def check_kernels_of_triton():
    cells = "setup setup2 setup3 fence comp ex2-f ex3-f ex4-f"
    names = names_of("13_triton.ipynb", " ".join(f"13-{cell}" for cell in cells.split()), {})
    the_largest_of_each_row_reads_no_other_rows(names)
    softmax_backward_fills_up_what_a_mask_leaves_out(names)
    rows_of_any_length_are_read_twice(names)


@pytest.mark.skipif(BACKEND == "cuda", reason="only the interpreter counts what is loaded")
def test_kernels_of_triton_load_what_they_may():
    """In a process of its own: Triton's interpreter is switched on when Triton is imported."""
    pytest.importorskip("triton")
    code = "from helpers.tests import test_closed_checks as t; t.check_kernels_of_triton()"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", code], cwd=NOTEBOOKS, env=environment, check=True)


def test_a_row_without_width_has_a_scale():
    def zero_by_zero(x):
        low = x.amin(1, keepdim=True)
        scale = (x.amax(1, keepdim=True) - low) / 255
        return ((x - low) / scale).nan_to_num(0).round().clamp(0, 255).byte(), scale, low

    names = names_of("15b_quantization.ipynb", "15b-ex1c", {"torch": torch})
    check, name = names["check_zero_point"], "15b with a zero point"
    code = folded_solution(NOTEBOOKS / "15b_quantization.ipynb", name)[2]
    run(code, "<zero point>", names)
    accepted(check, names["quantize_zero_point"])
    assert "scales above 0" in refused(check, zero_by_zero)


def test_four_bits_come_four_bytes_at_a_time_side_by_side():
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(NOTEBOOKS)
        cells = "15c-setup 15c-groups 15c-q-pack 15c-fourl"
        check = names_of("15c_four_bits.ipynb", cells, {})["check_four"]
    ours = solution("15c_four_bits.ipynb", "15c four bits the plain way")
    accepted(check, ours)
    word = "unsigned word = *reinterpret_cast<const unsigned*>(packed + k / 2);"
    byte = "word |= unsigned(packed[k / 2 + j]) << 8 * j;"
    bytes_ = f"unsigned word = 0; for (int j = 0; j < 4; j++) {byte}"
    loop = "int k = lane_id * 8; k < K; k += 256"
    part = "int n = (K / 8 + 31) / 32 * 8, k = lane_id * n; k < min(K, (lane_id + 1) * n); k += 8"
    assert word in ours and loop in ours
    assert "takes [1] bytes" in refused(check, ours.replace(word, bytes_))
    assert "sectors of packed" in refused(check, ours.replace(loop, part))
    assert "expected" in refused(check, ours.replace("k / 128 * N + row", "row"))


def test_floats_of_four_bits_take_no_table_and_no_branch():
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(NOTEBOOKS)
        check = names_of("15c_four_bits.ipynb", "15c-setup 15c-e2m1l", {})["check_e2m1"]
    ours = solution("15c_four_bits.ipynb", "15c floats of four bits")
    accepted(check, ours)
    assert "without '{1, 2, 3}'" in refused(check, ours + "const int table[] = {1, 2, 3};")
    assert "without 'if'" in refused(check, ours.replace("pairs[i] =", "if (four) pairs[i] ="))
    assert "0.25, expected 0.5" in refused(check, ours.replace("16384", "8192"))


def test_the_planted_slowness_is_to_be_found():
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(NOTEBOOKS)
        names = names_of("07_reductions.ipynb", "07-setup 07-plant-k 07-plant-l", {})
    check, planted = names["check_row_sums"], names["planted_src"]
    accepted(check, solution("07_reductions.ipynb", "07 find the planted slowness"))
    assert "2,081 ticks" in refused(check, planted)
    harmless = planted.replace("(c + 32 * row) % 1024", "c")
    assert harmless != planted and "2,081 ticks" in refused(check, harmless)
    moved = planted.replace("parts[lane_id][row]", "parts[row][lane_id]")  # to the load
    moved = moved.replace("parts[k][lane_id]", "parts[lane_id][k]")
    assert "ticks a block" in refused(check, moved)
    one_warp = planted.replace("row = warp_id; row < 32; row += 8", "row = 0; row < 32; row++")
    one_warp = one_warp.replace("[32][32]", "[32][33]")
    one_warp = one_warp.replace("for (int row", "if (!warp_id) for (int row")
    assert "one warp does the work" in refused(check, one_warp)


@pytest.fixture(scope="module")
def network():
    """What the exercises of 17 use, of its sections 4, 5 and 8."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(NOTEBOOKS)
        cells = "e849dac4 11f1ea5e 17ontop0 17slow1 17slowl 17bwt1 17lin3 17lin0 17lin4 17lin1 "
        cells += "17lind 17lin2 17line 17linl 86b97ce4 354c0f71 354c0f71-launch 17ordl"
        names = {"random": lambda *shape: torch.randn(shape, device=DEVICE)}
        with silent():
            names_of("17_mnist_cnn.ipynb", cells, names)
        parts = ("linear_head", "linear_forward_src", "linear_forward_launch")
        names["linear"] = names["compile_cuda"]("".join(names[part] for part in parts))
        yield names


def test_lanes_that_share_out_images_are_found(network):
    check, planted = network["check_dbias"], network["dbias_src"]
    right = solution("17_mnist_cnn.ipynb", "17 right but slow")
    accepted(check, right)
    assert "51,200 sectors" in refused(check, planted)
    turn = "int i = threadIdx.x; i < P; i += 32"
    assert turn in right
    piece = "int i = threadIdx.x * ((P + 31) / 32), k = 0; k++ < (P + 31) / 32 && i < P; i++"
    assert "right; but" in refused(check, right.replace(turn, piece))
    one_lane = right.replace(turn, "int i = 0; threadIdx.x == 0 && i < P; i++")
    refused(check, one_lane)


def test_what_a_request_moves_is_counted(network):
    check = network["check_products"]
    accepted(check, ((1, 32), (1, 4), (1, 4)))
    assert "out: not 4 for weight" in refused(check, ((1, 4), (1, 4), (1, 4)))
    assert "dweight: not 32 for dout" in refused(check, ((1, 32), (1, 4), (32, 4)))


def test_a_product_in_order_moves_a_third(network):
    check = network["check_ordered"]
    right = solution("17_mnist_cnn.ipynb", "17 in the right order")
    accepted(check, right)
    shared = "int k = lane_id; k < K; k += 32"
    assert shared in right
    one_lane = right.replace(shared, "int k = 0; lane_id == 0 && k < K; k++")
    refused(check, one_lane)
    assert "expected" in refused(check, right.replace(" + bias[m]", ""))


LANES = """
#include <cuda_fp16.h>
constexpr int C = 16, SIDE = 8;  // instead of m16n8k16
__global__ void conv_mma_kernel(float* out, const uint16_t* inp, const uint16_t* weight) {
    auto x = reinterpret_cast<const half*>(inp), w = reinterpret_cast<const half*>(weight);
    for (int i = threadIdx.x; i < C * SIDE; i += 32) {
        float sum = 0;
        for (int k = 0; k < 9 * C; k++) {
            int y = blockIdx.x + k / C / 3 - 1, col = i % SIDE + k / C % 3 - 1;
            if (y < 0 || y >= SIDE || col < 0 || col >= SIDE) continue;
            sum += __half2float(x[(y * SIDE + col) * C + k % C]) *
                   __half2float(w[(k / C * C + i / SIDE) * C + k % C]);
        }
        out[(i / SIDE * SIDE + blockIdx.x) * SIDE + i % SIDE] = sum;
    }
}
"""


def test_a_fragment_is_mended_and_stays_on_tensor_cores(monkeypatch):
    monkeypatch.chdir(NOTEBOOKS)
    notebook = "17b_faster_and_faster.ipynb"
    names = names_of(notebook, "17b-setup 17b-tc-k 17b-tc-l", {})
    check, right = names["check_tensor"], solution(notebook, "17b mend the fragment")
    accepted(check, right)
    assert "1 of 9 taps" in refused(check, names["tensor_src"])
    for old, new in (("a2 = pair(a + g * C", "a2 = pair(a + (g + 8) * C"), ("b + t + 8", "b + t")):
        assert old in right
        refused(check, right.replace(old, new))
    assert "leave them to the tensor cores" in refused(check, LANES)


@pytest.fixture(scope="module")
def transformer():
    """What the exercises of 15d use: its operators, its block and their checks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(NOTEBOOKS)
        cells = "setup embed embed-b embed-l embed-f embed-c pieces-2 ops ops-b init init-b block"
        cells += " check-1 check-1-b ex2k ex2f ex2c rms-check ex4l"
        cells = " ".join(f"15d-{cell}" for cell in cells.split())
        with silent():
            yield names_of("15d_transformer.ipynb", cells, {})


def changed(source, old, new):
    assert source.count(old) == 1, old
    return source.replace(old, new)


@pytest.mark.parametrize(
    ("old", "new"),
    [("(q, k, v, True)", "(q, k, v, False)"), ("q, k, v = ", "k, q, v = "), ("list(self.norm_2)",
     "list(self.norm_1)"), ("x + self.attend", "self.attend"), ("out.transpose(1, 2)", "out")],
)  # fmt: skip
def test_a_wrong_block_differs_from_the_layer_of_pytorch(transformer, old, new):
    (source,) = [
        "".join(cell["source"])
        for cell in notebook_cells("15d_transformer.ipynb")
        if cell["id"] == "15d-block"
    ]
    names = dict(transformer)
    run(changed(source, old, new), "<wrong block>", names)
    with silent(), pytest.raises(AssertionError, match="expected"):
        names_of("15d_transformer.ipynb", "15d-check-2 15d-check-3", names)


def test_a_table_whose_updates_are_lost_is_found(transformer):
    names, safe = dict(transformer), "atomicAdd(dweight + token * C + i % C, dout[i])"
    lost = changed(names["embed_backward_src"], safe, "dweight[token * C + i % C] = dout[i]")
    names["embed_backward_src"] = lost
    with silent(), pytest.raises(AssertionError, match="dweight"):
        names_of("15d_transformer.ipynb", "15d-embed-l 15d-embed-f 15d-embed-c", names)


def test_a_block_is_mended_when_nobody_looks_ahead_and_the_residual_goes_around(transformer):
    check, notebook = transformer["check_mended"], "15d_transformer.ipynb"
    right = solution_of(NOTEBOOKS / notebook, "15d mend the block", transformer)
    accepted(check, right)
    assert "position 0 depends on position 1" in refused(check, transformer["BrokenBlock"])
    code = folded_solution(NOTEBOOKS / notebook, "15d mend the block")[2]
    around = "x = x + self.attend(self.ops.layer_norm(x, *list(self.norm_1)))"
    inside = "x = self.ops.layer_norm(x, *list(self.norm_1)); x = x + self.attend(x)"
    for old, new, said in ((".transpose(1, 2)", "", "comes later"), (around, inside, "expected")):
        names = dict(transformer)
        run(changed(code, old, new), "<half mended>", names)
        assert said in refused(check, names["MendedBlock"])


def test_the_norm_of_todays_models_reads_each_number_once(transformer):
    check = transformer["check_add_rms"]
    ours = solution("15d_transformer.ipynb", "15d the norm of today's models")
    accepted(check, ours)
    again = changed(ours, "(g[k] - xhat[k] * dot / C)", "(g[k] - total[begin + col] * r * dot / C)")
    assert "loads 192 numbers" in refused(check, again)
    no_residual = changed(ours, "dx[begin + col] = dtotal[begin + col] + r", "dx[begin + col] = r")
    assert "dx, 1 × 32" in refused(check, no_residual)
    as_if_fixed = changed(ours, "(g[k] - xhat[k] * dot / C)", "g[k]")
    assert "dx, 1 × 32" in refused(check, as_if_fixed)
    one_lane = changed(ours, "dot += __shfl_xor_sync(0xffffffff, dot, offset);", "dot += dot;")
    assert "dx, 1 × 32" in refused(check, one_lane)


def test_a_scatter_has_an_order_and_no_long_chain(transformer):
    check = transformer["check_scatter"]
    ours = solution("15d_transformer.ipynb", "15d a scatter without atomics")
    accepted(check, ours)
    share = "+ threadIdx.y; k < begin[token + 1]; k += WARPS"
    chain = changed(ours, share, "; threadIdx.y == 0 && k < begin[token + 1]; k++")
    assert "busiest warp" in refused(check, chain)
    last = "if (threadIdx.y == 0 && col < C) {"
    unwritten = changed(ours, last, last[:-3] + " && begin[token] < begin[token + 1]) {")
    assert "nan" in refused(check, unwritten)
    assert "without atomics" in refused(check, ours + "// \n__device__ int atomic;")
    with silent(), pytest.raises(RuntimeError, match="barrier missing"):
        check(changed(ours, "__syncthreads();", ""))


# ---------------------------------------------------------------- open exercises: work left undone

OPEN = [  # notebook, cells, Work, exercise, a part of its solution, and what is wrong in its place
    ("00b_cpp_you_need", "00b-few1", "few_bytes", "00b fewest bytes",
     "tenths.to(torch.int16)", "tenths.to(torch.int8)"),
    ("00b_cpp_you_need", "00b-few1", "few_bytes", "00b fewest bytes",
     "kilos.to(torch.float16)", "kilos.to(torch.uint8)"),
    ("00b_cpp_you_need", "00b-lines1 00b-lines3", "few_lines", "00b fewest lines",
     "min(left + 16, n)", "min(left + 15, n)"),
    ("02_grids_blocks_threads", "02-idle1 02-idle3", "few_idle", "02 fewest idle threads",
     "128 // x)", "max(64 // x, 1))"),
    ("02b_images_and_memory", "02b-few1 02b-few3", "few_sectors", "02b fewest sectors",
     "above, here = here, below", "here = below"),
    ("02b_images_and_memory", "02b-few1 02b-few3", "few_sectors", "02b fewest sectors",
     "if row + 1 < H else here", "if row + 1 < 63 else here"),
    ("04b_fusion_and_roofline", "04b-ex1c 04b-few1 04b-few2", "few_bytes", "04b fewest bytes",
     "torch.lerp(z, y,", "torch.lerp(y, z,"),
    ("05_shared_memory", "05-few1", "few_ticks", "05 fewest ticks",
     "row < M and k < K else 0.0", "row < M and k < 32 else 0.0"),
    ("05_shared_memory", "05-nine1 05-nine3", "few_sectors", "05 sums of nine",
     "shared_array(264)", "shared_array(256)"),
    ("06_synchronization", "06-few1 06-few3", "few_atomics", "06 fewest atomics",
     "if i < n else -1", "if i < n else 0"),
    ("06b_streams_and_graphs", "06b-model-i 06b-model-a 06b-needless1 06b-needless2", "few_us",
     "06b find the needless wait", "        cudaStreamWaitEvent(stream, arrived)\n", ""),
    ("07c_normalization", "07c-py-sum 07c-py-bsum 07c-py-ln 07c-few1", "few_sectors",
     "07c fewest sectors", "min((blockIdx.x + 1) * each, rows)", "(blockIdx.x + 1) * each"),
    ("08b_flash_attention", "08b-ref 08b-py-a 08b-py-a3 08b-py-b 08b-py-k 08b-few1", "few_loads",
     "08b fewest loads", "min(S_kv, rows[i] + 1) - first", "S_kv - first"),
    ("08b_flash_attention", "08b-ref 08b-py-a 08b-py-a3 08b-py-b 08b-py-k 08b-few1", "few_loads",
     "08b fewest loads", "= k_tile[j, d], v_tile[j, d]",
     "= (k[first + j, d], v[first + j, d]) if first + j < S_kv else (0.0, 0.0)"),
    ("09_matmul", "09-ref 09-col-size 09-col-py 09-few1", "few_loads", "09 fewer loads",
     "if k < K and c < N else 0.0", "if c < N else 0.0"),
    ("10_tensor_cores", "10-setup2 10-wmma-k 10-few1", "few_sectors", "10 fewest sectors",
     "+ col + 16 * j, N);", "+ col, N);"),
    ("10_tensor_cores", "10-setup2 10-wmma-k 10-few1", "few_sectors", "10 fewest sectors",
     "ROWS = 4, COLS = 4", "ROWS = 4, COLS = 8"),
    ("11_fft_and_convolution", "11-few1 11-few3", "few_products", "11 fewest products",
     "a[1] + a[3]", "a[1] - a[3]"),
    ("14_autograd", "14-few1 14-few3", "few_kept", "14 fewest bytes kept",
     "(1 + x * (1 - s))", "(1 + x * s)"),
    ("15_fusion", "15-few1 15-few2 15-few4", "few_sectors", "15 fewest sectors",
     "range(2 * i - 1, 2 * i + 3)", "range(2 * i, 2 * i + 4)"),
    ("15_fusion", "15-few1 15-few2 15-few4", "few_sectors", "15 fewest sectors",
     "range(threadIdx.x, L // 2, 32)", "range(L if threadIdx.x else 0, L // 2)"),
    ("17b_faster_and_faster", "17b-few1 17b-few3", "few_sectors", "17b fewest sectors",
     "if inside and x > 0:", "if inside:"),
    ("17b_faster_and_faster", "17b-few1 17b-few3", "few_sectors", "17b fewest sectors",
     "    syncthreads()  # the middle tap is complete before it is read\n", ""),
]  # fmt: skip


@pytest.mark.parametrize(("notebook", "cells", "work", "exercise", "part", "wrong"), OPEN)
def test_open_exercises_refuse_what_is_wrong(
    notebook, cells, work, exercise, part, wrong, monkeypatch
):
    monkeypatch.chdir(NOTEBOOKS)
    path, names = NOTEBOOKS / f"{notebook}.ipynb", {"trace": trace}
    for cell in notebook_cells(path.name)[:8]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "code" and "import " in source:
            run(source.replace("set_up()", ""), f"<{notebook}>", names)
    names_of(path.name, cells, names)
    call, language, solved = folded_solution(path, exercise)
    assert part in solved
    attempt = solved.replace(part, wrong)
    if language == "python":
        run(attempt, f"<wrong {exercise}>", names)
        attempt = eval(compile(ast.Expression(call.args[1]), "<attempt>", "eval"), names)
    with poisoned(), silent(), pytest.raises((AssertionError, CompileError, SimulatorError)):
        names[work].count(attempt)
