"""On what a host trains, and that device's random numbers."""

from __future__ import annotations

import os

import torch

from rayfl.config.execution import Resources
from rayfl.errors import ResourceError


def choose_device(resources: Resources) -> torch.device:
    """CUDA for a host with a share of a GPU (or where asked for), else the CPU.

    Fractions of a GPU are bookkeeping of Ray's, so a host also limits its own share of the GPU's memory.

    Raises:
        ResourceError: CUDA is wanted and PyTorch sees none.
    """
    if not resources.uses_cuda:
        return torch.device("cpu")
    if not torch.cuda.is_available():
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "not set")
        raise ResourceError(
            f"the host has a share of {resources.gpus_per_host:g} GPU, but PyTorch {torch.__version__} sees no CUDA "
            f"device (CUDA_VISIBLE_DEVICES: {visible}): install a CUDA build of PyTorch, or set resources.device=cpu"
        )
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    if 0 < resources.gpus_per_host < 1:
        torch.cuda.set_per_process_memory_fraction(resources.gpus_per_host)
    return torch.device("cuda", torch.cuda.current_device())


def seed_torch(seed: int, device: torch.device) -> None:
    """torch.manual_seed for one device: that one looks for every kind there is, which takes most of a millisecond."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)
