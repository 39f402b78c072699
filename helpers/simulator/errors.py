"""What a launch can raise. The first line of a message says it all; the source line follows."""


class SimulatorError(Exception):
    """Something that CUDA would refuse, or leave undefined."""

    def _render_traceback_(self):  # what IPython prints instead of a traceback
        notes = getattr(self, "__notes__", [])
        return "\n".join([f"{type(self).__name__}: {self}", *notes]).splitlines()


class LaunchError(SimulatorError, ValueError):
    """A kernel, grid, block or argument that cannot be launched."""


class DtypeError(SimulatorError, TypeError):
    """An array, or a value stored in one, of a type that it cannot have."""


class OutOfRangeError(SimulatorError, IndexError):
    """An index that names no element of the array."""


class HostOnlyError(SimulatorError, AttributeError):
    """Host code in a kernel, or kernel code on the host."""


class SharedMemoryError(SimulatorError, MemoryError):
    """More shared memory than a block can have, or threads that disagree about its shape."""


class BarrierError(SimulatorError):
    """A barrier that some threads of the block never reach."""


class WarpError(SimulatorError):
    """A warp operation whose lanes do not come together, or that reads from an absent lane."""


class RaceError(SimulatorError):
    """Two threads touch one element, one of them writes, and nothing orders them."""


class UninitializedError(SimulatorError):
    """An element that is read before it is written, or a value that nobody has laid down."""


class EndlessLoopError(SimulatorError):
    """A block that ran for so long that it will probably never end."""


class SimulatorWarning(UserWarning):
    """Something that runs, but that CUDA does otherwise or does not promise."""
