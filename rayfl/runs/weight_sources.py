"""Weights that a model starts from, and their origin: a file, a run, a library, or a scenario run for them."""

from __future__ import annotations

import fcntl
import hashlib
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from rayfl.config.scenario import Scenario
from rayfl.errors import DataError, DivergenceError, ResourceError, ScenarioError
from rayfl.files import check_regular
from rayfl.remote_folder import RemoteFolder
from rayfl.runs.archive import RunArchive
from rayfl.runs.folder import ENVIRONMENT_FILE
from rayfl.runs.resume import How, move_aside, run_in_place
from rayfl.runs.status import MODEL, STATUS, readable_status


@dataclass(frozen=True)
class Source:
    """Weights that are not yet matched with a model.

    Attributes:
        state: A state dict, in PyTorch's names and layout.
        origin: The origin of the weights, for the records.
        where: A description of the weights, for messages.
    """

    state: Mapping[str, Any]
    origin: Mapping[str, Any]
    where: str


def from_file(path: Path) -> Source:
    """Reads a .safetensors file or a state dict written by torch.save; never runs code from the file.

    Raises:
        DataError: The file is missing or damaged, or holds something else.
    """
    where = f"start.file '{path}'"
    check_regular(path, where)
    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        if path.suffix == ".safetensors":
            state: Any = safetensors.torch.load_file(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise DataError(f"{where}: {error.strerror or error}") from None
    except Exception as error:  # PyTorch's restricted unpickler may raise anything on a damaged file
        cause = " ".join(str(error).split())[:200]
        raise DataError(
            f"{where}: is neither a .safetensors file nor a state dict of tensors only, written by torch.save ({cause})"
        ) from None
    if not isinstance(state, Mapping) or not all(isinstance(name, str) for name in state):
        raise DataError(f"{where}: holds a {type(state).__name__}, not a state dict")
    if nested := [name for name, value in state.items() if isinstance(value, Mapping)]:
        raise DataError(
            f"{where}: holds dictionaries ({', '.join(nested[:5])}), not tensors by name; save the state dict only"
        )
    return Source(state, {"kind": "file", "path": str(path.absolute()), "sha256": digest}, where)


def from_named_run(place: str) -> Source:
    """Reads the final model of a finished run, from its folder or URI.

    Raises:
        DataError: The run does not exist or did not finish.
        ResourceError: The URI cannot be read.
    """
    if "://" not in place:
        return from_run(Path(place))
    remote = RemoteFolder(place)
    with tempfile.TemporaryDirectory(prefix="rayfl-start-") as folder:
        for name in (STATUS, ENVIRONMENT_FILE, MODEL):
            if (content := remote.read(name)) is not None:
                Path(folder, name).write_bytes(content)
        return from_run(Path(folder), place)


def from_run(folder: Path, place: str | None = None) -> Source:
    """Reads the final model of a finished run.

    Args:
        folder: The run's folder.
        place: The run's location for messages, if it is not the folder.

    Raises:
        DataError: The run does not exist or did not finish.
        ResourceError: Its status is damaged, or its records are of an earlier format.
    """
    archive = RunArchive(folder, place or "")
    where, status = f"start.run '{place or folder}'", archive.status
    if status is None:
        raise DataError(f"{where}: is not the folder of a run: it has no status.json")
    if status["status"] != "finished":
        raise DataError(
            f"{where}: the run has not finished (status.json: {status['status']}); to start from its last model, use "
            f"{'a copy of ' if place else ''}start.file = '{place or folder}/{MODEL}'"
        )
    archive.check_format()
    source = from_file(archive.model)
    origin = {"kind": "run", "path": place or str(folder.absolute()), "sha256": source.origin["sha256"]}
    return Source(source.state, origin, where)


def from_library(name: str) -> Source:
    """Loads published weights, `torchvision:ResNet18_Weights.IMAGENET1K_V1`.

    Raises:
        ScenarioError: torchvision has no weights of this name.
        DataError: The weights are not in torchvision's cache and cannot be downloaded.
    """
    library, _, weights = name.partition(":")
    where = f"start.weights '{name}'"
    if library != "torchvision" or not weights:
        raise ScenarioError(f"{where}: must read like 'torchvision:ResNet18_Weights.IMAGENET1K_V1'; or use start.file")
    from torchvision.models import get_weight

    try:
        published = get_weight(weights)
    except ValueError as error:
        raise ScenarioError(f"{where}: {error}") from None
    try:
        state = published.get_state_dict(progress=False, check_hash=True)
    except Exception as error:  # torch.hub passes on errors of urllib, the file system and the hash check
        cause = " ".join(str(error).split())
        raise DataError(f"{where}: cannot be loaded from {published.url} ({type(error).__name__}: {cause})") from None
    return Source(state, {"kind": "weights", "name": name, "url": published.url}, where)


def origin_digest(origin: Mapping[str, Any]) -> str:
    """A digest of the origin of weights; their path does not count."""
    identity = {name: value for name, value in origin.items() if name != "path"}
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()


def run_once(
    scenario: Scenario, digest: str, folder: Path, run: Callable[[How], None], say: Callable[[str], None]
) -> Source:
    """The final model of a scenario: reuses an earlier run, continues a stopped one, or runs it.

    Other processes that need the same model wait meanwhile.

    Args:
        scenario: The scenario to run.
        digest: A digest of everything that its result depends on.
        folder: The folder of its run, whose name ends with the beginning of the digest.
        run: Runs the scenario with its records in this folder, or resumes the run there.
        say: Receives the reason if a stopped run has to start over.

    Raises:
        ResourceError: The folder cannot be written to or locked.
        DivergenceError: An earlier run diverged, as it would again.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(folder.with_name(f"{folder.name}.lock")):
        status = readable_status(folder, lambda damage: say(f"{damage}; the run continues without it"))
        if status is not None and status.get("diverged"):
            raise DivergenceError(
                f"start.scenario '{scenario.name}': diverged in '{folder}' ({status['reason']}); change its training, "
                "or remove that folder to run it again"
            )
        if status is None or status["status"] != "finished":
            run_in_place(folder, True, run, lambda: move_aside(folder), say)
    source, data = from_run(folder), RunArchive(folder).data_digests
    origin = {**source.origin, "kind": "scenario", "name": scenario.name, "digest": digest, "data": data}
    return Source(source.state, origin, f"start.scenario '{scenario.name}'")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    try:
        lock = path.open("w")
        fcntl.flock(lock, fcntl.LOCK_EX)
    except OSError as error:
        raise ResourceError(f"cannot lock '{path}': {error.strerror}; set RAYFL_CACHE to another folder") from error
    with lock:  # closing it unlocks
        yield
