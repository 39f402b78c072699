"""What a shuffle gives for a lane that did not come: nobody can tell, in CUDA either."""

import math
from sys import _getframe

from helpers.simulator.current import current, fault
from helpers.simulator.errors import UninitializedError


class Undefined:
    """A value of which only the origin is known. To store it or to use it as an index is an error.

    Threads may calculate with one, as lanes do whose result nobody takes: that gives it again. All
    comparisons are true, so that max() and min() pass it on.
    """

    __slots__ = ("origin",)
    __array_ufunc__ = None  # NumPy's numbers leave their operators to those here

    def __init__(self, origin):
        self.origin = origin

    def refused(self, use):
        """Return the error for a use that shows; `use`: as in "out[3] gets"."""
        return fault(UninitializedError, f"{use} an undefined value: {self.origin}")

    def _again(self, *_):
        return self

    def _true(self, *_):
        return True

    __add__ = __sub__ = __mul__ = __truediv__ = __floordiv__ = __mod__ = __pow__ = _again
    __radd__ = __rsub__ = __rmul__ = __rtruediv__ = __rfloordiv__ = __rmod__ = __rpow__ = _again
    __lshift__ = __rshift__ = __and__ = __or__ = __xor__ = _again
    __rlshift__ = __rrshift__ = __rand__ = __ror__ = __rxor__ = _again
    __neg__ = __pos__ = __abs__ = __invert__ = __round__ = _again
    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = _true
    __hash__ = object.__hash__

    def __index__(self):
        self._not_in_an_array()
        raise self.refused("an integer is made of")

    __int__ = __index__

    def __float__(self):
        self._not_in_an_array()
        return math.nan  # for the functions of math

    def _not_in_an_array(self):
        if _getframe(2).f_code.co_filename.startswith(current.own):
            raise TypeError

    def __repr__(self):
        return "undefined"
