"""Cityscapes: street scenes of 2048 x 1024 pixels with one of 19 classes per pixel and one natural client per city.

Cordts et al., "The Cityscapes Dataset for Semantic Urban Scene Understanding", CVPR 2016: 2975 training images of 18
cities. The 500 validation images of three other cities are the test samples, since the labels of the test images were
never published.

The stand-in is generated street scenes: sky, buildings, road and boxes of other classes, by city.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image

from rayfl.data.dataset import Dataset, NaturalClients, Provenance, Samples, Shards
from rayfl.data.files import WHOLE
from rayfl.data.formats.image_files import ImageRows, Keep, in_eight_bits, read_image, subfolders
from rayfl.data.sources.stand_in import Source, files_or_generated
from rayfl.errors import DataError
from rayfl.streams import stream

HEIGHT, WIDTH = 64, 128
ROAD, BUILDING, SKY = 0, 2, 10


def generate(seed: int, city: int, number: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Images [number, 64, 128, 3] uint8 of one city and their classes [number, 64, 128] uint8; edges are 255.

    Each class has one colour, and each city its own light.
    """
    colours = stream(seed, "generate", 0).integers(40, 216, (classes, 3))
    rng = stream(seed, "generate", 1 + city)
    light = rng.integers(-25, 26, 3)
    labels = np.empty((number, HEIGHT, WIDTH), np.uint8)
    for scene in labels:
        scene[:], horizon = BUILDING, rng.integers(16, 32)
        scene[: horizon // 2], scene[horizon + 16 :] = SKY, ROAD
        for _ in range(6):
            top, left = rng.integers(4, HEIGHT - 20), rng.integers(0, WIDTH - 24)
            high, wide = rng.integers(6, 20, 2)
            scene[top : top + high, left : left + wide] = rng.integers(classes)
    noise = rng.normal(0, 12, (number, HEIGHT, WIDTH, 3))
    images = (colours[labels] + light + noise).clip(0, 255).astype(np.uint8)
    labels[:, [0, -1]] = 255
    return images, labels


CLASSES = 19
IGNORED = 255
TRAINED = (7, 8, 11, 12, 13, 17, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 31, 32, 33)
"""Numbers of the 19 classes in the files; all other numbers are ignored."""

_WHOLE = WHOLE["cityscapes"]
_PNG = ("PNG",)
_IMAGE, _LABELS = "_leftImg8bit.png", "_gtFine_labelIds.png"
_TRAIN_ID = np.full(256, IGNORED, np.uint8)
_TRAIN_ID[list(TRAINED)] = np.arange(CLASSES)

_GENERATED_TRAIN, _GENERATED_TEST = 18, 3


def load(
    source: Source, data_dir: Path, seed: int, shrink: Literal[1, 2, 4, 8, 16] = 1, keep: Keep = "memory"
) -> Dataset:
    """Reads Cityscapes from its folders, or generates street scenes instead.

    Looks in `data_dir`/cityscapes for leftImg8bit/ and gtFine/, each with train/CITY and val/CITY.

    Args:
        source: "files" reads the files or fails; "generated" makes street scenes of 128 x 64 pixels; "auto" reads the
            files if it finds any and otherwise generates.
        shrink: Divides height and width; labels come from the nearest pixels.
        keep: "memory" holds the images (22 GB for the full set, a quarter of that at `shrink = 2`); "disk" decodes them
            for every batch, from files at the same paths on every node, with the same results. Labels are always held
            in memory (7 GB).

    Returns:
        x [n, height, width, 3] uint8, y [n, height, width] uint8 in 0..18, or 255 for ignored pixels; the training
        cities as natural clients, sorted by name.

    Raises:
        DataError: `source` is "files" and there are no folders, an image has no labels or labels of another size, or a
            file cannot be read (named).
    """
    folder = data_dir / "cityscapes"
    return files_or_generated(
        source,
        title="Cityscapes",
        kind="street scenes",
        folders=[folder],
        looked_for="leftImg8bit/ and gtFine/, each with train/ and val/",
        get=f"get it from cityscapes-dataset.com, leftImg8bit_trainvaltest.zip and gtFine_trainvaltest.zip in {folder}",
        read=lambda: _read(folder, shrink, keep),
        generate=lambda: _generated(seed),
    )


def _read(folder: Path, shrink: int, keep: Keep) -> Dataset | None:
    if not (folder / "leftImg8bit").is_dir():
        return None
    parts, digest, counts = [], hashlib.sha256(), []
    for split in ("train", "val"):
        cities = subfolders(folder / "leftImg8bit" / split)
        files = [(file, place) for place, city in enumerate(cities) for file in sorted(city.glob(f"*{_IMAGE}"))]
        if not files:
            raise DataError(f"{folder / 'leftImg8bit' / split}: has no CITY/*{_IMAGE}")
        samples = _samples([file for file, _ in files], folder, shrink, keep, digest)
        parts.append((samples, np.array([place for _, place in files]), [city.name for city in cities]))
        counts.append(len(files))
    (train, city, names), (test, _, _) = parts
    if missing := [name for place, name in enumerate(names) if place not in city]:
        raise DataError(f"{folder / 'leftImg8bit' / 'train' / missing[0]}: has no *{_IMAGE}; remove it or fill it")
    words = f"{counts[0]} training images of {len(names)} cities and {counts[1]} validation images for testing"
    if tuple(counts) != _WHOLE:
        words = f"a subset: {words}, of the {_WHOLE[0]} and {_WHOLE[1]}"
    size = f"{train.x.shape[2]} x {train.x.shape[1]} pixels"
    files_read = ((f"{folder}: the sha256 of the sha256 of its images and labels", digest.hexdigest()),)
    provenance = Provenance("files", f"Cityscapes, {words}; {size}", files_read)
    return _dataset(train, test, city, names, provenance)


def _samples(files: Sequence[Path], folder: Path, shrink: int, keep: Keep, digest: hashlib._Hash) -> Samples:
    pairs = [(file, _labels_of(file, folder)) for file in files]
    width, height = read_image(files[0], _PNG)[0].size
    whole = _Size(width, height, files[0].name)
    image_of, labels_of = partial(_pixels, whole=whole, shrink=shrink), partial(_classes, whole=whole, shrink=shrink)
    shape = (len(files), height // shrink, width // shrink)
    x, y = np.empty((*shape, 3), np.uint8) if keep == "memory" else None, np.empty(shape, np.uint8)

    def read(row: int) -> tuple[bytes, bytes]:
        image, image_digest = image_of(pairs[row][0])
        y[row], labels_digest = labels_of(pairs[row][1])
        if x is not None:
            x[row] = image
        return image_digest, labels_digest

    with ThreadPoolExecutor() as pool:
        digests = list(pool.map(read, range(len(files))))
    digest.update(b"".join(b"".join(both) for both in digests))
    if x is not None:
        return Samples(x, y)
    sha256 = np.frombuffer(b"".join(of_image for of_image, _ in digests), np.uint8).reshape(-1, 32)
    return Samples(ImageRows.of(folder, files, sha256, image_of, (*shape[1:], 3)), y)


@dataclass(frozen=True)
class _Size:
    """The size of all files, taken from the file `example`."""

    width: int
    height: int
    example: str


def _pixels(file: Path, whole: _Size, shrink: int) -> tuple[np.ndarray, bytes]:
    image, digest = _of_size(file, whole)
    size = (whole.width // shrink, whole.height // shrink)
    return np.asarray(in_eight_bits(image, "RGB", f"{file}:").resize(size, Image.Resampling.BILINEAR)), digest


def _classes(file: Path, whole: _Size, shrink: int) -> tuple[np.ndarray, bytes]:
    labels, digest = _of_size(file, whole)
    if labels.mode != "L":
        raise DataError(f"{file}: has pixels of mode {labels.mode}, but class numbers are expected")
    size = (whole.width // shrink, whole.height // shrink)
    return _TRAIN_ID[np.asarray(labels.resize(size, Image.Resampling.NEAREST))], digest


def _of_size(file: Path, whole: _Size) -> tuple[Image.Image, bytes]:
    image, digest = read_image(file, _PNG)
    if image.size != (whole.width, whole.height):
        raise DataError(
            f"{file}: is {image.width} x {image.height} pixels, not {whole.width} x {whole.height} like {whole.example}"
        )
    return image, digest


def _labels_of(image: Path, folder: Path) -> Path:
    split, city = image.parent.parent.name, image.parent.name
    labels = folder / "gtFine" / split / city / (image.name.removesuffix(_IMAGE) + _LABELS)
    if not labels.exists():
        raise DataError(f"{labels}: labels of {image} not found; unpack gtFine_trainvaltest.zip in {folder}")
    return labels


def _generated(seed: int) -> Dataset:
    cities = _GENERATED_TRAIN + _GENERATED_TEST
    numbers = [8 + 2 * (city % 5) for city in range(cities)]
    made = [generate(seed, city, number, CLASSES) for city, number in enumerate(numbers)]
    x, y = (np.concatenate(parts) for parts in zip(*made, strict=True))
    n = sum(numbers[:_GENERATED_TRAIN])
    city = np.repeat(np.arange(_GENERATED_TRAIN), numbers[:_GENERATED_TRAIN])
    names = [f"city_{place:02}" for place in range(_GENERATED_TRAIN)]
    description = f"{n} and {len(x) - n} boxes on roads of {cities} cities, seed {seed}; 128 x 64 pixels"
    return _dataset(Samples(x[:n], y[:n]), Samples(x[n:], y[n:]), city, names, Provenance("generated", description))


def _dataset(train: Samples, test: Samples, city: np.ndarray, names: Sequence[str], provenance: Provenance) -> Dataset:
    natural = NaturalClients(tuple(names), Shards.by_owner(city, len(names)), None)
    return Dataset("cityscapes", train, test, CLASSES, provenance, natural)
