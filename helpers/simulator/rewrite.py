"""Makes a kernel pausable: calls at which threads meet become `yield`.

    total = syncthreads_count(x > 0)      →  total = (yield syncthreads_count.request(x > 0))
    s = block_sum(x)                      →  s = (yield from block_sum(x))

The second for device functions with such calls in them, which are rewritten as well. Names, line
numbers, globals, closures and defaults stay, so errors and breakpoints point at the kernel's own
lines. A kernel in which no threads meet is left as it is, unless an observer of the launch wants
marks in it.
"""

import __future__

import ast
import inspect
import os
import sysconfig
import types
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from helpers.simulator.arrays import shared_array
from helpers.simulator.errors import HostOnlyError, LaunchError
from helpers.simulator.geometry import Place
from helpers.simulator.meeting import Meeting

# Nobody's device functions: they are called as they are.
_INSTALLED = tuple({sysconfig.get_paths()[key] for key in ("stdlib", "purelib", "platlib")})
_SIMULATOR = str(Path(__file__).parent) + os.sep
_FUTURE_FLAGS = sum(
    getattr(__future__, name).compiler_flag for name in __future__.all_feature_names
)


def prepare(kernel, observer=None):
    """Return what to run for `kernel`: a Prepared.

    An observer edits the source of the kernel and of its device functions, see running. Raises
    LaunchError where a thread cannot be paused (in a lambda, in a comprehension), a comprehension
    would make one shared array over and over or threadIdx or its like is assigned to, and
    HostOnlyError where the kernel reads a tensor that is not an argument.
    """
    rewriter = _Rewriter(observer)
    pauses = rewriter.meets(kernel)
    function = rewriter.rewritten(kernel) if rewriter.wants(kernel) else kernel
    return Prepared(function, pauses, rewriter.meetings)


@dataclass
class Prepared:
    """A kernel that can be run."""

    function: types.FunctionType
    pauses: bool  # whether it is a generator function now
    meetings: set  # in it


class _Rewriter:
    """Looks through a kernel and the functions it calls, and rewrites those that meet."""

    def __init__(self, observer):
        self.meetings = set()
        self._observer = observer
        self._sources = {}  # function → _Source
        self._cells = {}  # function → cell that holds, in the end, what it is rewritten to

    def meets(self, target, seen=None):
        """Whether a call of `target` may make a thread wait."""
        seen = set() if seen is None else seen
        if isinstance(target, Meeting):
            self.meetings.add(target)
            return True
        if not isinstance(target, types.FunctionType) or target in seen:
            return False
        seen.add(target)
        # A list, not a generator: every function is looked through, also for what it reads.
        return any([self.meets(call.target, seen) for call in self._source(target).calls])

    def wants(self, target):
        """Whether a function is to be rewritten: threads meet in it, or an observer looks on."""
        if self.meets(target):
            return True
        observed = self._observer is not None and isinstance(target, types.FunctionType)
        return observed and self._source(target).node is not None

    def rewritten(self, function):
        """Return what `function` becomes; a generator function if threads meet in it."""
        return self._cell(function).cell_contents

    def _cell(self, function):
        if function not in self._cells:
            self._cells[function] = cell = types.CellType()  # a function may call itself
            cell.cell_contents = self._rewrite(function)
        return self._cells[function]

    def _rewrite(self, function):
        source = self._source(function)
        inner = self._pausing_inner_functions(source)
        edits = {}  # id of a call's node → name of the rewritten function, None for a Meeting
        plain = set()  # those names whose functions do not pause
        cells = {}  # name of a rewritten function → its cell
        for call in source.calls:
            if isinstance(call.target, Meeting):
                edits[id(call.node)] = None
            elif call.target in inner:
                edits[id(call.node)] = call.target.name
            elif self.wants(call.target):
                name = f"rewritten_{call.target.__name__}_{id(call.target)}"
                cells[name] = self._cell(call.target)
                edits[id(call.node)] = name
                if not self.meets(call.target):
                    plain.add(name)
                    continue
            else:
                continue
            if call.inside:
                raise LaunchError(
                    f"{ast.unparse(call.node)} in line {call.node.lineno} stands in a "
                    f"{call.inside}, where a thread cannot wait; use a for loop or a def"
                )
        node = source.node
        if self._observer is not None:
            node = self._observer.edit(node, function)
            cells |= {name: types.CellType(mark) for name, mark in self._observer.marks.items()}
        return _compile(function, _InsertYields(edits, plain).visit(node), cells)

    def _pausing_inner_functions(self, source):
        """Return those functions defined inside this one in which threads meet."""
        found, before = set(), None
        while found != before:  # one may call another
            before = set(found)
            found |= {c.owner for c in source.calls if c.target in found or self.meets(c.target)}
        return found

    def _source(self, function):
        if function not in self._sources:
            self._sources[function] = _Source(function)
        return self._sources[function]


@dataclass
class _Call:
    node: ast.Call
    target: object  # a Meeting, a function, or the node of a function defined inside
    owner: ast.FunctionDef  # the innermost function it stands in
    inside: str  # "lambda" or "comprehension", where a thread cannot wait


@dataclass
class _Scope:
    names: set  # local to it
    functions: dict  # defined in it: name → node
    code: types.CodeType = None


class _Source(ast.NodeVisitor):
    """The parsed source of a function, and the calls in it whose target is known."""

    def __init__(self, function):
        self.node = None
        self.calls = []
        self._function, self._closure = function, closure(function)
        self._scopes = []
        self._owner, self._inside = None, ""
        code = function.__code__
        if code.co_filename.startswith((*_INSTALLED, _SIMULATOR)):
            return
        self.node = _parse(code)
        if self.node is None:
            self._refuse_meetings(code)
        elif inspect.isgeneratorfunction(function):
            raise LaunchError(f"{code.co_name} has a yield; a kernel cannot")
        else:
            self._visit_body(self.node, code)

    def _refuse_meetings(self, code):
        """A lambda, or a function whose source is not at hand, must not hold a Meeting."""
        for name in code.co_names:
            if not isinstance(self._lookup(name), Meeting):
                continue
            if code.co_name == "<lambda>":
                raise LaunchError(
                    f"{name}() in line {code.co_firstlineno} stands in a lambda, "
                    "where a thread cannot wait; use a def"
                )
            raise LaunchError(
                f"{code.co_name} calls {name}(), for which its source is needed; "
                "define it in a file or in a notebook cell"
            )

    def _visit_body(self, node, code):
        functions = {n.name: n for n in _own_nodes(node) if isinstance(n, ast.FunctionDef)}
        before = self._owner, self._inside
        self._owner, self._inside = node, ""
        self._scopes.append(_Scope({*code.co_varnames, *code.co_cellvars}, functions, code))
        for statement in node.body:
            self.visit(statement)
        self._scopes.pop()
        self._owner, self._inside = before

    def visit_FunctionDef(self, node):
        first_line = min([node.lineno, *(d.lineno for d in node.decorator_list)])
        for const in self._scopes[-1].code.co_consts:
            if isinstance(const, types.CodeType) and const.co_name == node.name:
                if const.co_firstlineno == first_line:
                    self._visit_body(node, const)

    def visit_Lambda(self, node):
        self._visit_expression(node, "lambda", {a.arg for a in ast.walk(node.args) if _is_arg(a)})

    def visit_ListComp(self, node):
        targets = {
            name.id
            for generator in node.generators
            for name in ast.walk(generator.target)
            if isinstance(name, ast.Name)
        }
        self._visit_expression(node, "comprehension", targets)

    visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_ListComp

    def _visit_expression(self, node, what, names):
        inside, self._inside = self._inside, what
        self._scopes.append(_Scope(names, {}, self._scopes[-1].code))
        self.generic_visit(node)
        self._scopes.pop()
        self._inside = inside

    def visit_Call(self, node):
        target = self._resolve(node.func)
        if target is shared_array and self._inside == "comprehension":
            raise LaunchError(
                f"{ast.unparse(node)} in line {node.lineno} stands in a comprehension, where it is "
                "the same array each time; write it once for each array"
            )
        if isinstance(target, Meeting | types.FunctionType | ast.FunctionDef):
            self.calls.append(_Call(node, target, self._owner, self._inside))
        self.generic_visit(node)

    def visit_Expr(self, node):
        if isinstance(self._resolve(node.value), Meeting):
            raise LaunchError(
                f"{ast.unparse(node)} in line {node.lineno} does nothing without its ()"
            )
        self.generic_visit(node)

    def visit_Attribute(self, node):
        is_read = isinstance(node.ctx, ast.Load)
        if not is_read and isinstance(self._resolve(node.value), Place):
            raise LaunchError(
                f"{ast.unparse(node)} in line {node.lineno} is assigned to; a kernel only reads it"
            )
        self.generic_visit(node)

    def visit_Name(self, node):
        if isinstance(self._resolve(node), torch.Tensor | np.ndarray):
            raise HostOnlyError(
                f"{node.id} in line {node.lineno} is a tensor of the host; "
                "a kernel gets it as an argument"
            )

    def _resolve(self, node):
        """Return what a name or module.name stands for, or None if only a run can tell."""
        if isinstance(node, ast.Attribute):
            owner = self._resolve(node.value)
            known = isinstance(owner, types.ModuleType | type)
            return getattr(owner, node.attr, None) if known else None
        if not isinstance(node, ast.Name):
            return None
        for scope in reversed(self._scopes):
            if node.id in scope.functions:
                return scope.functions[node.id]
            if node.id in scope.names:
                return None
        return self._lookup(node.id)

    def _lookup(self, name):
        if name in self._closure:
            return self._closure[name]
        return self._function.__globals__.get(name)


def closure(function):
    """Return the variables of enclosing functions that `function` uses."""
    values = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            values[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            values[name] = None
    return values


def _is_arg(node):
    return isinstance(node, ast.arg)


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
        indented = source[0].isspace()
        tree = ast.parse("if True:\n" + source if indented else source)
    except (OSError, SyntaxError):  # a lambda's source may begin in the middle of a statement
        return None
    ast.increment_lineno(tree, code.co_firstlineno - (2 if indented else 1))
    node = tree.body[0].body[0] if indented else tree.body[0]
    return node if isinstance(node, ast.FunctionDef) and node.name == code.co_name else None


class _InsertYields(ast.NodeTransformer):
    def __init__(self, edits, plain):
        self._edits, self._plain = edits, plain

    def visit_Call(self, node):
        self.generic_visit(node)
        if id(node) not in self._edits:
            return node
        name = self._edits[id(node)]
        if name is None:
            request = ast.copy_location(ast.Attribute(node.func, "request", ast.Load()), node.func)
            call = ast.Call(request, node.args, node.keywords)
            return ast.copy_location(ast.Yield(ast.copy_location(call, node)), node)
        function = ast.copy_location(ast.Name(name, ast.Load()), node.func)
        call = ast.copy_location(ast.Call(function, node.args, node.keywords), node)
        return call if name in self._plain else ast.copy_location(ast.YieldFrom(call), node)


def _compile(function, node, cells):
    """Return a function like `function`, with the body of `node` and more variables in reach."""
    old = function.__code__
    cells |= dict(zip(old.co_freevars, function.__closure__ or (), strict=True))
    node.decorator_list = []
    # Parameters of a function around it become its free variables.
    tree = ast.parse(f"def outer({', '.join(cells)}): pass")
    tree.body[0].body = [node]
    flags = old.co_flags & _FUTURE_FLAGS
    code = compile(tree, old.co_filename, "exec", flags=flags, dont_inherit=True)
    for name in ("outer", old.co_name):
        code = next(c for c in code.co_consts if getattr(c, "co_name", None) == name)
    new = types.FunctionType(
        code,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        tuple(cells[name] for name in code.co_freevars),
    )
    new.__kwdefaults__ = function.__kwdefaults__
    return new
