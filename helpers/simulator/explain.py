"""What a learner sees of an error: the kernel's line, block and thread, and a word of advice."""

import linecache
import types

from helpers.simulator.current import current, fault_at, place_of
from helpers.simulator.errors import HostOnlyError, SimulatorError
from helpers.simulator.geometry import thread_name

_GOES_ON = "CUDA's floats would go on with inf or nan here, Python's do not"
_ADVICE = {  # for parts of Python's messages
    "float division by zero": _GOES_ON,
    "math domain error": _GOES_ON,
    "math range error": _GOES_ON,
    "Numerical result out of range": _GOES_ON,
    "cannot be interpreted as an integer": "// divides integers",
    "does not support ufuncs": "a kernel works on the elements of its arrays, one at a time",
    "NoneType": "is a return missing in a function?",
    "object is not subscriptable": "are the arguments of the launch in the kernel's order?",
    "does not support item assignment": "are the arguments of the launch in the kernel's order?",
}


def explain(error):
    """Put kernel, line, block and thread on an error of Python's own that ended a launch.

    In a notebook that and its message are all there is to see, as for a SimulatorError.
    """
    steps = _steps_of_kernel(error)
    if isinstance(error, SimulatorError) or not steps:
        return
    code, line = steps[-1].tb_frame.f_code, steps[-1].tb_lineno
    where = f"in {place_of(code, line)} ({thread_name()})"
    if isinstance(error, KeyboardInterrupt):
        error.args = (f"stopped {where}",)
    else:
        error.add_note(f"{where}\n    {linecache.getline(code.co_filename, line).strip()}")
        for advice in {_ADVICE[part] for part in _ADVICE if part in str(error)}:
            error.add_note(advice)
    error._render_traceback_ = types.MethodType(SimulatorError._render_traceback_, error)


def exit_error(error):
    """Return the error for a kernel that raised SystemExit, which would end Python."""
    step = _steps_of_kernel(error)[-1]
    what = f"SystemExit ends Python; a thread ends with return ({thread_name()})"
    return fault_at(HostOnlyError, step.tb_frame.f_code, step.tb_lineno, what)


def cut_to_kernel(error):
    """Keep of an error's traceback the kernel's frames, or nothing if its message says it all."""
    chain = None
    if isinstance(error, SimulatorError):
        error.__suppress_context__ = True
    elif isinstance(error, Exception):
        for step in reversed(_steps_of_kernel(error)):
            chain = types.TracebackType(chain, step.tb_frame, step.tb_lasti, step.tb_lineno)
    error.__traceback__ = chain


def _steps_of_kernel(error):
    """Return the parts of a traceback that are not the simulator's or an observer's."""
    steps, traceback = [], error.__traceback__
    while traceback is not None:
        if not traceback.tb_frame.f_code.co_filename.startswith(current.own):
            steps.append(traceback)
        traceback = traceback.tb_next
    return steps
