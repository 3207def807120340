"""iNaturalist-GEO: its tables and images, and errors in them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from rayfl.data.sources.inaturalist import load
from rayfl.errors import DataError

COLOURS = {"a1": 40, "b2": 120, "c3": 200, "d4": 250}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "inaturalist"
    (folder / "images").mkdir(parents=True)
    for name, grey in COLOURS.items():
        Image.new("RGB", (50, 40), (grey, grey, grey)).save(folder / "images" / f"{name}.jpg")
    table(tmp_path, "federated_train_geo_3k.csv", "user_id,image_id,class\n7,a1,1202\n3,b2,0\n7,c3,5\n")
    table(tmp_path, "test.csv", "image_id,class\nd4,5\n")
    return tmp_path


def table(root: Path, name: str, text: str) -> None:
    (root / "inaturalist" / name).write_text(text, "utf-8")


def test_rows_users_and_classes_are_those_of_the_tables(root: Path) -> None:
    data = load("files", root, root / "cache", 0, size=32)
    assert data.natural is not None
    assert data.natural.names == ("3", "7")
    assert [data.natural.train[client].tolist() for client in (0, 1)] == [[1], [0, 2]]
    assert (data.train.y.tolist(), data.test.y.tolist(), data.num_classes) == ([1202, 0, 5], [5], 1203)
    assert data.train.x.shape == (3, 32, 32, 3)
    greys = [*data.train.x.mean(axis=(1, 2, 3)), *data.test.x.mean(axis=(1, 2, 3))]
    np.testing.assert_allclose(greys, list(COLOURS.values()), atol=2)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "test.csv",
            "image_id,class\nd4,5\ne5,1\n",
            r"test\.csv: line 3: no image .*e5\.jpg; get it",
        ),
        ("test.csv", "image_id,class\n/etc/d4,1\n", r"test\.csv: line 2: '/etc/d4.jpg' is not a place inside"),
        ("test.csv", f"image_id,class\n{'d' * 300},1\n", r"test\.csv: line 2: no image"),
        ("test.csv", "image_id,class\nd4,1203\n", r"test\.csv: line 2: class '1203' is not a number in 0\.\.1202"),
        ("test.csv", "image_id,label\nd4,3\n", r"test\.csv: has no column 'class'; expected image_id, class"),
        ("test.csv", "image_id,class\n", r"test\.csv: has no rows"),
        ("federated_train_geo_3k.csv", "user_id,image_id,class\n7,a1\n", r"line 2: class None is not a number"),
    ],
)
def test_bad_tables_are_named(name: str, text: str, message: str, root: Path) -> None:
    table(root, name, text)
    with pytest.raises(DataError, match=message):
        load("files", root, root / "cache", 0, size=32)


@pytest.mark.parametrize(("split", "clients"), [("geo_3k", 136), ("geo_10k", 39)])
@pytest.mark.usefixtures("few_writers")
def test_a_stand_in_has_the_same_number_of_clients(split: str, clients: int, tmp_path: Path, generated: Path) -> None:
    data = load("generated", tmp_path, generated, 0, split=split, size=32)  # type: ignore[arg-type]
    assert data.natural is not None
    assert len(data.natural.train) == clients
    assert data.natural.train.sizes.min() > 0
    assert "Stand-in for iNaturalist-GEO (generated handwritten digits), not real data" in data.provenance.description
