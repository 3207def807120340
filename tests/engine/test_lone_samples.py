"""A batch of one sample, which batch norm cannot normalise: told before anything starts, wherever something trains."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rayfl.errors import ScenarioError
from tests.algorithms.scene import INPUTS, SIZES, Setting, prepared

NETWORK = "tests.algorithms.test_buffers:NormNet"
PLAIN = Setting(local={"lr": 0.1, "batch_size": 4})
"""Client 1 has nine samples, which leave one."""
WHOLE = {"lr": 0.1, "batch_size": "full"}
LEFT = r"samples, which leave a batch of one that batch norm cannot normalise \(.*\); set drop_last = true, or choose"
POOL = sum(SIZES)
ODD = next(size for size in range(2, 20) if POOL % size == 1)


@pytest.mark.parametrize("schedule", ["parallel", "relay", "local"])
def test_in_a_phase_of_clients(schedule: str) -> None:
    with pytest.raises(ScenarioError, match=rf"phases.federated.local: client 0 has 5 {LEFT}"):
        prepared("fedavg", PLAIN, {"schedule": schedule}, model=NETWORK)
    prepared("fedavg", PLAIN.with_local(drop_last=True), {"schedule": schedule}, model=NETWORK)
    with pytest.raises(ScenarioError, match=rf"phases.federated.local: client 0 has 5 {LEFT}"):
        prepared("fedavg", PLAIN.with_local(steps={"uniform": [1, 5]}), {"schedule": schedule}, model=NETWORK)


def test_in_central_training() -> None:
    central: dict[str, Any] = {"name": "pool", "schedule": "central", "rounds": 1}
    local = {"lr": 0.1, "batch_size": ODD}
    with pytest.raises(ScenarioError, match=rf"phases.pool.local: central training has {POOL} {LEFT}"):
        prepared("fedavg", PLAIN, model=NETWORK, phases=[{**central, "local": local}])
    prepared("fedavg", PLAIN, model=NETWORK, phases=[{**central, "local": local | {"drop_last": True}}])


def test_where_a_client_is_personalised() -> None:
    evaluation = {"every": 1, "personalize": {"epochs": 1, "lr": 0.1, "batch_size": 4}}
    with pytest.raises(ScenarioError, match=rf"evaluation.personalize: client 0 has 5 {LEFT}"):
        prepared("fedavg", Setting(local=WHOLE), model=NETWORK, evaluation=evaluation)


def test_on_the_servers_samples() -> None:
    data = {"name": "tests.algorithms.scene:people", "server_share": 0.1}
    training = {"steps": 20, "lr": 0.1, "batch_size": 11}
    with pytest.raises(ScenarioError, match=rf"phases.federated.server_training: the server has 12 {LEFT}"):
        prepared("fedavg", Setting(local=WHOLE), {"server_training": training}, model=NETWORK, data=data)


@pytest.mark.parametrize(
    ("local", "remedy"),
    [
        ({"batch_size": 1, "drop_last": True}, r"client 11 has 4 samples, .*\); choose another batch_size$"),
        # 5 samples are one step of two batches, 4 and 1
        ({"accumulate": 2, "drop_last": True}, r"client 0 has 5 samples, .*\); choose another batch_size$"),
    ],
)
def test_drop_last_is_not_advised_where_it_does_not_help(local: dict[str, Any], remedy: str) -> None:
    with pytest.raises(ScenarioError, match=remedy):
        prepared("fedavg", PLAIN.with_local(**local), model=NETWORK)


@pytest.mark.parametrize("drop_last", [False, True])
def test_a_client_or_server_with_a_single_sample_needs_other_data_or_another_norm(drop_last: bool) -> None:
    single = r"has a single sample, which batch norm cannot normalise \(.*\)"
    setting = Setting(local={"lr": 0.1, "batch_size": 40, "drop_last": drop_last})
    data: dict[str, Any] = {"name": f"{__name__}:one_has_one_sample"}
    with pytest.raises(
        ScenarioError, match=rf"client 1 {single}; leave such clients out with a data.partition of your own, or"
    ):
        prepared("fedavg", setting, model=NETWORK, data=data)
    data = {"name": "tests.algorithms.scene:people", "server_share": 1 / sum(SIZES)}
    training = {"steps": 1, "lr": 0.1, "drop_last": drop_last}
    with pytest.raises(ScenarioError, match=rf"the server {single}; give it more, or use group norm"):
        prepared("fedavg", setting, {"server_training": training}, model=NETWORK, data=data)


def one_has_one_sample() -> Any:
    x, y, owners = np.ones((24, INPUTS), np.float32), np.arange(24) % 3, np.arange(24) // 2
    owners[2] = 0
    return {"train": (x, y, owners), "test": (x, y)}
