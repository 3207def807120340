"""`data.normalize` by name: the numbers, their place, and the error for a wrong name."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from rayfl.config import load_scenario
from rayfl.config.data import NORMALIZATIONS
from rayfl.errors import ScenarioError


def tables(normalize: Any) -> dict[str, Any]:
    return {
        "data": {"name": "cifar10", "normalize": normalize},
        "model": "lenet5",
        "phases": [{"name": "a", "rounds": 1, "cohort": 1}],
    }


@pytest.mark.parametrize("name", NORMALIZATIONS)
def test_a_name_is_written_out_as_its_numbers(name: str) -> None:
    scenario = load_scenario(tables(name))
    mean, std = NORMALIZATIONS[name]
    assert tomllib.loads(scenario.to_toml())["data"]["normalize"] == {"mean": list(mean), "std": list(std)}
    assert load_scenario(tables({"mean": list(mean), "std": list(std)})) == scenario


def test_a_name_can_be_given_as_an_override() -> None:
    scenario = load_scenario(tables("imagenet"), ["data.normalize=feddyn_cifar10"])
    assert scenario.data.normalize is not None
    assert scenario.data.normalize.mean == (0.491, 0.482, 0.447)


def test_an_unknown_name_is_told_with_the_nearest_ones() -> None:
    with pytest.raises(ScenarioError) as caught:
        load_scenario(tables("moon_cifar"))
    assert "data.normalize: unknown normalization; did you mean 'moon_cifar10'" in str(caught.value)
    assert "(or give mean and std) (got 'moon_cifar')" in str(caught.value)
