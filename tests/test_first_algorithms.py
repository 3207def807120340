"""The mistakes of someone who writes an algorithm for the first time, and what is left of a run that they end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

import rayfl
from rayfl.algorithms.algorithm import Round
from rayfl.algorithms.exchange import Answer
from rayfl.algorithms.fedavg import FedAvg
from rayfl.algorithms.local_training import LocalTrainingAlgorithm
from rayfl.algorithms.server_state import RoundContext, ServerState
from rayfl.errors import RayflError
from rayfl.local.context import ClientContext
from rayfl.local.requests import ClientUpdate


def run(algorithm: str, folder: Path) -> rayfl.Result:
    phase = {"rounds": 6, "cohort": 2, "local": {"lr": 0.5, "batch_size": 8}, "name": "federated"}
    tables: dict[str, Any] = {
        "name": "tiny",
        "data": {"name": "tests.user_code:vectors", "clients": 4},
        "model": "tests.user_code:Linear",
        "phases": [{**phase, "algorithm": f"{__name__}:{algorithm}"}],
    }
    return rayfl.run(tables, backend="inline", folder=folder, console=Console(quiet=True))


class WithoutRound(LocalTrainingAlgorithm):
    pass


class RaisesWhenMade(FedAvg):
    def __init__(self, **options: Any) -> None:
        raise LookupError("not today")


class AnswersWithArray(FedAvg):
    def client_update(self, client: ClientContext, model: torch.Tensor) -> ClientUpdate[Answer]:
        trained = yield from self.train(client, model)
        array: Any = (trained - model).numpy()
        return Answer(1, delta=array)


class ReadsUndeclaredState(FedAvg):
    def client_update(self, client: ClientContext, model: torch.Tensor) -> ClientUpdate[Answer]:
        model = client.state["previous"]
        trained = yield from self.train(client, model)
        return Answer(1, delta=trained)


class MisspellsItsAnswer(FedAvg):
    def round(self, server: ServerState, context: RoundContext) -> Round:
        for exchange in super().round(server, context):
            answers = yield exchange
            answers.mean("dleta")


class RoundWithoutYield(FedAvg):
    def round(self, server: ServerState, context: RoundContext) -> Any:
        return [server.model]


class RaisesBeforeItYields(FedAvg):
    def round(self, server: ServerState, context: RoundContext) -> Any:
        raise LookupError("no round today")


class DeclaresAList(FedAvg):
    def client_state(self) -> Any:
        return ["control"]


class DeclaresAnUnknownScope(FedAvg):
    def server_state(self) -> Any:
        return {"control": "forever"}


class RequiresNothingOfUse(FedAvg):
    def requirements(self) -> Any:
        return None


class RaisesWhenAsked(FedAvg):
    def reads_first_model(self) -> bool:
        raise LookupError("who knows")


class FailsInRoundTwo(FedAvg):
    def client_update(self, client: ClientContext, model: torch.Tensor) -> ClientUpdate[Answer]:
        if client.streams.round == 2:
            raise LookupError("in round 2")
        return (yield from super().client_update(client, model))


@pytest.mark.parametrize(
    ("algorithm", "said"),
    [
        ("WithoutRound", "must define the abstract methods of its base class: round"),
        ("RaisesWhenMade", "RaisesWhenMade raised LookupError: not today"),
        ("AnswersWithArray", "it answered with 'delta' as a ndarray, not a torch.Tensor"),
        ("ReadsUndeclaredState", "client state 'previous' is not declared"),
        ("MisspellsItsAnswer", "no client answered with 'dleta'; the answers hold delta"),
        ("RaisesBeforeItYields", "its round raised on the server"),
        ("RaisesBeforeItYields", "LookupError: no round today"),
        ("DeclaresAList", "DeclaresAList.client_state() must return a scope for every name"),
        ("DeclaresAnUnknownScope", "DeclaresAnUnknownScope.server_state() must return a scope for every name, one of"),
        (
            "RequiresNothingOfUse",
            "RequiresNothingOfUse.requirements() must return a set of batch_norm, buffers, features",
        ),
        ("RaisesWhenAsked", "RaisesWhenAsked.reads_first_model() raised LookupError: who knows"),
        ("RoundWithoutYield", "its round must be a generator that yields an Exchange, not return a list"),
    ],
)
def test_a_mistake_in_an_algorithm_is_named_in_its_author_s_words(algorithm: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(RayflError) as error:
        run(algorithm, tmp_path / "run")
    assert said in str(error.value)


def test_the_round_before_one_that_fails_in_this_process_is_committed(tmp_path: Path) -> None:
    with pytest.raises(RayflError, match="in round 2"):
        run("FailsInRoundTwo", tmp_path / "run")
    status = json.loads((tmp_path / "run" / "status.json").read_text())
    assert (status["committed_rounds"], status["model"]["round"]) == (1, 1)
