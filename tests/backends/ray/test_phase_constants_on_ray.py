"""What a phase leaves out of the vector is put once when it begins, and is there again after any death."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray

from rayfl.backends.ray.log import RayLog
from rayfl.backends.ray.object_arrays import PassedArray, mapped
from rayfl.backends.ray.session import ray_session
from rayfl.engine.events import Recovering
from rayfl.engine.state.state_store import FolderStore
from rayfl.models.tensors import WholeModel
from tests.backends.ray.test_deaths import followed
from tests.engine.scenes import prepared
from tests.engine.test_constants import result, state_of

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster")]

LOCAL = {"epochs": 1, "batch_size": 4, "lr": 0.1}
PHASES: list[dict[str, Any]] = [
    {"schedule": "relay", "rounds": 2, "cohort": 3},
    {"rounds": 8, "cohort": 5, "algorithm": "scaffold", "train": ["second"]},
    {"schedule": "relay", "rounds": 12, "cohort": 6, "train": "head", "algorithm": "moon"},
    {"rounds": 8, "cohort": 5, "train": "body"},
]
SCENARIO: dict[str, Any] = {
    "data": {"name": "tests.algorithms.scene:people"},
    "model": "tests.algorithms.scene:TanhNet",
    "phases": [{"name": f"p{number}", "local": LOCAL} | phase for number, phase in enumerate(PHASES)],
    "evaluation": {"every": 2},
}


@ray.remote
def passed_on(model: WholeModel) -> WholeModel:
    return model


def test_constants_travel_as_references_through_any_number_of_processes() -> None:
    constants = mapped(ray.put(np.arange(2**18, dtype=np.float32)))
    assert isinstance(constants, PassedArray)
    assert not constants.flags.writeable
    assert len(pickle.dumps(constants[:2])) < 1000
    model: Any = WholeModel(np.zeros(3, np.float32), {}, constants)
    for _ in range(3):
        model = passed_on.remote(model)
    received = ray.get(model).constants
    assert received.ctypes.data == constants.ctypes.data, "mapped, not copied"
    assert received.reference == constants.reference


@pytest.mark.slow
@pytest.mark.parametrize(
    ("victim", "after"), [("", 0), ("host", 5), ("host", 25), ("server", 15), ("server", 25), ("scheduler", 15)]
)
def test_a_run_has_the_bits_of_one_process_whatever_dies_in_which_phase(
    victim: str, after: int, tmp_path: Path
) -> None:
    expected, _ = result(prepared(**SCENARIO), 1)
    job = prepared(**SCENARIO, checkpoint={"rounds": 1}, resources={"hosts": 2, "relay": "spread"})
    with ray_session(job, None, RayLog(tmp_path / "ray.log")) as session:
        session.checkpoint_to(FolderStore(tmp_path / "states"))
        events = list(followed(session, victim, after, snapshots=True))
        assert state_of(job, *session.committed()) == expected
    recovered = any(isinstance(event, Recovering) for event in events)
    assert recovered or victim in ("", "host"), "Ray itself restarts a host"
