"""FEMNIST: handwritten characters by writer, one writer one natural client.

Polarity is LEAF's: white background (255), dark ink towards 0, the opposite of MNIST. Labels 0-9 are digits,
10-35 upper case, 36-61 lower case.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Literal

from rayfl.data import handwriting
from rayfl.data.dataset import Dataset, Provenance
from rayfl.data.leaf_json import find_leaf, read_leaf
from rayfl.data.prepared import CLASSES, WrittenImages, read_prepared
from rayfl.errors import DataError

_POLARITY = "LEAF's polarity: white background (255), dark ink"


def load(
    source: Literal["auto", "files", "generated"],
    data_dir: Path,
    cache_dir: Path,
    seed: int,
    clients: int | None = None,
) -> Dataset:
    """FEMNIST with all writers of its files, or generated handwriting in its place.

    Looks for `data_dir`/femnist/femnist.parquet (see `rayfl.data.prepared`), then for LEAF's JSON under
    `data_dir`/femnist and `data_dir`/femnist/data.

    source: "files" reads the files or fails; "generated" makes `clients` writers (190 where None); "auto" reads
        the files where there are any and otherwise generates.

    Returns:
        x [n, 28, 28, 1] uint8, y [n] int64 in 0..61, natural clients in the order of sorted writer ids.

    Raises:
        DataError: no files where `source` is "files", or damaged ones (named).
    """
    found = None if source == "generated" else _read(data_dir / "femnist")
    if found is not None:
        written, provenance = found
        return written.dataset("femnist", CLASSES, provenance)
    if source == "files":
        raise DataError(f"FEMNIST is not in {data_dir / 'femnist'}: {_looked_for(data_dir)}")
    return _generated(source, data_dir, cache_dir, seed, clients)


def _looked_for(data_dir: Path) -> str:
    return (
        "looked for femnist.parquet, train/*.json with test/*.json, and the same under data/; get it with "
        f"`python -m rayfl.data.download femnist --data-dir {data_dir}`, or from LEAF's JSON folders with "
        f"`python -m rayfl.data.prepare femnist LEAF_FOLDER {data_dir / 'femnist' / 'femnist.parquet'}`"
    )


def _read(folder: Path) -> tuple[WrittenImages, Provenance] | None:
    parquet = folder / "femnist.parquet"
    leaf = find_leaf(folder)
    if parquet.exists():
        try:
            content = parquet.read_bytes()
        except OSError as error:
            raise DataError(f"{parquet}: cannot be read ({error.strerror})") from error
        written = read_prepared(parquet, content)
        files: tuple[tuple[str, str], ...] = ((str(parquet), hashlib.sha256(content).hexdigest()),)
    elif leaf is not None:
        written, files = read_leaf(leaf)
    else:
        return None
    return written, Provenance("files", f"FEMNIST, {len(written.names)} writers; {_POLARITY}", files)


def _generated(source: str, data_dir: Path, cache_dir: Path, seed: int, clients: int | None) -> Dataset:
    dataset = handwriting.load(cache_dir, seed, clients)
    why = "as asked" if source == "generated" else f"no files in {data_dir / 'femnist'}"
    description = (
        f"NOT FEMNIST but GENERATED HANDWRITING standing in for it ({why}); get the real data with "
        f"`python -m rayfl.data.download femnist --data-dir {data_dir}`. This is {dataset.provenance.description}"
    )
    return replace(dataset, name="femnist", provenance=Provenance("generated", description))
