"""Chest X-rays: their folders, and errors in them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from rayfl.data.sources.chest_xray import load
from rayfl.errors import DataError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for split, number in (("train", 3), ("test", 1), ("val", 1)):
        for place, name in enumerate(("NORMAL", "PNEUMONIA")):
            folder = tmp_path / "chest_xray" / split / name
            folder.mkdir(parents=True)
            for image in range(number):
                Image.new("L", (60, 50), 50 + 100 * place + image).save(folder / f"{image}.jpeg")
    return tmp_path


def test_images_and_classes_are_those_of_the_folders(root: Path) -> None:
    data = load("files", root, root / "cache", 0, size=32)
    assert (data.train.y.tolist(), data.test.y.tolist(), data.num_classes) == ([0, 0, 0, 1, 1, 1], [0, 1], 2)
    assert data.train.x.shape == (6, 32, 32, 3)
    greys = np.concatenate([data.train.x, data.test.x]).mean(axis=(1, 2, 3))
    np.testing.assert_allclose(greys, [50, 51, 52, 150, 151, 152, 50, 150], atol=1)


def test_other_classes_are_named(root: Path) -> None:
    (root / "chest_xray" / "test" / "NORMAL").rename(root / "chest_xray" / "test" / "HEALTHY")
    with pytest.raises(DataError, match=r"test: has no folder NORMAL; expected NORMAL and PNEUMONIA"):
        load("files", root, root / "cache", 0, size=32)
    (root / "chest_xray" / "test" / "HEALTHY").rename(root / "chest_xray" / "test" / "NORMAL")
    Path(root / "chest_xray" / "train" / "OTHER").mkdir()
    Image.new("L", (60, 50)).save(root / "chest_xray" / "train" / "OTHER" / "0.jpeg")
    with pytest.raises(DataError, match=r"chest_xray: has 3 classes; expected only NORMAL and PNEUMONIA"):
        load("files", root, root / "cache", 0, size=32)


@pytest.mark.usefixtures("few_writers")
def test_missing_folders_are_an_error_or_generated(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"Chest X-ray not found: looked in .*chest_xray for train/ and test/"):
        load("files", tmp_path, tmp_path, 0)
    made = load("auto", tmp_path, tmp_path, 0, size=40)
    assert made.train.x.shape[1:] == (40, 40, 3)
    assert set(made.train.y.tolist()) == set(made.test.y.tolist()) == {0, 1}
    assert "Stand-in for Chest X-ray (generated handwritten digits), not real data" in made.provenance.description
