"""`evaluation.client_model = "personal"`: every client's own model, on its own test samples, wherever it is kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from rayfl.algorithms.personalization import Ditto
from rayfl.backends.inline import InlineBackend
from rayfl.engine.events import Evaluated
from rayfl.engine.host import Host
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.engine.scheduler import Scheduler
from rayfl.engine.server import Server
from rayfl.errors import ClientError, ScenarioError
from rayfl.local.context import ClientContext
from rayfl.models.flat import FlatModel
from rayfl.models.tensors import split
from tests.algorithms.scene import CLASSES, PLAIN, SIZES, TanhNet, people, prepared
from tests.algorithms.test_buffers import NormNet
from tests.engine.memory_store import MemoryStore
from tests.engine.scenes import continued, kept_by_clients, run_on_hosts, snapshot_after, snapshot_of, without_clock

PERSONAL: dict[str, Any] = {"evaluation": {"every": 1, "client_model": "personal", "batch_size": 3}}
FULL_BATCH = PLAIN.with_local(batch_size="full")
NETWORKS: dict[str, tuple[str, type[nn.Module]]] = {
    "ditto": ("tests.algorithms.scene:TanhNet", TanhNet),
    "fedbn": ("tests.algorithms.test_buffers:NormNet", NormNet),
    "kept buffers": ("tests.algorithms.test_buffers:NormNet", NormNet),
}


def made(name: str, **changes: Any) -> tuple[RunPlan, FlatModel]:
    algorithm = {"name": "fedavg", "buffers": "keep"} if name == "kept buffers" else name
    return prepared(algorithm, FULL_BATCH, model=NETWORKS[name][0], **PERSONAL | changes)


def finished(
    job: RunPlan, hosts: int, ahead: int = 0
) -> tuple[list[Any], np.ndarray, dict[int, dict[str, np.ndarray]]]:
    server = Server(job)
    backend = InlineBackend([Host(index, job) for index in range(hosts)], server)
    backend.rounds_ahead = ahead
    scheduler = Scheduler(job, backend)
    events = list(scheduler.run())
    store = MemoryStore()
    return events, split(server.committed()[1])[0], kept_by_clients(snapshot_of(scheduler, store), store)


def own_vector(name: str, model: FlatModel, vector: np.ndarray, kept: dict[str, np.ndarray]) -> np.ndarray:
    """By each algorithm's definition, from what the client keeps."""
    own = np.array(vector)
    if name == "ditto":
        return kept.get("phase/personal", own)
    if name == "kept buffers":
        own[len(model.params) :] = kept.get("phase/buffers", own[len(model.params) :])
    elif kept:
        start = 0
        for slot in (slot for slot in model.layout if slot.name.startswith("norm.")):
            values = kept["phase/own part"][start : start + slot.size]
            own[slot.offset : slot.offset + slot.size] = values
            start += slot.size
    return own


@pytest.mark.parametrize("name", NETWORKS)
def test_every_client_is_scored_with_its_own_model(name: str) -> None:
    job, model = made(name)
    events, vector, clients = finished(job, 2)
    *_, last = [event for event in events if isinstance(event, Evaluated)]
    data = people().test
    x, y = torch.from_numpy(np.asarray(data.x)), torch.from_numpy(data.y)
    never = set(range(len(SIZES))) - clients.keys()
    assert never, "one that never took part has the global model"
    assert [score.client for score in last.clients] == list(range(len(SIZES)))
    correct = 0
    for score in last.clients:
        kept = clients.get(score.client, {})
        network = NETWORKS[name][1](CLASSES)
        state = model.state_dict(torch.from_numpy(own_vector(name, model, vector, kept)))
        network.load_state_dict(state)
        rows = slice(2 * score.client, 2 * score.client + 2)
        logits = network.eval()(x[rows]).detach()
        assert score.scores["loss"] == pytest.approx(float(cross_entropy(logits, y[rows])), rel=1e-5)
        correct += int((logits.argmax(dim=1) == y[rows]).sum())
    assert last.scores["test_accuracy"] == correct / len(y)
    job, _ = made(name, evaluation={"every": 1})
    *_, everybodys = [event for event in finished(job, 1)[0] if isinstance(event, Evaluated)]
    assert everybodys.scores["test_loss"] != last.scores["test_loss"]


@pytest.mark.parametrize("name", NETWORKS)
def test_neither_hosts_nor_rounds_submitted_ahead_change_a_score(name: str) -> None:
    outcomes = []
    for hosts, ahead in ((1, 0), (3, 2)):
        events, vector, _ = finished(made(name)[0], hosts, ahead)
        outcomes.append((without_clock(events), vector))
    assert outcomes[0][0] == outcomes[1][0]
    assert np.array_equal(outcomes[0][1], outcomes[1][1])


@pytest.mark.parametrize("round", [1, 2])
def test_a_run_that_goes_on_from_a_snapshot_gives_the_same_scores(round: int) -> None:
    job, _ = made("ditto")
    whole, _, _ = finished(job, 1)
    later = without_clock(continued(job, *snapshot_after(job, round, 3), hosts=2)[1])
    assert later == without_clock(whole)[-len(later) :]
    assert [event["round"] for event in later if "scores" in event] == list(range(round, PLAIN.rounds + 1))


def test_a_phase_whose_algorithm_keeps_none_is_scored_with_the_global_model() -> None:
    local = dict(PLAIN.local)
    relay = {"name": "cyclic", "schedule": "relay", "rounds": 2, "cohort": 3, "local": local}
    ditto = {"name": "ditto", "rounds": 2, "cohort": 4, "local": local, "algorithm": "ditto"}
    scores = {}
    for kind in ("global", "personal"):
        changes: dict[str, Any] = {"evaluation": {"every": 1, "client_model": kind, "per_client": True}}
        events, _, _ = finished(prepared("ditto", PLAIN, phases=[relay, ditto], **changes)[0], 2)
        scores[kind] = [event for event in without_clock(events) if "scores" in event]
    assert scores["global"][:2] == scores["personal"][:2]
    assert scores["global"][2:] != scores["personal"][2:]


class Losing(Ditto):
    def personal_model(self, client: ClientContext, model: torch.Tensor) -> torch.Tensor:
        return super().personal_model(client, model)[1:]


def test_a_users_personal_model_of_another_length_is_named() -> None:
    job, _ = prepared(f"{__name__}:Losing", PLAIN, **PERSONAL)
    with pytest.raises(ClientError, match=r"client 0 on worker 0, .* its personal_model must return a model"):
        run_on_hosts(job, 1)


@pytest.mark.parametrize(
    ("algorithm", "changes", "complaint"),
    [
        (
            "fedavg",
            PERSONAL,
            r"evaluation.client_model: 'personal' needs an algorithm .* \(ditto, fedbn, .*\), and 'fedavg' has none",
        ),
        (
            "ditto",
            PERSONAL | {"data": {"name": "tests.algorithms.scene:people", "clients": 12, "partition": "iid"}},
            r"evaluation.client_model needs test samples by client: cut them",
        ),
        (
            "ditto",
            {"evaluation": {"client_model": "personal", "personalize": {"lr": 0.1}}},
            r"evaluation: personalize trains the global model, and client_model = 'personal' scores other models",
        ),
    ],
)
def test_algorithms_without_personal_models_are_rejected(
    algorithm: str, changes: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ScenarioError, match=complaint):
        prepared(algorithm, PLAIN, **changes)
