"""`schedule = "local"`: every client alone, against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rayfl.engine.events import Evaluated, RoundDone
from rayfl.errors import ScenarioError
from tests.algorithms.reference import Vector, assert_equal, cross_entropy, fedavg, rounds
from tests.algorithms.scene import EVERYTHING, PLAIN, SIZES, Setting, people, prepared
from tests.engine.memory_store import MemoryStore
from tests.engine.scenes import cast, kept_by_clients, run_on_hosts, snapshot_of

LOCAL = {"schedule": "local"}
OWN = {"evaluation": {"every": 1}}


def plain_models(setting: Setting) -> dict[int, Vector]:
    """float64: the model of each client that has trained."""
    models: dict[int, Vector] = {}
    for cohort in rounds(setting):
        for update in cohort:
            models[update.client] = update.sgd(models.get(update.client, setting.initial()))
    return models


def ours(setting: Setting, hosts: int, algorithm: Any = "fedavg", **changes: Any) -> tuple[dict[int, Vector], Vector]:
    """float64, without padding: the clients' models, and the global one."""
    job, model = prepared(algorithm, setting, LOCAL, **OWN | changes)
    scheduler, server = cast(job, hosts)
    list(scheduler.run())
    store = MemoryStore()

    def values(vector: Any) -> Vector:
        state = model.state_dict(torch.as_tensor(vector))
        return torch.cat([part.flatten() for part in state.values()]).double()

    kept = kept_by_clients(snapshot_of(scheduler, store), store)
    return {client: values(state["phase/own model"]) for client, state in kept.items()}, values(server.committed()[1])


@pytest.mark.parametrize("setting", [PLAIN, EVERYTHING], ids=["plain", "momentum, decay, clipping"])
def test_every_client_goes_on_with_its_own_model(setting: Setting) -> None:
    found, shared = ours(setting, hosts=3)
    expected = plain_models(setting)
    assert found.keys() == expected.keys()
    for client, model in expected.items():
        assert_equal(found[client], model, setting)
    assert torch.equal(shared, setting.initial().float().double())


def test_penalties_belong_to_the_local_objective() -> None:
    one, other = (ours(PLAIN, 1, {"name": "fedprox", "mu": mu})[0] for mu in (0.0, 0.5))
    assert torch.equal(one[0], ours(PLAIN, 1)[0][0])
    assert not torch.equal(one[0], other[0])


def test_clients_are_scored_with_their_own_models_on_their_own_samples_and_nothing_is_sent() -> None:
    _, events = run_on_hosts(prepared("fedavg", PLAIN, LOCAL, **OWN)[0], 2)
    last = [event for event in events if isinstance(event, Evaluated)][-1]
    models, data = plain_models(PLAIN), people()
    x, y = torch.from_numpy(np.asarray(data.test.x)).double(), torch.from_numpy(data.test.y)
    losses = []
    for client in range(len(SIZES)):  # who never took part has the phase's first model
        rows = slice(2 * client, 2 * client + 2)
        losses.append(float(cross_entropy(models.get(client, PLAIN.initial()), x[rows], y[rows])))
    assert last.scores["test_loss"] == pytest.approx(np.mean(losses), abs=1e-5)
    traffic = [event.traffic for event in events if isinstance(event, RoundDone)][-1]
    assert (traffic.transfers, traffic.bytes) == (0, 0)
    shared = [event for event in run_on_hosts(prepared("fedavg", PLAIN)[0], 1)[1] if isinstance(event, RoundDone)]
    assert shared[-1].traffic.bytes > 0


def test_by_default_everybody_trains_in_every_round() -> None:
    job, _ = prepared("fedavg", PLAIN, {"schedule": "local", "cohort": 1.0}, **OWN)
    assert "cohort" not in LOCAL
    assert type(job.scenario.phases[0]).model_fields["cohort"].default == 1.0
    assert job.scenario.evaluation.client_model == "personal"


@pytest.mark.parametrize(
    ("algorithm", "phase", "changes", "complaint"),
    [
        ("fedavg", {}, {"evaluation": {"client_model": "global"}}, r"evaluation.client_model: 'global' scores a model"),
        ("fedavg", {}, {"evaluation": {"personalize": {}}}, r"evaluation: clients of phase 'federated' train alone .*"),
        ("fedavg", {}, {"evaluation": {"over_clients": ["pooled_mean"]}}, r"evaluation: clients of phase 'federated'"),
    ],
)
def test_bad_input_is_named(algorithm: Any, phase: Any, changes: Any, complaint: str) -> None:
    with pytest.raises(ScenarioError, match=complaint):
        prepared(algorithm, PLAIN, {**LOCAL, **phase}, **changes)


def test_no_federated_model_is_as_good_for_a_client_as_its_own_or_as_bad() -> None:
    """A check of the comparison itself: what is compared above is not FedAvg's model."""
    assert not torch.allclose(ours(PLAIN, 1)[0][0], fedavg(PLAIN), atol=1e-2)
