"""Which numbers of a kernel cannot be negative, as far as its source tells."""

import ast


class Naturals:
    """The variables of a function that only ever get 0 or more."""

    def __init__(self, function_node, is_natural):
        """`is_natural`: whether a Name or an Attribute from outside stands for 0 or more."""
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
