"""Checks rayfl, PyTorch and torchvision, the GPU, and the optional extras."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from pathlib import Path

from packaging.requirements import Requirement

import rayfl
from rayfl.doctor.check import Check, in_gb

GROUP = "libraries"
GPU = "GPU"
EXTRAS: Mapping[str, str] = {
    "huggingface": "datasets",
    "mlflow": "mlflow",
    "tensorboard": "tensorboard",
    "text": "transformers",
    "tune": "ray.tune",
    "wandb": "wandb",
}
"""The module that each optional extra of rayfl brings."""


@dataclass(frozen=True)
class Library:
    """An installed library.

    Attributes:
        version: Empty if it is not installed.
        error: Why it cannot be imported; empty if it can.
    """

    version: str
    error: str = ""


@dataclass(frozen=True)
class GpuFacts:
    """The GPUs, according to PyTorch and the system.

    Attributes:
        driver: NVIDIA's driver, as Linux describes it; empty if there is none.
        cuda: The version of CUDA that PyTorch was built for; None for a build without CUDA.
        devices: Name and memory in bytes of each device that PyTorch can use.
    """

    driver: str
    cuda: str | None
    devices: tuple[tuple[str, int], ...]


def library(name: str) -> Library:
    """The facts about a library; imports it."""
    try:
        installed = version(name)
    except PackageNotFoundError:
        return Library("")
    try:
        import_module(name)
    except Exception as error:  # whatever a broken library raises
        return Library(installed, f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")
    return Library(installed)


def needed_torch() -> Requirement | None:
    """The PyTorch that the installed torchvision was built for, as its package says; None if it does not."""
    try:
        found = [Requirement(text) for text in requires("torchvision") or ()]
    except PackageNotFoundError:
        return None
    return next((requirement for requirement in found if requirement.name == "torch"), None)


def library_checks(torch: Library, torchvision: Library, needed: Requirement | None) -> Iterator[Check]:
    """Checks rayfl, PyTorch and torchvision, which needs the PyTorch `needed`."""
    yield Check(GROUP, "rayfl", rayfl.__version__)
    yield _imports("PyTorch", "torch", torch)
    yield _imports("torchvision", "torchvision", torchvision)
    if torch.version and torchvision.version and needed is not None:
        yield _match(torch.version, torchvision.version, needed)


def _imports(name: str, package: str, found: Library) -> Check:
    if not found.version:
        return Check(GROUP, name, "not installed", "problem", f"pip install {package}")
    if found.error:
        said = f"{found.version}, cannot be imported ({found.error})"
        return Check(GROUP, name, said, "problem", "install torch and torchvision together, from the same index")
    return Check(GROUP, name, found.version)


def _match(torch: str, torchvision: str, needed: Requirement) -> Check:
    name = "torch and torchvision"
    if needed.specifier.contains(torch, prereleases=True):
        return Check(GROUP, name, "match")
    remedy = f"torchvision {torchvision} needs {needed}: install both together, from the same index"
    return Check(GROUP, name, f"{torch} and {torchvision} do not match", "problem", remedy)


def gpu_facts() -> GpuFacts:
    """The facts about this machine's GPUs; PyTorch must be importable."""
    import torch

    driver = Path("/proc/driver/nvidia/version")
    first = driver.read_text().splitlines()[0].removeprefix("NVRM version: ") if driver.is_file() else ""
    devices = []
    if torch.cuda.is_available():
        for number in range(torch.cuda.device_count()):
            properties = torch.cuda.get_device_properties(number)
            devices.append((properties.name, properties.total_memory))
    return GpuFacts(" ".join(first.split()), torch.version.cuda, tuple(devices))


def gpu_checks(facts: GpuFacts) -> Iterator[Check]:
    """Checks the GPUs."""
    for number, (name, memory) in enumerate(facts.devices):
        yield Check(GPU, f"GPU {number}", f"{name}, {in_gb(memory)}, CUDA {facts.cuda}")
    if facts.devices:
        yield Check(GPU, "driver", facts.driver or "not described by the system")
    elif not facts.driver:
        yield Check(GPU, "CUDA", "no NVIDIA driver: runs use the CPU")
    elif facts.cuda is None:
        remedy = "install a build of PyTorch with CUDA to use the GPU"
        yield Check(GPU, "CUDA", f"{facts.driver}, but PyTorch was built without CUDA", "warning", remedy)
    else:
        remedy = f"PyTorch needs a driver for CUDA {facts.cuda}: update the driver, and see what nvidia-smi says"
        yield Check(GPU, "CUDA", f"{facts.driver}, but PyTorch finds no usable GPU", "warning", remedy)


def installed_extras() -> set[str]:
    """The optional extras whose modules are installed."""
    return {extra for extra, module in EXTRAS.items() if _is_there(module)}


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ImportError:  # of the package that a submodule belongs to
        return False


def extra_checks(installed: set[str]) -> Iterator[Check]:
    """Lists the optional extras."""
    for extra, module in EXTRAS.items():
        if extra in installed:
            yield Check("extras", extra, f"{module} is installed")
        else:
            yield Check("extras", extra, "not installed", remedy=f"to use it: pip install 'rayfl[{extra}]'")
