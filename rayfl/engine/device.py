"""Chooses the device that a host trains on, sets up PyTorch for it, and explains its errors."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from rayfl.config.execution import Numerics, Resources
from rayfl.errors import ResourceError, ScenarioError

deterministic: Any = torch.utils.deterministic

CONTEXT_BYTES = 600 * 10**6
"""GPU memory that a process's CUDA context and kernels use on top of PyTorch's own allocations.

About 0.5 GB with current drivers. PyTorch's limit on a process does not count it, so a host's limit is its share less
this amount.
"""

WORKSPACE = ":4096:8"
"""A CUBLAS_WORKSPACE_CONFIG with which cuBLAS is deterministic, from NVIDIA's documentation."""


def choose_device(resources: Resources, numerics: Numerics) -> torch.device:
    """Chooses a host's device and sets up PyTorch for it.

    A host uses CUDA if it has a share of a GPU or the scenario asks for CUDA, otherwise the CPU. On CUDA, operations
    are deterministic and in full float32 precision unless `numerics` says otherwise. Ray does not enforce shares of a
    GPU, so the host limits its own memory to its share.

    Args:
        resources: The scenario's [resources].
        numerics: The scenario's [numerics].

    Returns:
        The device.

    Raises:
        ResourceError: CUDA is requested and PyTorch sees no device, or the share is smaller than a CUDA context.
    """
    if not resources.uses_cuda:
        return torch.device("cpu")
    if not torch.cuda.is_available():
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "not set")
        raise ResourceError(
            f"the worker process has a share of {resources.gpus_per_host:g} GPU, but PyTorch {torch.__version__} sees "
            f"no CUDA device (CUDA_VISIBLE_DEVICES: {visible}): install a CUDA build of PyTorch, or set "
            "resources.device=cpu"
        )
    _set_numerics(numerics)
    device = torch.device("cuda", torch.cuda.current_device())
    if 0 < resources.gpus_per_host < 1:
        total = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(memory_fraction(resources.gpus_per_host, total), device)
    return device


def _set_numerics(numerics: Numerics) -> None:
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = numerics.deterministic
    torch.backends.cudnn.allow_tf32 = numerics.tf32
    torch.backends.cuda.matmul.allow_tf32 = numerics.tf32
    if numerics.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", WORKSPACE)
        # off, as it only helps to debug reads of uninitialised memory, costs time and does not affect determinism
        deterministic.fill_uninitialized_memory = False
        torch.use_deterministic_algorithms(True)


def memory_fraction(share: float, total: int) -> float:
    """Returns the fraction of a GPU's memory that PyTorch may allocate in a process with a share of the GPU.

    Args:
        share: Share of the GPU, below 1.
        total: Memory of the GPU in bytes.

    Raises:
        ResourceError: The share is no larger than a CUDA context.
    """
    fraction = share - CONTEXT_BYTES / total
    if fraction <= 0:
        raise ResourceError(
            f"resources.gpus_per_host={share:g} of a GPU with {total / 1e9:.1f} GB is less than the "
            f"{CONTEXT_BYTES / 1e9:.1f} GB that CUDA itself uses in each process: start fewer workers with larger "
            "shares"
        )
    return fraction


def seed_torch(seed: int, device: torch.device) -> None:
    """Seeds PyTorch's generators for one device; `torch.manual_seed` probes every kind, which takes most of a ms."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)


@contextmanager
def settings_restored(resources: Resources) -> Iterator[None]:
    """Restores PyTorch's settings, thread count and generators afterwards, which a host changes.

    CUDA is not initialised if the host runs on the CPU.

    Args:
        resources: The scenario's [resources].
    """
    on_cuda = resources.uses_cuda and torch.cuda.is_available()
    threads, debug_mode = torch.get_num_threads(), torch.get_deterministic_debug_mode()
    fill = deterministic.fill_uninitialized_memory
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    flags = cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32, matmul.allow_tf32
    workspace = os.environ.get("CUBLAS_WORKSPACE_CONFIG")
    fraction = torch.cuda.get_per_process_memory_fraction() if on_cuda else None
    try:
        with torch.random.fork_rng(devices=[torch.cuda.current_device()] if on_cuda else []):
            yield
    finally:
        torch.set_num_threads(threads)
        torch.set_deterministic_debug_mode(debug_mode)
        deterministic.fill_uninitialized_memory = fill
        cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32, matmul.allow_tf32 = flags
        if workspace is None:
            os.environ.pop("CUBLAS_WORKSPACE_CONFIG", None)
        if fraction is not None:
            torch.cuda.set_per_process_memory_fraction(fraction)


@contextmanager
def device_limits_explained() -> Iterator[None]:
    """Converts a device's errors into errors that say what to change in the scenario.

    Raises:
        ResourceError: CUDA ran out of memory, which is not the training client's fault.
        ScenarioError: An operation has no deterministic implementation on CUDA.
    """
    try:
        yield
    except torch.OutOfMemoryError as error:
        first = str(error).partition(". ")[0]
        raise ResourceError(
            f"the GPU ran out of memory ({first}): use fewer workers per GPU (a larger resources.gpus_per_host), or "
            "a smaller local.batch_size or evaluation.batch_size"
        ) from None
    except RuntimeError as error:
        if "does not have a deterministic implementation" not in str(error):
            raise
        operation = str(error).partition(" does not")[0]
        raise ScenarioError(
            f"{operation} is not deterministic on CUDA: use another layer or operation, train on the CPU "
            "(resources.device=cpu), or accept results that differ between runs with numerics.deterministic=false"
        ) from None
