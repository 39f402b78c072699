"""Records what a Python kernel does on the simulator, in the terms of `record`."""

import ast
import functools
import itertools
import linecache
import math
from collections import defaultdict
from sys import _getframe

from helpers.simulator.arrays import element_bytes
from helpers.simulator.current import current
from helpers.simulator.geometry import WARP_SIZE, blockIdx, launch_shape
from helpers.simulator.order import order
from helpers.simulator.running import observed_launch
from helpers.trace import model
from helpers.trace.record import Access, Launch, Line, Request, Stage

_COUNTED = ast.Add | ast.Sub | ast.Mult | ast.Div | ast.Pow
_SAMPLES = 4  # requests that an Access keeps, of the first block


def record(kernel, grid, block, *args):
    """Launch a Python kernel on the simulator, with all its checks, and return its Launch.

    `grid`, `block` and `args` as for helpers.simulator.launch; raises what that raises. Marks in
    the source of the kernel and its device functions tell loops apart, so lanes of a warp share a
    request only in the same iteration of each loop. Floating-point operations are those that the
    source writes on floats: + - * / ** and -x, and functions of `math`.
    """
    grid, block = launch_shape(grid, block)
    recorder = _Recorder(kernel)
    observed_launch(recorder, kernel, grid, block, *args)
    return Launch(
        kernel=kernel.__name__,
        grid=tuple(grid),
        block=tuple(block),
        shared_bytes=recorder.shared_bytes,
        backend="simulator",
        accesses=list(recorder.accesses.values()),
        lines=recorder.lines(),
        stages=recorder.stages,
    )


class _Recorder:
    """Observes a launch: collects the requests of one block, then counts them."""

    def __init__(self, kernel):
        self._kernel = kernel
        self.marks = {
            "record_line": self._line,
            "record_loop": self._loop,
            "record_iteration": self._iteration,
            "record_loop_end": self._loop_end,
            "record_call": self._call,
            "record_return": self._return,
            "record_operation": self._operation,
        }
        self.accesses = {}
        self.stages = []
        self.shared_bytes = 0
        self._executions = defaultdict(lambda: [0, 0])  # (file, line) → by warps, lanes
        self._flops = defaultdict(int)  # (file, line) → operations
        self._sites = {}  # code, offset in it → file and position in the source
        self._begin_block()

    def _begin_block(self):
        self._places = defaultdict(list)  # thread → its open calls and loops, see _call
        self._requests = {}  # (warp, …, place) → the requests made there, see access
        self._marked = {}  # (warp, file, line, place) → bits of lanes, for each execution

    def edit(self, node, function):
        """Put marks into the source of a function."""
        marker = _Marker(function)
        edit = marker.generic_visit if function is self._kernel else marker.visit
        return ast.fix_missing_locations(edit(node))

    # ---- what the marks call

    def _line(self, file, line):
        thread = order.thread_number(order.stamp)
        key = (thread // WARP_SIZE, file, line, tuple(self._places[thread]))
        bit = 1 << thread % WARP_SIZE
        executions = self._marked.setdefault(key, [])
        for i, lanes in enumerate(executions):
            if not lanes & bit:
                executions[i] |= bit
                return
        executions.append(bit)

    def _place(self):
        return self._places[order.thread_number(order.stamp)]

    def _loop(self):
        self._place().append(0)

    def _iteration(self):
        self._place()[-1] += 1

    def _loop_end(self):
        self._place().pop()

    def _call(self):
        self._place().append(self._site(_getframe(2)))

    def _return(self):
        place = self._place()
        while place and isinstance(place.pop(), int):  # loops that the return left
            pass

    def _operation(self, value, file, line):
        if isinstance(value, float):
            self._flops[file, line] += 1
        return value

    # ---- accesses

    def access(self, array, operation, index, frame, elements=1):
        """The running thread accesses an element of an array, or a vector of them."""
        thread = order.thread_number(order.stamp)
        warp, lane = divmod(thread, WARP_SIZE)
        size = elements * element_bytes(array)
        what = operation, array.space, array.name, size
        key = warp, self._site(frame), what, order.stage, tuple(self._places[thread])
        requests = self._requests.setdefault(key, [])
        offset = array.offset + array.number(index) * element_bytes(array)
        for offsets in requests:
            if offsets[lane] is None:
                offsets[lane] = offset
                return
        requests.append([None] * WARP_SIZE)
        requests[-1][lane] = offset

    def _site(self, frame):
        """Return where in the source a frame is: file, line, columns."""
        key = id(frame.f_code), frame.f_lasti
        if key not in self._sites:
            position = next(itertools.islice(frame.f_code.co_positions(), frame.f_lasti // 2, None))
            # The code goes with it: as long as it lives no other has its id.
            self._sites[key] = (frame.f_code.co_filename, *position), frame.f_code
        return self._sites[key][0]

    def end_block(self):
        block = (blockIdx.x, blockIdx.y, blockIdx.z)
        self.shared_bytes = max(
            self.shared_bytes, sum(a.size * element_bytes(a) for a in current.shared.values())
        )
        stages = defaultdict(int)
        for (warp, (file, line, *_), what, stage, _), requests in self._requests.items():
            stages[stage, warp, line, *what[:2]] += len(requests)
            access = self._access(file, line, *what)
            for offsets in requests:
                _count(access, tuple(offsets))
                if block == (0, 0, 0) and len(access.samples) < _SAMPLES:
                    access.samples.append(Request(block, warp, tuple(offsets)))
        for (_, file, line, _), executions in self._marked.items():
            total = self._executions[file, line]
            total[0] += len(executions)
            total[1] += sum(lanes.bit_count() for lanes in executions)
        if block == (0, 0, 0):
            self.stages = [
                Stage(*key, requests)
                for key, requests in sorted(stages.items(), key=lambda item: item[0][:3])
            ]
        self._begin_block()

    def _access(self, file, *key):
        if (file, *key) not in self.accesses:
            line, operation, space, array, size = key
            self.accesses[file, *key] = Access(
                line, _text(file, line), operation, space, array, size
            )
        return self.accesses[file, *key]

    def lines(self):
        return [
            Line(line, _text(file, line), executions, lanes, self._flops[file, line])
            for (file, line), (executions, lanes) in sorted(self._executions.items())
        ]


def _count(access, offsets):
    """Add one request to an Access."""
    least = min(offset for offset in offsets if offset is not None) // 128 * 128
    near = tuple(None if offset is None else offset - least for offset in offsets)
    access.requests += 1
    access.lanes += sum(offset is not None for offset in offsets)
    if access.space == "global":
        sectors, ideal = _sectors(near, access.bytes)
        access.sectors += sectors
        access.ideal_sectors += ideal
    else:
        wavefronts, ideal = _wavefronts(near, access.bytes)
        access.wavefronts += wavefronts
        access.ideal_wavefronts += ideal
    if access.operation == "atomic":
        access.same_address += model.lanes_at_one_address(offsets)


@functools.lru_cache(10_000)
def _sectors(offsets, size):
    return model.sectors(offsets, size), model.ideal_sectors(offsets, size)


@functools.lru_cache(10_000)
def _wavefronts(offsets, size):
    return model.wavefronts(offsets, size), model.ideal_wavefronts(offsets, size)


def _text(file, line):
    return linecache.getline(file, line).strip()


class _Marker(ast.NodeTransformer):
    """Puts marks into a function's source: lines, loops, calls, operations."""

    def __init__(self, function):
        self._file = function.__code__.co_filename
        self._names = {**function.__globals__, **_closure(function)}
        self._numbers = itertools.count()
        self._marked_lines = set()

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
        return [
            self._mark("record_loop", node),
            node,
            self._mark("record_loop_end", node),
        ]

    visit_While = visit_For

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
            is_code = not isinstance(
                statement, ast.FunctionDef | ast.Pass | ast.Global | ast.Nonlocal
            ) and not (
                isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
            )
            if is_code and line not in self._marked_lines:
                self._marked_lines.add(line)
                result.append(self._line(statement))
            new = self.visit(statement)
            result.extend(new if isinstance(new, list) else [new])
        return result

    def generic_visit(self, node):
        self._mark_lists(node)
        return node

    def visit_BinOp(self, node):
        self.generic_visit(node)
        return self._counted(node) if isinstance(node.op, _COUNTED) else node

    def visit_UnaryOp(self, node):
        self.generic_visit(node)
        return self._counted(node) if isinstance(node.op, ast.USub) else node

    def visit_Call(self, node):
        self.generic_visit(node)
        return self._counted(node) if self._is_math(node.func) else node

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

    def _is_math(self, function):
        if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
            return self._names.get(function.value.id) is math
        target = self._names.get(function.id) if isinstance(function, ast.Name) else None
        return getattr(target, "__module__", None) == "math"

    def _counted(self, node):
        return self._call("record_operation", node, node, *self._where(node))

    def _line(self, node):
        return self._mark("record_line", node, *self._where(node))

    def _where(self, node):
        return ast.Constant(self._file), ast.Constant(node.lineno)

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


def _closure(function):
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    values = {}
    for name, cell in cells:
        try:
            values[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            pass
    return values
