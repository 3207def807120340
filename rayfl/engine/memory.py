"""The C library's memory in a process that trains."""

from __future__ import annotations

import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Numbers of mallopt's options, from glibc's <malloc.h>."""

KEPT_BYTES = 256 * 2**20
LARGEST_KEPT_BYTES = 32 * 2**20
"""Of one allocation; larger ones go back to the kernel when they are freed."""


def keep_freed_memory() -> None:
    """Lets this process keep up to 256 MiB that it freed, for its next allocations.

    A training step frees and allocates the same large tensors again and again. By default glibc gives their memory
    back in between and the kernel hands it out anew, page by page and zeroed; see docs/benchmarks.md for what that
    costs. Does nothing where the C library is not glibc.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, LARGEST_KEPT_BYTES)
        mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)
