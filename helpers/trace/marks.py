"""Puts marks into the source of a Python kernel, so that a recorder knows where each thread is.

    for k in range(n):       →  record_loop()
        acc += a[k] * b[k]      for k in range(n):
                                    record_iteration()
                                    record_line(file, line)
                                    acc += record_operation(a[k] * b[k], file, line, 0)
                                    record_operation(acc, file, line, 1)
                                else:
                                    record_loop_end()

and record_loop_end() before each break. Likewise record_call() and record_return() around the body
of a device function. Operations are numbered. Line numbers stay those of the source.
"""

import ast
import itertools
import math

from helpers.simulator.meeting import Meeting
from helpers.simulator.source import closure

# As floating-point operations. A minus sign is none: instructions take their operands negated.
_COUNTED = ast.Add | ast.Sub | ast.Mult | ast.Div | ast.Pow


def marked(node, function, is_kernel):
    """Return the node of `function` with marks in it; a kernel itself is not called."""
    marker = _Marker(function)
    return ast.fix_missing_locations(
        marker.generic_visit(node) if is_kernel else marker.visit(node)
    )


class _Marker(ast.NodeTransformer):
    """Puts marks into a function's source: lines, loops, calls, operations."""

    def __init__(self, function):
        self._file = function.__code__.co_filename
        self._names = {**function.__globals__, **closure(function)}
        self._numbers = itertools.count()
        self._marked_lines = set()
        self._statement = function.__code__.co_firstlineno  # where the innermost one begins

    def visit_FunctionDef(self, node):
        self._mark_lists(node)
        call = self._mark("record_call", node)
        finally_ = self._mark("record_return", node)
        node.body = [call, ast.Try(body=node.body, handlers=[], orelse=[], finalbody=[finally_])]
        for statement in node.body:
            ast.copy_location(statement, node)
        return node

    def visit_For(self, node):
        self._mark_lists(node)
        node.body.insert(0, self._mark("record_iteration", node))
        node.body.insert(1, self._line(node))
        node.orelse.insert(0, self._mark("record_loop_end", node))
        return [self._mark("record_loop", node), node]

    visit_While = visit_For

    def visit_Break(self, node):
        return [self._mark("record_loop_end", node), node]

    def _mark_lists(self, node):
        """Transform a statement's parts, and put a mark before each statement in it."""
        for name, value in ast.iter_fields(node):
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                setattr(node, name, self._with_lines(value))
            elif isinstance(value, ast.AST):
                setattr(node, name, self.visit(value))
            elif isinstance(value, list):
                value[:] = [self.visit(v) if isinstance(v, ast.AST) else v for v in value]

    def _with_lines(self, statements):
        result = []
        for statement in statements:
            line = statement.lineno
            if _runs(statement) and line not in self._marked_lines:
                self._marked_lines.add(line)
                result.append(self._line(statement))
            around, self._statement = self._statement, line
            new = self.visit(statement)
            self._statement = around
            result.extend(new if isinstance(new, list) else [new])
        return result

    def generic_visit(self, node):
        self._mark_lists(node)
        return node

    def visit_BinOp(self, node):
        self.generic_visit(node)
        return self._counted(node) if isinstance(node.op, _COUNTED) else node

    def visit_Call(self, node):
        self.generic_visit(node)
        if isinstance(self._target(node.func), Meeting):
            return self._met(node)
        takes_list = len(node.args) == 1 and not isinstance(node.args[0], ast.Starred)
        if takes_list and self._is_builtin(node.func, "sum", "min", "max"):
            node.args = [self._counted_terms(node.args[0])]
            return node
        counts = self._is_math(node.func) or self._is_builtin(node.func, "min", "max")
        return self._counted(node) if counts else node

    def visit_AugAssign(self, node):
        """Count x += y behind it; a[i] += y becomes a[i] = a[i] + y, with a and i found once."""
        if isinstance(node.target, ast.Subscript):
            return self._augmented_element(node)
        self.generic_visit(node)
        if not isinstance(node.op, _COUNTED) or not isinstance(node.target, ast.Name):
            return node
        value = ast.copy_location(ast.Name(node.target.id, ast.Load()), node)
        return [node, ast.copy_location(ast.Expr(self._counted(value)), node)]

    def _augmented_element(self, node):
        statements, names = [], []
        for part in (node.target.value, node.target.slice):
            names.append(f"record_{next(self._numbers)}")
            statements.append(ast.Assign([ast.Name(names[-1], ast.Store())], self.visit(part)))
        load, store = (
            ast.copy_location(
                ast.Subscript(*(ast.Name(name, ast.Load()) for name in names), context), node.target
            )
            for context in (ast.Load(), ast.Store())
        )
        total = ast.copy_location(ast.BinOp(load, node.op, node.value), node)
        statements.append(ast.Assign([store], self.visit(total)))
        return [ast.copy_location(statement, node) for statement in statements]

    def _target(self, function):
        """Return what a name or module.name stands for, or None if only a run can tell."""
        if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
            return getattr(self._names.get(function.value.id), function.attr, None)
        return self._names.get(function.id) if isinstance(function, ast.Name) else None

    def _is_math(self, function):
        if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
            return self._names.get(function.value.id) is math
        return getattr(self._target(function), "__module__", None) == "math"

    def _is_builtin(self, function, *names):
        is_name = isinstance(function, ast.Name) and function.id not in self._names
        return is_name and function.id in names

    def _is_constant(self, node):
        if isinstance(node, ast.UnaryOp):
            return self._is_constant(node.operand)
        if isinstance(node, ast.BinOp):
            return self._is_constant(node.left) and self._is_constant(node.right)
        is_of_math = isinstance(node, ast.Attribute) and self._is_math(node)
        return is_of_math or isinstance(node, ast.Constant)

    def _counted(self, node):
        if self._is_constant(node):  # -math.inf: worked out before the kernel runs
            return node
        number = ast.Constant(next(self._numbers))
        return self._call("record_operation", node, node, *self._where(self._statement), number)

    def _counted_terms(self, terms):
        """Count an operation for each term of a sum, minimum or maximum."""
        if isinstance(terms, ast.GeneratorExp | ast.ListComp):
            terms.elt = self._counted(terms.elt)
            return terms
        load, store = (
            ast.copy_location(ast.Name("record_term", context), terms)
            for context in (ast.Load(), ast.Store())
        )
        each = ast.comprehension(store, terms, [], 0)
        return ast.copy_location(ast.GeneratorExp(self._counted(load), [each]), terms)

    def _met(self, node):
        """Mark a barrier, shuffle or vote: (record_line(file, line, 2), call)[1]."""
        number = ast.Constant(next(self._numbers))
        mark = self._call("record_line", node, *self._where(self._statement), number)
        both = ast.Subscript(ast.Tuple([mark, node], ast.Load()), ast.Constant(1), ast.Load())
        return ast.copy_location(both, node)

    def _line(self, node):
        return self._mark("record_line", node, *self._where(node.lineno))

    def _where(self, line):
        return ast.Constant(self._file), ast.Constant(line)

    def _mark(self, name, node, *args):
        return ast.copy_location(ast.Expr(self._call(name, node, *args)), node)

    def _call(self, name, node, *args):
        call = ast.Call(ast.Name(name, ast.Load()), list(args), [])
        for new in (call.func, *args, call):
            if new is not node:
                ast.copy_location(new, node)
        return call


def _runs(statement):
    """Whether a statement does anything: not a docstring, a declaration or `pass`."""
    if isinstance(statement, ast.Expr):
        return not isinstance(statement.value, ast.Constant)
    return not isinstance(statement, ast.FunctionDef | ast.Pass | ast.Global | ast.Nonlocal)
