"""Negative numbers, of which Python makes something else than C.

    i // n     →  (q if (q := i // n) >= 0 else quotient(q, i, n))
    i % n      →  (i % n if i >= 0 else remainder(i, n))
    values[i]  →  values[i if i >= 0 else below(values, "values", i)]   where values is a list

Python rounds quotients down, C cuts them off, and a kernel is warned where that differs; what is
before the begin of a list is its end in Python, and an error here. Most indices are made of
threadIdx, sizes and counters in such a way that they cannot be negative: these are left alone.
"""

import ast
import copy
import itertools
import math

from helpers.simulator.current import calling_frame, current, fault
from helpers.simulator.errors import OutOfRangeError
from helpers.simulator.geometry import thread_name
from helpers.simulator.natural import Naturals


def quotient(value, a, b):
    """Return `value`, which is a // b and negative; warn if C's quotient is another."""
    if isinstance(value, int) and value * b != a:
        _warn(f"{a} // {b} is {value} in Python, which rounds down, but {value + 1} in CUDA")
    return value


def remainder(a, b):
    """Return a % b; warn if C's remainder is another."""
    value = a % b
    if not isinstance(value, int | float) or math.isnan(value):  # as fmod has it
        return value
    if value != (in_c := math.fmod(a, b)):
        _warn(
            f"{a} % {b} is {value} in Python, but {type(value)(in_c)} in CUDA, where a remainder "
            "has the sign of the dividend"
        )
    return value


def _warn(what):
    frame = calling_frame()
    current.remark(frame.f_code, frame.f_lineno, f"{what} ({thread_name()})")


def below(values, name, index):
    """Return the index of a dict; of a list, below which nothing lies, it is an error."""
    if not isinstance(values, list | tuple):
        return index
    length = f"length {len(values)}; C++ has no negative index"
    raise fault(OutOfRangeError, f"{name}[{index}] is out of range, {length}")


FUNCTIONS = {
    "simulator_quotient": quotient,
    "simulator_remainder": remainder,
    "simulator_below": below,
}


def mark_negatives(function_node, is_natural, is_list):
    """Mark what may go wrong in a function with a negative number; return whether there is any.

    `is_natural`, `is_list`: whether a name from outside stands for 0 or more, or for a list.
    """
    naturals, lists = Naturals(function_node, is_natural), _lists(function_node)
    found = False
    for node in ast.walk(function_node):
        if _is_division(node):
            number = node.left if isinstance(node, ast.BinOp) else node.target
        elif isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Slice):
            name = _root(node)
            if name is None or not (name.id in lists or is_list(name)):
                continue
            number = node.slice
        else:
            continue
        is_text = isinstance(number, ast.JoinedStr) or isinstance(
            getattr(number, "value", None), str
        )
        if not is_text and not naturals.has(number):
            node.may_be_negative = found = True
    return found


def _is_division(node):
    return isinstance(getattr(node, "op", None), ast.FloorDiv | ast.Mod)


def _root(node):
    """Return the name that a[i][j] begins with, or None."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return node if isinstance(node, ast.Name) else None


def _lists(function_node):
    """Return the variables that are made lists in a function."""
    found = set()
    for node in ast.walk(function_node):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            value = node.value
            parts = [value.left, value.right] if isinstance(value, ast.BinOp) else [value]
            if any(isinstance(part, ast.List | ast.ListComp) for part in parts):
                found.add(node.targets[0].id)
    return found


class WatchNegatives(ast.NodeTransformer):
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
        if not (hasattr(node, "may_be_negative") and _may_run_twice(node.target)):
            return self.generic_visit(node)
        old = copy.copy(node.target)
        old.ctx = ast.Load()
        value = ast.copy_location(ast.BinOp(old, node.op, node.value), node)
        value.may_be_negative = True
        return ast.copy_location(ast.Assign([node.target], self.visit(value)), node)

    def visit_Subscript(self, node):
        self.generic_visit(node)
        if hasattr(node, "may_be_negative"):
            kept, index = self._kept(node.slice)
            name = ast.Constant(ast.unparse(node.value))
            test = ast.Compare(kept, [ast.GtE()], [ast.Constant(0)])
            values = copy.copy(_root(node))
            values.ctx = ast.Load()
            checked = ast.IfExp(test, index, _call("simulator_below", values, name, index))
            node.slice = ast.copy_location(checked, node.slice)
            ast.fix_missing_locations(node)
        return node

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


def _may_run_twice(node):
    """Whether an expression does nothing but to name a place."""
    parts = ast.Name | ast.Attribute | ast.Subscript | ast.Constant | ast.Tuple
    return all(
        isinstance(n, parts | ast.BinOp | ast.operator | ast.expr_context) for n in ast.walk(node)
    )


def _call(name, *arguments):
    return ast.Call(ast.Name(name, ast.Load()), list(arguments), [])
