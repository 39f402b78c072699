"""Makes a kernel pausable: calls at which threads meet become `yield`.

    total = syncthreads_count(x > 0)      →  total = (yield syncthreads_count.request(x > 0))
    s = block_sum(x)                      →  s = (yield from block_sum(x))

The second for device functions with such calls in them, which are rewritten as well. Names, line
numbers, globals, closures and defaults stay, so errors and breakpoints point at the kernel's own
lines. A kernel in which no threads meet is left as it is, unless a negative number would matter in
it (see negative) or an observer of the launch wants marks in it.
"""

import __future__

import ast
import types
from dataclasses import dataclass

from helpers.simulator.errors import LaunchError
from helpers.simulator.meeting import Meeting
from helpers.simulator.negative import FUNCTIONS, WatchNegatives
from helpers.simulator.source import Source

_FUTURE_FLAGS = sum(
    getattr(__future__, name).compiler_flag for name in __future__.all_feature_names
)


def prepare(kernel, arguments, observer=None):
    """Return what to run for `kernel`: a Prepared. `arguments`: by their names.

    An observer edits the source of the kernel and of its device functions, see running. Raises
    LaunchError where a thread cannot be paused (in a lambda, in a comprehension) and what `source`
    raises.
    """
    rewriter = _Rewriter(kernel, arguments, observer)
    pauses = rewriter.meets(kernel)
    function = rewriter.rewritten(kernel) if rewriter.wants(kernel) else kernel
    return Prepared(function, pauses, rewriter.meetings, rewriter.source(kernel).returns)


@dataclass
class Prepared:
    """A kernel that can be run."""

    function: types.FunctionType
    pauses: bool  # whether it is a generator function now
    meetings: set  # in it
    returns: list  # the lines in which it returns something


class _Rewriter:
    """Looks through a kernel and the functions it calls, and rewrites where that is needed."""

    def __init__(self, kernel, arguments, observer):
        self.meetings = set()
        self._observer = observer
        self._sources = {kernel: Source(kernel, arguments)}  # function → its Source
        self._cells = {}  # function → cell that holds, in the end, what it is rewritten to

    def meets(self, target):
        """Whether a call of `target` may make a thread wait."""
        # A list, not a generator: every function is looked through, also for what it reads.
        meetings = [t for t in self._called(target) if isinstance(t, Meeting)]
        self.meetings.update(meetings)
        return bool(meetings)

    def wants(self, target):
        """Whether a function is to be rewritten: see above."""
        called = list(self._called(target))
        if any(isinstance(t, Meeting) or self.source(t).may_be_negative for t in called):
            return True
        observed = self._observer is not None and isinstance(target, types.FunctionType)
        return observed and self.source(target).node is not None

    def _called(self, target, seen=None):
        """Return the functions and meetings that a call of `target` may come to, itself first."""
        seen = {} if seen is None else seen
        if isinstance(target, Meeting | types.FunctionType) and target not in seen:
            seen[target] = None
            if not isinstance(target, Meeting):
                for call in self.source(target).calls:
                    self._called(call.target, seen)
        return seen

    def rewritten(self, function):
        """Return what `function` becomes; a generator function if threads meet in it."""
        return self._cell(function).cell_contents

    def _cell(self, function):
        if function not in self._cells:
            self._cells[function] = cell = types.CellType()  # a function may call itself
            cell.cell_contents = self._rewrite(function)
        return self._cells[function]

    def _rewrite(self, function):
        source = self.source(function)
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
        node = _InsertYields(edits, plain).visit(node)
        if source.may_be_negative:
            node = WatchNegatives().visit(node)
            cells |= {name: types.CellType(function) for name, function in FUNCTIONS.items()}
        return _compile(function, node, cells)

    def _pausing_inner_functions(self, source):
        """Return those functions defined inside this one in which threads meet."""
        found, before = set(), None
        while found != before:  # one may call another
            before = set(found)
            found |= {c.owner for c in source.calls if c.target in found or self.meets(c.target)}
        return found

    def source(self, function):
        if function not in self._sources:
            self._sources[function] = Source(function)
        return self._sources[function]


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
