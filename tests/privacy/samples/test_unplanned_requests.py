"""Attacks on `local.dp` in a round that is not traced: no sample is read for a request outside the plan."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from rayfl.algorithms.algorithm import Round
from rayfl.algorithms.exchange import Answer, Exchange
from rayfl.algorithms.fedavg import FedAvg
from rayfl.algorithms.limits import SampleRequest
from rayfl.algorithms.scaffold import SCAFFOLD
from rayfl.algorithms.server_state import RoundContext, ServerState
from rayfl.engine.executors.executor import ClientSamples
from rayfl.errors import ClientError, RayflError, ScenarioError
from rayfl.local.context import ClientContext
from rayfl.local.queries import DataView, Loss, LossAndGradient
from rayfl.local.requests import ClientUpdate, LocalTraining
from tests.engine.scenes import run_on_hosts
from tests.privacy.samples.scene import job, phase

ATTACKED = 3
"""The round, between the second and the last of five."""


class Attacking(FedAvg):
    """Behaves as it says, but in one round."""

    how: str

    def sample_requests(self) -> tuple[SampleRequest, ...]:
        return SampleRequest("query"), SampleRequest(exchange=1)

    def round(self, server: ServerState, context: RoundContext) -> Round:
        yield Exchange(self.ask, server.model, up=(1,))
        yield from super().round(server, context)

    def ask(self, client: ClientContext, model: torch.Tensor) -> ClientUpdate[Answer]:
        how = self.how if client.streams.round == ATTACKED else ""
        if how == "part":
            client.data = replace(client.data, part="mine")
        if how == "both":
            loss, _ = yield LossAndGradient(model, client.data)
        elif how == "training":
            yield LocalTraining(model)
        else:
            loss = yield Loss(model, client.data)
        if how == "more":
            yield Loss(model)
        return Answer(sums={"loss": loss})

    def client_update(self, client: ClientContext, model: torch.Tensor) -> ClientUpdate[Answer]:
        how = self.how if client.streams.round == ATTACKED else ""
        if how == "exchange":
            yield Loss(model)
        if how == "longer":
            yield LocalTraining(model, epochs=50)
        if how == "fewer samples":  # a larger share of them in every step
            yield LocalTraining(model, data=DataView(np.arange(3)))
        return (yield from super().client_update(client, model))


@pytest.mark.parametrize(
    ("how", "exchange", "allowed"),
    [
        ("more", 0, 1),
        ("part", 0, 0),
        ("both", 0, 0),
        ("training", 0, 0),
        ("exchange", 1, 0),
        ("longer", 1, 0),
        ("fewer samples", 1, 0),
    ],
)
def test_a_host_refuses_what_is_not_planned_before_it_reads_a_sample(
    how: str, exchange: int, allowed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[tuple[int, int]] = []
    rows = ClientSamples.rows

    def recorded(samples: ClientSamples, client: ClientContext, view: DataView) -> np.ndarray:
        read.append((client.streams.round, client.streams.exchange))
        return rows(samples, client, view)

    monkeypatch.setattr(ClientSamples, "rows", recorded)
    given = phase("p", 5, cohort=1) | {"algorithm": {"name": f"{__name__}:Attacking", "how": how}}
    said = rf"local\.dp: .* not planned for exchange {exchange} of this round, so it was not carried out; "
    with pytest.raises(ClientError, match=rf"round {ATTACKED}: {said}"):
        run_on_hosts(job(given), 1)
    assert read.count((ATTACKED, exchange)) == allowed


def test_what_is_planned_is_carried_out() -> None:
    given = phase("p", 5, cohort=2) | {"algorithm": {"name": f"{__name__}:Attacking", "how": "not at all"}}
    run_on_hosts(job(given), 2)


def test_the_check_at_the_end_of_a_round_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rayfl.engine.executors.private._check_planned", lambda *_: None)
    given = phase("p", 5, cohort=1) | {"algorithm": {"name": f"{__name__}:Attacking", "how": "more"}}
    with pytest.raises(RayflError, match=rf"in round {ATTACKED} client \d spent more than .* plans for; its"):
        run_on_hosts(job(given), 1)


class Silent(SCAFFOLD):
    """Says nothing about its requests."""


class Understating(FedAvg):
    """Says less than it does in every round."""

    def sample_requests(self) -> tuple[SampleRequest, ...]:
        return (SampleRequest(),)

    def client_update(self, client: ClientContext, model: torch.Tensor) -> ClientUpdate[Answer]:
        yield Loss(model)
        return (yield from super().client_update(client, model))


@pytest.mark.parametrize(
    ("algorithm", "said"),
    [
        (
            {"name": f"{__name__}:Silent", "option": "I"},
            r"^phases\.p\.local\.dp: .* must state .*: return \(SampleRequest\(kind='query'\), SampleRequest\(\)\)`$",
        ),
        (
            {"name": f"{__name__}:Understating"},
            r"^phases\.p\.algorithm: clients of '.*Understating' make the request SampleRequest\(kind='query'\), which",
        ),
    ],
)
def test_an_algorithm_of_a_users_own_states_its_requests(algorithm: Any, said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        job(phase("p", 5) | {"algorithm": algorithm})
