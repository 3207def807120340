"""Every algorithm, aggregation, sampler and evaluated model once on Ray, with the bits of one host in one process."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rayfl.algorithms import algorithms
from rayfl.backends.ray.kept_cluster import KeptCluster
from rayfl.backends.ray.log import RayLog
from rayfl.backends.ray.session import ray_session
from rayfl.models.tensors import split
from tests.algorithms.scene import supported
from tests.engine.scenes import by_kind, prepared, run_on_hosts

pytestmark = [pytest.mark.ray, pytest.mark.slow]

LOCAL = {"epochs": 2, "batch_size": "full", "lr": 0.2, "momentum": 0.5}
ROBUST: list[Any] = ["median", {"name": "trimmed_mean", "share": 0.2}, "krum", "geometric_median"]
WITHOUT_BATCH_NORM = ("fedmeta", "perfedavg")
"""Algorithms that refuse it."""
OF_A_TASK = ("orchestra",)
"""See test_tasks_on_ray."""
PHASES: list[dict[str, Any]] = [
    *(
        {"algorithm": name, "local": supported(name, LOCAL)}
        for name in algorithms
        if name not in WITHOUT_BATCH_NORM + OF_A_TASK
    ),
    *({"algorithm": {"name": "scaffold", "aggregation": chosen}} for chosen in ROBUST),
    {"algorithm": {"name": "coprefl", "queries": "server"}, "server_training": {"steps": 2, "lr": 0.1}},
    {"cohort": {"sampler": "power_of_choice", "clients": 3, "candidates": 8}},
    {"eval_model": "ema", "ema_decay": 0.8},
    {"algorithm": "scaffold", "report": ["step", "divergence", "norms"]},
    {"schedule": "local"},
    {"algorithm": "tests.algorithms.test_step_gradient:OwnButPlain"},
    {"algorithm": {"name": "tests.algorithms.test_step_gradient:Longer", "many": 3}},
]
META: list[dict[str, Any]] = [
    *({"algorithm": name, "local": supported(name, LOCAL)} for name in WITHOUT_BATCH_NORM),
    {"algorithm": {"name": "fedmeta", "variant": "meta_sgd"}, "local": {"lr": 0.2}},
    {"algorithm": {"name": "perfedavg", "variant": "hessian_free"}, "local": supported("perfedavg", LOCAL)},
    {
        "algorithm": "scaffold",
        "cohort": {"bernoulli": 0.1},
        "dp": {"level": "central", "noise_multiplier": 1.0, "clip_norm": {"quantile": 0.5}, "delta": 0.01},
    },
]
DP = {"noise_multiplier": 1.1, "max_grad_norm": 0.7, "accountant": "rdp"}
PRIVATE: list[dict[str, Any]] = [
    {"schedule": "relay", "local": {"batch_size": 4, "dp": DP}},
    {"algorithm": {"name": "scaffold", "option": "I"}, "local": {"batch_size": 4, "dp": DP}},
    {"algorithm": "coprefl", "local": {"batch_size": 4, "dp": DP | {"sampling": "shuffled"}}},
]


def scenario(network: str, phases: list[dict[str, Any]], **evaluation: Any) -> dict[str, Any]:
    usual = {"rounds": 2, "cohort": 6, "local": LOCAL}
    return {
        "data": {"name": "tests.algorithms.scene:people", "server_share": 0.2},
        "model": network,
        "phases": [{"name": f"p{number}", **usual, **phase} for number, phase in enumerate(phases)],
        "evaluation": {"every": 1, **evaluation},
    }


SCENARIOS: dict[str, dict[str, Any]] = {
    "batch norm": scenario("tests.algorithms.test_buffers:NormNet", PHASES, client_model="personal"),
    "privacy of samples": scenario("tests.algorithms.scene:TanhNet", PRIVATE),
    "no batch norm": scenario("tests.algorithms.scene:TanhNet", META),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_models_scores_and_scalars_are_those_of_one_process(name: str, shared_hosts: KeptCluster) -> None:
    tables = SCENARIOS[name]
    expected, expected_events = run_on_hosts(prepared(**tables), 1)
    job = prepared(**tables, resources={"hosts": 2})
    with ray_session(job, None, RayLog(Path(os.devnull)), kept=shared_hosts) as session:
        events = list(session.events())
        _, model = session.committed()
    assert np.array_equal(split(model)[0], expected)
    assert repr(by_kind(events)) == repr(by_kind(expected_events))  # a gradient has no training loss: NaN
    assert [*map(len, by_kind(events))] == [2 * len(tables["phases"])] * 2
