"""iNaturalist-GEO: photographs of 1203 kinds of plants and animals, with one natural client per region.

Hsu et al., "Federated Visual Classification with Real-World Data Distribution", ECCV 2020: 120 300 training and 35 641
test images of iNaturalist-2017; tables assign them to clients (39 in GEO-10K, 136 in GEO-3K).
"""

from __future__ import annotations

import csv
import io
import os
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from rayfl.data.dataset import Dataset, NaturalClients, Provenance, Samples, Shards
from rayfl.data.files import WHOLE, FileDigest, read_file
from rayfl.data.formats.image_files import Keep, decoded
from rayfl.data.generated import digits
from rayfl.data.inputs import Array, taken
from rayfl.data.sources.stand_in import Source, files_or_generated
from rayfl.errors import DataError
from rayfl.files import reading, relative
from rayfl.streams import stream

CLASSES = 1203
_WHOLE = WHOLE["inaturalist"]
_STAND_IN = 3000
_CLIENTS = {"geo_10k": 39, "geo_3k": 136}


def load(
    source: Source,
    data_dir: Path,
    cache_dir: Path,
    seed: int,
    split: Literal["geo_10k", "geo_3k"] = "geo_3k",
    size: Annotated[int, Field(ge=32, le=1024)] = 224,
    keep: Keep = "memory",
) -> Dataset:
    """Reads iNaturalist-GEO from its tables and images, or generates digits instead.

    Looks in `data_dir`/inaturalist for federated_train_geo_3k.csv (user_id, image_id, class) or the table of another
    split, for test.csv (image_id, class), and for images/IMAGE_ID.jpg.

    Args:
        source: "files" reads the files or fails; "generated" makes handwritten digits for the same number of clients;
            "auto" reads the files if it finds any and otherwise generates.
        split: The table of clients.
        size: Images are cropped to the central square and scaled to size x size pixels.
        keep: "memory" holds the decoded images (24 GB for the full set at 224 x 224), and caches them in `cache_dir`;
            "disk" decodes them for every batch, from files at the same paths on every node, with the same results.

    Returns:
        x [n, size, size, 3] uint8, y [n] int64 in 0..1202, the users as natural clients, sorted.

    Raises:
        DataError: `source` is "files" and there are no tables, a table lacks these columns, a row has no image, a class
            is not a number in 0..1202, or an image cannot be read (named).
    """
    folder = data_dir / "inaturalist"
    tables = folder / f"federated_train_{split}.csv", folder / "test.csv"
    return files_or_generated(
        source,
        title="iNaturalist-GEO",
        kind="handwritten digits",
        folders=[folder],
        looked_for=f"{tables[0].name}, test.csv and images/",
        get=(
            "get it from google-research's federated_vision_datasets (the tables) and iNaturalist-2017 (the images), "
            f"in {folder}"
        ),
        read=lambda: _read(folder, tables, size, cache_dir, keep) if tables[0].exists() else None,
        generate=lambda: _generated(split, size, cache_dir, seed),
    )


def _read(folder: Path, tables: tuple[Path, Path], size: int, cache_dir: Path, keep: Keep) -> Dataset:
    train_rows, train_digest = _rows(tables[0], ("user_id", "image_id", "class"))
    test_rows, test_digest = _rows(tables[1], ("image_id", "class"))
    files, labels = [], []
    for table, rows in ((tables[0], train_rows), (tables[1], test_rows)):
        for number, row in enumerate(rows, start=2):
            files.append(_image(folder, row["image_id"], f"{table}: line {number}"))
            labels.append(_label(row["class"], f"{table}: line {number}"))
    every = decoded(folder, files, size, cache_dir, "inaturalist", keep)
    names, owner = np.unique([row["user_id"] for row in train_rows], return_inverse=True)
    counts = f"{len(train_rows)} training and {len(test_rows)} test images"
    if (len(train_rows), len(test_rows)) != _WHOLE:
        counts = f"a subset: {counts} of the {_WHOLE[0]} and {_WHOLE[1]}"
    digests = train_digest, test_digest, (f"{folder}: the sha256 of the sha256 of its images", every.sha256)
    provenance = Provenance("files", f"iNaturalist, {tables[0].stem}, {counts}; {size} x {size} pixels", digests)
    return _dataset(every.images, np.array(labels, np.int64), owner, names.tolist(), provenance)


def _rows(table: Path, columns: tuple[str, ...]) -> tuple[list[dict[str, str]], FileDigest]:
    content, digest = read_file(table)
    with reading(table, "as CSV"):
        reader = csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline=""), strict=True)
        rows = list(reader)
    if missing := [column for column in columns if column not in (reader.fieldnames or ())]:
        raise DataError(f"{table}: has no column '{missing[0]}'; expected {', '.join(columns)}")
    if not rows:
        raise DataError(f"{table}: has no rows")
    return rows, digest


def _image(folder: Path, image: str | None, where: str) -> Path:
    file = folder / "images" / relative(f"{image}.jpg", where, DataError)
    if not image or not os.path.isfile(file):  # noqa: PTH113 - unlike Path.is_file, also false for a name that is too long
        raise DataError(f"{where}: no image {file}; get it, or remove the row from the table")
    return file


def _label(text: str | None, where: str) -> int:
    if not text or not text.isdecimal() or int(text) >= CLASSES:
        raise DataError(f"{where}: class {text!r} is not a number in 0..{CLASSES - 1}")
    return int(text)


def _generated(split: str, size: int, cache_dir: Path, seed: int) -> Dataset:
    side, clients = -(-size // 32) * 32, _CLIENTS[split]
    rng = stream(seed, "generate", 1, clients)
    images, label, _ = digits.generate_styled(
        cache_dir, seed, 10, side, lambda number: rng.permutation(number)[:_STAND_IN]
    )
    n = len(label) * 4 // 5
    owner = np.concatenate([np.arange(clients), rng.integers(clients, size=n - clients)])
    names = [f"{number:03}" for number in range(clients)]
    description = f"Handwritten digits of {digits.STYLED_WRITERS} writers in four styles, seed {seed}, dealt at random"
    provenance = Provenance("generated", description)
    return _dataset(images[:, :size, :size], label, owner, names, provenance)


def _dataset(images: Array, labels: np.ndarray, owner: np.ndarray, names: list[str], provenance: Provenance) -> Dataset:
    """Builds the data set; the first images, which have owners, are for training."""
    n = len(owner)
    natural = NaturalClients(tuple(names), Shards.by_owner(owner, len(names)), None)
    train, test = (Samples(taken(images, rows), labels[rows]) for rows in np.split(np.arange(len(labels)), [n]))
    return Dataset("inaturalist", train, test, CLASSES, provenance, natural)
