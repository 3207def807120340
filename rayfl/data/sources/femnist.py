"""FEMNIST: handwritten characters, with one natural client per writer.

The polarity is that of LEAF: white background (255), dark ink towards 0, the opposite of MNIST. Labels 0-9 are digits,
10-35 upper case, 36-61 lower case.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rayfl.data.dataset import Dataset, Provenance
from rayfl.data.files import FileDigest, read_file
from rayfl.data.formats.leaf import CLASSES, find_leaf, read_leaf, read_prepared
from rayfl.data.generated import handwriting
from rayfl.data.sources.stand_in import Source, files_or_generated

_POLARITY = "LEAF's polarity: white background (255), dark ink"


def load(
    source: Source,
    data_dir: Path,
    cache_dir: Path,
    seed: int,
    clients: int | None = None,
) -> Dataset:
    """Reads FEMNIST with all its writers from files, or generates handwriting instead.

    Looks for `data_dir`/femnist/femnist.parquet (see `rayfl.data.formats.leaf`), then for the JSON files of
    LEAF under `data_dir`/femnist and `data_dir`/femnist/data.

    Args:
        source: "files" reads the files or fails; "generated" makes `clients` writers (190 if None); "auto" reads the
            files if it finds any and otherwise generates.

    Returns:
        x [n, 28, 28, 1] uint8, y [n] int64 in 0..61, natural clients in the order of sorted writer ids.

    Raises:
        DataError: `source` is "files" and there are none, or a file is damaged (named).
    """
    folder = data_dir / "femnist"
    return files_or_generated(
        source,
        title="FEMNIST",
        kind="handwriting",
        folders=[folder],
        looked_for=(
            "femnist.parquet, train/*.json with test/*.json, and the same under data/ (`python -m rayfl.data.prepare "
            f"femnist LEAF_FOLDER {folder / 'femnist.parquet'}` makes the first from LEAF's JSON)"
        ),
        get=f"get it with `python -m rayfl.data.download femnist --data-dir {data_dir}`",
        read=lambda: _read(folder),
        generate=lambda: _generated(cache_dir, seed, clients),
    )


def _read(folder: Path) -> Dataset | None:
    parquet = folder / "femnist.parquet"
    leaf = find_leaf(folder)
    if parquet.exists():
        content, digest = read_file(parquet)
        written = read_prepared(parquet, content)
        files: tuple[FileDigest, ...] = (digest,)
    elif leaf is not None:
        written, files = read_leaf(leaf)
    else:
        return None
    provenance = Provenance("files", f"FEMNIST, {len(written.names)} writers; {_POLARITY}", files)
    return written.dataset("femnist", CLASSES, provenance)


def _generated(cache_dir: Path, seed: int, clients: int | None) -> Dataset:
    dataset = handwriting.load(cache_dir, seed, clients)
    return replace(dataset, name="femnist")
