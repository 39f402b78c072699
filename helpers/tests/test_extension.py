"""compile_extension: modules of the host's compiler; operator_name: what C++ can call."""

import pytest

from helpers.compiler import compile_cuda, compile_extension
from helpers.compiler.extension import operator_name

FIVE = """
#include <Python.h>
static PyModuleDef five = {PyModuleDef_HEAD_INIT, "five", nullptr, -1};
PyMODINIT_FUNC PyInit_five() {
    PyObject* module = PyModule_Create(&five);
    PyModule_AddIntConstant(module, "value", VALUE);
    return module;
}
"""


def test_a_module_and_the_parts_that_it_includes(tmp_path, capfd):
    source, part = tmp_path / "five.cpp", tmp_path / "value.h"
    source.write_text(f'#include "value.h"\n{FIVE}')
    for value in (5, 6):  # a part that changed is another module
        part.write_text(f"#define VALUE {value} + 0 * {hash(tmp_path) % 10**9}\n")
        compile_extension.cache_clear()
        assert compile_extension(source, part).value == value
        assert "Building five.cpp" in capfd.readouterr().err
    compile_extension.cache_clear()
    compile_extension(source, part)
    assert capfd.readouterr().err == ""  # from the cache


def test_what_does_not_compile_says_why(tmp_path):
    source = tmp_path / "five.cpp"
    source.write_text(FIVE)
    with pytest.raises(RuntimeError, match="(?s)five.cpp does not compile:.*VALUE"):
        compile_extension(source)


def test_what_cpp_cannot_call_is_refused():
    square = compile_cuda(
        "#include <torch/types.h>\ntorch::Tensor same(torch::Tensor inp) { return inp; }"
    ).same
    assert operator_name(square, lambda: 0).endswith("::same")
    with pytest.raises(TypeError, match="expected a function built with the light headers"):
        operator_name(lambda inp: inp, lambda: 0)
