"""Checks the machine: operating system, Python, processors and memory; data, cache and free space."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from rayfl.cli.doctor.check import GB, Check, in_gb
from rayfl.data.files import KNOWN

GROUP = "machine"
OLDEST_PYTHON, NEWEST_PYTHON = (3, 11), (3, 14)
OLDEST_GLIBC = (2, 28)
"""PyTorch's wheels need it."""
LITTLE_MEMORY = 4 * GB


@dataclass(frozen=True)
class MachineFacts:
    """The facts that the checks judge.

    Attributes:
        system: `Linux`, `Darwin`, `Windows`.
        release: Of the kernel.
        cores: That this process may use.
        memory: Of the machine, in bytes.
        memory_limit: Of the control group, in bytes; None if there is none.
        libc: Name and version of the C library; the name is empty if it is not glibc.
        python: Its version.
        cpu_flags: The processor's features, as Linux names them; empty if they are not known.
    """

    system: str
    release: str
    cores: int
    memory: int
    memory_limit: int | None
    libc: tuple[str, str]
    python: tuple[int, int, int]
    cpu_flags: frozenset[str]


def machine_facts() -> MachineFacts:
    """The facts about this machine."""
    return MachineFacts(
        system=platform.system(),
        release=platform.release(),
        cores=len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1,
        memory=psutil.virtual_memory().total,
        memory_limit=memory_limit(Path("/sys/fs/cgroup")),
        libc=platform.libc_ver(),
        python=sys.version_info[:3],
        cpu_flags=_cpu_flags(Path("/proc/cpuinfo")),
    )


def memory_limit(cgroup: Path) -> int | None:
    """The memory limit in a control group's folder, of version 2 or 1; None if there is none."""
    for file in (cgroup / "memory.max", cgroup / "memory" / "memory.limit_in_bytes"):
        try:
            text = file.read_text().strip()
        except OSError:
            continue
        # version 1 writes a number near 2^63 for "no limit"
        return int(text) if text.isdecimal() and int(text) < 2**60 else None
    return None


def _cpu_flags(cpuinfo: Path) -> frozenset[str]:
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return frozenset()
    return next((frozenset(line.partition(":")[2].split()) for line in lines if line.startswith("flags")), frozenset())


def machine_checks(facts: MachineFacts) -> Iterator[Check]:
    """Checks a machine."""
    system = f"{facts.system} {facts.release}"
    if facts.system == "Linux":
        yield Check(GROUP, "system", system)
    else:
        yield Check(
            GROUP, "system", system, "problem", "rayfl runs on Linux: use WSL 2, a container or a virtual machine"
        )
    yield _python(facts.python)
    if facts.system == "Linux":  # elsewhere the system is the problem
        yield _libc(facts.libc)
    if facts.cores > 1:
        yield Check(GROUP, "cores", f"{facts.cores}")
    else:
        yield Check(GROUP, "cores", "1", "warning", "runs are slow: worker processes share the core with Ray itself")
    yield _memory(facts)
    yield _cpu(facts.cpu_flags)


def _python(version: tuple[int, int, int]) -> Check:
    text = ".".join(map(str, version))
    if OLDEST_PYTHON <= version[:2] <= NEWEST_PYTHON:
        return Check(GROUP, "Python", text)
    oldest, newest = (".".join(map(str, bound)) for bound in (OLDEST_PYTHON, NEWEST_PYTHON))
    return Check(GROUP, "Python", text, "problem", f"install rayfl under Python {oldest} to {newest}")


def _libc(libc: tuple[str, str]) -> Check:
    name, version = libc
    if name != "glibc":
        return Check(GROUP, "C library", name or "not glibc", "problem", "PyTorch's and Ray's wheels need glibc")
    known = tuple(int(part) for part in version.split(".")[:2])
    if known < OLDEST_GLIBC:
        oldest = ".".join(map(str, OLDEST_GLIBC))
        return Check(
            GROUP, "C library", f"glibc {version}", "problem", f"PyTorch's wheels need glibc {oldest} or newer"
        )
    return Check(GROUP, "C library", f"glibc {version}")


def _memory(facts: MachineFacts) -> Check:
    usable = min(facts.memory, facts.memory_limit or facts.memory)
    limited = usable < facts.memory
    text = f"{in_gb(usable)}, the control group's limit, of {in_gb(facts.memory)}" if limited else in_gb(usable)
    if usable >= LITTLE_MEMORY:
        return Check(GROUP, "memory", text)
    remedy = f"give at least {in_gb(LITTLE_MEMORY)}, or use few worker processes: resources.hosts=1"
    return Check(GROUP, "memory", text, "warning", remedy)


def _cpu(flags: frozenset[str]) -> Check:
    has = [name for name, flag in (("AVX2", "avx2"), ("AVX-512", "avx512f"), ("AMX", "amx_tile")) if flag in flags]
    if "AVX-512" in has or "AMX" in has:
        return Check(GROUP, "CPU features", ", ".join(has))
    remedy = "bits and speed differ from machines with AVX-512: compare runs from the same kind of machine"
    return Check(GROUP, "CPU features", ", ".join(has) or "neither AVX-512 nor AMX known", "warning", remedy)


DATA, DISK = "data", "disk"
FEW, TOO_FEW = 5 * GB, 1 * GB
"""Free bytes of a disk below which runs may and will fail."""
SMALL_STORE = 1 * GB
"""Bytes of /dev/shm below which Ray's object store is likely to be too small."""


def data_checks(folder: Path, named: bool) -> Iterator[Check]:
    """Lists the known data sets and where they were found.

    Args:
        folder: The data folder.
        named: Whether the user named it, by RAYFL_DATA.
    """
    if not folder.is_dir() and named:
        remedy = "RAYFL_DATA names a folder that does not exist: create it, or correct the variable"
        yield Check(DATA, "folder", str(folder), "warning", remedy)
    else:
        yield Check(DATA, "folder", str(folder) if folder.is_dir() else f"{folder}, which does not exist yet")
    for known in KNOWN.values():
        path = known.found(folder)
        if path is not None:
            yield Check(DATA, known.title, f"found: {path}")
        else:
            text = (
                "not found; scenarios use a generated stand-in"
                if known.generated
                else "not found, and needed by its scenarios"
            )
            yield Check(DATA, known.title, text, remedy=f"for real data: {known.get.format(folder=folder)}")


@dataclass(frozen=True)
class Space:
    """Free and total bytes of a disk."""

    free: int
    total: int


def space_at(path: Path) -> Space:
    """The space where a folder is, or where it would be created."""
    there = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    usage = shutil.disk_usage(there)
    return Space(usage.free, usage.total)


def folder_size(folder: Path) -> int:
    """The bytes of all files below a folder; 0 if there is none."""
    total = 0
    for root, _, files in os.walk(folder):
        for name in files:
            try:
                total += (Path(root) / name).lstat().st_size
            except OSError:  # removed meanwhile, or not ours to read
                continue
    return total


def disk_checks(places: Mapping[str, tuple[Path, Space]], store: Space | None) -> Iterator[Check]:
    """Checks the free space.

    Args:
        places: Path and space of each place, by its name.
        store: The space of /dev/shm, where Ray keeps its objects; None if there is no such folder.
    """
    for name, (path, space) in places.items():
        text = f"{in_gb(space.free)} free at {path}"
        if space.free >= FEW:
            yield Check(DISK, name, text)
        else:
            remedy = f"free at least {in_gb(FEW)}: runs write checkpoints, and Ray its logs and objects"
            yield Check(DISK, name, text, "warning" if space.free >= TOO_FEW else "problem", remedy)
    if store is None:
        yield Check(
            DISK, "object store", "no /dev/shm", "warning", "Ray keeps its objects in /tmp instead, which is slow"
        )
    elif store.free < SMALL_STORE:
        remedy = "enlarge it (docker run --shm-size=4g), or Ray keeps objects in /tmp, which is slow"
        yield Check(DISK, "object store", f"{in_gb(store.free)} free in /dev/shm", "warning", remedy)
    else:
        yield Check(DISK, "object store", f"{in_gb(store.free)} free in /dev/shm")
