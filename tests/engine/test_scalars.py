"""What algorithms report beside the model: from clients, as a mean over the cohort, and from the server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from rich.console import Console

import rayfl
from rayfl.algorithms.algorithm import Round
from rayfl.algorithms.exchange import Answer, Exchange
from rayfl.algorithms.fedavg import FedAvg
from rayfl.algorithms.server_state import RoundContext, ServerState
from rayfl.engine.events import ClientScalars, RoundDone
from rayfl.local.context import ClientContext
from rayfl.local.requests import ClientUpdate
from tests.engine.scenes import prepared, run_on_hosts

COHORT = [0, 3, 4, 7]


class Reporting(FedAvg):
    """Clients report in both exchanges, and not all of them the same; so does the server."""

    exchanges: ClassVar[int] = 2

    def round(self, server: ServerState, context: RoundContext) -> Round:
        answers = yield Exchange(self.client_update, server.model)
        server.report(cohort=len(context.cohort), overwritten=1.0)
        yield Exchange(self.last_words)
        server.report(overwritten=2.0, rounds_so_far=context.round_in_phase)
        self.apply(server, answers.mean("delta"))

    def client_update(self, client: ClientContext, model: torch.Tensor) -> ClientUpdate[Answer]:
        client.report(number=client.id)
        if client.id == 3:
            client.report(rare=0.5)
        return (yield from super().client_update(client, model))

    def last_words(self, client: ClientContext) -> Answer:
        client.report(squared=client.id**2)
        return Answer(one=torch.ones(1))


TABLES: dict[str, Any] = {
    "name": "reporting",
    "data": {"name": "tests.algorithms.scene:people"},
    "model": {"name": "tests.algorithms.scene:TanhNet"},
    "phases": [
        {
            "name": "p",
            "algorithm": f"{__name__}:Reporting",
            "rounds": 2,
            "cohort": {"explicit": [COHORT]},
            "local": {"batch_size": 4},
        }
    ],
    "evaluation": {"every": 1},
}


@pytest.mark.parametrize("hosts", [1, 3])
def test_reported_scalars_reach_the_rounds_event(hosts: int) -> None:
    """Of clients, the mean over those that reported; what the server said last."""
    _, events = run_on_hosts(prepared(**TABLES), hosts)
    rounds = [event for event in events if isinstance(event, RoundDone)]
    assert len(rounds) == 2
    for number, done in enumerate(rounds, start=1):
        assert done.scalars == {
            "number": 14 / 4, "rare": 0.5, "squared": (9 + 16 + 49) / 4,
            "cohort": 4.0, "overwritten": 2.0, "rounds_so_far": number,
        }  # fmt: skip
        assert done.client_scalars == (
            ClientScalars(0, {"number": 0.0, "squared": 0.0}),
            ClientScalars(3, {"number": 3.0, "rare": 0.5, "squared": 9.0}),
            ClientScalars(4, {"number": 4.0, "squared": 16.0}),
            ClientScalars(7, {"number": 7.0, "squared": 49.0}),
        )


def test_reported_scalars_are_in_the_metrics(tmp_path: Path) -> None:
    result = rayfl.run(TABLES, backend="inline", out=tmp_path, console=Console(quiet=True))
    lines = (result.directory / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["rounds_so_far"] for line in lines] == [1, 2]
    for line in lines:
        row = json.loads(line)
        assert (row["number"], row["rare"], row["cohort"], row["overwritten"]) == (3.5, 0.5, 4.0, 2.0)
    assert result.metrics["squared"].to_pylist() == [18.5, 18.5]
