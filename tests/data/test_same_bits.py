"""Results are bitwise identical on any number of hosts, for every kind of batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rayfl.config.scenario import Scenario
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.runs.preparation import prepare
from tests.engine.scenes import run_on_hosts

V2 = "torchvision.transforms.v2"
TEXTS = "tests.data.test_inputs"
PICTURES = {"name": "tests.data.augmentation.test_torchvision_transform:images", "clients": 3}
ROTATION = {"name": f"{V2}:RandomRotation", "degrees": 10}
MLP: dict[str, Any] = {"name": "mlp", "hidden": [6]}


def job(data: dict[str, Any], model: Any) -> RunPlan:
    local = {"lr": 0.1, "batch_size": 2, "epochs": 2}
    phases = [{"name": "p", "rounds": 2, "cohort": 3, "local": local}]
    tables = {"data": data, "model": model, "phases": phases, "resources": {"hosts": 1}}
    return prepare(Scenario.from_tables(tables), Path())[0]


@pytest.mark.parametrize(
    ("data", "model"),
    [
        ({**PICTURES, "augment": ["flip", f"{V2}:RandomErasing", ROTATION]}, MLP),
        ({**PICTURES, "augment": [{"name": f"{V2}:ColorJitter", "brightness": 0.5, "per": "batch"}]}, MLP),
        ({"name": f"{TEXTS}:ragged", "clients": 4, "collate": f"{TEXTS}:tokens_and_mask"}, f"{TEXTS}:MeanOfWords"),
        ({**PICTURES, "validation_share": 0.2, "server_share": 0.1, "seed": 4}, MLP),
    ],
)
def test_one_host_and_three_train_the_same_model(data: dict[str, Any], model: Any) -> None:
    prepared = job(data, model)
    one, three = (run_on_hosts(prepared, hosts)[0] for hosts in (1, 3))
    assert np.array_equal(one, three)
