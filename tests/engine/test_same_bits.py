"""A scenario's result depends on the scenario alone: here, on any number of hosts in this process."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from rayfl.algorithms.algorithm import Round
from rayfl.algorithms.exchange import Answer, Exchange
from rayfl.algorithms.local_training import LocalTrainingAlgorithm
from rayfl.algorithms.server_state import RoundContext, ServerState
from rayfl.local.context import ClientContext
from rayfl.local.requests import ClientUpdate
from rayfl.local.state import Declaration
from rayfl.planning.events import Evaluated, RoundDone
from tests.algorithms.scene import OF_ANY_SCENE, supported
from tests.engine.scenes import FEDERATED, PRETRAIN, prepared, run_on_hosts, tables, without_clock

PEOPLE: dict[str, Any] = {
    "data": {"name": "tests.algorithms.scene:people"},
    "model": {"name": "tests.algorithms.scene:TanhNet", "dropout": 0.3},
}
"""Twelve clients and a network that is quickly trained."""

VARIANTS: list[dict[str, Any]] = [
    *({"algorithm": name} for name in OF_ANY_SCENE),
    {"algorithm": {"name": "scaffold", "aggregation": "geometric_median"}},
    {"algorithm": {"name": "scaffold", "option": "I", "correction": "step", "weighting": "samples"}},
    {"algorithm": {"name": "moon", "first": "initial"}},
    {"algorithm": {"name": "moon", "first": "random"}},
    {"algorithm": {"name": "feddyn", "penalty": "decay", "scale_alpha": True}, "eval_model": "all"},
    {"algorithm": "feddyn", "eval_model": "global"},
    {"algorithm": {"name": "fedexp", "form": "feddecorr"}},
    {"algorithm": {"name": "fedmeta", "variant": "meta_sgd", "split": "round"}},
    {"algorithm": {"name": "fedmeta", "order": "first"}},
    {"algorithm": {"name": "perfedavg", "variant": "hessian_free", "weighting": "samples"}, "eval_model": "all"},
]


class Drifting(LocalTrainingAlgorithm):
    """Clients remember the sum of their own updates, and send it: a second exchange asks them for it once more."""

    exchanges: ClassVar[int] = 2

    def round(self, server: ServerState, context: RoundContext) -> Round:
        first = yield Exchange(self.client_update, server.model)
        second = yield Exchange(self.send_drift)
        server.model += first.mean("delta") + 0.01 * second.mean("drift")

    def client_update(self, client: ClientContext, model: torch.Tensor) -> ClientUpdate[Answer]:
        delta = (yield from self.train(client, model)) - model
        client.state["drift"] = client.state.get("drift", torch.zeros_like(delta)) + delta
        return Answer(client.num_samples, delta=delta)

    def send_drift(self, client: ClientContext) -> Answer:
        return Answer(1.0, drift=client.state["drift"])

    def client_state(self) -> Declaration:
        return {"drift": "phase"}


@pytest.mark.parametrize("hosts", [2, 3, 5])
@pytest.mark.quick_third
def test_model_and_metrics_are_the_same_on_any_number_of_hosts(hosts: int) -> None:
    job = prepared()
    model, events = run_on_hosts(job, 1)
    other_model, other_events = run_on_hosts(job, hosts)
    assert not np.array_equal(model, job.result.initial.vector)
    assert np.array_equal(model, other_model)
    # evaluations of a relay overlap with its later rounds, so the order of events may differ, not their content
    key = {RoundDone: 0, Evaluated: 1}
    for kind in key:
        mine = without_clock([event for event in events if isinstance(event, kind)])
        assert mine == without_clock([event for event in other_events if isinstance(event, kind)])


@pytest.mark.parametrize("relay", ["packed", "spread"])
@pytest.mark.quick_third
def test_the_placement_of_a_relay_does_not_change_the_model(relay: str) -> None:
    model, _ = run_on_hosts(prepared(resources={"relay": relay}), 3)
    expected, _ = run_on_hosts(prepared(), 1)
    assert np.array_equal(model, expected)


def test_client_states_and_several_exchanges_keep_the_bits() -> None:
    phase = FEDERATED | {"algorithm": f"{__name__}:Drifting"}
    job = prepared(phases=[phase])
    expected, _ = run_on_hosts(job, 1)
    for hosts in (2, 3):
        model, _ = run_on_hosts(job, hosts)
        assert np.array_equal(model, expected)


RELAYED: list[Any] = [
    *("fedavg", "fedprox", "moon", "feddecorr", "fedbabu", "fednova", "fedexp", "perfedavg"),
    {"name": "moon", "first": "random"},
]
"""Whose local objective a relay can use; others follow a relay of FedAvg."""


@pytest.mark.parametrize("variant", VARIANTS, ids=repr)
@pytest.mark.quick_third
def test_every_algorithm_keeps_the_bits_after_a_relay_of_its_own(variant: dict[str, Any]) -> None:
    """Clients come back in later rounds; in the last phase they also thaw, and share nothing with the phase before."""
    algorithm = variant["algorithm"]
    local = {"epochs": 2, "batch_size": 4, "momentum": 0.5, "weight_decay": 0.01, "clip_norm": 1.0}
    thawing = {"name": "thawing", "rounds": 2, "local": supported(algorithm, local | {"unfreeze": {"share": 0.7}})}
    phases = [FEDERATED | {"rounds": 4, "local": supported(algorithm, local)}, FEDERATED | thawing]
    relay = PRETRAIN | {"algorithm": algorithm if algorithm in RELAYED else "fedavg"}
    job = prepared(phases=[relay, *(phase | variant for phase in phases)], **PEOPLE)
    expected, expected_events = run_on_hosts(job, 1)
    assert not np.array_equal(expected, job.result.initial.vector)
    for hosts in (2, 3):
        model, events = run_on_hosts(job, hosts)
        assert np.array_equal(model, expected)
        for kind in (RoundDone, Evaluated):
            mine = without_clock([event for event in events if isinstance(event, kind)])
            assert repr(mine) == repr(without_clock([e for e in expected_events if isinstance(e, kind)]))


def test_another_seed_gives_another_model() -> None:
    model, _ = run_on_hosts(prepared(), 1)
    other, _ = run_on_hosts(prepared(seed=8), 1)
    assert not np.array_equal(model, other)


def test_dropout_and_augmentation_take_part_in_the_result() -> None:
    plain = tables()["data"] | {"augment": []}
    model, _ = run_on_hosts(prepared(), 1)
    without, _ = run_on_hosts(prepared(data=plain), 1)
    assert not np.array_equal(model, without)
