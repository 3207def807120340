"""Sources of any size, and the memory that preparing them takes, each in a process of its own.

`python -m tests.data.prepared.large written|prepared FOLDER MIB SOURCE PARTITION` prints the growth in MiB as JSON.
"""

from __future__ import annotations

import json
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image
from torch.utils.data import Dataset

from rayfl.__main__ import main as rayfl_command
from rayfl.cli.prepared_data import _scenario
from rayfl.data import batch_trial as batch_trial
from rayfl.data.prepared import writer as writer
from rayfl.data.sources import image_folder as image_folder
from rayfl.data.sources import own_files as own_files
from tests.data.prepared.measured import own_mib, watched

WIDTH, CLIENTS, CLASSES, AT_ONCE, PIXELS = 1000, 200, 10, 4096, 256
HERE = "tests.data.prepared.large"


def rows_in(mib: int) -> int:
    return mib * 2**20 // 4 // WIDTH


def parts(mib: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Vectors, labels and owners, which are in no order."""
    rng = np.random.default_rng(0)
    for start in range(0, rows_in(mib), AT_ONCE):
        number = min(AT_ONCE, rows_in(mib) - start)
        yield (
            rng.random((number, WIDTH), np.float32),
            rng.integers(0, CLASSES, number),
            rng.integers(0, CLIENTS, number),
        )


def tables(mib: int) -> Iterator[pa.Table]:
    for x, y, owner in parts(mib):
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), WIDTH)
        yield pa.table({"x": vectors, "label": y, "site": owner})


def arrow_file(folder: Path, mib: int) -> None:
    writer = None
    for table in tables(mib):
        writer = writer or pa.ipc.new_file(str(folder / "source.arrow"), table.schema)
        writer.write_table(table)
    assert writer
    writer.close()


def parquet_folder(folder: Path, mib: int) -> None:
    (folder / "source").mkdir()
    for number, table in enumerate(tables(mib)):
        pq.write_table(table, folder / "source" / f"{number:05}.parquet")


def _npz(folder: Path, mib: int, compression: int) -> None:
    """Writes array by array what `numpy.savez` would write at once."""
    rows, tests = rows_in(mib), 100
    with zipfile.ZipFile(folder / "source.npz", "w", compression, compresslevel=1) as packed:
        for kind, place, shape in (("x", 0, (rows, WIDTH)), ("y", 1, (rows,)), ("owner", 2, (rows,))):
            for part, number in (("train", rows), ("test", tests)):
                if (part, kind) == ("test", "owner"):
                    continue
                with packed.open(f"{part}_{kind}.npy", "w", force_zip64=True) as file:
                    kept = [next(parts(mib))[place][:tests]] if part == "test" else (one[place] for one in parts(mib))
                    first = next(iter(parts(1)))[place]
                    header = {"descr": first.dtype.str, "fortran_order": False, "shape": (number, *shape[1:])}
                    np.lib.format.write_array_header_1_0(file, header)
                    for values in kept:
                        file.write(np.ascontiguousarray(values).tobytes())


def npz_file(folder: Path, mib: int) -> None:
    _npz(folder, mib, zipfile.ZIP_STORED)


def npz_packed(folder: Path, mib: int) -> None:
    _npz(folder, mib, zipfile.ZIP_DEFLATED)


def images(folder: Path, mib: int) -> None:
    rng = np.random.default_rng(0)
    for number in range(mib * 2**20 // (3 * PIXELS * PIXELS)):
        file = folder / "source" / f"site{number % 7}" / f"class{number % 3}" / f"{number:06}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.repeat(np.repeat(rng.integers(0, 256, (8, 8, 3), np.uint8), PIXELS // 8, 0), PIXELS // 8, 1)
        Image.fromarray(pixels).save(file)


def nothing(folder: Path, mib: int) -> None:
    """For sources that make their values."""


class Items(Dataset[tuple[np.ndarray, int]]):
    """A PyTorch Dataset that makes an item when it is read."""

    def __init__(self, number: int) -> None:
        self.targets = np.arange(number) % CLASSES

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, row: int) -> tuple[np.ndarray, int]:
        return np.full(WIDTH, row, np.float32), int(self.targets[row])


class Sites:
    """Clients whose samples are drawn."""

    def __init__(self, number: int) -> None:
        self._number = number

    def sizes(self) -> np.ndarray:
        return np.full(CLIENTS, self._number // CLIENTS)

    def load(self, client: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        number = self._number // CLIENTS
        return rng.random((number, WIDTH), np.float32), np.arange(number) % CLASSES


def items(mib: int) -> dict[str, Any]:
    return {"train": Items(rows_in(mib)), "test": Items(100)}


def sites(mib: int) -> dict[str, Any]:
    return {"train": Sites(rows_in(mib)), "test": (np.zeros((100, WIDTH), np.float32), np.arange(100) % CLASSES)}


def arguments(source: str, partition: str, folder: Path, mib: int) -> list[str]:
    """What follows `rayfl data prepare`."""
    path, columns = f"data.options.path={folder}/source", [f"data.options.{one}" for one in ("inputs=x", "label=label")]
    owner = ["data.options.owner=site"] if partition == "natural" else []
    name, options = {
        "arrow_file": ("arrow_file", [f"{path}.arrow", *columns, *owner]),
        "parquet_folder": ("parquet_folder", [path, *columns, *owner]),
        "npz_file": ("npz_file", [f"{path}.npz"]),
        "npz_packed": ("npz_file", [f"{path}.npz"]),
        "images": ("image_folder", [path, f"data.options.size={PIXELS}"]),
        "items": (f"{HERE}:items", [f"data.options.mib={mib}"]),
        "sites": (f"{HERE}:sites", [f"data.options.mib={mib}"]),
    }[source]
    beta = ["data.partition.beta=0.5"] if partition == "dirichlet" else []
    split = [] if partition == "natural" else [f"data.clients={CLIENTS}", f"data.partition.name={partition}", *beta]
    return [name, str(folder / "prepared"), *options, *split]


WRITERS = {
    "arrow_file": arrow_file, "parquet_folder": parquet_folder, "npz_file": npz_file, "npz_packed": npz_packed,
    "images": images, "items": nothing, "sites": nothing,
}  # fmt: skip


def main(step: str, folder: Path, mib: int, source: str, partition: str) -> float | None:
    if step == "written":
        WRITERS[source](folder, mib)
        return None
    words = arguments(source, partition, folder, mib)
    _scenario(words[0], words[2:])  # loads what both a small and a large source need
    before, status = own_mib(psutil.Process()), list[int]()
    peaks = watched(lambda: status.append(rayfl_command(["data", "prepare", *words])))
    assert status == [0]
    return peaks["driver"] - before


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])))
