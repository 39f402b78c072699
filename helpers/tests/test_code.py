"""CUDA strings are shown whole, in colour, folded where no kernel is; twins line by line."""

import re
from html import unescape

import pytest

from helpers.code import Twins, show_cuda, show_twins
from helpers.make.kernels import KERNELS

SRC = r"""
// kernels/scale.cu
// Multiplies by s.
#include <climits>

#define CHECK(x) \
    TORCH_CHECK(x.is_cuda())

static int cdiv(int a, int b) { return (a + b - 1) / b; }

// threads of a block
constexpr int BLOCK_SIZE = 256;

// one thread per element
__global__ void scale_kernel(float* out, const float* inp, float s,
                             int n) {
    /* the index
       of this thread */
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    #pragma unroll
    for (int k = 0; k < 1; k++)
        if (i < n && s != 0.0f) {
            out[i] = s * inp[i];
        }
}

// checks, then launches
torch::Tensor scale(torch::Tensor inp, double s) {
    CHECK(inp);
    auto out = torch::empty_like(inp);
    scale_kernel<<<cdiv(inp.numel(), BLOCK_SIZE), BLOCK_SIZE>>>(out, inp, s, inp.numel());
    return out;
}
"""


def scale_kernel(out, inp, s, n):
    i = blockIdx.x * blockDim.x + threadIdx.x  # noqa: F821
    if i < n and s != 0.0:
        out[i] = s * inp[i]


def text_of(html):
    return unescape(re.sub(r"<[^>]+>", "", html))


def folded(html):
    return [
        (title, text_of(code))
        for title, code in re.findall(
            r"<details><summary>(.*?)</summary>(.*?)</details>", html, re.DOTALL
        )
    ]


def test_a_string_is_shown_whole_with_header_and_launcher_folded():
    shown = show_cuda(SRC)
    html = shown._repr_html_()
    (header, before), (launcher, after) = folded(html)
    assert header == "header, 8 lines" and launcher == "launcher of scale, 7 lines"
    assert before.startswith("// kernels/scale.cu") and before.endswith("(a + b - 1) / b; }")
    assert after.startswith("// checks, then launches") and after.endswith("}")
    seen = text_of(re.sub(r"<details>.*?</details>", "", html, flags=re.DOTALL))
    assert seen.startswith("// threads of a block") and "#pragma unroll" in seen
    written = [line for line in SRC.split("\n") if line.strip()]
    shown_lines = text_of(re.sub(r"<summary>.*?</summary>|</pre>", "\n", html)).split("\n")
    assert [line for line in shown_lines if line.strip()] == written
    assert repr(shown) == SRC


def test_colours_are_the_themes():
    html = show_cuda(SRC)._repr_html_()
    assert html.startswith('<div class="highlight">') and "color" not in html
    assert re.search(r'<span class="k\w?">__global__</span>', html)
    for line in html.split("\n"):  # a comment over two lines is coloured in both
        assert line.count("<span") == line.count("</span>")


@pytest.mark.parametrize("path", sorted(KERNELS.glob("*.cu")), ids=lambda path: path.stem)
def test_every_kernel_file_folds_what_is_no_kernel(path):
    html = show_cuda(path.read_text())._repr_html_()
    titles = [title for title, _ in folded(html)]
    assert titles[0].startswith("header") and titles[-1].startswith("launcher of")
    seen = re.sub(r"<details>.*?</details>", "", html, flags=re.DOTALL)
    assert "__global__" in text_of(seen) and "TORCH_CHECK" not in text_of(seen)


def test_a_string_without_kernels_or_with_a_gap_is_shown():
    assert "TODO" in show_cuda("__global__ void f() {\n    TODO\n}")._repr_html_()
    assert '<span class="c1">// the end</span>' in show_cuda("int a;\n// the end")._repr_html_()
    assert text_of(show_cuda("struct { a & b")._repr_html_()) == "struct { a & b"
    method = "struct Pair {\n    float x;\n    float sum() {\n        return x;\n    }\n};"
    assert not folded(show_cuda(method + "\n__global__ void k() {}")._repr_html_())


@pytest.mark.parametrize("end", ["\r", "\r\n"])
def test_other_ends_of_lines_are_ends_of_lines(end):
    src = "__global__ void one(float* x) {\n    x[0] = 1;\n}"
    other = src.replace("\n", end)
    assert show_cuda(other)._repr_html_() == show_cuda(src)._repr_html_()
    assert repr(show_cuda(other)) == src


def test_twins_stand_beside_each_other():
    twins = show_twins(scale_kernel, SRC)
    pairs = [(twins.python[i], twins.cuda[j]) for i, j in twins.pairs if None not in (i, j)]
    assert [(a.split()[0], b.split()[0]) for a, b in pairs] == [
        ("def", "__global__"),
        ("i", "int"),
        ("if", "if"),
        ("out[i]", "out[i]"),
    ]
    assert [i for i, _ in twins.pairs if i is not None] == list(range(len(twins.python)))
    assert [j for _, j in twins.pairs if j is not None] == list(range(len(twins.cuda)))
    alone = [twins.cuda[j].strip() for i, j in twins.pairs if i is None]
    assert alone.count("}") == 2 and "#pragma unroll" in alone


def test_division_is_no_comment():
    def kernel(out, n, rows, cols):
        at = n // rows
        at = n // cols
        out[at] = n  # cols

    src = "__global__ void kernel() {\nint at = n / rows;\nout[at] = n;  //cols\n}"
    assert [j for _, j in show_twins(kernel, src).pairs] == [0, 1, None, 2, 3]


def test_lines_are_paired_by_what_they_say_in_both_languages():
    def kernel(out, i, j, n):
        i = j and n
        i = j or n
        out[i] = j + n
        j += 1

    lines = ["i = j && n;", "out[i] = j + n + i + n;", "k = 1;"]
    indented = "".join(f"    {line}\n" for line in ["__global__ void kernel() {", *lines, "}"])
    twins = show_twins(kernel, indented)
    assert twins.cuda[0].startswith("__global__"), "it stands at the edge"
    paired = [pair for pair in twins.pairs if None not in pair]
    assert paired == [(0, 0), (1, 1), (3, 2)], "j += 1 is not k = 1"


def test_twins_as_text_and_as_html_say_the_same():
    twins = show_twins(scale_kernel, SRC)
    lines = repr(twins).split("\n")
    (index,) = [line for line in lines if "int i =" in line]
    assert index.split(" │ ")[0].strip().startswith("i = blockIdx.x")
    assert len({line.index("│") for line in lines if "│" in line}) == 1
    rows = re.findall(r"<tr><td.*?>(.*?)</td><td.*?>(.*?)</td></tr>", twins._repr_html_())
    at = [
        ("" if i is None else twins.python[i], "" if j is None else twins.cuda[j])
        for i, j in twins.rows()
    ]
    assert [(text_of(a), text_of(b)) for a, b in rows] == at


def test_lines_without_a_twin_stand_beside_each_other():
    pairs = [(0, 0), (1, None), (2, None), (None, 1), (3, 2), (None, 3)]
    twins = Twins(list("abcd"), list("ABCD"), pairs)
    assert twins.rows() == [(0, 0), (1, 1), (2, None), (3, 2), (None, 3)]


def test_what_wraps_is_indented_further_than_its_line():
    html = show_twins(scale_kernel, SRC)._repr_html_()
    indents = set(re.findall(r"padding-left:(\d+)ch;text-indent:-(\d+)ch", html))
    assert {("4", "4"), ("8", "8")} <= indents and all(a == b for a, b in indents)


def test_the_only_kernel_may_have_another_name():
    twins = show_twins(scale_kernel, SRC.replace("scale_kernel", "mul_kernel"))
    assert (0, 0) in twins.pairs


@pytest.mark.parametrize(
    ("kernel", "src", "error", "words"),
    [
        (scale_kernel, 3, TypeError, "expected a string with CUDA code, got int"),
        (scale_kernel, " \n", ValueError, "got an empty one"),
        (scale_kernel, "int a;", ValueError, "expected one function scale_kernel .* kernels: none"),
        (
            scale_kernel,
            "__global__ void f() {} __global__ void g() {}",
            ValueError,
            "expected one function scale_kernel in the CUDA string, kernels: f, g",
        ),
        (SRC, SRC, TypeError, "expected a Python function, got str"),
        (print, SRC, TypeError, "expected a Python function, got builtin"),
        (eval("lambda: 0"), SRC, ValueError, "the source of <lambda> is not to be found"),
    ],
)
def test_wrong_input_gets_a_sentence(kernel, src, error, words):
    with pytest.raises(error, match=words):
        show_twins(kernel, src)


def test_show_cuda_takes_strings_only():
    with pytest.raises(TypeError, match="expected a string with CUDA code, got NoneType"):
        show_cuda(None)


PARTS = r"""// kernels/parts.cu
// A head.
template <int N>
struct Pair { float x[N]; };
struct Other {
    // of Other
    float half() { return 0; }
    float third() {
        return 3;
    }
};

// twice; not "half("
template <int N>
__device__ float twice(float x) {
    // a comment that says twice
    return 2 * x;
}

__device__ float half(float x) { return x / 2; }
__global__ void kernel(float* x) {
    // a step
    auto step = [&](int i) {
        if (i < 3) x[i] = half(twice(x[i]));
    };
    while (x[0] < 1) {
#pragma unroll
        for (int i = 0; i < 3; i++) step(i);
    }
}
"""


@pytest.mark.parametrize(
    ("name", "first", "last"),
    [
        ("half", "__device__ float half(float x) { return x / 2; }", None),
        ("twice", "// twice; not", "}"),
        ("Pair", "struct Pair { float x[N]; };", None),
        ("third", "float third() {\n    return 3;", "}"),
        ("Other::half", "// of Other", "float half() { return 0; }"),
        ("auto step", "// a step", "};"),
        ("for (int i", "for (int i = 0; i < 3; i++) step(i);", None),
        ("while", "while (x[0] < 1) {\n#pragma unroll\n    for (", "}"),
    ],
)
def test_a_part_is_shown_with_its_comment_and_open(name, first, last):
    shown = show_cuda(PARTS, name)
    lines = repr(shown).split("\n")
    assert repr(shown).startswith(first) and lines[-1] == (last or first)
    html = shown._repr_html_()
    assert "<details>" not in html and text_of(html) == repr(shown)


def test_parts_stand_in_the_order_in_which_they_are_named():
    assert repr(show_cuda(PARTS, "half", "Pair")).split("\n")[::2] == [
        "__device__ float half(float x) { return x / 2; }",
        "struct Pair { float x[N]; };",
    ]


@pytest.mark.parametrize(("name", "count"), [("fourth", 0), ("}", 6), ("twice; not", 0)])
def test_a_part_that_is_not_there_once_is_named(name, count):
    with pytest.raises(ValueError, match=rf"line '{re.escape(name)}', found {count}"):
        show_cuda(PARTS, name)


def test_twins_may_be_functions_that_a_kernel_calls():
    def twice(x):
        return 2 * x

    twins = show_twins(twice, PARTS)
    assert twins.cuda[:2] == ["template <int N>", "__device__ float twice(float x) {"]
    assert [pair for pair in twins.pairs if None not in pair] == [(0, 1), (1, 3)]
