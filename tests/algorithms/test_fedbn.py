"""FedBN: batch norm stays with the clients, against a loop of plain PyTorch in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from rayfl.engine.events import RoundDone
from rayfl.errors import ScenarioError
from tests.algorithms.reference import PlainUpdate
from tests.algorithms.scene import PLAIN, Setting, prepared
from tests.algorithms.test_buffers import LOCAL, NormNet, _network
from tests.engine.memory_store import MemoryStore
from tests.engine.scenes import cast, kept_by_clients, run_on_hosts, snapshot_of

COHORTS = ((0, 4, 9), (4, 9, 11), (0, 4, 11))
SETTING = Setting(COHORTS, 3, LOCAL)
NETWORK = "tests.algorithms.test_buffers:NormNet"
State = dict[str, torch.Tensor]


def of_norm(name: str) -> bool:
    return name.startswith("norm.")


def plain_fedbn() -> tuple[State, dict[int, State]]:
    """float64: the global model, with the mean of the participants' batch norm, and each client's batch norm."""
    model = {name: value.double() for name, value in _network().state_dict().items()}
    own: dict[int, State] = {}
    for number, cohort in enumerate(COHORTS, start=1):
        trained: list[tuple[int, State]] = []
        for client in cohort:
            net: NormNet = _network().double()
            net.load_state_dict(model | own.get(client, {}))
            net.train()
            update = PlainUpdate(SETTING, client, number)
            optimizer = torch.optim.SGD(net.parameters(), lr=update.lr)
            for rows in update.batches:
                optimizer.zero_grad()
                F.cross_entropy(net(update.x[rows]), update.y[rows]).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
            state = {name: value.detach().clone() for name, value in net.state_dict().items()}
            trained.append((update.n, state))
            own[client] = {name: value for name, value in state.items() if of_norm(name)}
        total = sum(n for n, _ in trained)
        for name in model:
            model[name] = sum(n * state[name] for n, state in trained) / total
    return model, own


def counted(state: State) -> list[str]:
    return [name for name in state if "tracked" not in name]


def test_batch_norm_stays_with_the_clients_and_everything_else_is_averaged() -> None:
    job, model = prepared("fedbn", SETTING, model=NETWORK)
    scheduler, server = cast(job, 2)
    list(scheduler.run())
    store = MemoryStore()
    clients = kept_by_clients(snapshot_of(scheduler, store), store)
    assert clients.keys() == {0, 4, 9, 11}
    expected, own = plain_fedbn()
    ours = model.state_dict(torch.from_numpy(server.committed()[1]))
    for name in counted(expected):
        assert torch.allclose(ours[name].double(), expected[name], rtol=0, atol=2e-5), name
    slots = [slot for slot in model.layout if of_norm(slot.name)]
    for client, state in clients.items():
        values = torch.cat([own[client][slot.name].flatten() for slot in slots])
        assert np.allclose(state["phase/own part"], values, rtol=0, atol=2e-5)
    assert not torch.allclose(own[0]["norm.running_mean"], own[4]["norm.running_mean"], atol=0.05)
    assert not torch.allclose(own[0]["norm.weight"], own[4]["norm.weight"], atol=1e-3)


@pytest.mark.parametrize("aggregation", ["mean", "median"])
def test_hosts_do_not_matter_and_batch_norm_is_in_no_message(aggregation: str) -> None:
    algorithm = {"name": "fedbn", "weighting": "uniform", "aggregation": aggregation}
    models, events = zip(
        *(run_on_hosts(prepared(algorithm, SETTING, model=NETWORK)[0], h) for h in (1, 3)), strict=True
    )
    assert np.array_equal(models[0], models[1])
    (last,) = [event for event in events[0] if isinstance(event, RoundDone) and event.round == 3]
    network = NormNet(3)
    outside = sum(p.numel() for name, p in network.named_parameters() if not of_norm(name))
    assert last.traffic.down_values == last.traffic.up_values == 9 * outside


def test_fednova_and_fedavg_still_send_batch_norm() -> None:
    for name in ("fedavg", "fednova"):
        _, events = run_on_hosts(prepared(name, SETTING, model=NETWORK)[0], 1)
        (last,) = [event for event in events if isinstance(event, RoundDone) and event.round == 3]
        network = NormNet(3)
        values = sum(p.numel() for p in network.parameters()) + 2 * network.norm.num_features
        assert last.traffic.down_values == 9 * values


@pytest.mark.parametrize(
    ("options", "phase", "changes", "complaint"),
    [
        ({"buffers": "keep"}, {}, {}, "phases.federated.algorithm: buffers has no effect where clients keep a part"),
        (
            {},
            {},
            {"model": "tests.algorithms.scene:TanhNet"},
            r"phase 'federated' \(fedbn\) needs batch norm, and model TanhNet has none; use 'fedavg'",
        ),
        ({}, {"train": "head"}, {}, r"\(fedbn\) needs batch norm, and model NormNet has none that the phase trains"),
    ],
)
def test_bad_input_is_named(
    options: dict[str, Any], phase: dict[str, Any], changes: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ScenarioError, match=complaint):
        prepared({"name": "fedbn", **options}, PLAIN, phase, **{"model": NETWORK, **changes})
