"""Division of integers: Python rounds down, C cuts off. Where that differs, a kernel is warned.

    i // n     →  (q if (q := i // n) >= 0 else quotient(q, i, n))
    i % n      →  (i % n if i >= 0 else remainder(i, n))

Only negative numbers make a difference, and most indices are made of threadIdx, sizes and counters
in such a way that they cannot be: these are left alone. The value stays Python's.
"""

import ast
import itertools
import math

from helpers.simulator.current import calling_frame, current
from helpers.simulator.geometry import thread_name


def quotient(value, a, b):
    """Return `value`, which is a // b and negative; warn if C's quotient is another."""
    if isinstance(value, int) and value * b != a:
        _warn(f"{a} // {b} is {value} in Python, which rounds down, but {value + 1} in CUDA")
    return value


def remainder(a, b):
    """Return a % b; warn if C's remainder is another."""
    value = a % b
    if isinstance(value, int | float) and value != (in_c := math.fmod(a, b)):
        _warn(
            f"{a} % {b} is {value} in Python, but {type(value)(in_c)} in CUDA, where a remainder "
            "has the sign of the dividend"
        )
    return value


def _warn(what):
    frame = calling_frame()
    current.remark(frame.f_code, frame.f_lineno, f"{what} ({thread_name()})")


FUNCTIONS = {"simulator_quotient": quotient, "simulator_remainder": remainder}


def find_divisions(function_node, is_natural):
    """Mark the divisions in a function that may be of negative numbers; return whether any is.

    `is_natural`: whether a Name or an Attribute is known to stand for 0 or more.
    """
    naturals = _Naturals(function_node, is_natural)
    found = False
    for node in ast.walk(function_node):
        if not _is_division(node):
            continue
        dividend = node.left if isinstance(node, ast.BinOp) else node.target
        is_text = isinstance(dividend, ast.JoinedStr) or isinstance(
            getattr(dividend, "value", None), str
        )
        if not is_text and not naturals.has(dividend):
            node.may_be_negative = found = True
    return found


def _is_division(node):
    return isinstance(getattr(node, "op", None), ast.FloorDiv | ast.Mod)


class _Naturals:
    """The variables of a function that only ever get 0 or more."""

    def __init__(self, function_node, is_natural):
        self._is_natural = is_natural
        self._names = {}  # variable → what is assigned to it; None: nobody knows
        for node in ast.walk(function_node):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self._assign(node.targets[0], node.value)
            elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
                name = ast.Name(node.target.id, ast.Load())
                self._assign(node.target, ast.BinOp(name, node.op, node.value))
            elif isinstance(node, ast.For | ast.comprehension):
                if isinstance(node.target, ast.Name):
                    self._count(node.target, node.iter)
        for node in ast.walk(function_node):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                if not hasattr(node, "is_assigned"):
                    self._names.setdefault(node.id, []).append(None)
            elif isinstance(node, ast.arg):
                own = node in function_node.args.args
                given = own and is_natural(ast.Name(node.arg, ast.Load()))
                if node.arg in self._names or not own:
                    value = ast.Constant(0) if given else None
                    self._names.setdefault(node.arg, []).append(value)
        self._assigned = set(self._names)
        before = None
        while before != len(self._names):  # until what remains supports itself
            before = len(self._names)
            for name, values in list(self._names.items()):
                if not all(self.has(value) for value in values):
                    del self._names[name]

    def _assign(self, target, value):
        target.is_assigned = True
        self._names.setdefault(target.id, []).append(value)

    def _count(self, target, node):
        """Note what a loop begins with, and its steps, if it is one over a range."""
        if not (isinstance(node, ast.Call) and getattr(node.func, "id", "") == "range"):
            self._assign(target, None)
            return
        for value in node.args[::2] if len(node.args) > 1 else [ast.Constant(0)]:
            self._assign(target, value)

    def has(self, node):
        """Whether an expression is 0 or more."""
        if isinstance(node, ast.Constant):
            return isinstance(node.value, int) and node.value >= 0
        if isinstance(node, ast.BinOp):
            keeps = ast.Add | ast.Mult | ast.FloorDiv | ast.Mod | ast.LShift | ast.RShift
            return isinstance(node.op, keeps) and self.has(node.left) and self.has(node.right)
        if isinstance(node, ast.Name) and node.id in self._assigned:
            return node.id in self._names
        return isinstance(node, ast.Name | ast.Attribute) and self._is_natural(node)


class WatchDivisions(ast.NodeTransformer):
    """Puts calls of FUNCTIONS where numbers turn out to be negative."""

    def __init__(self):
        self._numbers = itertools.count()

    def visit_BinOp(self, node):
        self.generic_visit(node)
        if not hasattr(node, "may_be_negative"):
            return node
        kept, a = self._kept(node.left)
        b = node.right
        zero = ast.Constant(0)
        if isinstance(node.op, ast.Mod):
            test = ast.Compare(kept, [ast.GtE()], [zero])
            rest = ast.BinOp(a, ast.Mod(), b)
            watched = ast.IfExp(test, rest, _call("simulator_remainder", a, b))
        else:
            kept_b, b = self._kept(b)
            kept_q, q = self._kept(ast.BinOp(kept, ast.FloorDiv(), kept_b))
            test = ast.Compare(kept_q, [ast.GtE()], [zero])
            watched = ast.IfExp(test, q, _call("simulator_quotient", q, a, b))
        ast.copy_location(watched, node)
        return ast.fix_missing_locations(watched)

    def visit_AugAssign(self, node):
        if not hasattr(node, "may_be_negative") or not isinstance(node.target, ast.Name):
            return self.generic_visit(node)
        old = ast.copy_location(ast.Name(node.target.id, ast.Load()), node.target)
        value = ast.copy_location(ast.BinOp(old, node.op, node.value), node)
        value.may_be_negative = True
        return ast.copy_location(ast.Assign([node.target], self.visit(value)), node)

    def visit_comprehension(self, node):
        node.ifs = [self.visit(condition) for condition in node.ifs]
        return node  # no assignment may stand in what it iterates over

    def _kept(self, node):
        """Return an expression that keeps its value in a variable, and one that reads it again."""
        if isinstance(node, ast.Name | ast.Constant):
            return node, node
        name = f"simulator_kept_{next(self._numbers)}"
        kept = ast.NamedExpr(ast.Name(name, ast.Store()), node)
        return kept, ast.Name(name, ast.Load())


def _call(name, *arguments):
    return ast.Call(ast.Name(name, ast.Load()), list(arguments), [])
