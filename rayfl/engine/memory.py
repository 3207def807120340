"""Tunes the C library's allocator and Python's garbage collector."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Numbers of mallopt's options, from glibc's <malloc.h>."""

KEPT_BYTES = 256 * 2**20
LARGEST_KEPT_BYTES = 32 * 2**20
"""Size of a single allocation; larger ones return to the kernel when they are freed."""


def keep_freed_memory() -> None:
    """Lets this process keep up to 256 MiB of freed memory for later allocations.

    Every training step frees and allocates the same large tensors. By default glibc returns their memory to the kernel
    in between, which hands it out again page by page, zeroed; the benchmarks in the documentation measure the cost.
    Does nothing if the C library is not glibc.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, LARGEST_KEPT_BYTES)
        mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)


@contextmanager
def collection_paused() -> Iterator[None]:
    """Pauses the garbage collector while the block imports modules.

    They create many objects and leave little garbage, so the collector goes through all of them again and again, which
    takes a tenth of the time in which PyTorch is imported.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
