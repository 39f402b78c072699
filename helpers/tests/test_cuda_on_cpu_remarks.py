"""What nvcc takes in another sense than was meant is said; what is meant as it stands is not."""

from pathlib import Path

import pytest

from helpers.base.machine import ROOT
from helpers.cuda_on_cpu import find_remarks

K = "__global__ void k(float* o, const int* n, int i) {{\n{} }}"


@pytest.mark.parametrize(
    "line, sentence",
    [
        ("o[i, 0] = 1;", "o[i, 0] is o[0] in C++: write o[i][0]"),
        ("if (2 <= i < 5) o[i] = 1;", "write 2 <= i && i < 5."),
        ("if (-1 < i && 0 < n[i] < i) o[i] = 1;", "write 0 < n[i] && n[i] < i."),
        ("if (i = 3) o[i] = 1;", "i = 3 assigns here, and compares nothing: write i == 3."),
        ("if (i & 1 == 0) o[i] = 1;", "i & 1 == 0 is i & (1 == 0) in C++: write (i & 1) == 0."),
        ("for (int j = 0; j < 3; j++); { o[i] = 1; }", "the ; after for (...) is its whole body"),
        ("if (i > 2); o[i] = 1;", "the ; after if (...) is its whole body"),
        ("if (threadIdx.x - 5 < 0) o[i] = 1;", "threadIdx.x - 5 < 0 is never so"),
        ("if (threadIdx.x - 1 >= 0) o[i] = 1;", "threadIdx.x - 1 >= 0 is always so"),
        ("o[i] == 1;", "write o[i] = 1;"),
        ("o[i] = sizeof(o) / sizeof(o[0]);", "sizeof(o) is the size of the pointer, 8 bytes"),
    ],
)
def test_a_remark(line, sentence):
    ((number, said),) = find_remarks(K.format(line))
    assert number == 2 and sentence in said and said.endswith((".", ";"))


@pytest.mark.parametrize(
    "line",
    [
        "if (i < 3 && n[0] > 2 || i <= n[1]) o[i] = 1;",
        "o[i] = f<3, 4>(i) + g<int>(i); A<B<int>> c;",
        "o[i] = i < 3 ? 1 : n[0] < 2;",
        "o[i << 1] = i >> 2 < 3;",
        "while (n[i] == 0); o[i] = (i & 1) == 0;",
        "do { i--; } while (i > 3); { o[i] = 1; }",
        "if (int j = n[i]) o[j] = 1;",
        "while ((i = next(i)) != 0) o[i] = 1;",
        "if (i && n[i] == 0 || o == nullptr) o[i] = 1; bool b = &o[i] == o;",
        "if (int(threadIdx.x) - 5 < 0) o[i] = 1; if (threadIdx.x - 5 > 0) o[i] = 2;",
        "bool same = o[i] == 1; for (; i == 1;) i++;",
        "__shared__ float s[8]; o[i] = sizeof(s) + sizeof(float) + sizeof(*o);",
        "auto f = [=, &o](int j) { return j == 1; }; for (int a = 0, b = 1; a < b; a++) {}",
        'asm volatile("setp.lt.s32 p, %0, %1;" : : "r"(i), "r"(i));',
    ],
)
def test_no_remark(line):
    assert find_remarks(K.format(line)) == ()


@pytest.mark.parametrize(
    "path", sorted((ROOT / "kernels").glob("*.cu")), ids=lambda path: path.stem
)
def test_no_remark_on_the_kernel_files(path: Path):
    assert find_remarks(path.read_text()) == ()
