"""Files of data sets: default folders for data and caches, where each data set is looked for, and digests.

Where rayfl looks for files is known without reading them; a file that is read comes with the digest for the records of
a run.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rayfl.errors import DataError
from rayfl.files import reading

_HOME = "~/.cache/rayfl"


def data_folder(named: str | Path | None = None) -> Path:
    """The folder with real data.

    Args:
        named: A folder named by the user. By default `$RAYFL_DATA` or `~/.cache/rayfl/data`, which need not exist.

    Raises:
        DataError: The named folder does not exist.
    """
    if named is None:
        return Path(os.environ.get("RAYFL_DATA") or f"{_HOME}/data").expanduser()
    named = os.path.expanduser(named)  # noqa: PTH111 - no error for a user that does not exist
    if not os.path.isdir(named):  # noqa: PTH112 - unlike Path.is_dir, also false for a name that is too long
        raise DataError(f"--data-dir: there is no folder '{named}'")
    return Path(named)


def cache_folder() -> Path:
    """The folder for files that can be regenerated: `$RAYFL_CACHE` or `~/.cache/rayfl`; it need not exist."""
    return Path(os.environ.get("RAYFL_CACHE") or _HOME).expanduser()


@dataclass(frozen=True)
class KnownFiles:
    """The files of one data set.

    Attributes:
        title: Name of the data set in messages.
        patterns: Globs below the data folder. The source reads files if any of them matches.
        get: How to get the files; `{folder}` is the data folder.
        generated: Whether rayfl generates a stand-in if there are no files.
    """

    title: str
    patterns: tuple[str, ...]
    get: str
    generated: bool = True

    def found(self, data_dir: Path) -> Path | None:
        """The first file or folder of the data set; None if there is none."""
        return next((path for pattern in self.patterns for path in sorted(data_dir.glob(pattern))), None)


_DOWNLOAD = "python -m rayfl.data.download {name} --data-dir {{folder}}"
_LEAF = ("train/*.json", "test/*.json", "data/train/*.json", "data/test/*.json")


def _below(folder: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{folder}/{name}" for name in names)


def _cifar(name: str, folder: str) -> tuple[str, ...]:
    forms = (f"{folder}-{'batches-py' if name == 'cifar10' else 'python'}", f"{folder}-{_BINARY[name]}")
    return (*_below(name, *forms), *forms, f"{name}/{name}*.parquet")


_BINARY = {"cifar10": "batches-bin", "cifar100": "binary"}
_RAW = "FashionMNIST/raw/train-images-idx3-ubyte*"

KNOWN: Mapping[str, KnownFiles] = {
    "cifar10": KnownFiles("CIFAR-10", _cifar("cifar10", "cifar-10"), _DOWNLOAD.format(name="cifar10")),
    "cifar100": KnownFiles("CIFAR-100", _cifar("cifar100", "cifar-100"), _DOWNLOAD.format(name="cifar100")),
    "femnist": KnownFiles("FEMNIST", _below("femnist", "femnist.parquet", *_LEAF), _DOWNLOAD.format(name="femnist")),
    "fashion_mnist": KnownFiles(
        "Fashion-MNIST", (f"fashion-mnist/{_RAW}", _RAW), _DOWNLOAD.format(name="fashion_mnist")
    ),
    "shakespeare": KnownFiles(
        "Shakespeare",
        _below("shakespeare", *_LEAF, "100.txt", "raw_data.txt", "shakespeare*.parquet"),
        "unpack www.gutenberg.org/files/100/old/1994-01-100.zip in {folder}/shakespeare",
    ),
    "tiny_imagenet": KnownFiles(
        "Tiny-ImageNet",
        ("tiny_imagenet/tiny-imagenet-200", "tiny-imagenet-200"),
        "unpack cs231n.stanford.edu/tiny-imagenet-200.zip in {folder}/tiny_imagenet",
    ),
    "imagenet": KnownFiles(
        "ImageNet-1K", ("imagenet/train",), "unpack ILSVRC 2012's training images to {folder}/imagenet/train", False
    ),
    "pacs": KnownFiles(
        "PACS",
        tuple(f"{folder}/{inner}photo" for folder in ("pacs", "PACS") for inner in ("", "kfold/", "images/", "PACS/")),
        "unpack PACS from sketchx.eecs.qmul.ac.uk/downloads in {folder}/pacs",
    ),
    "cityscapes": KnownFiles(
        "Cityscapes",
        ("cityscapes/leftImg8bit",),
        "unpack leftImg8bit_trainvaltest.zip and gtFine_trainvaltest.zip from cityscapes-dataset.com in "
        "{folder}/cityscapes",
    ),
    "inaturalist": KnownFiles(
        "iNaturalist-2017",
        ("inaturalist/federated_train_*.csv",),
        "put google-research's federated_vision_datasets tables and iNaturalist-2017's images in {folder}/inaturalist",
    ),
    "sent140": KnownFiles(
        "Sentiment140",
        _below("sent140", *_LEAF),
        "copy the output of LEAF's data/sent140/preprocess.sh to {folder}/sent140",
    ),
    "penn_treebank": KnownFiles(
        "Penn Treebank",
        ("penn_treebank/ptb.train.txt",),
        "put ptb.train.txt and ptb.test.txt of Mikolov's simple-examples.tgz in {folder}/penn_treebank",
    ),
    "chest_xray": KnownFiles(
        "chest X-rays",
        ("chest_xray/train",),
        "unpack ChestXRay2017.zip from data.mendeley.com/datasets/rscbjbr9sj in {folder}",
    ),
}
"""The registered data sets that rayfl reads from files, by name."""

WHOLE: Mapping[str, tuple[int, int]] = {
    "cifar10": (50_000, 10_000),
    "cifar100": (50_000, 10_000),
    "fashion_mnist": (60_000, 10_000),
    "tiny_imagenet": (100_000, 10_000),
    "cityscapes": (2_975, 500),
    "inaturalist": (120_300, 35_641),
}
"""Training and test samples of data sets that have one whole, by name."""


def is_subset(name: str, found: Path) -> bool:
    """Whether the footer of a Parquet file counts fewer samples than the whole data set has.

    Only reading tells whether other forms are whole, or what is wrong with a damaged file.

    Args:
        name: The data set.
        found: The file or folder that was found for it.
    """
    if name not in WHOLE or found.suffix != ".parquet":
        return False
    from pyarrow import ArrowException, parquet  # its loading takes longer than all else here

    try:
        return bool(parquet.read_metadata(found).num_rows < sum(WHOLE[name]))
    except (ArrowException, OSError):
        return False


FileDigest = tuple[str, str]
"""Path of a file and its sha256 in hexadecimal."""


def read_file(file: Path) -> tuple[bytes, FileDigest]:
    """Reads the content of a file and computes its digest.

    Raises:
        DataError: The file cannot be read; names it.
    """
    with reading(file):
        content = file.read_bytes()
    return content, (str(file), hashlib.sha256(content).hexdigest())


def digest_of(file: Path) -> FileDigest:
    """Computes the digest of a file without keeping its content.

    Raises:
        DataError: The file cannot be read; names it.
    """
    with reading(file), file.open("rb") as content:
        return str(file), hashlib.file_digest(content, "sha256").hexdigest()
