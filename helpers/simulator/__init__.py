"""Runs a kernel written in Python with CUDA's own names: block by block, thread by thread.

    from helpers.simulator import blockDim, blockIdx, cdiv, launch, threadIdx

    def add_kernel(out, a, b, n):
        i = blockIdx.x * blockDim.x + threadIdx.x
        if i < n:
            out[i] = a[i] + b[i]

    launch(add_kernel, cdiv(n, 256), 256, out, a, b, n)

Blocks run one after the other, x fastest; between two barriers the threads of a block run in
order, thread 0 first. So a launch does the same thing every time, and what a GPU would leave
undefined (a barrier that a thread skips, an index out of range, a data race, shared memory that
nobody has written) is an error with a name.

How it works, in the order to read it:
    errors     what can go wrong
    current    the launch that runs, and where in it something went wrong
    operators  what neither a whole array nor threadIdx without .x can be used for
    geometry   dim3, threadIdx and its like, the limits of a launch
    elements   the types that elements of arrays have, and C's conversions
    arrays     arrays as a kernel sees them: checked, element by element; shared_array
    host       NumPy arrays and tensors, as a launch is given them
    arguments  the arrays of a launch
    vectors    several elements at a time, as with float4: as_vector
    atomics    atomicAdd and its like
    order      which accesses come before which: barriers, syncwarp, fences
    unwritten  elements of arrays that nobody has written
    watch      who touched each element of an array: data races, undefined elements
    meeting    barriers, shuffles, votes: where threads wait for each other
    undefined  what a shuffle gives for a lane that did not come
    source     looks through a kernel and its device functions, and refuses what only Python can do
    negative   remarks on // and % of negative numbers, refuses such indices of lists; `natural`
               knows which numbers cannot be negative
    rewrite    turns calls at which threads meet into `yield`, so that a thread can be paused there
    block      runs the threads of a block and lets them meet
    running    launch: checks what it is given and runs the blocks
    watchdog   ends what would never end
    explain    what a learner sees of an error

It works on NumPy alone: nothing of it imports PyTorch, whose tensors come from those who have.

Where it differs from a GPU: numbers are Python's (ints do not overflow, floats have 64 bits) until
they are stored in an array; tensors that are not contiguous or lie on a GPU are copied, so a race
between two of them in one memory is not seen. A warp operation excuses lanes that have returned,
but reading from one is an error; a barrier goes on without such threads, with a SimulatorWarning.
What torch.empty has left is known as such where the CPU backend guards memory, see `unwritten`.
"""

from helpers.base.gpu import WARP_SIZE
from helpers.simulator.arrays import local_array, shared_array
from helpers.simulator.atomics import (
    atomicAdd,
    atomicAnd,
    atomicCAS,
    atomicExch,
    atomicMax,
    atomicMin,
    atomicOr,
    atomicSub,
    atomicXor,
)
from helpers.simulator.errors import (
    BarrierError,
    DtypeError,
    EndlessLoopError,
    HostOnlyError,
    LaunchError,
    OutOfRangeError,
    RaceError,
    SharedMemoryError,
    SimulatorError,
    SimulatorWarning,
    UninitializedError,
    WarpError,
)
from helpers.simulator.geometry import (
    blockDim,
    blockIdx,
    cdiv,
    dim3,
    gridDim,
    threadIdx,
)
from helpers.simulator.meeting import (
    activemask,
    all_sync,
    any_sync,
    ballot_sync,
    match_any_sync,
    shfl_down_sync,
    shfl_sync,
    shfl_up_sync,
    shfl_xor_sync,
    syncthreads,
    syncthreads_and,
    syncthreads_count,
    syncthreads_or,
    syncwarp,
)
from helpers.simulator.order import threadfence, threadfence_block
from helpers.simulator.running import launch
from helpers.simulator.vectors import as_vector

__all__ = [
    "WARP_SIZE",
    "BarrierError",
    "DtypeError",
    "EndlessLoopError",
    "HostOnlyError",
    "LaunchError",
    "OutOfRangeError",
    "RaceError",
    "SharedMemoryError",
    "SimulatorError",
    "SimulatorWarning",
    "UninitializedError",
    "WarpError",
    "activemask",
    "all_sync",
    "any_sync",
    "as_vector",
    "atomicAdd",
    "atomicAnd",
    "atomicCAS",
    "atomicExch",
    "atomicMax",
    "atomicMin",
    "atomicOr",
    "atomicSub",
    "atomicXor",
    "ballot_sync",
    "blockDim",
    "blockIdx",
    "cdiv",
    "dim3",
    "gridDim",
    "launch",
    "local_array",
    "match_any_sync",
    "shared_array",
    "shfl_down_sync",
    "shfl_sync",
    "shfl_up_sync",
    "shfl_xor_sync",
    "syncthreads",
    "syncthreads_and",
    "syncthreads_count",
    "syncthreads_or",
    "syncwarp",
    "threadIdx",
    "threadfence",
    "threadfence_block",
]
