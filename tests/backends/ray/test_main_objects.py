"""What a user's own script defines, named as `__main__:object`."""

from __future__ import annotations

import subprocess
import sys
import threading
import types
from pathlib import Path

import pytest
from ray import cloudpickle

from rayfl.backends.ray.user_code import install_main_objects, pack_main_objects
from rayfl.config.scenario import Scenario
from rayfl.errors import ScenarioError
from tests.engine.scenes import FEDERATED, tables

SCRIPT = """
import numpy as np
import ray
import rayfl
from rayfl.algorithms.fedavg import FedAvg
from rich.console import Console
from torch import nn

HIDDEN = 12


def hidden_layer(inputs):
    return nn.Linear(inputs, HIDDEN)


class Net(nn.Module):
    def __init__(self, num_classes: int):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), hidden_layer(784), nn.ReLU(), nn.Linear(HIDDEN, num_classes))

    def forward(self, x):
        return self.layers(x)


class Mine(FedAvg):
    pass


scenario = {
    "name": "mine",
    "data": {"name": "handwriting", "clients": 8},
    "model": {"name": "__main__:Net"},
    "phases": [{"name": "p", "rounds": 2, "cohort": 4, "algorithm": "__main__:Mine", "local": {"batch_size": 16}}],
    "resources": {"hosts": 1},
}
ray.init(
    address="local",
    num_cpus=2,
    include_dashboard=False,
    object_store_memory=100 * 2**20,
    _node_ip_address="127.0.0.2",
    log_to_driver=False,
    logging_level="ERROR",
)
models = []
for backend in ("ray", "inline"):
    result = rayfl.run(scenario, backend=backend, console=Console(quiet=True))
    models.append(np.concatenate([value.numpy().ravel() for value in result.state_dict.values()]))
print("the same bits" if np.array_equal(*models) else "other bits")
"""


@pytest.mark.ray
@pytest.mark.slow
def test_a_script_runs_its_own_network_and_algorithm_on_ray_with_the_bits_of_the_inline_backend(tmp_path: Path) -> None:
    script = tmp_path / "my_script.py"
    script.write_text(SCRIPT)
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "the same bits\n"


def scenario_with(name: str) -> Scenario:
    return Scenario.from_tables(tables(phases=[FEDERATED | {"algorithm": name}]))


@pytest.fixture
def main(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """An empty `__main__`."""
    module = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", module)
    return module


def test_objects_of_main_are_installed_elsewhere_by_value(main: types.ModuleType) -> None:
    exec("OFFSET = 3\n\ndef shifted(x):\n    return x + OFFSET\n", vars(main))  # noqa: S102 - code of this test
    packed = pack_main_objects(scenario_with("__main__:shifted"))
    vars(main).pop("shifted")
    vars(main).pop("OFFSET")
    install_main_objects(packed)
    assert vars(main)["shifted"](4) == 7


def test_a_scenario_that_names_nothing_of_main_carries_nothing(main: types.ModuleType) -> None:
    assert cloudpickle.loads(pack_main_objects(scenario_with("fedavg"))) == {}


def test_an_object_of_main_that_cannot_be_pickled_is_rejected_with_the_remedy(main: types.ModuleType) -> None:
    vars(main)["locked"] = threading.Lock()
    with pytest.raises(
        ScenarioError, match=r"'__main__:locked' cannot be sent to Ray's workers .*: move it to a separate"
    ):
        pack_main_objects(scenario_with("__main__:locked"))
