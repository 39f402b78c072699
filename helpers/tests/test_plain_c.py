"""Strings of C: they are C, their errors point into them, and nothing is built twice."""

import ctypes

import pytest

from helpers.compiler import CompileError, ToolMissing, compile_c, tools

SCALE = """#include <math.h>
#include <stdlib.h>
double scale(float* values, int n, double by) {
    float* class = malloc(n * sizeof(float));  // neither the name nor the cast is C++
    for (int i = 0; i < n; i++) class[i] = by * sqrt(values[i]);
    for (int i = 0; i < n; i++) values[i] = class[i];
    free(class);
    return by;
}
"""


def test_a_string_of_c():
    scale = compile_c(SCALE).scale
    scale.restype = ctypes.c_double
    values = (ctypes.c_float * 3)(0, 1, 4)
    assert scale(values, 3, ctypes.c_double(2.5)) == 2.5
    assert list(values) == [0, 2.5, 5]


def test_a_compiler_that_speaks_german(german, monkeypatch):
    monkeypatch.setenv("CC", german(tools.c_compiler()))
    with pytest.raises(CompileError, match=r"line 1: .*'x' undeclared(.|\n)*\^"):
        compile_c("int f() { return x; }")


def test_it_is_built_once(monkeypatch):
    compile_c(SCALE)
    monkeypatch.setattr("subprocess.run", None)
    compile_c(SCALE)


def test_names_of_a_string_are_its_own():
    counts = """
static int calls = {0}; int total = {0};
static int step(void) {{ return {0}; }}
int count(void) {{ return total += calls += step(); }}
"""
    one, ten = (compile_c(counts.format(start)) for start in (1, 10))
    assert [one.count(), ten.count(), one.count(), ten.count()] == [3, 30, 6, 60]
    # the C library has these as well
    own = "int random(void) { return 4; } int optind = 30;"
    assert compile_c(f"{own} int sum(void) {{ return random() + optind; }}").sum() == 34


def test_functions_that_cannot_be_called():
    library = compile_c("static int one(void) { return 1; } int two(void) { return one() + 1; }")
    assert library.two() == 2
    with pytest.raises(AttributeError, match="^one is static: only its own string can call it"):
        library.one()
    with pytest.raises(AttributeError, match="^no function three was compiled; there is two$"):
        library.three()


@pytest.mark.parametrize(
    "fault, line", [("std::vector<int> v;", 3), ("return missing;", 4), ("absent(1);", 4)]
)
def test_errors_point_into_the_string(fault, line):
    body = f"{fault}\nint f(void) {{ return 0; }}" if line == 3 else f"int f(void) {{\n{fault} }}"
    with pytest.raises(CompileError, match=f"^line {line}"):
        compile_c(f"// a line\n\n{body}\n")


def test_no_c_compiler(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(ToolMissing, match=r"There is no C compiler on PATH\."):
        tools.c_compiler()
    monkeypatch.setenv("CC", "cc-99")
    with pytest.raises(ToolMissing, match="CC names 'cc-99'"):
        tools.c_compiler()
