"""Runs the text of the page's editor and says what came of it, as a notebook's cell would."""

import ast
import contextlib
import html
import io
import json
import linecache
import random
import re
import sys
import traceback
import warnings

import torch

from helpers import simulator
from helpers.checks import check_close
from helpers.checks import expect_error as expect
from helpers.exercises import exercise
from helpers.exercises.card import Card
from helpers.exercises.pictures import thread_picture
from helpers.exercises.progress import entry
from helpers.trace import trace

FILE = "your code"
SETUP = "setup"
MOST_TRACED = 4  # launches of a run
shown, reports = [], []  # of this run: parts of HTML; reports of trace


def show(thing):
    """Put an object on the page, after what was printed before it."""
    if (shows_itself := getattr(thing, "_ipython_display_", None)) is not None:
        shows_itself()
        return
    _flush()
    as_html = getattr(thing, "_repr_html_", None)
    shown.append(as_html() if as_html else f"<pre>{html.escape(repr(thing))}</pre>")


def run(setup, code):
    """Run code after its setup; return JSON: html (shown), line (of an error), solved (names)."""
    shown.clear()
    reports.clear()
    with contextlib.redirect_stdout(io.StringIO()) as out:
        line = _run(setup, code, out)
        _flush()
        for report in reports:
            shown.append('<section class="trace">')
            show(report)
            show(report.draw())
            _flush()
            shown.append("</section>")
    solved = [name for name in _exercises(code) if entry(name).get("solved")]
    return json.dumps({"html": "".join(shown), "line": line, "solved": solved})


def _run(setup, code, out):
    """Run code after its setup; return the line of its error, or 0."""
    names = _names()
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            torch.manual_seed(0)
            random.seed(0)
            exec(_compiled(setup, SETUP), names)
            out.truncate(0)
            out.seek(0)
            shown.clear()
            _run_cell(code, names)
    except BaseException as error:
        return _show_error(error)
    return 0


def launch(kernel, grid, block, *args):
    """launch, with a trace of the first launches that the editor's own text makes."""
    mine = sys._getframe(1).f_code.co_filename == FILE
    if not mine or len(reports) >= MOST_TRACED:
        simulator.launch(kernel, grid, block, *args)
        return
    reports.append(trace(kernel, grid, block, *args))


@contextlib.contextmanager
def expect_error(error_type):
    """expect_error of the notebooks, which shows the error whole, with its thread."""
    with expect(error_type):
        try:
            yield
        except error_type as error:
            show(_card(error, "expected here"))
            with contextlib.redirect_stdout(io.StringIO()):
                raise


def _names():
    """Return the names that the notebooks' first cells bring, as far as they are here."""
    known = {name: getattr(simulator, name) for name in simulator.__all__}
    return known | {
        "__name__": "__main__",
        "check_close": check_close,
        "exercise": exercise,
        "expect_error": expect_error,
        "launch": launch,
        "np": sys.modules["numpy"],
        "random": random,
        "torch": torch,
        "trace": trace,
    }


def _compiled(code, file):
    linecache.cache[file] = len(code), None, code.splitlines(keepends=True), file
    return compile(code, file, "exec")


def _run_cell(code, names):
    """Run code; show the value of a last expression that no semicolon ends."""
    linecache.cache[FILE] = len(code), None, code.splitlines(keepends=True), FILE
    tree = ast.parse(code, FILE)
    last = tree.body[-1] if tree.body else None
    if isinstance(last, ast.Expr) and not code.rstrip().endswith(";"):
        tree.body.pop()
    else:
        last = None
    exec(compile(tree, FILE, "exec"), names)
    if last is not None:
        value = eval(compile(ast.Expression(last.value), FILE, "eval"), names)
        if value is not None:
            show(value)


def _show_warning(message, category, filename, lineno, file=None, line=None):
    print(f"{category.__name__}: {message}")


def _show_error(error):
    """Show an error; return the line of the editor that it is about, or 0."""
    if getattr(error, "_render_traceback_", None) and not isinstance(
        error, simulator.SimulatorError
    ):
        return 0  # its card says it
    show(_card(error, "the run"))
    if isinstance(error, SyntaxError) and error.filename == FILE:
        return error.lineno or 0
    steps = [s for s in traceback.extract_tb(error.__traceback__) if s.filename == FILE]
    found = re.search(r"line (\d+)", str(error)) if hasattr(error, "stopped_at") else None
    return int(found[1]) if found else steps[-1].lineno if steps else 0


def _card(error, what):
    text = "\n".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", [])])
    if not isinstance(error, simulator.SimulatorError):
        lines = traceback.format_exception_only(error)
        steps = [s for s in traceback.extract_tb(error.__traceback__) if s.filename == FILE]
        text = "".join([*(f"line {s.lineno}: {s.line}\n" for s in steps), *lines]).rstrip()
    stopped_at = getattr(error, "stopped_at", None)
    return Card(what, "wrong", text, thread_picture(*stopped_at) if stopped_at else "")


def _exercises(code):
    return re.findall(r"exercise\(\s*[\"'](.+?)[\"']", code)


def _flush():
    text = sys.stdout.getvalue() if isinstance(sys.stdout, io.StringIO) else ""
    if text:
        shown.append(f"<pre>{html.escape(text)}</pre>")
        sys.stdout.truncate(0)
        sys.stdout.seek(0)
