"""What the C library's allocator keeps of memory that was let go of, instead of giving it back at once.

Goals: a message of some hundred kilobytes costs no new memory from the system. It is received, parsed and copied in
pieces of its own size, and all of them are let go of with it.

Constraints: glibc gives the end of a heap back as soon as some hundred kilobytes of it are free, and asks for it again
with the next message: 125 page faults for a batch of half a mebibyte, which take a tenth of the time that a broker has
for it. What a process keeps must stay small beside what it may hold.

Algorithm: two settings (``mallopt``, as MALLOC_TRIM_THRESHOLD_ and MALLOC_MMAP_THRESHOLD_ in the environment). Beyond
KEPT_BYTES a heap still gives back what is free at its end; what is larger than LARGE_BYTES has pages of its own, which
go back when it is let go of. There is a heap for each thread, up to eight times as many as processors.
"""

import ctypes
from typing import Any, Final

KEPT_BYTES: Final = 8 * 1024 * 1024
"""Free bytes at the end of a heap that it keeps."""
LARGE_BYTES: Final = 2 * 1024 * 1024
"""From so much on, memory is the system's again when it is let go of."""

_TRIM_THRESHOLD: Final = -1
"""M_TRIM_THRESHOLD of malloc.h."""
_MMAP_THRESHOLD: Final = -3
"""M_MMAP_THRESHOLD of malloc.h."""


def keep_freed_memory(library: Any = None) -> bool:
    """Have this process keep some. False: its C library has no such settings (musl, macOS), and does what it does.

    ``library``: has ``mallopt``; the process's own when None.
    """
    mallopt = getattr(ctypes.CDLL(None) if library is None else library, "mallopt", None)
    return mallopt is not None and bool(mallopt(_TRIM_THRESHOLD, KEPT_BYTES) and mallopt(_MMAP_THRESHOLD, LARGE_BYTES))
