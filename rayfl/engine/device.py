"""The device that a host trains on: its choice, PyTorch's settings, threads and generators there, and its errors.

With the properties of PyTorch and the machine that can change the last bits of a result.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from rayfl.config.execution import Numerics, Resources
from rayfl.errors import ResourceError, ScenarioError
from rayfl.local.context import ClientContext

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
            f"no CUDA device (CUDA_VISIBLE_DEVICES: {visible}): {_why_no_cuda(torch.version.cuda)}, or set "
            "resources.device=cpu"
        )
    _set_numerics(numerics)
    device = torch.device("cuda", torch.cuda.current_device())
    if 0 < resources.gpus_per_host < 1:
        total = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(memory_fraction(resources.gpus_per_host, total), device)
    return device


def _why_no_cuda(built_for: str | None) -> str:
    if built_for is None:
        return "install a CUDA build of PyTorch"
    return f"this build is for CUDA {built_for}, so look for its driver first (what does nvidia-smi say on this node?)"


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


class TorchGenerators:
    """Gives every open client update its own state of PyTorch's global generators.

    Enter a client before running code on its behalf (algorithm, network or augmentation). Its draws then do not depend
    on other updates under way.

    Args:
        device: Device that clients train on; on CUDA its generator is kept as well as the CPU's.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._current: int | None = None
        self._left: dict[int, tuple[torch.Tensor, ...]] = {}

    def enter(self, client: ClientContext) -> None:
        """Continues a client's sequence of random numbers, or seeds it if the client's id is new."""
        if client.id == self._current:
            return
        if self._current is not None:
            self._left[self._current] = self._states()
        self._current = client.id
        if client.id in self._left:
            self._set(self._left.pop(client.id))
        else:
            # draws of an algorithm from PyTorch's global generator belong to the client, too
            seed_torch(client.streams.torch_seed("algorithm"), self._device)

    def forget(self) -> None:
        """Drops all states when the updates are over."""
        self._current, self._left = None, {}

    def _states(self) -> tuple[torch.Tensor, ...]:
        of_cpu = torch.default_generator.get_state()
        return (of_cpu, torch.cuda.get_rng_state(self._device)) if self._device.type == "cuda" else (of_cpu,)

    def _set(self, states: tuple[torch.Tensor, ...]) -> None:
        torch.default_generator.set_state(states[0])
        if self._device.type == "cuda":
            torch.cuda.set_rng_state(states[1], self._device)


def platform_facts(device: torch.device) -> dict[str, str]:
    """Describes this process for the records: PyTorch's version, CPU capability, threads, and CUDA settings if used.

    A precision is `tf32` if float32 is first rounded to TensorFloat-32, `ieee` if not, and `none` if PyTorch's global
    setting decides.

    Args:
        device: The device that this process computes on.
    """
    facts = {
        "torch": torch.__version__,
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "threads": str(torch.get_num_threads()),
    }
    if device.type == "cuda":
        facts |= {
            "cuda": str(torch.version.cuda),
            "cudnn": str(torch.backends.cudnn.version()),  # type: ignore[no-untyped-call]
            "compute_capability": ".".join(map(str, torch.cuda.get_device_capability(device))),
            "matmul_precision": torch.backends.cuda.matmul.fp32_precision,
            "convolution_precision": torch.backends.cudnn.conv.fp32_precision,  # type: ignore[attr-defined]
            "rnn_precision": torch.backends.cudnn.rnn.fp32_precision,  # type: ignore[attr-defined]
            "cudnn_deterministic": str(torch.backends.cudnn.deterministic).lower(),
        }
    return facts


def processor_name(device: torch.device) -> str:
    """Names the kind of a device, which affects the last bits: the GPU's model or the CPU's instruction set."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}"


def differing_hosts(hosts: Sequence[Mapping[str, str]]) -> str | None:
    """Names the hosts that run on different kinds of devices.

    Args:
        hosts: The result of `Host.describe` for each.

    Returns:
        One sentence, or None if all are of one kind.
    """
    kinds: dict[str, list[str]] = {}
    for host in hosts:
        kinds.setdefault(host["processor"], []).append(host["host"])
    if len(kinds) <= 1:
        return None
    named = "; ".join(f"worker{'s' * (len(of) > 1)} {', '.join(of)}: {kind}" for kind, of in kinds.items())
    return (
        f"the workers' processors differ ({named}), so another placement can change the last bits of the result; for "
        "identical bits in every run, use nodes of one kind"
    )
