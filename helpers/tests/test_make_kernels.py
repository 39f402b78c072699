"""The kernel files are the notebooks' strings, and mistakes in those strings are named."""

import nbformat
import pytest

from helpers.make.kernels import export, kernel_differences, kernel_sources

TOURED = "// kernels/relu.cu\n// One head. Notebook:\n// 02_b. Own code.\nint x;\n"
SQUARE = "// kernels/square.cu\n__global__ void square() {}\n"


@pytest.fixture
def notebook(tmp_path):
    """Return a function that writes a notebook of the given code cells into tmp_path."""

    def write(name, *cells):
        code = [nbformat.v4.new_code_cell(cell) for cell in cells]
        nbformat.write(nbformat.v4.new_notebook(cells=code), tmp_path / f"{name}.ipynb")

    return write


def test_source_of_one_string(notebook, tmp_path):
    notebook("01_a", "x = 1", f'square_src = r"""{SQUARE}"""', "%time x\nprint(x)")
    source = kernel_sources(tmp_path)["square"]
    assert source.text == SQUARE
    assert source.notebook.name == "01_a.ipynb"


def test_raw_string_keeps_backslashes_and_ends_with_one_newline(notebook, tmp_path):
    text = SQUARE + r'// printf("%d\n", 1);' + "\n\n\n"
    notebook("01_a", f'src = r"""{text}"""')
    assert kernel_sources(tmp_path)["square"].text == text.rstrip("\n") + "\n"


def test_continued_string_goes_on_without_its_first_line(notebook, tmp_path):
    more = "// kernels/square.cu (continued)\n\nvoid launch() {}\n"
    notebook("01_a", f'src = r"""{SQUARE}"""', "src.count('x')", f'src += r"""{more}"""')
    assert kernel_sources(tmp_path)["square"].text == SQUARE + "\nvoid launch() {}\n"


def test_other_strings_and_comments_are_no_sources(notebook, tmp_path):
    notebook(
        "01_a",
        '# the file // kernels/square.cu comes later\nx = "see // kernels/square.cu"',
        'y = r"""// kernels/Square.cu\n"""',
        'z = r"""// square.cu with // kernels/square.cu on another line\n// kernels/square.cu\n"""',
    )
    assert kernel_sources(tmp_path) == {}


def test_two_strings_for_one_file_are_refused(notebook, tmp_path):
    notebook("01_a", f'src = r"""{SQUARE}"""')
    notebook("02_b", "x = 1", f'src = r"""{SQUARE}"""')
    with pytest.raises(ValueError, match=r"02_b.ipynb, cell 2: .*square.cu stands in 01_a.ipynb"):
        kernel_sources(tmp_path)


def test_a_first_line_alone_is_no_file(notebook, tmp_path):
    notebook("01_a", 'show("// kernels/square.cu")')
    with pytest.raises(ValueError, match="01_a.ipynb, cell 1: expected code below '// kernels/"):
        kernel_sources(tmp_path)


def test_a_continuation_needs_a_beginning_in_its_notebook(notebook, tmp_path):
    notebook("01_a", f'src = r"""{SQUARE}"""')
    notebook("02_b", 'src = r"""// kernels/square.cu (continued)\nint x;\n"""')
    with pytest.raises(ValueError, match=r"02_b.ipynb, cell 1: continues kernels/square.cu"):
        kernel_sources(tmp_path)


def test_export_writes_what_differs_and_then_nothing_differs(notebook, tmp_path, capsys):
    kernels = tmp_path / "kernels"
    kernels.mkdir()
    notebook("01_a", f'src = r"""{SQUARE}"""', 'src = r"""// kernels/relu.cu\nint x;\n"""')
    (kernels / "relu.cu").write_text("// kernels/relu.cu\nint y;\n")
    differences = kernel_differences(tmp_path, kernels)
    assert "-int y;\n+int x;\n" in differences
    assert "+__global__ void square() {}\n" in differences

    export(tmp_path, kernels)
    assert (kernels / "square.cu").read_text() == SQUARE
    assert "kernels/relu.cu: written from 01_a.ipynb" in capsys.readouterr().out
    assert kernel_differences(tmp_path, kernels) == ""

    export(tmp_path, kernels)
    assert "written" not in capsys.readouterr().out


def test_a_file_without_a_notebook_differs(tmp_path, capsys):
    (tmp_path / "gelu.cu").write_text("// kernels/gelu.cu\n")
    assert "-// kernels/gelu.cu" in kernel_differences(tmp_path, tmp_path)
    export(tmp_path, tmp_path)
    assert "kernels/gelu.cu: stands in no notebook" in capsys.readouterr().out


def with_toured(tmp_path, notebook, *cells):
    """Return a folder with relu.cu, whose head names 02_b, and write that notebook."""
    kernels = tmp_path / "kernels"
    kernels.mkdir()
    (kernels / "relu.cu").write_text(TOURED)
    notebook("01_a", f'src = r"""{SQUARE}"""')
    notebook("02_b", *cells)
    return kernels


def test_a_file_that_its_notebook_reads_is_its_own_source(notebook, tmp_path, capsys):
    kernels = with_toured(tmp_path, notebook, 'relu = Path("../kernels/relu.cu")')
    (kernels / "square.cu").write_text(SQUARE)
    sources = kernel_sources(tmp_path, kernels)
    assert list(sources) == ["square", "relu"]
    assert not sources["square"].is_toured
    assert sources["relu"].is_toured and sources["relu"].text == TOURED
    assert sources["relu"].notebook.name == "02_b.ipynb"
    assert kernel_differences(tmp_path, kernels) == ""
    export(tmp_path, kernels)
    assert capsys.readouterr().out == "1 kernel files are as in their notebooks, 1 have a tour\n"
    assert (kernels / "relu.cu").read_text() == TOURED


@pytest.mark.parametrize(
    ("cell", "head"),
    [
        ('# reads "../kernels/square.cu"', TOURED),
        ('relu = Path("../kernels/relu.cu")', TOURED.replace("02_b", "01_a")),
        ('relu = Path("../kernels/relu.cu")', TOURED.replace("02_b", "03_c")),
        ('relu = Path("../kernels/relu.cu")', TOURED.replace("02_b", "the second")),
    ],
)
def test_a_file_that_the_notebook_of_its_head_does_not_read_differs(
    cell, head, notebook, tmp_path, capsys
):
    kernels = with_toured(tmp_path, notebook, cell)
    (kernels / "relu.cu").write_text(head)
    assert "relu" not in kernel_sources(tmp_path, kernels)
    assert "-int x;" in kernel_differences(tmp_path, kernels)
    export(tmp_path, kernels)
    assert "kernels/relu.cu: stands in no notebook; remove it" in capsys.readouterr().out


def test_a_string_writes_its_file_even_if_the_file_is_read_too(notebook, tmp_path):
    text = TOURED.replace("int x", "int y")
    kernels = with_toured(tmp_path, notebook, f'src = r"""{text}"""', 'Path("../kernels/relu.cu")')
    assert not kernel_sources(tmp_path, kernels)["relu"].is_toured
    assert "-int x;\n+int y;\n" in kernel_differences(tmp_path, kernels)
