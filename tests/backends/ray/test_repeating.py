"""Which runs may repeat what died: those whose noise would be the same again."""

from __future__ import annotations

from typing import Any

import pytest

from rayfl.backends.ray.placement import resources_of
from rayfl.config.scenario import Scenario
from tests.engine.scenes import FEDERATED, PRETRAIN, tables

SAMPLES = {"noise_multiplier": 1.0, "max_grad_norm": 1.0}
CLIENTS = {"level": "central", "noise_multiplier": 1.0, "clip_norm": 1.0, "delta": 0.01}


@pytest.mark.parametrize(
    ("changes", "restarts"),
    [
        ({}, 2),
        ({"local": {"dp": SAMPLES}}, 2),
        ({"dp": CLIENTS}, 2),
        ({"local": {"dp": SAMPLES | {"secure": True}}}, 0),
        ({"dp": CLIENTS | {"secure": True}}, 0),
    ],
    ids=str,
)
def test_one_phase_with_secure_noise_is_enough_to_forbid_restarts(changes: dict[str, Any], restarts: int) -> None:
    scenario = Scenario.from_tables(tables(phases=[PRETRAIN, FEDERATED | changes], resources={"restarts": 2}))
    assert scenario.repeatable == (restarts > 0)
    assert resources_of(scenario) == scenario.resources.model_copy(update={"restarts": restarts})
