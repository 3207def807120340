"""Tiny-ImageNet: 64x64 colour photographs of 200 ImageNet classes, no natural clients.

Le and Yang, "Tiny ImageNet Visual Recognition Challenge", Stanford CS 231N, 2015. The validation images are the test
samples, since the labels of the test images were never published.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from rayfl.data.dataset import Dataset, Provenance, Samples
from rayfl.data.files import WHOLE, read_file
from rayfl.data.formats.image_files import decoded, image_files
from rayfl.data.generated import digits
from rayfl.data.sources.stand_in import Source, files_or_generated
from rayfl.errors import DataError
from rayfl.files import reading, relative

CLASSES = 200
SIDE: Literal[64] = 64
_FOLDER = "tiny-imagenet-200"
_WHOLE = WHOLE["tiny_imagenet"]


def load(
    source: Source,
    data_dir: Path,
    cache_dir: Path,
    seed: int,
    size: Literal[32, 64] = SIDE,
) -> Dataset:
    """Reads Tiny-ImageNet from its folder, or generates coloured digits instead.

    Looks for tiny-imagenet-200 in `data_dir` and in `data_dir`/tiny_imagenet. Classes are numbered in the order of
    wnids.txt. The images are decoded once and cached in `cache_dir` (1.3 GB for the full set).

    Args:
        source: "files" reads the files or fails; "generated" makes handwritten digits of many colours; "auto" reads the
            files if it finds any and otherwise generates.
        size: Images are scaled to size x size pixels; NIID-Bench uses 32 x 32.

    Returns:
        x [n, size, size, 3] uint8, y [n] int64 in 0..199; the full set has 100000 training and 10000 test images.

    Raises:
        DataError: `source` is "files" and there is no folder, a file or class is missing, or a file is damaged (named).
    """
    folders = [data_dir / "tiny_imagenet", data_dir]
    return files_or_generated(
        source,
        title="Tiny-ImageNet",
        kind="coloured digits",
        folders=folders,
        looked_for=f"{_FOLDER}/",
        get=f"get it from cs231n.stanford.edu/tiny-imagenet-200.zip, unpacked in {folders[0]}",
        read=lambda: _read(folders, size, cache_dir),
        generate=lambda: _generated(size, cache_dir, seed),
    )


def _generated(size: Literal[32, 64], cache_dir: Path, seed: int) -> Dataset:
    train, test = digits.generate_coloured(cache_dir, seed, classes=200, side=size)
    description = (
        f"Handwritten digits of {digits.COLOURED_WRITERS} writers, seed {seed}; a class is a digit in one of ten "
        "colours on dark or light"
    )
    return Dataset("tiny_imagenet", train, test, CLASSES, Provenance("generated", description))


def _read(folders: Sequence[Path], size: int, cache_dir: Path) -> Dataset | None:
    folder = next((place / _FOLDER for place in folders if (place / _FOLDER).is_dir()), None)
    if folder is None:
        return None
    lists = [folder / "wnids.txt", folder / "val" / "val_annotations.txt"]
    wnids, annotations = ([line.split() for line in _lines(file)] for file in lists)
    label_of = {words[0]: label for label, words in enumerate(wnids)}
    if len(label_of) != CLASSES:
        raise DataError(f"{lists[0]}: names {len(label_of)} classes, not {CLASSES}")
    train_files: list[Path] = []
    train_labels: list[int] = []
    for wnid, label in label_of.items():
        images = folder / "train" / wnid / "images"
        class_files = image_files(images) if images.is_dir() else []
        if not class_files:
            raise DataError(f"{images}: has no images; {lists[0].name} names this class")
        train_files += class_files
        train_labels += [label] * len(class_files)
    for number, words in enumerate(annotations, start=1):
        if len(words) < 2 or words[1] not in label_of:
            raise DataError(f"{lists[1]}: line {number} is not a file and one of the classes of {lists[0].name}")
    images = folder / "val" / "images"
    test_files = [images / relative(words[0], lists[1], DataError) for words in annotations]
    test_labels = [label_of[words[1]] for words in annotations]
    both = decoded(folder, train_files + test_files, size, cache_dir, "tiny_imagenet")
    n = len(train_files)
    train = Samples(both.images[:n], np.array(train_labels, np.int64))
    test = Samples(both.images[n:], np.array(test_labels, np.int64))
    counts = f"{n} training and {len(test)} test images"
    if (n, len(test)) != _WHOLE:
        counts = f"a subset: {counts} of the {_WHOLE[0]} and {_WHOLE[1]}"
    files = [read_file(file)[1] for file in lists]
    files.append((f"{folder}: the sha256 of the sha256 of its {n + len(test)} images", both.sha256))
    if size != SIDE:
        counts += f" scaled to {size} x {size}"
    provenance = Provenance("files", f"Tiny-ImageNet, {counts}, tested on its validation images", tuple(files))
    return Dataset("tiny_imagenet", train, test, CLASSES, provenance)


def _lines(file: Path) -> list[str]:
    with reading(file):
        return [line for line in file.read_text("utf-8").splitlines() if line.strip()]
