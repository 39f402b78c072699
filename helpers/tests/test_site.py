"""`make site`: CUDA strings in colour, formulas, links, and pages that need no network."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import nbformat
import pytest
from pygments.lexers import CudaLexer
from pygments.token import Comment, Keyword, Literal, Name, String

pytest.importorskip("nbconvert", reason="the pages are made with nbconvert")
from helpers.base.machine import ROOT  # noqa: E402
from helpers.make.site import build, formulas, frame, kernel, links  # noqa: E402
from helpers.make.site.cells import notebook_html  # noqa: E402
from helpers.make.site.colours import CudaInPython, coloured, looks_like_cuda  # noqa: E402
from helpers.make.site.plan import Entry, Plan  # noqa: E402
from helpers.make.site.prose import Prose  # noqa: E402

NOTEBOOKS = ("00_start_here", "01_profiling_pytorch")
KERNELS = ("square",)
CHROMIUM = shutil.which("chromium")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The plan of a site of two notebooks, a kernel file and every document, which is written."""
    whole = build.whole(tmp_path_factory.mktemp("site"))
    notebooks = [entry for entry in whole.notebooks if entry.source.stem in NOTEBOOKS]
    kernels = [entry for entry in whole.kernels if entry.source.stem in KERNELS]
    plan = Plan(whole.folder, notebooks, kernels, whole.documents)
    try:
        assert build.build(plan) == [], "dead links"
    except formulas.FormulasMissing as error:
        pytest.skip(str(error))
    return plan


@pytest.fixture
def prose(tmp_path):
    """The Markdown of a page beside 04_x.html and kernels/square.html, formulas as they are."""
    notebooks = [Entry(f"{name}.html", name, Path(f"notebooks/{name}.ipynb")) for name in "ab"]
    kernels = [Entry("kernels/square.html", "square.cu", Path("kernels/square.cu"))]
    plan = Plan(tmp_path, notebooks, kernels)
    return Prose(plan, notebooks[0], "notebooks", formulas.as_written)


def tokens(code):
    """Return {text: kind} of what stands in the code; the same text is the same kind."""
    return {text.strip(): kind for kind, text in CudaInPython(stripnl=False).get_tokens(code)}


CUDA_CELL = '''
BLOCK = 256  # threads
src = r"""
#include <torch/types.h>
// adds
__global__ void add(float* out) { out[0] += 1.5f; printf("%d", 1); }
"""
words = """Two lines
of prose."""
'''


def test_a_cuda_string_is_lexed_as_cuda_and_the_rest_as_python():
    found = tokens(CUDA_CELL)
    assert found["__global__"] in Keyword and found["void"] in Keyword.Type
    assert found["// adds"] in Comment.Single and found["1.5f"] in Literal.Number.Float
    assert found["# threads"] in Comment.Single and found["256"] in Literal.Number
    assert found['"""'] in String and found["src"] in Name
    assert any("Two lines" in text and kind in String for text, kind in found.items())


def test_an_f_string_keeps_what_it_fills_in():
    found = tokens('src = f"""\nvoid {name}(int n) {{ run<<<1, {threads}>>>(n); }}\n"""')
    assert found["void"] in Keyword and found["name"] in Name and found["{"] is String.Interpol
    assert found["threads"] in Name


@pytest.mark.parametrize(
    ("text", "is_cuda"),
    [
        ("__global__ void f() {\n}", True),
        ("// kernels/sum.cu\nint x", True),
        ("#include <cmath>", True),
        ("\nimport torch\nx = {1: 2}\n", False),
        ("def f(x):\n    return {x}", False),
        ("Return the sum of a row.", False),
    ],
)
def test_what_looks_like_cuda(text, is_cuda):
    assert looks_like_cuda(text) is is_cuda


def test_lexing_loses_nothing():
    for path in sorted((ROOT / "notebooks").glob("0[05]*.ipynb")):
        for cell in json.loads(path.read_text())["cells"]:
            code = "".join(cell["source"])
            lexed = "".join(text for _, text in CudaInPython(stripnl=False).get_tokens(code))
            assert lexed.rstrip("\n") == code.rstrip("\n")


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return sum(w * p for w, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_colours_have_contrast_in_both_themes():
    style = (frame.TEMPLATES / "style.css").read_text()
    colours = re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)", style)
    themes = {name: pair for name, *pair in colours}
    readable = [name for name in themes if name in ("text", "quiet", "link") or "code-" in name]
    assert len(readable) == 10
    for name in readable:
        for ground in ("page", "raised"):
            for ink, paper in zip(themes[name], themes[ground], strict=True):
                low, high = sorted([luminance(ink), luminance(paper)])
                assert (high + 0.05) / (low + 0.05) >= 4.5, (name, ground)


def test_every_class_of_code_has_a_colour():
    """But for names, operators and punctuation, which have the text's."""
    style = (frame.TEMPLATES / "style.css").read_text()
    files = sorted((ROOT / "kernels").glob("s*.cu"))
    html = "".join(coloured(path.read_text(), CudaLexer) for path in files)
    plain = {"n", "nv", "o", "p", "w", "nn", "na", "nl", "err"}
    used = set(re.findall(r'class="(\w+)"', coloured(CUDA_CELL) + html)) - plain
    for name in used:
        assert re.search(rf"\.{name}[,) ]", style), name


def test_links_headings_and_kernel_files_in_prose(prose):
    html = prose.html("""# Title
## 2. Then
## 2. Then
[b](b.ipynb#x) [gone](c.ipynb) [far](https://example.org) `kernels/square.cu` <!-- = 1 -->
$a < b$ and

$$\\frac1n$$

| a | b |
|---|---|
| 1 | 2 |
""")
    assert [heading.anchor for heading in prose.headings] == ["Title", "2.-Then", "2.-Then-2"]
    assert '<a href="b.html#x">b</a> gone <a href="https://example.org">far</a>' in html
    assert '<a href="kernels/square.html"><code>kernels/square.cu</code></a>' in html
    assert '<code class="tex">a &lt; b</code>' in html and "<!--" not in html
    assert '<div class="wide formula"><code class="tex">\\frac1n</code></div>' in html
    assert '<div class="wide"><table>' in html


def test_formulas_are_mathml():
    try:
        formulas.prepare()
    except formulas.FormulasMissing as error:
        pytest.skip(str(error))
    assert formulas.to_mathml(r"\frac1n", True).startswith('<math display="block"><mfrac>')
    with pytest.raises(ValueError, match=r"formula '\\\\nonsense'.*Unknown command"):
        formulas.to_mathml(r"\nonsense", False)


PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="
)


def test_cells_show_outputs_of_every_kind(prose):
    v4 = nbformat.v4
    outputs = [
        v4.new_output("stream", name="stdout", text="\x1b[31mred\x1b[0m <1>"),
        v4.new_output("display_data", {"text/html": "<table><tr><td>7</td></tr></table>"}),
        v4.new_output("display_data", {"image/svg+xml": "<svg/>", "text/plain": "a <drawing>"}),
        v4.new_output(
            "display_data",
            {"image/png": PIXEL, "text/plain": "?"},
            metadata={"image/png": {"alt": "a dot", "width": 30}},
        ),
        v4.new_output("execute_result", {"text/plain": "'x'"}),
        v4.new_output("error", ename="E", evalue="", traceback=["E: what"]),
    ]
    cell = v4.new_code_cell('f(r"""\n__global__ void k() {}\n""")', outputs=outputs)
    cell.metadata["jupyter"] = {"source_hidden": True}
    html = notebook_html(v4.new_notebook(cells=[cell]), prose)
    assert '<details class="folded">' in html and "3 lines" in html
    assert '<span class="kt">void</span>' in html
    assert '<span class="ansi-red-fg">red</span> &lt;1&gt;' in html
    assert "<td>7</td>" in html and '<pre class="wide">&#39;x&#39;</pre>' in html
    assert 'src="data:image/svg+xml;base64,PHN2Zy8+' in html and 'alt="a &lt;drawing&gt;"' in html
    assert f'src="data:image/png;base64,{PIXEL}" alt="a dot" width="30"' in html
    assert "E: what" in html


def test_a_kernel_files_head():
    head = kernel.head_of("// a.cu\n// MIT\n// One\n// two.\n//\n// import x\n//     y\nint z;")
    assert head == kernel.Head("One two.", "import x\n    y")
    with pytest.raises(ValueError, match="// a.cu: the first comment has no call"):
        kernel.head_of("// a.cu\n// MIT\nint z;")


def test_the_page_of_a_kernel_file(site):
    page = (site.folder / "kernels" / "square.html").read_text(encoding="utf-8")
    assert '<a href="../01_profiling_pytorch.html">' in page
    assert '<span class="n">load_inline</span>' in page and "of the floor" in page
    assert '<span class="kr">__global__</span>' in page
    notebook = (site.folder / "01_profiling_pytorch.html").read_text(encoding="utf-8")
    assert 'Kernel files made here: <a href="kernels/square.html">' in notebook


def test_dead_links_are_found(tmp_path):
    (tmp_path / "a.html").write_text('<p id="x"></p><p id="x"></p><a href="b.html#z"></a>')
    (tmp_path / "b.html").write_text('<a href="a.html#x"></a><img src="c.png"><a href="#q"></a>')
    assert list(links.faults(tmp_path)) == [
        "a.html: the anchor x stands there twice",
        "a.html: no anchor for b.html#z",
        "b.html: no file for c.png",
        "b.html: no anchor for #q",
    ]


def test_nothing_is_loaded_from_elsewhere(site):
    for path in site.folder.rglob("*.*"):
        if path.suffix in (".html", ".css"):
            text = path.read_text(encoding="utf-8")
            loaded = re.findall(r'<(?:script|link|img|iframe)[^>]*(?:src|href)="([^"]*)', text)
            loaded += re.findall(r"url\(([^)]*)\)|@import", text)
            assert not [source for source in loaded if "//" in source.split(",")[0]], path


def test_the_first_page_is_light(site):
    files = ("index.html", *(f"assets/{name}" for name in (*frame.ASSETS, "math.woff")))
    assert sum((site.folder / name).stat().st_size for name in files) < 500_000


def test_the_search_leads_to_sections(site):
    text = (site.folder / "assets" / "search.js").read_text(encoding="utf-8")
    entries = json.loads(text.removeprefix("searchIndex(").rstrip().removesuffix(");"))
    found = [address for address, *_, words in entries if "cdiv" in words]
    assert any(address.startswith("00_start_here.html#") for address in found)


@pytest.mark.skipif(CHROMIUM is None, reason="needs the program chromium")
def test_pages_fit_a_phone_and_raise_no_error(site, tmp_path):
    """What Chromium finds once the scripts have run: whether it fits, and what they said."""
    probe = """<script>
    addEventListener("error", (e) => { document.title = "error: " + e.message; });
    addEventListener("load", () => { setTimeout(() => {
      const {scrollWidth, clientWidth} = document.documentElement;
      document.title += scrollWidth > clientWidth ? " is too wide" : " fits"; }, 100); });
    </script>"""
    for name in ("index", "00_start_here", "kernels/square"):
        page = site.folder / f"{name}.html"
        probed = page.with_suffix(".probe.html")
        probed.write_text(page.read_text(encoding="utf-8").replace("<head>", f"<head>{probe}", 1))
        command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]
        command += [f"--user-data-dir={tmp_path}", "--window-size=500,900", "--dump-dom"]
        command += ["--virtual-time-budget=2000", "--disable-background-networking"]
        done = subprocess.run([*command, probed.as_uri()], capture_output=True, text=True)
        probed.unlink()
        title = re.search("<title>(.*?)</title>", done.stdout)[1]
        assert title.endswith("kernels fits"), title
