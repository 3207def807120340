"""`python -m rayfl.data.download NAME [--data-dir DIR]`: downloads real data to the data folder.

FEMNIST comes from Hugging Face (`flwrlabs/femnist`), with all writers in one table without a split. Columns: `image` (a
struct with the bytes of a PNG), `writer_id` string, `hsf_id`, `character` (0-61 in the label order of LEAF). The hub
publishes the sha256 of its large files, as in git LFS; each is checked.
"""

from __future__ import annotations

import argparse
import hashlib
import http.client
import io
import json
import re
import sys
import tempfile
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image
from rich.progress import wrap_file

from rayfl.data.files import data_folder
from rayfl.data.formats.leaf import CLASSES, SIDE, WrittenImages, write_prepared
from rayfl.data.formats.parquet import sorted_by_name
from rayfl.data.prepare import summary
from rayfl.errors import DataError
from rayfl.streams import stream

HUB = "https://huggingface.co"
DATASET = "flwrlabs/femnist"
_SECONDS = 60


@dataclass(frozen=True)
class HubFile:
    """A file of the data set, with its size in bytes and the sha256 published by the hub, in hexadecimal."""

    path: str
    size: int
    sha256: str


def list_files(base_url: str) -> list[HubFile]:
    """Lists the Parquet files of the data set, sorted by name.

    Raises:
        DataError: The hub does not answer, or lists no files or digests.
    """
    url = f"{base_url}/api/datasets/{DATASET}/tree/main/data"
    try:
        with urllib.request.urlopen(url, timeout=_SECONDS) as answer:
            entries = json.load(answer)
        files = [
            HubFile(entry["path"], int(entry["lfs"]["size"]), entry["lfs"]["oid"].removeprefix("sha256:"))
            for entry in entries
            if entry["path"].endswith(".parquet")
        ]
    except (OSError, http.client.HTTPException) as error:
        raise _unreachable(url, error) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{url}: does not list files with their digests as expected; {_BY_HAND}") from error
    if not files or not all(re.fullmatch("[0-9a-f]{64}", file.sha256) for file in files):
        raise DataError(f"{url}: lists no Parquet files with a sha256; {_BY_HAND}")
    return sorted(files, key=lambda file: file.path)


def fetch(base_url: str, file: HubFile, target: Path) -> None:
    """Downloads a file to `target` and checks its sha256.

    Raises:
        DataError: The hub does not answer, or the sha256 does not match.
    """
    url = f"{base_url}/datasets/{DATASET}/resolve/main/{urllib.parse.quote(file.path)}"
    digest = hashlib.sha256()
    try:
        with (
            urllib.request.urlopen(url, timeout=_SECONDS) as answer,
            wrap_file(answer, total=file.size, description=file.path) as chunks,
            target.open("wb") as out,
        ):
            while chunk := chunks.read(1 << 20):
                digest.update(chunk)
                out.write(chunk)
    except (OSError, http.client.HTTPException) as error:
        raise _unreachable(url, error) from error
    if digest.hexdigest() != file.sha256:
        raise DataError(f"{url}: its sha256 is {digest.hexdigest()}, but the hub lists {file.sha256}; try again")


def download(base_url: str = HUB) -> tuple[WrittenImages, list[HubFile]]:
    """Downloads the images of all writers with at least two, and splits them 90/10 per writer.

    The split is drawn from a fixed random stream, so the same files give the same split. Every writer has at least one
    training and one test image. The polarity is that of LEAF (white background).

    Raises:
        DataError: As for `list_files` and `fetch`, or files have another format or polarity.
    """
    files = list_files(base_url)
    with tempfile.TemporaryDirectory(prefix="rayfl-") as folder:
        tables = []
        for number, file in enumerate(files):
            target = Path(folder) / f"{number}.parquet"
            fetch(base_url, file, target)
            tables.append(_read(file, target))
    images = np.concatenate([images for images, _, _ in tables])
    labels = np.concatenate([labels for _, labels, _ in tables])
    ids = pa.chunked_array([chunk for _, _, column in tables for chunk in column.chunks], pa.string())
    return _with_split(ids, images, labels), files


def _read(file: HubFile, path: Path) -> tuple[np.ndarray, np.ndarray, pa.ChunkedArray]:
    """Images [n, 28, 28], labels [n] and the column of writer ids of one file."""
    where = f"{DATASET}/{file.path}"
    try:
        table = pq.ParquetFile(path)
        images = np.empty((table.metadata.num_rows, SIDE, SIDE), np.uint8)
        row = 0
        for batch in table.iter_batches(4096, columns=["image"]):
            for png in batch["image"].field("bytes"):
                images[row] = np.asarray(Image.open(io.BytesIO(png.as_py()), formats=("PNG",)).convert("L"))
                row += 1
        rest = table.read(columns=["writer_id", "character"])
        labels = rest["character"].to_numpy().astype(np.int64)
        ids = rest["writer_id"].cast(pa.string())
    except (pa.ArrowException, Image.DecompressionBombError, OSError, KeyError, TypeError, ValueError) as error:
        raise DataError(f"{where}: is not a table of image, writer_id and character as expected ({error})") from error
    if not len(labels) or labels.min() < 0 or labels.max() >= CLASSES:
        raise DataError(f"{where}: has labels outside 0..{CLASSES - 1}, or no rows")
    if np.median(images) < 128:
        raise DataError(f"{where}: images are bright on black, but FEMNIST in LEAF is dark on white")
    return images, labels, ids


def _with_split(ids: pa.ChunkedArray, images: np.ndarray, labels: np.ndarray) -> WrittenImages:
    """Drops writers with one image, like LEAF, because they cannot have both a training and a test image."""
    _, writer = sorted_by_name(ids)
    keep = np.bincount(writer)[writer] >= 2
    names, writer = sorted_by_name(ids.filter(pa.array(keep)))
    if not names:
        raise DataError(f"{DATASET}: no writer has two images")
    counts = np.bincount(writer)
    order = np.lexsort((stream(0, "generate").random(len(writer)), writer))
    place = np.empty(len(writer), np.int64)
    place[order] = np.arange(len(writer)) - np.repeat(np.cumsum(counts) - counts, counts)
    is_test = place < np.maximum(1, np.rint(counts / 10))[writer]
    return WrittenImages(names, writer, images[keep], labels[keep], is_test)


_BY_HAND = (
    "by hand: run this command on a machine with network access and copy femnist/femnist.parquet, or make it from "
    "LEAF's files with `python -m rayfl.data.prepare femnist LEAF_FOLDER OUT.parquet`"
)


def _unreachable(url: str, error: Exception) -> DataError:
    return DataError(f"cannot download {url} ({error}); {_BY_HAND}")


def download_femnist(data_dir: Path, base_url: str = HUB) -> Iterator[str]:
    """Downloads FEMNIST, checks its digests and prepares `data_dir`/femnist/femnist.parquet; yields progress messages.

    Raises:
        DataError: No network, a digest differs from the hub's, or the folder cannot be written to.
    """
    written, files = download(base_url)
    for file in files:
        yield f"checked {DATASET}/{file.path}, {file.size} bytes, sha256 {file.sha256}"
    yield "split 90 % / 10 % per writer by a fixed random stream, since the source has no split; not the split of LEAF"
    target = data_dir / "femnist" / "femnist.parquet"
    write_prepared(written, target)
    yield f"wrote {summary(written, target)}"


def download_fashion_mnist(data_dir: Path) -> Iterator[str]:
    """Downloads Fashion-MNIST with torchvision, which checks md5 sums, to `data_dir`/fashion-mnist.

    Raises:
        DataError: No network, an md5 sum differs, or the folder cannot be written to.
    """
    # torchvision takes seconds to import; FEMNIST does not need it.
    from torchvision.datasets import FashionMNIST

    root = data_dir / "fashion-mnist"
    try:
        FashionMNIST(str(root), train=True, download=True)
    except (RuntimeError, OSError) as error:
        names = ", ".join(name for name, _ in FashionMNIST.resources)
        raise DataError(
            f"cannot download Fashion-MNIST ({' '.join(str(error).split())}); by hand: put {names} "
            f"into {root / 'FashionMNIST' / 'raw'}"
        ) from error
    yield f"wrote {root / 'FashionMNIST' / 'raw'} (torchvision checked the md5 sums)"


def download_cifar(name: Literal["cifar10", "cifar100"], data_dir: Path) -> Iterator[str]:
    """Downloads the python version of CIFAR with torchvision, which checks its md5 sum, to `data_dir`/`name`.

    Raises:
        DataError: No network, the md5 sum differs, or the folder cannot be written to.
    """
    from torchvision.datasets import CIFAR10, CIFAR100
    from torchvision.datasets.utils import download_and_extract_archive

    its = {"cifar10": CIFAR10, "cifar100": CIFAR100}[name]
    root = data_dir / name
    try:
        # Not the class itself, which would un-pickle the unpacked files.
        download_and_extract_archive(its.url, str(root), filename=its.filename, md5=its.tgz_md5, remove_finished=True)
    except (RuntimeError, OSError) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"cannot download {name} ({reason}); by hand: unpack {its.filename} into {root}") from error
    yield f"wrote {root / its.base_folder} (torchvision checked the md5 sum)"


_COMMANDS: Mapping[str, Callable[[Path], Iterator[str]]] = {
    "femnist": download_femnist,
    "fashion_mnist": download_fashion_mnist,
    "cifar10": partial(download_cifar, "cifar10"),
    "cifar100": partial(download_cifar, "cifar100"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code, 2 after an error."""
    parser = argparse.ArgumentParser(
        prog="python -m rayfl.data.download",
        description="Download real data to the folder that rayfl reads.",
        epilog="example: python -m rayfl.data.download femnist --data-dir data",
    )
    parser.add_argument("data", choices=list(_COMMANDS))
    parser.add_argument("--data-dir", type=Path, default=data_folder(), help="default: $RAYFL_DATA or %(default)s")
    options = parser.parse_args(arguments)
    try:
        for step in _COMMANDS[options.data](options.data_dir):
            print(step)
    except DataError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
