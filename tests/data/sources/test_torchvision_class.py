"""Classes of torchvision on files in their own format, written by the tests."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from rayfl.config.data import Data
from rayfl.data.store import ShardStore, build_store
from rayfl.errors import RayflError
from tests.data.resolved import resolved

RNG = np.random.default_rng(0)
IMAGES = {part: RNG.integers(0, 256, (n, 28, 28), np.uint8) for part, n in (("train", 30), ("t10k", 12))}
LABELS = {part: np.arange(len(images), dtype=np.uint8) % 10 for part, images in IMAGES.items()}


def write_idx(folder: Path, prefix: str, part: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    images, labels = IMAGES["train" if part == "train" else "t10k"], LABELS["train" if part == "train" else "t10k"]
    header = struct.pack(">4i", 0x803, *images.shape)
    (folder / f"{prefix}{part}-images-idx3-ubyte").write_bytes(header + images.tobytes())
    (folder / f"{prefix}{part}-labels-idx1-ubyte").write_bytes(
        struct.pack(">2i", 0x801, len(labels)) + labels.tobytes()
    )


def store(folder: Path, **options: Any) -> ShardStore:
    data = Data.model_validate({"name": "torchvision", "clients": 3, "options": options})
    return build_store(resolved(data), 0, folder, folder)


def test_a_class_with_train_or_split_is_read_image_by_image(tmp_path: Path) -> None:
    for part in ("train", "t10k"):
        write_idx(tmp_path / "KMNIST" / "raw", "", part)
    found = store(tmp_path, dataset="KMNIST")
    assert np.array_equal(found.train.x, IMAGES["train"][..., None])
    assert np.array_equal(found.test.x, IMAGES["t10k"][..., None])
    assert found.test.y.tolist() == LABELS["t10k"].tolist()
    assert found.num_classes == 10
    assert found.provenance.source == "files"
    assert len(found.provenance.files[0][1]) == 64


def test_other_arguments_go_to_the_class(tmp_path: Path) -> None:
    for part in ("train", "test"):
        write_idx(tmp_path / "there" / "EMNIST" / "raw", "emnist-letters-", part)
    found = store(tmp_path, dataset="EMNIST", root=str(tmp_path / "there"), arguments={"split": "letters"})
    assert np.array_equal(found.train.x, IMAGES["train"][..., None])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"dataset": "CIFAR11"},
            r"data\.options\.dataset: torchvision has no data set 'CIFAR11'; did you mean 'CIFAR10",
        ),
        ({"dataset": "CIFAR10"}, r"train samples cannot be read, and rayfl does not download them \(Dataset not found"),
        ({"dataset": "KMNIST", "arguments": {"splits": 1}}, r"data\.options\.arguments\.splits: not an option"),
        ({"dataset": "FakeData"}, "FakeData has no argument train or split that separates training and test samples"),
        ({}, r"data\.options: needs dataset"),
    ],
)
def test_data_that_cannot_be_read_is_named_by_key(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(RayflError, match=message):
        store(tmp_path, **options)


def test_images_of_different_sizes_need_one_size(tmp_path: Path) -> None:
    """Rendered SST-2 keeps images in folders by split and class."""
    for split, number in (("train", 3), ("test", 2), ("valid", 1)):
        for label in ("positive", "negative"):
            (tmp_path / "rendered-sst2" / split / label).mkdir(parents=True)
            for row in range(number):
                pixels = RNG.integers(0, 256, (8 + row, 10, 3), np.uint8)
                Image.fromarray(pixels).save(tmp_path / "rendered-sst2" / split / label / f"{row}.png")
    with pytest.raises(RayflError, match=r"images differ in size \(.*\); set data\.options\.size"):
        store(tmp_path, dataset="RenderedSST2")
    found = store(tmp_path, dataset="RenderedSST2", size=6)
    assert found.train.x.shape == (6, 6, 6, 3)
    assert sorted(found.train.y.tolist()) == [0, 0, 0, 1, 1, 1]
