"""The number of CPU threads that PyTorch computes with."""

from __future__ import annotations

import os

import torch

from rayfl.errors import ResourceError


def use_threads(threads: int) -> None:
    """Makes PyTorch compute with this many CPU threads in this process.

    Raises:
        ResourceError: The machine has fewer CPUs. More threads than CPUs are never faster, and far too many end the
            process without a word of Python.
    """
    cpus = os.cpu_count() or 1
    if threads > cpus:
        raise ResourceError(f"numerics.threads: {threads} were asked for, but this machine has {cpus} CPUs")
    torch.set_num_threads(threads)
