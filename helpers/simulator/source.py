"""The source of a kernel and of its device functions: what they call, and what they must not do.

Names are resolved as far as that can be told without a run.
"""

import ast
import inspect
import linecache
import os
import sys
import sysconfig
import types
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from helpers.simulator.arrays import Array, shared_array
from helpers.simulator.errors import HostOnlyError, LaunchError
from helpers.simulator.geometry import Place
from helpers.simulator.host import host_array
from helpers.simulator.meeting import Meeting
from helpers.simulator.negative import mark_negatives

# Nobody's device functions: they are called as they are.
_INSTALLED = tuple({sysconfig.get_paths()[key] for key in ("stdlib", "purelib", "platlib")})
_HOST_MODULES = ("torch", "torch._tensor", "torch.functional", "torch.nn.functional")
_HOST_FUNCTIONS = (np.zeros, np.ones, np.empty, np.full, np.array, np.arange)
# They end Python at once, and with it the notebook. (IPython has an exit and a quit of its own.)
_ENDS = (os._exit, os.abort, sys.exit)
_NAMES_OF_ENDS = ("exit", "quit")
_SIMULATOR = str(Path(__file__).parent) + os.sep


@dataclass
class Call:
    node: ast.Call
    target: object  # a Meeting, a function, or the node of a function defined inside
    owner: ast.FunctionDef  # the innermost function it stands in
    inside: str  # "lambda" or "comprehension", where a thread cannot wait


@dataclass
class _Scope:
    names: set  # local to it
    functions: dict  # defined in it: name → node
    code: types.CodeType = None


class Source(ast.NodeVisitor):
    """The parsed source of a function, and the calls in it whose target is known.

    Raises LaunchError or HostOnlyError for what only Python can do, or what does nothing.
    """

    def __init__(self, function, arguments=None):
        """`arguments`: by their names, if they are known."""
        self.node = None
        self.calls = []
        self.returns = []  # the lines in which it returns something
        self.may_be_negative = False  # whether there is something marked in it, see negative
        self._arguments = arguments or {}
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
            yields = (n for n in ast.walk(self.node) if isinstance(n, ast.Yield | ast.YieldFrom))
            raise LaunchError(
                f"{code.co_name} has a yield in line {next(yields).lineno}; a kernel cannot"
            )
        else:
            self._visit_body(self.node, code)
            self.may_be_negative = mark_negatives(self.node, self._is_natural, self._is_list)

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
        is_own = isinstance(target, types.FunctionType | ast.FunctionDef)
        is_end = isinstance(node.func, ast.Name) and node.func.id in _NAMES_OF_ENDS and not is_own
        if is_end or any(target is end for end in _ENDS):
            raise HostOnlyError(
                f"{ast.unparse(node)} in line {node.lineno} ends Python; a thread ends with return"
            )
        is_host = getattr(target, "__module__", None) in _HOST_MODULES or target in _HOST_FUNCTIONS
        if is_host and getattr(target, "__name__", "") not in ("finfo", "iinfo"):
            raise HostOnlyError(
                f"{ast.unparse(node.func)} in line {node.lineno} is host code; a kernel has the "
                "elements of its arrays, the functions of math, and local_array for an own array"
            )
        if isinstance(target, Meeting | types.FunctionType | ast.FunctionDef):
            self.calls.append(Call(node, target, self._owner, self._inside))
        self.generic_visit(node)

    def visit_Expr(self, node):
        value = node.value
        if isinstance(self._resolve(value), Meeting | types.FunctionType):
            raise LaunchError(
                f"{ast.unparse(node)} in line {node.lineno} does nothing without its ()"
            )
        is_comparison = isinstance(value, ast.Compare) and isinstance(value.ops[0], ast.Eq)
        if is_comparison and isinstance(value.left, ast.Subscript | ast.Name):
            raise LaunchError(
                f"{ast.unparse(node)} in line {node.lineno} compares and does nothing; = stores"
            )
        self.generic_visit(node)

    def visit_Assign(self, node):
        for target in node.targets:
            if self._is_parameter(target) and self._is_number(node.value):
                raise LaunchError(
                    f"{ast.unparse(node)} in line {node.lineno} stores nothing: {target.id} is an "
                    f"array; {target.id}[i] = … stores an element"
                )
        self.generic_visit(node)

    def _is_parameter(self, node):
        """Whether a node is the name of an array that the kernel is given."""
        value = self._arguments.get(node.id) if isinstance(node, ast.Name) else None
        return isinstance(value, Array) and len(self._scopes) == 1

    def _is_number(self, node):
        """Whether a node can only be a number."""
        if isinstance(node, ast.Subscript):
            return self._is_parameter(node.value)
        return isinstance(node, ast.BinOp | ast.UnaryOp | ast.Compare | ast.Constant)

    def visit_Return(self, node):
        if len(self._scopes) == 1 and node.value is not None:
            self.returns.append(node.lineno)
        self.generic_visit(node)

    def visit_Global(self, node):
        raise HostOnlyError(
            f"{ast.unparse(node)} in line {node.lineno}: a kernel cannot write to variables of the "
            "host, only to its arrays"
        )

    def visit_Nonlocal(self, node):
        if not self._closure.keys().isdisjoint(node.names):
            self.visit_Global(node)

    def visit_Subscript(self, node):
        owner = self._resolve(node.value)
        if isinstance(node.ctx, ast.Store | ast.Del) and isinstance(owner, list | dict):
            raise HostOnlyError(
                f"{ast.unparse(node.value)} in line {node.lineno} is a {type(owner).__name__} of "
                "the host; a kernel writes only to its arrays"
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
        if host_array(self._resolve(node)) is not None:
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

    def _is_natural(self, node):
        """Whether a name or threadIdx.x and its like stand for an integer of 0 or more."""
        if isinstance(node, ast.Attribute):
            return isinstance(node.value, ast.Name) and isinstance(
                self._lookup(node.value.id), Place
            )
        value = self._arguments.get(node.id)
        if value is None and node.id not in self._function.__code__.co_varnames:
            value = self._lookup(node.id)
        return isinstance(value, int) and value >= 0

    def _is_list(self, node):
        """Whether a name stands for a list or tuple of the host."""
        is_own = node.id in self._function.__code__.co_varnames
        return not is_own and isinstance(self._lookup(node.id), list | tuple)

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


def _text(code):
    """Return what inspect.getsource does, which looks through all modules for a notebook's cell."""
    linecache.checkcache(code.co_filename)
    lines = linecache.getlines(code.co_filename)[code.co_firstlineno - 1 :]
    if not lines:
        raise OSError("could not get source code")
    return "".join(inspect.getblock(lines))


def _parse(code):
    """Return the function's node with the line numbers of its file, or None without source."""
    try:
        source = _text(code)
        indented = source[0].isspace()
        tree = ast.parse("if True:\n" + source if indented else source)
    except (OSError, SyntaxError):  # a lambda's source may begin in the middle of a statement
        return None
    ast.increment_lineno(tree, code.co_firstlineno - (2 if indented else 1))
    node = tree.body[0].body[0] if indented else tree.body[0]
    return node if isinstance(node, ast.FunctionDef) and node.name == code.co_name else None
