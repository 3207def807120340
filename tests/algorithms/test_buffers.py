"""Batch norm's running statistics: trained like PyTorch's, averaged, and counted only where the source counts them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from rayfl.engine.events import RoundDone
from rayfl.engine.totals import Traffic
from rayfl.models.network import Network
from rayfl.streams import torch_seed
from tests.algorithms.reference import PlainUpdate
from tests.algorithms.scene import CLASSES, INPUTS, SEED, SIZES, Setting, prepared
from tests.engine.scenes import run_on_hosts


class NormNet(Network):
    """A dense layer, batch norm, and a classifier."""

    ordered_modules = ("first", "norm", "read_out")
    feature_layer = "read_out"

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.first = nn.Linear(INPUTS, 6)
        self.norm = nn.BatchNorm1d(6, momentum=0.4)
        self.read_out = nn.Linear(6, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.read_out(torch.tanh(self.norm(self.first(x))))
        return logits


LOCAL = {"epochs": 4, "batch_size": "full", "lr": 1.5}
IN_PARTS = {"epochs": 2, "batch_size": 4, "drop_last": True, "lr": 0.3}
COHORT = (0, 1, 3, 4, 6, 9, 11)


def state(
    algorithm: str | dict[str, Any], *cohorts: tuple[int, ...], local: Mapping[str, Any] = LOCAL
) -> tuple[torch.Tensor, torch.Tensor]:
    """float64: parameters and running statistics, after a round for each of the cohorts."""
    job, model = prepared(algorithm, Setting(cohorts, len(cohorts), local), model=f"{__name__}:NormNet")
    vector, _ = run_on_hosts(job, 1)
    return _split(model.state_dict(torch.from_numpy(vector)))


def initial() -> tuple[torch.Tensor, torch.Tensor]:
    return _split(_network().state_dict())


def _network() -> NormNet:
    with torch.random.fork_rng():
        torch.manual_seed(torch_seed(SEED, "initial"))
        return NormNet(CLASSES)


def _split(values: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    running = [values[f"norm.running_{what}"] for what in ("mean", "var")]
    others = [value for name, value in values.items() if "running" not in name and "tracked" not in name]
    params, buffers = (torch.cat([part.flatten() for part in parts]).double() for parts in (others, running))
    return params, buffers


@cache
def changes(batches: str = "usual") -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """What each client of the cohort changes, by itself, in parameters and in statistics."""
    start, local = initial(), IN_PARTS if batches == "in parts" else LOCAL
    alone = [state("fedavg", (client,), local=local) for client in COHORT]
    return [params - start[0] for params, _ in alone], [buffers - start[1] for _, buffers in alone]


def weighted(vectors: list[torch.Tensor], weights: list[float]) -> torch.Tensor:
    return sum((p * v for p, v in zip(weights, vectors, strict=True)), torch.zeros(())) / sum(weights)


BY_SIZE = [float(SIZES[client]) for client in COHORT]
PLAIN = [1.0] * len(COHORT)


def close(ours: torch.Tensor, expected: torch.Tensor) -> bool:
    return torch.allclose(ours, expected, rtol=0, atol=3e-6)


def test_a_client_trains_batch_norm_as_pytorch_does() -> None:
    net = _network().double()
    update = PlainUpdate(Setting(((4,),), 1, LOCAL), 4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=update.lr)
    for rows in update.batches:
        optimizer.zero_grad()
        F.cross_entropy(net(update.x[rows]), update.y[rows]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    params, buffers = state("fedavg", (4,))
    expected_params, expected_buffers = _split(net.state_dict())
    assert close(params, expected_params)
    assert close(buffers, expected_buffers)
    assert (buffers - initial()[1]).norm() > 0.1


@pytest.mark.parametrize(("weighting", "weights"), [("samples", BY_SIZE), ("uniform", PLAIN)])
def test_statistics_are_averaged_whatever_the_servers_rate(weighting: str, weights: list[float]) -> None:
    moved, shifted = changes()
    algorithm = {"name": "fedavg", "server_optimizer": {"name": "sgd", "lr": 0.3}, "weighting": weighting}
    params, buffers = state(algorithm, COHORT)
    assert close(params, initial()[0] + 0.3 * weighted(moved, weights))
    assert close(buffers, initial()[1] + weighted(shifted, weights))


@pytest.mark.parametrize("algorithm", ["fedavgm", "fedadam"])
def test_server_optimisers_leave_statistics_to_the_mean(algorithm: str) -> None:
    _, buffers = state(algorithm, COHORT)
    assert close(buffers, initial()[1] + weighted(changes()[1], BY_SIZE))


@pytest.mark.parametrize("algorithm", [{"name": "scaffold"}, {"name": "feddyn", "alpha": 1e-9}])
def test_plain_means_of_statistics(algorithm: dict[str, Any]) -> None:
    """In their first round, when nothing corrects the clients yet."""
    _, buffers = state(algorithm, COHORT)
    assert close(buffers, initial()[1] + weighted(changes()[1], PLAIN))


def test_fednova_does_not_rescale_statistics_by_steps() -> None:
    """They move by a share of the way at every step, so a variance that is rescaled may fall below zero."""
    _, buffers = state("fednova", COHORT, local=IN_PARTS)
    assert close(buffers, initial()[1] + weighted(changes("in parts")[1], BY_SIZE))


@pytest.mark.parametrize("form", ["paper", "feddecorr"])
def test_fedexp_counts_statistics_only_in_feddecorrs_form(form: str) -> None:
    """Whose code takes norms over the whole state."""
    moved, shifted = changes()
    counted = moved if form == "paper" else [torch.cat(parts) for parts in zip(moved, shifted, strict=True)]
    squared = sum(float(change.square().sum()) for change in counted) / len(COHORT)
    rate = squared / (2 * (float(weighted(counted, PLAIN).square().sum()) + 1e-3))
    assert rate > 1.05
    params, buffers = state({"name": "fedexp", "form": form}, COHORT)
    assert close(params, initial()[0] + rate * weighted(moved, PLAIN))
    assert (buffers - initial()[1]).norm() > 0.1


RETURNING = ((0, 3, 4), (2, 4, 7), (4, 0, 11))
"""Some clients come back."""


def plain_loop(buffers: str, cohorts: tuple[tuple[int, ...], ...]) -> tuple[torch.Tensor, torch.Tensor]:
    """FedAvg with PyTorch's own batch norm: what a client starts from is the global model, but for its statistics."""
    model = {name: value.double() for name, value in _network().state_dict().items()}
    initial, own = dict(model), dict[int, dict[str, torch.Tensor]]()
    for number, cohort in enumerate(cohorts, start=1):
        returned = []
        for client in cohort:
            net = _network().double()
            net.load_state_dict(model)
            if buffers == "keep":
                net.load_state_dict(own.get(client, {}), strict=False)
            elif buffers == "reset":
                net.load_state_dict({name: value for name, value in initial.items() if "running" in name}, strict=False)
            update = PlainUpdate(Setting(cohorts, len(cohorts), LOCAL), client, number)
            optimizer = torch.optim.SGD(net.parameters(), lr=update.lr)
            for rows in update.batches:
                optimizer.zero_grad()
                torch.autograd.backward(F.cross_entropy(net(update.x[rows]), update.y[rows]))
                optimizer.step()
            state = {name: value.double().clone() for name, value in net.state_dict().items()}
            own[client] = {name: value for name, value in state.items() if "running" in name}
            returned.append(state)
        weights = [float(SIZES[client]) for client in cohort]
        model = {name: weighted([state[name] for state in returned], weights) for name in model}
    return _split(model)


@pytest.mark.parametrize("buffers", ["average", "keep", "reset"])
def test_a_client_starts_from_averaged_kept_or_initial_statistics(buffers: str) -> None:
    """The server averages what comes back in all cases, so that the global model can be evaluated."""
    params, statistics = state({"name": "fedavg", "buffers": buffers}, *RETURNING)
    expected_params, expected_statistics = plain_loop(buffers, RETURNING)
    assert close(params, expected_params)
    assert close(statistics, expected_statistics)
    for other in {"average", "keep", "reset"} - {buffers}:
        assert not close(statistics, plain_loop(other, RETURNING)[1])


@pytest.mark.parametrize(
    ("algorithm", "down", "up", "transfers"),
    [
        ("fedavg", 75, 75, 2),
        ({"name": "fedavg", "buffers": "keep"}, 63, 63, 2),
        ({"name": "fedavg", "buffers": "reset"}, 63, 63, 2),
        ("scaffold", 75 + 63, 75 + 63, 4),
        ({"name": "scaffold", "buffers": "keep"}, 63 + 63, 63 + 63, 4),
        ({"name": "moon", "first": "initial"}, 75 + 75, 75, 3),
        ({"name": "moon", "first": "random"}, 75, 75, 2),
    ],
    ids=str,
)
def test_statistics_that_stay_with_a_client_are_not_sent(algorithm: Any, down: int, up: int, transfers: int) -> None:
    """4 * 6 + 6, 2 * 6, 6 * 3 + 3 parameters, 2 * 6 statistics; control variates have none."""
    job, _ = prepared(algorithm, Setting((COHORT,), 1, LOCAL), model=f"{__name__}:NormNet")
    _, events = run_on_hosts(job, 2)
    moved = next(event for event in events if isinstance(event, RoundDone)).traffic
    number = len(COHORT)
    assert moved == Traffic(transfers * number, down * number, up * number, 4 * down * number, 4 * up * number)
