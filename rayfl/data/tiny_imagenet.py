"""Tiny-ImageNet: 64x64 colour photographs of 200 of ImageNet's classes, no natural clients.

Le and Yang, "Tiny ImageNet Visual Recognition Challenge", Stanford CS 231N, 2015. The validation images are the test
examples: the labels of its own test folder were never published.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Literal

import numpy as np

from rayfl.data import coloured_digits
from rayfl.data.dataset import Dataset, Examples, Provenance
from rayfl.data.decoded import decoded, image_files
from rayfl.errors import DataError

CLASSES = 200
SIDE = 64
_WHOLE = (100000, 10000)


def load(source: Literal["auto", "files", "generated"], data_dir: Path, cache_dir: Path, seed: int) -> Dataset:
    """Tiny-ImageNet from its folder, or generated coloured digits in its place.

    Looks for tiny-imagenet-200 in `data_dir` and in `data_dir`/tiny_imagenet. Classes are numbered in the order of
    wnids.txt. The images are decoded once and kept in `cache_dir` (1.3 GB for the whole of it).

    source: "files" reads the files or fails; "generated" makes handwritten digits of many colours; "auto" reads the
        files where there are any and otherwise generates.

    Returns:
        x [n, 64, 64, 3] uint8, y [n] int64 in 0..199; 100000 training and 10000 test images in the whole of it.

    Raises:
        DataError: no folder where `source` is "files", a file or class that is missing, or a damaged one (named).
    """
    folders = (data_dir / "tiny_imagenet" / "tiny-imagenet-200", data_dir / "tiny-imagenet-200")
    if source != "generated":
        for folder in folders:
            if folder.is_dir():
                return _read(folder, cache_dir)
    get = f"get cs231n.stanford.edu/tiny-imagenet-200.zip and unpack it in {folders[0].parent}"
    if source == "files":
        raise DataError(f"Tiny-ImageNet is not there: looked for {' and '.join(map(str, folders))}; {get}")
    why = "as asked" if source == "generated" else f"no folder {folders[0]}"
    train, test = coloured_digits.generate(cache_dir, seed, classes=200, side=64)
    description = (
        f"NOT Tiny-ImageNet but GENERATED COLOURED DIGITS standing in for it ({why}); {get}. Handwritten digits of "
        f"{coloured_digits.WRITERS} writers, seed {seed}; a class is a digit in one of ten colours on dark or light"
    )
    return Dataset("tiny_imagenet", train, test, CLASSES, Provenance("generated", description))


def _read(folder: Path, cache_dir: Path) -> Dataset:
    lists = [folder / "wnids.txt", folder / "val" / "val_annotations.txt"]
    wnids, annotations = ([line.split() for line in _lines(file)] for file in lists)
    label_of = {words[0]: label for label, words in enumerate(wnids)}
    if len(label_of) != CLASSES:
        raise DataError(f"{lists[0]}: names {len(label_of)} classes, not {CLASSES}")
    train_files: list[Path] = []
    train_labels: list[int] = []
    for wnid, label in label_of.items():
        images = folder / "train" / wnid / "images"
        found = image_files(images) if images.is_dir() else []
        if not found:
            raise DataError(f"{images}: has no images; {lists[0].name} names this class")
        train_files += found
        train_labels += [label] * len(found)
    for number, words in enumerate(annotations, start=1):
        if len(words) < 2 or words[1] not in label_of:
            raise DataError(f"{lists[1]}: line {number} is not a file and one of the classes of {lists[0].name}")
    test_files = [folder / "val" / "images" / words[0] for words in annotations]
    test_labels = [label_of[words[1]] for words in annotations]
    both = decoded(folder, train_files + test_files, SIDE, cache_dir, "tiny_imagenet")
    n = len(train_files)
    train = Examples(both.images[:n], np.array(train_labels, np.int64))
    test = Examples(both.images[n:], np.array(test_labels, np.int64))
    counts = f"{n} training and {len(test)} test images"
    if (n, len(test)) != _WHOLE:
        counts = f"A SUBSET: {counts} of the {_WHOLE[0]} and {_WHOLE[1]}"
    files = [(str(file), hashlib.sha256(file.read_bytes()).hexdigest()) for file in lists]
    files.append((f"{folder}: the sha256 of the sha256 of its {n + len(test)} images", both.sha256))
    provenance = Provenance("files", f"Tiny-ImageNet, {counts}, tested on its validation images", tuple(files))
    return Dataset("tiny_imagenet", train, test, CLASSES, provenance)


def _lines(file: Path) -> list[str]:
    try:
        return [line for line in file.read_text("utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{file}: cannot be read ({error})") from error
