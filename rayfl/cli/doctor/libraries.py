"""Checks the libraries: PyTorch and torchvision with the GPU, Ray with its cluster, and the optional extras.

Of Ray, also the token and files of earlier sessions. And whether Python keeps the libraries compiled, without which
each of Ray's processes starts more slowly.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import cache_from_source, find_spec
from pathlib import Path

from packaging.requirements import Requirement

import rayfl
from rayfl.cli.doctor.check import GB, Check, in_gb
from rayfl.cli.doctor.machine import folder_size
from rayfl.errors import ResourceError

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
        requirements = [Requirement(text) for text in requires("torchvision") or ()]
    except PackageNotFoundError:
        return None
    return next((requirement for requirement in requirements if requirement.name == "torch"), None)


def library_checks(torch: Library, torchvision: Library, needed: Requirement | None) -> Iterator[Check]:
    """Checks rayfl, PyTorch and torchvision, which needs the PyTorch `needed`."""
    yield Check(GROUP, "rayfl", rayfl.__version__)
    yield _imports("PyTorch", "torch", torch)
    yield _imports("torchvision", "torchvision", torchvision)
    if torch.version and torchvision.version and needed is not None:
        yield _match(torch.version, torchvision.version, needed)


def _imports(name: str, package: str, installed: Library) -> Check:
    if not installed.version:
        return Check(GROUP, name, "not installed", "problem", f"pip install {package}")
    if installed.error:
        text = f"{installed.version}, cannot be imported ({installed.error})"
        return Check(GROUP, name, text, "problem", "install torch and torchvision together, from the same index")
    return Check(GROUP, name, installed.version)


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


LIBRARIES = ("torch", "ray", "opacus", "pydantic")
"""Some that take long to compile."""


def uncompiled(names: Iterable[str] = LIBRARIES) -> list[Path]:
    """The folders of those installed libraries that Python neither has compiled nor can keep compiled."""
    specs = [spec for name in names if (spec := find_spec(name)) is not None and spec.origin is not None]
    sources = [Path(str(spec.origin)) for spec in specs]
    return [
        source.parent
        for source in sources
        if not Path(cache_from_source(str(source))).exists()
        and (sys.dont_write_bytecode or not os.access(source.parent, os.W_OK))
    ]


def bytecode_check(folders: list[Path], switched_off: bool) -> Iterator[Check]:
    """Warns of uncompiled libraries.

    Args:
        folders: Their folders.
        switched_off: Whether Python is told not to write bytecode; else their folders are not writable.
    """
    if not folders:
        return
    why = "PYTHONDONTWRITEBYTECODE is set" if switched_off else "their folders are not writable"
    text = f"{', '.join(folder.name for folder in folders)}: every process compiles them anew, since {why}"
    remedy = f"python -m compileall -q {folders[0].parent}" + (", or unset it" if switched_off else "")
    yield Check("libraries", "bytecode", text, "warning", remedy)


RAY = "Ray"
MANY_SESSIONS, LARGE_SESSIONS = 20, 5 * GB


@dataclass(frozen=True)
class RayFacts:
    """The facts that the checks judge, once Ray can be imported.

    Attributes:
        address: The cluster that a run with `--address auto` or RAY_ADDRESS would join; empty if there is none.
        named: Whether RAY_ADDRESS names it.
        unreachable: Why no cluster can be joined there, and after a colon what to do; empty if one can.
        auth_mode: RAY_AUTH_MODE; empty if it is not set.
        token_from: Where a token was found, never the token itself; empty if there is none.
        temporary: Ray's folder for sessions.
        sessions: Number of sessions in it.
        sessions_size: Their bytes.
    """

    address: str
    named: bool
    unreachable: str
    auth_mode: str
    token_from: str
    temporary: Path
    sessions: int
    sessions_size: int


def ray_facts() -> RayFacts:
    """The facts about Ray on this machine; sends a cluster's address two short requests, and joins no cluster."""
    from rayfl.backends.ray.connection import check_is_cluster, local_address, token_from
    from rayfl.backends.ray.private import temporary_folder

    def unreachable(address: str) -> str:
        try:
            if address:
                check_is_cluster(address)
        except ResourceError as error:
            return str(error)
        return ""

    named = os.environ.get("RAY_ADDRESS", "")
    address = local_address()
    temporary = temporary_folder()
    sessions = [path for path in temporary.glob("session_*") if path.is_dir() and not path.is_symlink()]
    return RayFacts(
        address=address,
        named=bool(named) and address == named,
        unreachable=unreachable(address),
        auth_mode=os.environ.get("RAY_AUTH_MODE", ""),
        token_from=token_from(os.environ, Path.home()),
        temporary=temporary,
        sessions=len(sessions),
        sessions_size=sum(map(folder_size, sessions)),
    )


def ray_library_check(installed: Library) -> Check:
    """Checks that Ray can be imported."""
    if not installed.version:
        return Check(RAY, "library", "not installed", "problem", "pip install 'ray[default]'; or use --backend inline")
    if installed.error:
        remedy = "reinstall ray[default]; until then use --backend inline"
        return Check(RAY, "library", f"{installed.version}, cannot be imported ({installed.error})", "problem", remedy)
    return Check(RAY, "library", installed.version)


def ray_checks(facts: RayFacts) -> Iterator[Check]:
    """Checks the cluster, the token and earlier sessions."""
    yield _cluster(facts)
    yield _token(facts)
    text = f"{facts.sessions} in {facts.temporary}, {in_gb(facts.sessions_size)}"
    if facts.sessions > MANY_SESSIONS or facts.sessions_size > LARGE_SESSIONS:
        remedy = f"when no Ray is running: rm -r {facts.temporary}/session_*"
        yield Check(RAY, "sessions", text, "warning", remedy)
    else:
        yield Check(RAY, "sessions", text)


def _cluster(facts: RayFacts) -> Check:
    if not facts.address:
        return Check(RAY, "cluster", "none: rayfl starts Ray on this machine for each run")
    by = "RAY_ADDRESS" if facts.named else "a local cluster"
    if not facts.unreachable:
        return Check(RAY, "cluster", f"answers at {facts.address} ({by})")
    problem, _, remedy = facts.unreachable.partition(": ")
    if facts.named:
        return Check(RAY, "cluster", f"RAY_ADDRESS: {problem}", "problem", remedy)
    if "token" in problem:
        return Check(RAY, "cluster", problem, "warning", remedy)
    remedy = "a cluster has ended without `ray stop`: run `ray stop`"
    return Check(RAY, "cluster", f"{by}: {problem}", "warning", remedy)


def _token(facts: RayFacts) -> Check:
    mode = f"RAY_AUTH_MODE={facts.auth_mode}" if facts.auth_mode else "RAY_AUTH_MODE is not set"
    if facts.token_from:
        return Check(RAY, "token", f"{mode}, a token is in {facts.token_from}")
    if facts.auth_mode == "token":
        remedy = "make one with `ray get-auth-token --generate`, or set RAY_AUTH_TOKEN_PATH to the cluster's"
        return Check(RAY, "token", f"{mode}, but there is no token", "problem", remedy)
    return Check(RAY, "token", f"{mode}, no token")
