"""What changed from one string to the next: by sign, by colour, and without noise."""

import itertools
import re
from html import unescape

import pytest
from matplotlib.colors import to_rgb

from helpers.base.change import HUE, LINE, MARK, Change
from helpers.code import show_change
from helpers.make.kernels import KERNELS
from helpers.make.site.frame import TEMPLATES
from helpers.tests.legible import LEAST_CONTRAST, contrast

BEFORE = """
// adds
// a
// and b
__global__ void add_kernel(float* out, const float* a, const float* b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float x = a[i];
    float y = b[i];
    float sum = x + y;
    out[i] = sum;
    // the end
    // of it
    // all
}
"""
AFTER = BEFORE.replace("float x = a[i];", "float x = 2.0f * a[i];").replace(
    "    out[i] = sum;\n", "    out[i] = sum;\n    __syncthreads();  // why\n"
)
LINES = [
    "+2 −1",
    "… 4 lines as before",
    "      int i = blockIdx.x * blockDim.x + threadIdx.x;",
    "      if (i >= n) return;",
    "−     float x = a[i];",
    "+     float x = 2.0f * a[i];",
    "      float y = b[i];",
    "      float sum = x + y;",
    "      out[i] = sum;",
    "+     __syncthreads();  // why",
    "      // the end",
    "      // of it",
    "      // all",
    "  }",
]
INK = re.compile(r"--(page|text): light-dark\((#\w+), (#\w+)\)")


def change(before, after, **options):
    return Change("\n".join(before), "\n".join(after), **options)


def shown(before, after, **options):
    return repr(change(before, after, **options)).split("\n")


def test_what_changed_stands_by_sign_and_the_rest_is_folded():
    assert repr(show_change(BEFORE, AFTER)).split("\n") == LINES
    assert shown(["a", "b", "c", "x"], ["a", "b", "c", "y"])[1] == "  a", "one is no fold"


def test_html_says_what_the_text_says():
    result = change([f"int a{i};" for i in range(9)], [f"int a{i};" for i in range(8)] + ["x < y;"])
    html = result._repr_html_().replace("</b><div", "\n<div", 1)
    text = unescape(re.sub(r"<[^>]+>", "", html))
    assert [line.rstrip() for line in text.split("\n") if line.strip()] == repr(result).split("\n")
    assert repr(result).split("\n")[1:3] == ["… 6 lines as before", "  int a6;"]
    assert repr(result).split("\n")[-2:] == ["− int a8;", "+ x < y;"]


def test_words_that_changed_are_marked_in_their_line():
    html = show_change(BEFORE, AFTER)._repr_html_()
    assert re.findall(r"<b style[^>]*>(.*?)</b>", html) == ["2.0f *"]
    both = show_change("int n = 3 * a;", "int n = 40 * a;")._repr_html_()
    assert re.findall(r"<b style[^>]*>(.*?)</b>", both) == ["3", "40"]


def test_lines_that_have_little_in_common_have_no_marks():
    html = show_change("int a = b;", "for (;;) g();")._repr_html_()
    assert "<b style" not in html


def test_spaces_and_breaks_of_lines_are_no_change():
    assert shown(["f(a,b);", "x = 1;"], ["if (n) {", "    f(a, b);", "", "}", "x  =  1;"]) == [
        "+2 −0",
        "+ if (n) {",
        "      f(a, b);",
        "",
        "+ }",
        "  x  =  1;",
    ]
    assert shown(["f(a, b);"], ["f(a,", "  b);"]) == ["nothing changed", "  f(a,", "    b);"]
    assert shown(['f("a b");'], ['f("a  b");'])[0] == "+1 −1", "spaces of a text are text"


def test_lines_further_in_are_folded_with_a_word():
    inner = [f"f({i});" for i in range(8)]
    found = shown(inner, ["for (;;)", *("    " + line for line in inner)])
    assert found[-1] == "… 6 lines as before, further in"


def test_lines_that_moved_are_neither_added_nor_removed():
    a = ["float value = table[i];", "sum += value;"]
    b = [f"step_{i}(table);" for i in range(3)]
    assert shown(a + b, b + a) == [
        "+0 −0, 2 moved",
        "↓ 2 lines moved down",
        *(f"  {line}" for line in b),
        *(f"↕ {line}" for line in a),
    ]
    assert shown(b + a, a + b)[-1] == "↓ 2 lines moved up"
    found = shown(["__syncthreads();", *b], [*b, "__syncthreads();"])
    assert found[0] == "+1 −1", "of a short line both places are worth seeing"


def test_indentation_is_what_python_says():
    before = ["if i < n:", "    f(i)", "    syncthreads()"]
    after = ["if i < n:", "    f(i)", "syncthreads()"]
    assert shown(before, after)[0] == "nothing changed"
    assert shown(before, after, by_indentation=True) == [
        "+1 −1",
        "  if i < n:",
        "      f(i)",
        "−     syncthreads()",
        "+ syncthreads()",
    ]
    looped = ["if i < n:", "    for k in range(3):", "        f(i)", "    syncthreads()"]
    assert shown(before, looped, by_indentation=True)[0] == "+1 −0"


def test_functions_of_python_are_read_from_where_they_stand():
    def once(out, i):
        out[i] = 1

    def twice(out, i):
        out[i] = 2

    assert repr(show_change(once, twice)) == (
        "+2 −2\n− def once(out, i):\n−     out[i] = 1\n+ def twice(out, i):\n+     out[i] = 2"
    )


def test_one_kernel_of_a_string_with_several():
    src = "".join(
        f"__global__ void {name}(float* out) {{\n    out[0] = {value};\n}}\n"
        for name, value in (("ones", 1), ("twos", 2))
    )
    found = repr(show_change(src, src, kernels=("ones", "twos"))).split("\n")
    assert found[0] == "+2 −2" and found[1].startswith("− __global__ void ones")
    with pytest.raises(ValueError, match="expected one function threes .* kernels: ones, twos"):
        show_change(src, src, kernels=("ones", "threes"))


def test_nothing_changed():
    assert repr(show_change(BEFORE, "\n" + BEFORE.replace("    ", "\t"))).startswith(
        "nothing changed\n… 14 lines as before"
    )


def test_it_shows_the_same_each_time():
    assert show_change(BEFORE, AFTER)._repr_html_() == show_change(BEFORE, AFTER)._repr_html_()


FILES = [KERNELS / f"{op}.cu" for op in ("matmul_naive", "relu", "sum", "transpose")]


@pytest.mark.parametrize(("before", "after"), list(itertools.permutations(FILES, 2)))
def test_all_of_the_new_text_is_there(before, after):
    before, after = before.read_text(), after.read_text()
    lines = Change(before, after).lines
    assert [line.text for line in lines if line.sign in " +↕"] == after.split("\n")
    gone = {line.text for line in lines if line.sign == "−"}
    assert gone <= set(before.split("\n"))


@pytest.mark.parametrize(
    ("before", "after", "error", "words"),
    [
        (BEFORE, 3, TypeError, "expected a string with CUDA code, got int"),
        (BEFORE, " ", ValueError, "got an empty one"),
        (BEFORE, shown, TypeError, "expected two CUDA strings or two Python functions"),
        (print, print, TypeError, "expected a Python function, got builtin"),
    ],
)
def test_wrong_input_gets_a_sentence(before, after, error, words):
    with pytest.raises(error, match=words):
        show_change(before, after)


def themes():
    """Return (page, text) of JupyterLab, light and dark, of GitHub and of the site."""
    found = {name: colours for name, *colours in INK.findall((TEMPLATES / "style.css").read_text())}
    site = zip(found["page"], found["text"], strict=True)
    return [("#ffffff", "#212121"), ("#111111", "#ffffff"), ("#0d1117", "#f0f6fc"), *site]


@pytest.mark.parametrize(("page", "text"), themes())
@pytest.mark.parametrize("sign", "+−")
def test_text_is_read_on_every_ground(page, text, sign):
    """No text has a colour of its own: what is behind it must be faint enough."""
    html = show_change(BEFORE, AFTER)._repr_html_()
    assert not re.search(r"[;\"]color:", html)
    ground, hue = to_rgb(page), to_rgb(HUE[sign])
    for opacity in LINE, MARK:  # the word's ground lies upon that of its line
        ground = [(1 - opacity) * a + opacity * b for a, b in zip(ground, hue, strict=True)]
        assert contrast(to_rgb(text), ground) >= LEAST_CONTRAST
    assert contrast(hue, to_rgb(page)) >= 3, "the border is no text"


def test_colours_differ_in_more_than_hue():
    """Blue and vermilion: told apart by everybody, and by sign without any colour."""
    added, removed = (to_rgb(HUE[sign]) for sign in "+−")
    assert added[2] > 2 * removed[2] and removed[0] > 2 * added[0]
