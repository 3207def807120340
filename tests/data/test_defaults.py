"""The data section is checked and completed without loading anything."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from rayfl.config.data import Data
from rayfl.errors import ScenarioError
from tests.data.resolved import resolved

HERE = "tests.data.test_defaults"
ARRAYS = (np.zeros((2, 3)), np.arange(2), np.zeros((2, 3)), np.arange(2))


def darker(x: torch.Tensor, rng: np.random.Generator, by: float = 0.1) -> torch.Tensor:
    return x - by


def completed(**data: Any) -> dict[str, Any]:
    return resolved(Data.model_validate(data)).model_dump(exclude_none=True)


def test_defaults_of_source_partition_and_augmentations_are_filled_in() -> None:
    found = completed(
        name="cifar100",
        partition={"name": "dirichlet_per_client", "alpha": 0.3},
        augment=["flip", {"name": "crop", "padding": 2}, "moon_cifar100", f"{HERE}:darker"],
    )
    assert found["options"] == {"labels": "fine"}
    assert found["partition"] == {"name": "dirichlet_per_client", "alpha": 0.3, "sigma": 0.0}
    crop = {"name": "crop", "padding": 2, "mode": "zeros", "probability": 1.0, "per": "sample", "fill": [0.0]}
    flip = {"name": "flip", "probability": 0.5, "per": "sample"}
    assert list(found["augment"]) == [flip, crop, {"name": "moon_cifar100"}, {"name": f"{HERE}:darker", "by": 0.1}]


@pytest.mark.parametrize("name", ["cifar10", "femnist", "handwriting", "shakespeare", f"{HERE}:ARRAYS"])
def test_a_completed_section_does_not_change_when_completed_again(name: str) -> None:
    once = resolved(Data.model_validate({"name": name, "augment": ["flip"], "partition": "shards"}))
    assert resolved(Data.model_validate(once.model_dump())) == once


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"name": "femnits"}, "unknown data set 'femnits'; did you mean 'femnist'"),
        ({"name": f"{HERE}:ARRAYS", "options": {"rows": 1}}, "is not a function and takes no options"),
        ({"name": "femnist", "partition": f"{HERE}:ARRAYS"}, "is an object of type tuple, not a partitioner"),
        ({"name": "femnist", "augment": [f"{HERE}:ARRAYS"]}, "is an object of type tuple, not an augmentation"),
    ],
)
def test_names_and_options_are_checked_before_data_is_loaded(data: dict[str, Any], message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        completed(**data)


@pytest.mark.parametrize(
    ("old", "new"), [("feddyn", "dirichlet_per_client"), ("fedexp_unequal", "dirichlet_per_client_unequal")]
)
def test_a_former_name_of_a_partition_raises_with_the_new_one(old: str, new: str) -> None:
    with pytest.raises(ValidationError, match=f"'{old}' is now called '{new}'"):
        Data.model_validate({"name": "cifar10", "partition": {"name": old, "alpha": 1}})
