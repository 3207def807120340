"""Sets the number of CPU threads that PyTorch uses."""

from __future__ import annotations

import os

import torch

from rayfl.errors import ResourceError


def use_threads(threads: int) -> None:
    """Sets the number of CPU threads that PyTorch uses in this process.

    Raises:
        ResourceError: The machine has fewer CPUs. More threads than CPUs are never faster, and far too many kill the
            process without a Python error.
    """
    cpus = os.cpu_count() or 1
    if threads > cpus:
        raise ResourceError(f"numerics.threads: {threads} is more than the {cpus} CPUs of this machine; lower it")
    torch.set_num_threads(threads)
