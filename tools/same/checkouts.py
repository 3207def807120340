"""Exports commits, and keeps what probes wrote for them, by commit and conditions."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import distributions
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

PROBES = Path(__file__).parent / "probes"
OLDER = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"}
"""Makes a processor with AVX-512 compute as one without."""


class Checkout(NamedTuple):
    """A commit on disk.

    Attributes:
        name: As it was given.
        tree: The exported files.
        outputs: The folder with a folder for each part.
    """

    name: str
    tree: Path
    outputs: Path


def conditions() -> str:
    """A digest of what decides outputs beside the commit: probes, how they are run, Python, packages, the processor."""
    packages = sorted(f"{found.name} {found.version}" for found in distributions() if found.name != "rayfl")
    facts = Path("/proc/cpuinfo")
    lines = facts.read_text().splitlines() if facts.exists() else [platform.processor()]
    processor = [line for line in lines if line.startswith(("model name", "flags"))][:2]
    own = [path.read_text() for path in (Path(__file__), *sorted(PROBES.glob("*.py")))]
    return hashlib.sha256(repr((sys.version, packages, processor, own)).encode()).hexdigest()[:12]


@contextmanager
def checked_out(name: str, repository: Path, store: Path) -> Iterator[Checkout]:
    """A commit, which stays in the store, or the working tree (`.`), whose copy and outputs are removed afterwards."""
    if name == ".":
        store.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=store, prefix="working-tree-") as folder:
            listed = _git(repository, "ls-files", "-z", "--cached", "--others", "--exclude-standard").decode()
            for file in filter(None, listed.split("\0")):
                if (repository / file).is_file():
                    target = Path(folder) / "tree" / file
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(repository / file, target)
            yield Checkout(name, Path(folder) / "tree", Path(folder) / "outputs")
        return
    commit = _git(repository, "rev-parse", "--verify", f"{name}^{{commit}}").decode().strip()
    tree = store / commit / "tree"
    if not tree.exists():
        tree.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=tree.parent) as folder:
            with tarfile.open(fileobj=BytesIO(_git(repository, "archive", commit))) as archive:
                archive.extractall(Path(folder) / "tree", filter="data")
            (Path(folder) / "tree").rename(tree)
    yield Checkout(name, tree, store / commit / conditions())


def _git(repository: Path, *arguments: str) -> bytes:
    done = subprocess.run(["git", "-C", str(repository), *arguments], capture_output=True)
    if done.returncode:
        raise SystemExit(f"git {arguments[0]}: {done.stderr.decode().strip()}")
    return done.stdout


def environment(checkout: Checkout, scratch: Path) -> dict[str, str]:
    """The environment of a probe: no data, an empty cache, one thread, a fixed width."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("RAY", "PYTEST", "PYTHON"))}
    (scratch / "data").mkdir()
    return kept | {
        "PYTHONPATH": os.pathsep.join([str(checkout.tree), str(PROBES)]),
        "CHECKOUT": str(checkout.tree),
        "PYTHONHASHSEED": "0",
        "RAYFL_DATA": str(scratch / "data"),
        "RAYFL_CACHE": str(scratch / "cache"),
        "RAY_USAGE_STATS_ENABLED": "0",
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "100",
        "NO_COLOR": "1",
    }


def produce(checkout: Checkout, part: str, probe: str, *arguments: str, older: bool = False) -> str | None:
    """Has a probe write a part, unless the store has it.

    Args:
        checkout: Where rayfl is imported from.
        part: The name of the folder of outputs.
        probe: The program.
        arguments: For it; the folder that it writes to comes after them.
        older: Whether to compute without AVX-512.

    Returns:
        Why it failed; None if it did not.
    """
    target = checkout.outputs / part
    if target.exists():
        return None
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory(dir=target.parent) as written:
        out = Path(written, part)
        out.mkdir()
        command = [sys.executable, str(PROBES / probe), *arguments, str(out)]
        own = environment(checkout, Path(folder)) | (OLDER if older else {})
        done = subprocess.run(command, cwd=folder, env=own, capture_output=True, text=True)
        if done.returncode:
            return (done.stderr or done.stdout).strip()[-250:]
        if not any(out.iterdir()):  # two folders with nothing in them are equal
            return f"{probe} wrote nothing"
        if not target.exists():  # both commits may be the same
            out.rename(target)
    return None
