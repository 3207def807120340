"""A scenario's result depends on the scenario alone: here, on any number of hosts in this process."""

from __future__ import annotations

from collections.abc import Generator, Sequence

import numpy as np
import pytest
import torch

from rayfl.algorithms.algorithm import Algorithm
from rayfl.algorithms.exchange import Answer, Answers, Exchange, ServerState
from rayfl.engine.events import Evaluated, RoundDone
from rayfl.local.client import Client
from tests.engine.scenes import FEDERATED, prepared, run_on_hosts, tables, without_clock


class Drifting(Algorithm):
    """Clients remember the sum of their own updates, and send it: a second exchange asks them for it once more."""

    stateful = True
    exchanges = 2

    def round(self, server: ServerState, cohort: Sequence[int]) -> Generator[Exchange, Answers, None]:
        first = yield Exchange(self.fit, server.model)
        second = yield Exchange(self.recall)
        server.model += first.mean("delta") + 0.01 * second.mean("drift")

    def fit(self, client: Client, model: torch.Tensor) -> Answer:
        delta = self.local_update(client, model) - model
        client.state["drift"] = client.state.get("drift", torch.zeros_like(delta)) + delta
        return Answer(client.num_samples, delta=delta)

    def recall(self, client: Client) -> Answer:
        return Answer(1.0, drift=client.state["drift"])


@pytest.mark.parametrize("hosts", [2, 3, 5])
def test_model_and_metrics_are_the_same_on_any_number_of_hosts(hosts: int) -> None:
    job = prepared()
    model, events = run_on_hosts(job, 1)
    other_model, other_events = run_on_hosts(job, hosts)
    assert not np.array_equal(model, job.initial)
    assert np.array_equal(model, other_model)
    # evaluations of a relay overlap with its later rounds, so the order of events may differ, not their content
    key = {RoundDone: 0, Evaluated: 1}
    for kind in key:
        mine = without_clock([event for event in events if isinstance(event, kind)])
        assert mine == without_clock([event for event in other_events if isinstance(event, kind)])


@pytest.mark.parametrize("relay", ["packed", "spread"])
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


def test_another_seed_gives_another_model() -> None:
    model, _ = run_on_hosts(prepared(), 1)
    other, _ = run_on_hosts(prepared(seed=8), 1)
    assert not np.array_equal(model, other)


def test_dropout_and_augmentation_take_part_in_the_result() -> None:
    plain = tables()["data"] | {"augment": []}
    model, _ = run_on_hosts(prepared(), 1)
    without, _ = run_on_hosts(prepared(data=plain), 1)
    assert not np.array_equal(model, without)
