"""ImageNet-1K: a folder of images at a fixed place in the data folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from rayfl.config.data import Data
from rayfl.data.dataset import Dataset
from rayfl.data.scenario_data import load
from rayfl.errors import DataError, ScenarioError
from tests.data.resolved import resolved


def loaded(folder: Path, source: str = "auto", **options: Any) -> Dataset:
    config = Data.model_validate({"name": "imagenet", "source": source, "options": {"size": 4, **options}})
    return load(resolved(config), 0, folder, folder / "cache")


def test_it_is_in_the_data_folder_with_a_folder_for_each_class(tmp_path: Path) -> None:
    for label, synset in enumerate(("n01", "n02", "n03")):
        folder = tmp_path / "imagenet" / "train" / synset
        folder.mkdir(parents=True)
        for number in range(4):
            Image.fromarray(np.full((6, 6, 3), 10 * label + number, np.uint8)).save(folder / f"{number}.png")
    found = loaded(tmp_path, test_share=0.25)
    assert (found.num_classes, len(found.train), len(found.test)) == (3, 9, 3)
    assert found.train.x.shape[1:] == (4, 4, 3)
    assert (found.train.x[:, 0, 0, 0] // 10).tolist() == found.train.y.tolist()


def test_if_it_is_missing_the_message_says_where_it_belongs(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"unpack the training images of ILSVRC 2012 to {tmp_path}/imagenet/train"):
        loaded(tmp_path)
    with pytest.raises(ScenarioError, match="nothing to generate"):
        loaded(tmp_path, source="generated")
