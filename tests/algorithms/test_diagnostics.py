"""The reports that `phases.N.report` asks for, against float64, and no others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from rayfl.engine.events import RoundDone
from rayfl.errors import ScenarioError
from tests.algorithms.reference import mean, rounds, sizes
from tests.algorithms.scene import PLAIN, RATE, Setting, prepared
from tests.engine.memory_store import MemoryStore
from tests.engine.scenes import cast, kept_by_clients, run_on_hosts, snapshot_of


def scalars(algorithm: Any, *report: str, hosts: int = 2, setting: Setting = PLAIN, **phase: Any) -> list[Any]:
    """Round by round."""
    _, events = run_on_hosts(prepared(algorithm, setting, {"report": list(report), **phase})[0], hosts)
    return [dict(event.scalars) for event in events if isinstance(event, RoundDone)]


def test_step_and_divergence_are_those_of_plain_training() -> None:
    server_lr = 0.5
    algorithm = {"name": "fedavg", "server_optimizer": {"name": "sgd", "lr": server_lr}}
    ours = scalars(algorithm, "step", "divergence")
    w = PLAIN.initial()
    for cohort, reported in zip(rounds(PLAIN), ours, strict=True):
        changes = [update.sgd(w) - w for update in cohort]
        step = server_lr * mean(changes, sizes(cohort))
        squares = [float(change.square().sum()) for change in changes]
        assert reported["step_norm"] == pytest.approx(float(step.norm()), rel=1e-4)
        assert reported["divergence"] == pytest.approx(np.mean(np.sqrt(squares)), rel=1e-4)
        ratio = np.mean(squares) / float(mean(changes).square().sum())
        assert reported["divergence_ratio"] == pytest.approx(ratio, rel=1e-4)
        assert ratio > 1.01
        w = w + step


@pytest.mark.parametrize(
    ("name", "kept", "total", "own"),
    [
        ("scaffold", "control", "control_norm", "client_control_norm"),
        ("feddyn", "dual", "dual_norm", "client_dual_norm"),
    ],
)
def test_norms_are_those_of_what_clients_and_server_keep(name: str, kept: str, total: str, own: str) -> None:
    """Zero at the start and changed by participants alone, the mean over all clients is the server's."""
    job, _ = prepared(name, PLAIN, {"report": ["norms"]})
    scheduler, _ = cast(job, 2)
    for event in scheduler.run():
        if not isinstance(event, RoundDone):
            continue
        store = MemoryStore()
        states = {
            client: torch.from_numpy(state[f"phase/{kept}"]).double()
            for client, state in kept_by_clients(snapshot_of(scheduler, store), store).items()
        }
        cohort = PLAIN.cohorts[event.round - 1]
        assert event.scalars[own] == pytest.approx(np.mean([float(states[c].norm()) for c in cohort]), rel=1e-5)
        everybody = torch.stack(list(states.values())).sum(dim=0) / PLAIN.clients
        assert event.scalars[total] == pytest.approx(float(everybody.norm()), rel=1e-4)
        assert {item.client for item in event.client_scalars} == set(cohort)


@pytest.mark.parametrize("gamma", [0.0, 0.2, 1.0])
def test_coprefls_meta_step_is_the_difference_to_the_same_round_without_it(gamma: float) -> None:
    def model(meta_lr: float) -> Any:
        algorithm = {"name": "coprefl", "gamma": gamma, "meta_lr": meta_lr}
        return run_on_hosts(prepared(algorithm, one)[0], 2)[0].astype(np.float64)

    one = replace(PLAIN, rounds=1)
    stepped, mean_of_clients = model(0.2), model(0.0)
    (reported,) = scalars({"name": "coprefl", "gamma": gamma, "meta_lr": 0.2}, "meta", setting=one)
    length = np.linalg.norm(stepped - mean_of_clients)
    (on_support,) = scalars({"name": "coprefl", "meta_lr": 0.0}, "step", setting=one)
    assert reported["meta_norm"] == pytest.approx(length, rel=1e-3)
    assert reported["meta_ratio"] == pytest.approx(length / on_support["step_norm"], rel=1e-3)
    loss, variance = reported["meta_loss_norm"], reported["meta_variance_norm"]
    assert 0 < variance < loss
    if gamma in (0, 1):
        assert reported["meta_norm"] == pytest.approx(0.2 * (loss if gamma else variance), rel=1e-9)


@pytest.mark.parametrize("algorithm", [{"name": "scaffold", "aggregation": "median"}, "coprefl"])
def test_reports_change_neither_model_nor_traffic_and_are_the_same_on_any_number_of_hosts(algorithm: Any) -> None:
    own = {"scaffold": ["norms"], "coprefl": ["meta"]}
    known = ["step", "divergence", *(name for key, names in own.items() if key in str(algorithm) for name in names)]
    assert scalars(algorithm, *known, hosts=1) == scalars(algorithm, *known, hosts=3)
    outcomes = []
    for report in ([], known):
        model, events = run_on_hosts(prepared(algorithm, PLAIN, {"report": report})[0], 2)
        outcomes.append((model, [event.traffic for event in events if isinstance(event, RoundDone)]))
    assert np.array_equal(outcomes[0][0], outcomes[1][0])
    assert outcomes[0][1] == outcomes[1][1]
    assert not any(
        key in reported for reported in scalars(algorithm) for key in ("step_norm", "divergence", "meta_norm")
    )


def test_dittos_divergence_is_that_of_the_global_model() -> None:
    assert scalars("ditto", "divergence") == scalars("fedavg", "divergence")


@pytest.mark.parametrize(
    ("algorithm", "report", "complaint"),
    [
        ("fedavg", ["norms"], "phases.federated.report: 'fedavg' does not report 'norms'; known: divergence, step"),
        ("scaffold", ["norm"], "phases.federated.report: 'scaffold' does not report 'norm'; did you mean 'norms'?"),
        ("fedavg", ["step", "step"], "phases.federated.report: lists 'step' twice"),
        ("qfedsgd", ["divergence"], "phases.federated.report: 'divergence' needs trained models, but clients of"),
    ],
)
def test_missing_diagnostics_are_named(algorithm: str, report: list[str], complaint: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        prepared(algorithm, RATE if algorithm == "qfedsgd" else PLAIN, {"report": report})
    assert str(caught.value).startswith(complaint)


def test_a_relay_reports_nothing() -> None:
    with pytest.raises(ScenarioError, match=r"phases.federated.report: has no effect with this schedule"):
        prepared("fedavg", PLAIN, {"schedule": "relay", "report": ["step"]})


def test_divergence_needs_somebody_who_trained() -> None:
    idle = "tests.algorithms.test_eval_model:Idle"
    with pytest.raises(ScenarioError, match=rf"report: 'divergence' compares .* clients of '{idle}' answer with none"):
        prepared(idle, PLAIN, {"report": ["divergence"]})
