"""Elements of arrays that nobody has written, as with torch.empty.

A tensor does not tell how it was made. But where the CPU backend guards memory (`set_up` of the
compiler asks for it), new memory is filled with a word that is known here. Elsewhere nothing is
found.
"""

import numpy as np

FILL = 0x7FFA_7FE6_7FED_7FDA  # UNWRITTEN in helpers/cuda_on_cpu/runtime/memory.h; four NaNs
_BYTES = np.frombuffer(FILL.to_bytes(8, "little"), dtype=np.uint8)


def find_unwritten(memory, element):
    """Return for each element whether it holds what new memory holds; None if none does.

    `memory`: the elements as a NumPy array of bytes. Small integers may hold the same by chance,
    so eight bytes in a row have to agree.
    """
    size = element.bytes
    if element.is_floating_point or size >= 4:
        words = memory.view(f"u{size}")
        found = np.isin(words, _BYTES.view(f"u{size}"))
    else:
        before = memory.ctypes.data % 8
        after = -(before + memory.size) % 8
        padded = np.pad(memory, (before, after))
        rows = padded.reshape(-1, 8) == _BYTES
        agrees = rows.all(axis=1).repeat(8)[before : before + memory.size]
        found = agrees.reshape(-1, size).all(axis=1)
    return found if found.any() else None
