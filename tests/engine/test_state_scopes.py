"""How long named states live: within a round, a phase or the run, on clients and on the server."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from rayfl.algorithms.algorithm import Round
from rayfl.algorithms.exchange import Answer, Exchange
from rayfl.algorithms.local_training import LocalTrainingAlgorithm
from rayfl.algorithms.server_state import RoundContext, ServerState
from rayfl.errors import ClientError, RayflError, ScenarioError
from rayfl.local.context import ClientContext
from rayfl.local.requests import ClientUpdate
from rayfl.local.state import Declaration
from tests.engine.scenes import kept_by_clients, prepared, run_on_hosts, snapshot_after

SCOPES: Declaration = {"in_round": "round", "in_phase": "phase", "in_run": "run"}
COUNTED: list[tuple[int, int, str, dict[str, int]]] = []
"""(round, exchange, who, its counts by scope)."""


class Counting(LocalTrainingAlgorithm):
    """Clients count exchanges, and the server rounds, in a state of every scope."""

    exchanges: ClassVar[int] = 2

    def round(self, server: ServerState, context: RoundContext) -> Round:
        for name in SCOPES:
            server.keep(name, server.get(name, 0.0) + 1)
        COUNTED.append((context.round, 0, "server", {name: int(server.state[name][0]) for name in SCOPES}))
        for _ in range(2):
            yield Exchange(self.count, server.model)

    def count(self, client: ClientContext, model: torch.Tensor) -> Answer:
        for name in SCOPES:
            client.state[name] = client.state.get(name, torch.zeros(1)) + 1
        counts = {name: int(client.state[name]) for name in SCOPES}
        COUNTED.append((client.streams.round, client.streams.exchange, f"client {client.id}", counts))
        return Answer(number=torch.ones(1))

    def client_state(self) -> Declaration:
        return SCOPES

    def server_state(self) -> Declaration:
        return SCOPES


PEOPLE: dict[str, Any] = {
    "data": {"name": "tests.algorithms.scene:people"},
    "model": {"name": "tests.algorithms.scene:TanhNet"},
    "evaluation": {"every": 100},
}


def phase(name: str, algorithm: str, rounds: int = 2) -> dict[str, Any]:
    return {"name": name, "algorithm": algorithm, "rounds": rounds, "cohort": {"explicit": [[0, 3]]}}


@pytest.mark.parametrize("between", [[], ["fedavg"], ["scaffold"]], ids=["nothing", "fedavg", "scaffold"])
def test_states_live_as_long_as_their_scope_says(between: list[str]) -> None:
    """Whatever other algorithms, with states of their own or without any, run between two phases."""
    counting = f"{__name__}:Counting"
    phases = [phase("first", counting), *(phase(name, name, 1) for name in between), phase("last", counting)]
    made = prepared(phases=phases, **PEOPLE)
    COUNTED.clear()  # of the trace
    run_on_hosts(made, 2)
    rounds = [1, 2, *(number + len(between) for number in (3, 4))]
    for who, per_round in (("client 0", 2), ("client 3", 2), ("server", 1)):
        own = [(round, exchange, counts) for round, exchange, counted, counts in COUNTED if counted == who]
        assert [(round, exchange) for round, exchange, _ in own] == [
            (round, exchange) for round in rounds for exchange in range(per_round)
        ]
        counts = [counts for *_, counts in own]
        assert [count["in_round"] for count in counts] == [1 + number % per_round for number in range(4 * per_round)]
        assert [count["in_phase"] for count in counts] == [*range(1, 2 * per_round + 1)] * 2
        assert [count["in_run"] for count in counts] == [*range(1, 4 * per_round + 1)]


class Forgetting(LocalTrainingAlgorithm):
    """Clients keep something in odd rounds and drop it in even ones."""

    def round(self, server: ServerState, context: RoundContext) -> Round:
        yield Exchange(self.change)

    def change(self, client: ClientContext) -> Answer:
        KNOWN.append("note" in client.state)
        if client.streams.round % 2:
            client.state["note"] = torch.ones(1)
        else:
            del client.state["note"]
        return Answer(number=torch.ones(1))

    def client_state(self) -> Declaration:
        return {"note": "phase"}


KNOWN: list[bool] = []


def test_a_dropped_state_is_gone() -> None:
    made = prepared(phases=[phase("p", f"{__name__}:Forgetting", rounds=4)], **PEOPLE)
    KNOWN.clear()  # of the trace
    run_on_hosts(made, 1)
    assert KNOWN == [False, False, True, True] * 2


class UndeclaredOnClients(Counting):
    def client_state(self) -> Declaration:
        return {"in_round": "round", "in_run": "run"}


class UndeclaredOnTheServer(Counting):
    def server_state(self) -> Declaration:
        return {}


def test_undeclared_state_is_rejected_by_name() -> None:
    with pytest.raises(ClientError) as on_client:
        run_on_hosts(prepared(phases=[phase("p", f"{__name__}:UndeclaredOnClients")], **PEOPLE), 1)
    assert on_client.value.client == 0
    assert (
        "client state 'in_phase' is not declared; return it, with its scope, from client_state() of the "
        "algorithm or the task (declared: in_round, in_run)" in str(on_client.value)
    )
    with pytest.raises(
        RayflError,
        match=r"server state 'in_round' is not declared; return it, with its scope, from the algorithm's "
        r"server_state\(\) \(declared: none\)",
    ):
        run_on_hosts(prepared(phases=[phase("p", f"{__name__}:UndeclaredOnTheServer")], **PEOPLE), 1)


class Keeping(LocalTrainingAlgorithm):
    """Keeps something of other dtypes."""

    def round(self, server: ServerState, context: RoundContext) -> Round:
        answers = yield Exchange(self.client_update, server.model)
        delta = answers.mean("delta")[: server.num_params]
        if context.round == 2:
            server.keep("kept", np.fft.rfft(delta))
        server.apply_update(delta)

    def client_update(self, client: ClientContext, model: torch.Tensor) -> ClientUpdate[Answer]:
        trained = yield from self.train(client, model)
        client.state["kept"] = self.kept(trained - model)
        return Answer(client.num_samples, delta=trained - model)

    def kept(self, delta: torch.Tensor) -> torch.Tensor:
        return delta.bfloat16()

    def server_state(self) -> Declaration:
        return {"kept": "phase"}

    def client_state(self) -> Declaration:
        return {"kept": "phase"}


class KeepsSpectra(Keeping):
    def kept(self, delta: torch.Tensor) -> torch.Tensor:
        return torch.complex(delta, -delta)


@pytest.mark.parametrize(
    ("algorithm", "message"),
    [
        ("Keeping", "client state 'kept': torch.bfloat16 is no dtype of numpy"),
        ("KeepsSpectra", "server state 'kept': complex128 is no dtype of real numbers"),
    ],
)
def test_what_a_checkpoint_cannot_hold_is_rejected_where_it_is_kept(algorithm: str, message: str) -> None:
    with pytest.raises(RayflError, match=message):
        run_on_hosts(prepared(phases=[phase("p", f"{__name__}:{algorithm}", rounds=2)], **PEOPLE), 1)


def test_complex_state_of_clients_is_stored_and_read() -> None:
    made = prepared(phases=[phase("p", f"{__name__}:KeepsSpectra", rounds=1)], **PEOPLE)
    snapshot, store = snapshot_after(made, 1, 2)
    kept = kept_by_clients(snapshot, store)
    assert kept
    assert all(np.array_equal(state["phase/kept"].imag, -state["phase/kept"].real) for state in kept.values())


class ClaimsResiduals(Counting):
    def client_state(self) -> Declaration:
        return {"top_k residual of delta": "phase"}


def test_an_algorithm_and_a_transform_may_not_keep_the_same_state() -> None:
    table = phase("p", f"{__name__}:ClaimsResiduals") | {"transforms": ["top_k"]}
    with pytest.raises(ScenarioError, match=r"phases\.p: .* both keep a state named 'top_k residual of delta'"):
        prepared(phases=[table], **PEOPLE)


def test_kept_arrays_are_not_to_be_written_to() -> None:
    server = ServerState(np.zeros(3, np.float32), 3, 1, declared={"velocity": "phase"})
    server.keep("velocity", np.ones(3))
    with pytest.raises(ValueError, match="read-only"):
        server.state["velocity"] += 1
