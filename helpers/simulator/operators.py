"""Operators that whole arrays refuse, and so does threadIdx without its .x."""

from helpers.simulator.current import current, fault
from helpers.simulator.errors import DtypeError, HostOnlyError


class NoNumber:
    """No number, nor an index: has a name, and advice() that says what to write instead."""

    __slots__ = ()
    __array_ufunc__ = None  # NumPy's numbers leave their operators to those here
    __hash__ = object.__hash__

    def _refuse(self, *_):
        if current.kernel is None:
            raise HostOnlyError(repr(self))
        raise fault(DtypeError, self.advice())

    def __eq__(self, other):
        return self is other if current.kernel is None else self._refuse()

    def __array_function__(self, *_):  # of NumPy's functions
        self._refuse()

    def __bool__(self):
        return current.kernel is None or self._refuse()

    __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __add__ = __sub__ = __mul__ = __truediv__ = __floordiv__ = __mod__ = __pow__ = _refuse
    __radd__ = __rsub__ = __rmul__ = __rtruediv__ = __rfloordiv__ = __rmod__ = __rpow__ = _refuse
    __matmul__ = __lshift__ = __rshift__ = __and__ = __or__ = __xor__ = _refuse
    __rmatmul__ = __rlshift__ = __rrshift__ = __rand__ = __ror__ = __rxor__ = _refuse
    __neg__ = __pos__ = __abs__ = __invert__ = __index__ = __call__ = _refuse
