"""Checks data, cache and free space."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from rayfl.data.known_files import KNOWN
from rayfl.doctor.check import GB, Check, in_gb

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
        found = known.found(folder)
        if found is not None:
            yield Check(DATA, known.title, f"found: {found}")
        else:
            said = (
                "not found; scenarios use a generated stand-in"
                if known.generated
                else "not found, and needed by its scenarios"
            )
            yield Check(DATA, known.title, said, remedy=f"for real data: {known.get.format(folder=folder)}")


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
        said = f"{in_gb(space.free)} free at {path}"
        if space.free >= FEW:
            yield Check(DISK, name, said)
        else:
            remedy = f"free at least {in_gb(FEW)}: runs write checkpoints, and Ray its logs and objects"
            yield Check(DISK, name, said, "warning" if space.free >= TOO_FEW else "problem", remedy)
    if store is None:
        yield Check(
            DISK, "object store", "no /dev/shm", "warning", "Ray keeps its objects in /tmp instead, which is slow"
        )
    elif store.free < SMALL_STORE:
        remedy = "enlarge it (docker run --shm-size=4g), or Ray keeps objects in /tmp, which is slow"
        yield Check(DISK, "object store", f"{in_gb(store.free)} free in /dev/shm", "warning", remedy)
    else:
        yield Check(DISK, "object store", f"{in_gb(store.free)} free in /dev/shm")
