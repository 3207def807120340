"""Every algorithm, aggregation, sampler and evaluated model once on Ray, with the bits of one host in one process."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rayfl.algorithms import algorithms
from rayfl.cluster.ray_log import RayLog
from rayfl.cluster.ray_session import ray_session
from rayfl.engine.events import Evaluated, RoundDone
from tests.engine.scenes import prepared, run_on_hosts, without_clock

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster")]

LOCAL = {"epochs": 2, "batch_size": "full", "lr": 0.2, "momentum": 0.5}
ROBUST: list[Any] = ["median", {"name": "trimmed_mean", "share": 0.2}, "krum", "geometric_median"]
PHASES: list[dict[str, Any]] = [
    *({"algorithm": name, "local": {"lr": 0.1} if name == "qfedsgd" else LOCAL} for name in algorithms),
    *({"algorithm": {"name": "scaffold", "aggregation": chosen}} for chosen in ROBUST),
    {"algorithm": {"name": "coprefl", "queries": "server"}, "server_training": {"steps": 2, "lr": 0.1}},
    {"cohort": {"sampler": "power_of_choice", "clients": 3, "candidates": 8}},
    {"eval_model": "ema", "ema_decay": 0.8},
    {"algorithm": "scaffold", "report": ["step", "divergence", "norms"]},
]
SCENARIO: dict[str, Any] = {
    "data": {"name": "tests.algorithms.scene:people", "server_share": 0.2},
    "model": "tests.algorithms.test_buffers:NormNet",
    "phases": [{"name": f"p{n}", "rounds": 2, "cohort": 6, "local": LOCAL, **phase} for n, phase in enumerate(PHASES)],
    "evaluation": {"every": 1, "client_model": "personal"},
}


def test_models_scores_and_scalars_are_those_of_one_process() -> None:
    expected, expected_events = run_on_hosts(prepared(**SCENARIO), 1)
    with ray_session(prepared(**SCENARIO, resources={"hosts": 3}), None, RayLog(Path(os.devnull))) as session:
        events = list(session.events())
        _, model = session.committed()
    assert np.array_equal(model, expected)
    for kind in (RoundDone, Evaluated):
        mine, theirs = (
            without_clock([event for event in told if isinstance(event, kind)]) for told in (events, expected_events)
        )
        assert repr(mine) == repr(theirs)  # a gradient has no training loss: NaN
        assert len(mine) == 2 * len(PHASES)
