"""Cityscapes: its unpacked folders, and errors in them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from rayfl.data.sources.cityscapes import load
from rayfl.errors import DataError

CITIES = {"train": {"ulm": 2, "aachen": 1}, "val": {"munster": 1}}


def place(root: Path, split: str, city: str, number: int) -> tuple[Path, Path]:
    name = f"{city}_{number:06}_000019"
    return (
        root / "cityscapes" / "leftImg8bit" / split / city / f"{name}_leftImg8bit.png",
        root / "cityscapes" / "gtFine" / split / city / f"{name}_gtFine_labelIds.png",
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for split, cities in CITIES.items():
        for city, number in cities.items():
            for image in range(number):
                files = place(tmp_path, split, city, image)
                for file, shape in zip(files, ((6, 8, 3), (6, 8)), strict=True):
                    file.parent.mkdir(parents=True, exist_ok=True)
                    Image.fromarray(rng.integers(0, 34, shape, np.uint8)).save(file)
    return tmp_path


# From the data set's own table of labels (cityscapesScripts, labels.py): the number of a label, and its train id.
TABLE = [
    *((7, 0), (8, 1), (11, 2), (12, 3), (13, 4), (17, 5), (19, 6), (20, 7), (21, 8), (22, 9), (23, 10), (24, 11)),
    *((25, 12), (26, 13), (27, 14), (28, 15), (31, 16), (32, 17), (33, 18)),
]


def test_images_labels_and_cities_are_those_of_the_files(root: Path) -> None:
    data = load("files", root, 0)
    assert data.natural is not None
    assert data.natural.names == ("aachen", "ulm")
    assert data.natural.train.sizes.tolist() == [1, 2]
    assert data.natural.test is None
    assert (data.train.x.shape, data.test.x.shape, data.num_classes) == ((3, 6, 8, 3), (1, 6, 8, 3), 19)
    known = dict(TABLE)
    for row, (split, city, number) in enumerate([("train", "aachen", 0), ("train", "ulm", 0), ("train", "ulm", 1)]):
        image, labels = (np.asarray(Image.open(file)) for file in place(root, split, city, number))
        np.testing.assert_array_equal(data.train.x[row], image)
        expected = np.array([[known.get(int(label), 255) for label in line] for line in labels])
        np.testing.assert_array_equal(data.train.y[row], expected)
    assert "a subset: 3 training images of 2 cities and 1 validation" in data.provenance.description


def test_shrunk_labels_are_labels_of_the_image(root: Path) -> None:
    whole, half = load("files", root, 0), load("files", root, 0, shrink=2)
    assert half.train.x.shape == (3, 3, 4, 3)
    assert half.train.y.shape == (3, 3, 4)
    blocks = whole.train.y.reshape(3, 3, 2, 4, 2)
    assert (blocks == half.train.y[:, :, None, :, None]).any(axis=(2, 4)).all()


def test_bad_files_are_named(root: Path) -> None:
    image, labels = place(root, "train", "ulm", 1)
    Image.fromarray(np.zeros((3, 8), np.uint8)).save(labels)
    with pytest.raises(DataError, match=r"ulm_000001_000019_gtFine_labelIds\.png: is 8 x 3 pixels, not 8 x 6 like"):
        load("files", root, 0)
    Image.fromarray(np.zeros((6, 8, 3), np.uint8)).save(labels)
    with pytest.raises(DataError, match=r"labelIds\.png: has pixels of mode RGB, but class numbers are expected"):
        load("files", root, 0)
    labels.unlink()
    with pytest.raises(DataError, match=r"labelIds\.png: labels of .* not found; unpack gtFine"):
        load("files", root, 0)
    Image.fromarray(np.zeros((6, 8), np.uint8)).save(labels)
    image.write_bytes(image.read_bytes()[:40])
    with pytest.raises(DataError, match=r"leftImg8bit\.png: cannot be read as a PNG image"):
        load("files", root, 0)


def test_missing_folders_are_an_error_or_generated(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"Cityscapes not found: looked in .*cityscapes for leftImg8bit/"):
        load("files", tmp_path, 0)
    made, again = load("auto", tmp_path, 3), load("generated", tmp_path, 3)
    assert made.natural is not None
    assert len(made.natural.names) == 18
    assert set(np.unique(made.train.y)) == {*range(19), 255}
    np.testing.assert_array_equal(made.train.x, again.train.x)
    assert "Stand-in for Cityscapes (generated street scenes), not real data" in made.provenance.description
