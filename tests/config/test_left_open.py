""" "none" undoes what a base has set, and the only phase needs no name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rayfl.config.loader import load_scenario
from rayfl.errors import ScenarioError

PRIVATE: dict[str, Any] = {
    "data": {"name": "fashion_mnist"},
    "model": "lenet5",
    "start": {"file": "weights.safetensors"},
    "phases": [
        {
            "rounds": 3,
            "cohort": 5,
            "algorithm": {"name": "fedavg", "weighting": "uniform"},
            "local": {
                "clip_norm": 1.0,
                "dp": {"noise_multiplier": 1.0, "max_grad_norm": 1.0},
                "unfreeze": {"share": 0.4},
            },
            "dp": {"level": "local", "noise_multiplier": 1.0, "clip_norm": 1.0},
        }
    ],
    "evaluation": {"personalize": {"epochs": 1}},
}


@pytest.mark.parametrize(
    "key", ["phases.0.dp", "phases.0.local.dp", "phases.0.local.unfreeze", "phases.0.local.clip_norm", "start"]
)
def test_none_undoes_an_option_of_the_base(key: str) -> None:
    scenario = load_scenario(PRIVATE, {key: "none"})
    node: Any = scenario
    for part in key.split("."):
        node = node[int(part)] if part.isdecimal() else getattr(node, part)
    assert node is None
    assert load_scenario(scenario) == scenario
    assert load_scenario(PRIVATE, [f"{key}=none"]).phases[0].rounds == 3


def test_none_in_a_file_and_set_again_by_an_override(tmp_path: Path) -> None:
    import tomli_w

    (tmp_path / "private.toml").write_text(tomli_w.dumps(PRIVATE))
    (tmp_path / "open.toml").write_text('base = "private"\n"phases.0.local.dp" = "none"\n')
    assert load_scenario(tmp_path / "open.toml").phases[0].local.dp is None
    again = load_scenario(
        tmp_path / "open.toml", ["phases.0.local.dp.noise_multiplier=2.0", "phases.0.local.dp.max_grad_norm=1.0"]
    )
    assert again.phases[0].local.dp is not None
    assert again.phases[0].local.dp.noise_multiplier == 2.0


def test_none_is_no_way_around_what_must_be_given() -> None:
    with pytest.raises(ScenarioError, match=r"phases.0.rounds: must be a valid integer.*\(got 'none'\)"):
        load_scenario(PRIVATE, {"phases.0.rounds": "none"})
    assert load_scenario(PRIVATE, {"model": "none"}).model.name == "none", "which is a name like any other"


def test_none_in_quick_and_values_that_compare_in_a_way_of_their_own() -> None:
    quick = PRIVATE | {"quick": {"phases.0.local.dp": "none"}}
    assert load_scenario(quick).phases[0].local.dp is not None
    assert load_scenario(quick, quick=True).phases[0].local.dp is None
    with pytest.raises(ScenarioError, match=r"phases.0.cohort: allowed are a number of clients"):
        load_scenario(PRIVATE, {"phases.0.cohort": np.arange(3)})


def test_the_only_phase_needs_no_name_and_overrides_reach_it() -> None:
    scenario = load_scenario(PRIVATE, ["phases.training.rounds=7"])
    assert (scenario.phases[0].name, scenario.phases[0].rounds) == ("training", 7)
    assert load_scenario(PRIVATE, ["phases.0.rounds=8"]).phases[0].rounds == 8
    assert load_scenario(PRIVATE, ["phases.0.name=mine", "phases.mine.rounds=9"]).phases[0].rounds == 9


def test_several_phases_need_names() -> None:
    phase = {"rounds": 1, "cohort": 1}
    with pytest.raises(ScenarioError, match=r"phases.0.name: is missing\nphases.1.name: is missing"):
        load_scenario({"data": {"name": "fashion_mnist"}, "model": "lenet5", "phases": [phase, phase]})
