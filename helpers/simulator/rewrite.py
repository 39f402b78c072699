"""Makes a kernel pausable: calls at which threads meet become `yield`.

    total = syncthreads_count(x > 0)      →  total = (yield syncthreads_count.request(x > 0))
    s = block_sum(x)                      →  s = (yield from block_sum(x))

The second for device functions with such calls in them, which are rewritten as well. Names, line
numbers, globals, closures and defaults stay, so errors and breakpoints point at the kernel's own
lines. A kernel in which no threads meet is left as it is.
"""

import __future__

import ast
import inspect
import sysconfig
import types
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from helpers.simulator.errors import HostOnlyError, LaunchError
from helpers.simulator.meeting import Meeting

# Functions from here are called as they are: nobody's device functions.
_NOT_SEARCHED = (
    *{sysconfig.get_paths()[key] for key in ("stdlib", "purelib", "platlib")},
    str(Path(__file__).parent),
)
_FUTURE_FLAGS = sum(
    getattr(__future__, name).compiler_flag for name in __future__.all_feature_names
)


def pausable(kernel):
    """Return `kernel` as a generator function, or None if no threads meet in it.

    Raises LaunchError where a call cannot be paused (in a lambda, in a comprehension), and
    HostOnlyError where the kernel reads a tensor that is not an argument.
    """
    rewriter = _Rewriter()
    return rewriter.generator(kernel) if rewriter.meets(kernel) else None


class _Rewriter:
    """Looks through a kernel and the functions it calls, and rewrites those that meet."""

    def __init__(self):
        self._sources = {}  # function → _Source
        self._cells = {}  # function → cell with its generator function

    def meets(self, function, seen=None):
        """Whether threads meet in `function` or in anything it calls."""
        seen = set() if seen is None else seen
        if function in seen:
            return False
        seen.add(function)
        # No short cut: every function is looked through, for the tensors it may read.
        return any([self._is_meeting(call.target, seen) for call in self._source(function).calls])

    def generator(self, function):
        """Return the generator function that `function` is turned into."""
        cell = self._cells[function] = types.CellType()
        source = self._source(function)
        pausing_defs = self._pausing_defs(source)
        yields, yields_from = {}, {}  # id of a call → None, or the name of the generator function
        new_cells = {}
        for call in source.calls:
            if isinstance(call.target, Meeting):
                yields[id(call.node)] = None
            elif isinstance(call.target, ast.FunctionDef):
                if call.target not in pausing_defs:
                    continue
                yields_from[id(call.node)] = call.target.name
            elif self.meets(call.target):
                if call.target not in self._cells:
                    self.generator(call.target)
                name = f"{call.target.__name__}_that_pauses"
                while (
                    new_cells.setdefault(name, self._cells[call.target])
                    is not (self._cells[call.target])
                ):
                    name += "_"
                yields_from[id(call.node)] = name
            else:
                continue
            if call.inside:
                raise LaunchError(
                    f"{function.__name__}, line {call.node.lineno}: {ast.unparse(call.node)} "
                    f"stands in a {call.inside}, where a thread cannot wait for others; "
                    "use a for loop or a def"
                )
        node = _InsertYields(yields, yields_from).visit(source.node)
        cell.cell_contents = _compile(function, node, new_cells)
        return cell.cell_contents

    def _source(self, function):
        if function not in self._sources:
            self._sources[function] = _Source(function)
        return self._sources[function]

    def _is_meeting(self, target, seen):
        if isinstance(target, types.FunctionType):
            return self.meets(target, seen)
        return isinstance(target, Meeting)

    def _pausing_defs(self, source):
        """Return the functions defined inside this one in which threads meet."""
        found, before = set(), -1
        while len(found) > before:
            before = len(found)
            found |= {
                call.owner
                for call in source.calls
                if call.target in found or self._is_meeting(call.target, set())
            }
        return found


@dataclass
class _Call:
    node: ast.Call
    target: object  # Meeting, a function, or the node of a function defined inside
    owner: ast.FunctionDef  # the innermost function it stands in
    inside: str  # "lambda" or "comprehension", where one cannot wait


class _Source(ast.NodeVisitor):
    """The parsed source of a function, and the calls in it whose target is known."""

    def __init__(self, function):
        self._function = function
        self._outer = _closure(function)
        self._scopes = []  # (names local to a function, functions defined in it)
        self._owner = None
        self._inside = ""
        self.calls = []
        code = function.__code__
        self.node = None
        if code.co_filename.startswith(_NOT_SEARCHED):
            return
        if code.co_name == "<lambda>" or (node := _parse(code)) is None:
            self._refuse_meetings(code)
            return
        if inspect.isgeneratorfunction(function):
            raise LaunchError(f"{code.co_name} has a yield; a kernel cannot")
        self.node = node
        self._visit_function(node, code)

    def _refuse_meetings(self, code):
        for name in code.co_names:
            if isinstance(self._lookup(name), Meeting):
                raise LaunchError(
                    f"{name}() stands in a lambda, where a thread cannot wait for others; use a def"
                    if code.co_name == "<lambda>"
                    else f"the source of {code.co_name} is needed to run {name}(); "
                    "define it in a file or a notebook cell"
                )

    def _visit_function(self, node, code):
        defs = {n.name: n for n in _own_nodes(node) if isinstance(n, ast.FunctionDef)}
        self._scopes.append(({*code.co_varnames, *code.co_cellvars}, defs, code))
        owner, self._owner = self._owner, node
        inside, self._inside = self._inside, ""
        for statement in node.body:
            self.visit(statement)
        self._scopes.pop()
        self._owner, self._inside = owner, inside

    def visit_FunctionDef(self, node):
        code = self._scopes[-1][2]
        first_line = min([node.lineno, *(d.lineno for d in node.decorator_list)])
        for const in code.co_consts:
            if isinstance(const, types.CodeType) and (const.co_name, const.co_firstlineno) == (
                node.name,
                first_line,
            ):
                self._visit_function(node, const)

    def _visit_inside(self, node, what):
        inside, self._inside = self._inside, what
        self.generic_visit(node)
        self._inside = inside

    def visit_Lambda(self, node):
        self._visit_inside(node, "lambda")

    def visit_ListComp(self, node):
        self._visit_inside(node, "comprehension")

    visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_ListComp

    def visit_Call(self, node):
        target = self._resolve(node.func)
        if isinstance(target, Meeting | types.FunctionType | ast.FunctionDef):
            self.calls.append(_Call(node, target, self._owner, self._inside))
        self.generic_visit(node)

    def visit_Name(self, node):
        if isinstance(self._resolve(node), torch.Tensor | np.ndarray):
            raise HostOnlyError(
                f"{self._function.__name__}, line {node.lineno}: {node.id} is a tensor of the "
                "host; a kernel gets it as an argument"
            )

    def _resolve(self, node):
        """Return what a name or module.name stands for, or None if only a run can tell."""
        if isinstance(node, ast.Attribute):
            owner = self._resolve(node.value)
            is_namespace = isinstance(owner, types.ModuleType | type)
            return getattr(owner, node.attr, None) if is_namespace else None
        if not isinstance(node, ast.Name):
            return None
        for names, defs, _ in reversed(self._scopes):
            if node.id in defs:
                return defs[node.id]
            if node.id in names:
                return None
        return self._lookup(node.id)

    def _lookup(self, name):
        if name in self._outer:
            return self._outer[name]
        return self._function.__globals__.get(name)


def _closure(function):
    """Return the variables of enclosing functions that `function` uses."""
    values = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            values[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            values[name] = None
    return values


def _own_nodes(function_node):
    """Walk through a function's nodes without entering functions defined in it."""
    todo = list(function_node.body)
    while todo:
        node = todo.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.Lambda | ast.ClassDef):
            todo.extend(ast.iter_child_nodes(node))


def _parse(code):
    """Return the function's node with the line numbers of its file, or None without source."""
    try:
        source = inspect.getsource(code)
    except OSError:
        return None
    indented = source[0].isspace()
    tree = ast.parse("if True:\n" + source if indented else source)
    ast.increment_lineno(tree, code.co_firstlineno - (2 if indented else 1))
    node = tree.body[0].body[0] if indented else tree.body[0]
    return node if isinstance(node, ast.FunctionDef) else None


class _InsertYields(ast.NodeTransformer):
    def __init__(self, yields, yields_from):
        self._yields, self._yields_from = yields, yields_from

    def visit_Call(self, node):
        key = id(node)
        self.generic_visit(node)
        if key in self._yields:
            node.func = ast.Attribute(node.func, "request", ast.Load())
            paused = ast.Yield(node)
        elif key in self._yields_from:
            node.func = ast.Name(self._yields_from[key], ast.Load())
            paused = ast.YieldFrom(node)
        else:
            return node
        ast.copy_location(node.func, node)
        return ast.copy_location(paused, node)


def _compile(function, node, new_cells):
    """Return a function like `function` with the body of `node`."""
    old = function.__code__
    cells = dict(zip(old.co_freevars, function.__closure__ or (), strict=True)) | new_cells
    node.decorator_list = []
    # Inside a function with these names as parameters, they become free variables.
    outer = ast.parse(f"def outer({', '.join(cells)}): pass")
    outer.body[0].body = [node]
    ast.fix_missing_locations(outer)
    code = compile(
        outer, old.co_filename, "exec", flags=old.co_flags & _FUTURE_FLAGS, dont_inherit=True
    )
    for name in ("outer", old.co_name):
        code = next(
            c for c in code.co_consts if isinstance(c, types.CodeType) and c.co_name == name
        )
    closure = tuple(cells[name] for name in code.co_freevars)
    new = types.FunctionType(
        code, function.__globals__, function.__name__, function.__defaults__, closure
    )
    new.__kwdefaults__ = function.__kwdefaults__
    return new
