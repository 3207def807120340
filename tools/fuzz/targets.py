"""All readers of files in rayfl, with functions that write valid files and read them."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from rayfl.config.loader import load_scenario
from rayfl.config.overrides import parse_override
from rayfl.data.dataset import Dataset
from rayfl.data.inputs import named_parts
from rayfl.data.prepared import fragments
from rayfl.data.prepared import reader as prepared_data
from rayfl.data.prepared.manifest import MANIFEST, StoredFile
from rayfl.data.sources import (
    chest_xray,
    cifar,
    cityscapes,
    fashion_mnist,
    femnist,
    image_folder,
    inaturalist,
    pacs,
    sent140,
    shakespeare,
    tiny_imagenet,
)
from rayfl.data.sources import libraries as hugging_face
from rayfl.data.sources import libraries as torchvision_class
from rayfl.data.sources import next_character as penn_treebank
from rayfl.data.sources import own_files as arrow_file
from rayfl.data.sources import own_files as npz_file
from rayfl.data.sources import own_files as parquet_folder
from rayfl.engine.state.state_store import FolderStore, Stored
from rayfl.errors import DataError, RayflError, ResourceError
from rayfl.files import inside, read_json_object, reading
from rayfl.runs.archive import GridPlace, RunArchive
from rayfl.runs.checkpoints import Checkpoints
from rayfl.runs.figures.recorded_run import read_run
from rayfl.runs.resolution import resolve
from rayfl.runs.status import read_status
from rayfl.runs.weight_sources import from_file
from rayfl.studies.analysis.run_folder import RunFolder
from rayfl.studies.figures.comparison import version_notes
from rayfl.studies.grid.results import FinishedRun
from rayfl.studies.grid.schema import load_grid
from tools.fuzz import valid_data, valid_runs


class Target(NamedTuple):
    """A reader of files.

    Attributes:
        write: Writes valid files to a folder.
        read: Reads them as a run does.
        damaged: Glob of the files to damage.
        names_file: Whether an error must name the file, not just a key.
        also_named: Texts that count as naming the file, besides its path.
    """

    write: Callable[[Path], None]
    read: Callable[[Path], Any]
    damaged: str = "**/*"
    names_file: bool = True
    also_named: Sequence[str] = ()


def _scenario(folder: Path) -> None:
    for quick in (False, True):
        resolve(load_scenario(folder / "tiny.toml", quick=quick))


def _tables(folder: Path) -> None:
    try:
        tables = json.loads((folder / "tables.json").read_text("utf-8", "surrogatepass"))
    except (ValueError, RecursionError):
        return
    if isinstance(tables, dict):
        resolve(load_scenario(tables))


def _overrides(folder: Path) -> None:
    for line in (folder / "overrides.txt").read_text("utf-8", "surrogateescape").splitlines():
        parse_override(line)
        resolve(load_scenario(valid_runs.SCENARIO, [line]))


def _grid(folder: Path) -> None:
    grid = load_grid(folder / "table.grid.toml")
    for quick in (False, True):
        grid.scenarios(quick=quick)


def _weights(folder: Path) -> None:
    for file in sorted(folder.iterdir()):
        from_file(file)


def _checkpoints(folder: Path) -> None:
    for checkpoint in list(Checkpoints(folder / "run", 2).newest_first()):
        if isinstance(checkpoint, ResourceError):
            raise checkpoint


def _states(folder: Path) -> None:
    states = folder / "states"
    for file in sorted(states.glob("*/*.safetensors")):
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        FolderStore(states).read(Stored(digest, str(file.relative_to(states))))


def _places(folder: Path) -> None:
    """Whatever a file names, nothing outside the store's folder is read or removed."""
    (folder / "states" / "link").symlink_to(folder)
    store = FolderStore(folder / "states")
    with reading(folder / "places.json"):
        places = list(read_json_object(folder / "places.json")["places"])
    for place in places:
        with suppress(RayflError):
            found = os.path.realpath(inside(folder / "states", place, "places.json", DataError))
            assert found.startswith(os.path.realpath(folder / "states") + os.sep), found
        with suppress(RayflError):
            store.read(Stored(hashlib.sha256(b"").hexdigest(), place))  # the digest of the canary
        with suppress(RayflError):
            store.remove([place])
    assert (folder / "canary").is_file(), "a file outside was removed"


def _records(folder: Path) -> None:
    run = folder / "run"
    read_status(run)
    archive = RunArchive(run)
    _ = archive.metrics, archive.code, archive.data_digests, archive.trace_digests, archive.weights, archive.place
    FinishedRun.read(GridPlace("grid", "row", "column", 0), run)
    of_run = RunFolder.read(run)
    _ = of_run.provenance, of_run.headline, of_run.clients, of_run.rounds, of_run.models
    version_notes([read_run(run)])


def _npz(folder: Path) -> None:
    for file in sorted(folder.glob("*.npz")):
        _all_of(npz_file.load_npz_file("files", file))


def _columns(folder: Path) -> None:
    path = folder / "people"
    for inputs, label in (("vector", "city"), ("words", "age"), ("image", "city"), (("age",), ("age",))):
        _all_of(parquet_folder.load_parquet_folder("files", 0, path, inputs, label, "owner", "part"))


def _arrow(folder: Path) -> None:
    path = folder / "people.arrow"
    for label in ("city", "age"):
        _all_of(arrow_file.load_arrow_file("files", 0, path, "vector", label, "owner", "part"))


def _prepared(folder: Path) -> None:
    for cached in (fragments._stored_rows, fragments._manifest, fragments.mapped_labels):
        cached.cache_clear()  # the folder had other content before
    _all_of(prepared_data.load_prepared("files", folder / "it"))
    prepared_data.verify(folder / "it")


def _prepared_signed_again(folder: Path) -> None:
    """As if whoever damaged a file had also written the digests of what it has now."""
    whole = folder / "it"
    with suppress(ValueError, RecursionError, LookupError, TypeError, AttributeError):
        manifest = json.loads((whole / MANIFEST).read_text())
        files = [part for one in manifest["sets"].values() for part in (one["labels"], *one["fragments"])]
        for one in (manifest["index"], *files):
            file = whole / str(one["file"])
            if file in whole.iterdir() and file.stat().st_size:
                one |= StoredFile.of(file, file.name).model_dump()
        (whole / MANIFEST).write_text(json.dumps(manifest))
    _prepared(folder)


def _images(folder: Path) -> None:
    _all_of(image_folder.load_image_folder("files", folder / "cache", 0, folder / "images", 8))


def _images_on_disk(folder: Path) -> None:
    _all_of(image_folder.load_image_folder("files", folder / "cache", 0, folder / "images", 8, keep="disk"))


def _torchvision(folder: Path) -> None:
    _all_of(torchvision_class.load_torchvision("files", folder, "FashionMNIST"))


def _all_of(dataset: Dataset) -> None:
    """Also reads parts that stay on disk."""
    for samples in dataset.parts.values():
        for part in named_parts(samples.x).values():
            _ = part[:]


TARGETS: Mapping[str, Target] = {
    "scenario": Target(valid_runs.scenario, _scenario, names_file=False),
    "scenario tables": Target(valid_runs.tables, _tables, names_file=False),
    "overrides": Target(valid_runs.overrides, _overrides, names_file=False),
    "grid": Target(valid_runs.grid, _grid, also_named=["grid '"]),
    "checkpoint": Target(valid_runs.unfinished_run, _checkpoints, "run/checkpoints/round-*.json"),
    "state": Target(valid_runs.states, _states),
    "places": Target(valid_runs.places, _places, "places.json"),
    "resumed run": Target(valid_runs.unfinished_run, valid_runs.resumed, "run/**/*", names_file=False),
    "records": Target(valid_runs.finished_run, _records, "run/*.*", also_named=["scenario 'scenario'"]),
    "weights": Target(valid_runs.weights, _weights),
    "cifar pickles": Target(valid_data.cifar_python, lambda root: cifar.load_cifar10("files", root, root, 0)),
    "cifar binary": Target(valid_data.cifar_binary, lambda root: cifar.load_cifar100("files", root, root, 0)),
    "cifar parquet": Target(valid_data.cifar_parquet, lambda root: cifar.load_cifar10("files", root, root, 0)),
    "idx": Target(lambda root: valid_data.idx(root, ""), lambda root: fashion_mnist.load("files", root, root, 0)),
    "idx.gz": Target(valid_data.idx, lambda root: fashion_mnist.load("files", root, root, 0)),
    "femnist parquet": Target(valid_data.femnist_parquet, lambda root: femnist.load("files", root, root, 0)),
    "femnist leaf": Target(valid_data.femnist_leaf, lambda root: femnist.load("files", root, root, 0)),
    "shakespeare leaf": Target(valid_data.shakespeare_leaf, lambda root: shakespeare.load("files", root, 0)),
    "shakespeare text": Target(valid_data.shakespeare_gutenberg, lambda root: shakespeare.load("files", root, 0)),
    "shakespeare parquet": Target(valid_data.shakespeare_parquet, lambda root: shakespeare.load("files", root, 0)),
    "sent140": Target(valid_data.sent140, lambda root: sent140.load("files", root, 0, root / "tokenizer", 8)),
    "texts": Target(valid_data.texts, lambda root: penn_treebank.load_penn_treebank("files", root, 0)),
    "images": Target(valid_data.images, _images),
    "images on disk": Target(valid_data.images, _images_on_disk),
    "tiny imagenet": Target(
        valid_data.tiny_imagenet, lambda root: tiny_imagenet.load("files", root, root / "cache", 0)
    ),
    "pacs": Target(valid_data.pacs, lambda root: pacs.load("files", root, root / "cache", 0, ("sketch",), 32)),
    "cityscapes": Target(valid_data.cityscapes, lambda root: cityscapes.load("files", root, 0)),
    "chest x-ray": Target(valid_data.chest_xray, lambda root: chest_xray.load("files", root, root / "cache", 0, 32)),
    "inaturalist": Target(
        valid_data.inaturalist, lambda root: inaturalist.load("files", root, root / "cache", 0, size=32)
    ),
    "parquet folder": Target(valid_data.parquet_folder, _columns, also_named=["parquet_folder people"]),
    "arrow file": Target(valid_data.arrow_file, _arrow),
    "prepared data": Target(valid_data.prepared, _prepared, also_named=["valid_data:people"]),
    "prepared, signed": Target(valid_data.prepared, _prepared_signed_again, also_named=["valid_data:people"]),
    "preparation": Target(lambda root: valid_data.prepared(root, 3), valid_data.prepared),
    "npz": Target(valid_data.npz, _npz),
    "hugging face": Target(
        valid_data.hugging_face,
        lambda root: _all_of(hugging_face.load_hugging_face("files", 0, path=root / "saved")),
        also_named=["huggingface saved"],
    ),
    "torchvision": Target(lambda root: valid_data.idx(root, ""), _torchvision),
}
