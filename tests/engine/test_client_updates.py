"""What a client update may leave behind: nothing but its answer, and that is checked."""

from __future__ import annotations

from collections.abc import Generator
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import nn

from rayfl.algorithms.exchange import Answer, Answers, Exchange
from rayfl.algorithms.fedavg import FedAvg
from rayfl.algorithms.server_state import RoundContext, ServerState
from rayfl.errors import ClientError, RayflError
from rayfl.interruption import interruptible
from rayfl.local.context import ClientContext
from rayfl.local.queries import Gradient
from rayfl.local.requests import ClientUpdate, LocalTraining
from tests.engine.scenes import FEDERATED, PRETRAIN, prepared, run_on_hosts


class OtherNames(FedAvg):
    """Client 3 calls its vector otherwise."""

    def client_update(self, client: ClientContext, model: torch.Tensor) -> ClientUpdate[Answer]:
        yield from ()
        return Answer(1.0, other=model) if client.id == 3 else Answer(1.0, delta=model)


class Meddling(FedAvg):
    """Client 3 changes what all clients were sent."""

    def client_update(self, client: ClientContext, model: torch.Tensor) -> ClientUpdate[Answer]:
        yield from ()
        return Answer(1.0, delta=model.add_(1.0) if client.id == 3 else model)


class Empty(FedAvg):
    """Client 3 answers with nothing."""

    def client_update(self, client: ClientContext, model: torch.Tensor) -> ClientUpdate[Answer]:
        yield from ()
        return Answer(1.0) if client.id == 3 else Answer(1.0, delta=model)


class Short(FedAvg):
    """Client 3 answers with half a vector."""

    def client_update(self, client: ClientContext, model: torch.Tensor) -> ClientUpdate[Answer]:
        yield from ()
        return Answer(1.0, delta=model[: len(model) // 2] if client.id == 3 else model)


class Negative(FedAvg):
    """Client 3 weighs less than nothing."""

    def client_update(self, client: ClientContext, model: torch.Tensor) -> ClientUpdate[Answer]:
        yield from ()
        return Answer(-1.0 if client.id == 3 else 5.0, delta=model)


class Truncated(FedAvg):
    """Client 3 answers with integers, which are zeros."""

    def client_update(self, client: ClientContext, model: torch.Tensor) -> ClientUpdate[Answer]:
        yield from ()
        return Answer(1.0, delta=(0.1 * model).long() if client.id == 3 else model)


class TruncatedStart(FedAvg):
    """Client 3 trains from integers."""

    def client_update(self, client: ClientContext, model: torch.Tensor) -> ClientUpdate[Answer]:
        trained = yield LocalTraining(model.int() if client.id == 3 else model)
        return Answer(1.0, delta=trained - model)

    def relay(self, client: ClientContext, model: torch.Tensor) -> ClientUpdate[torch.Tensor]:
        yield from ()
        return model.int() if client.id == 3 else model


class TruncatingServer(FedAvg):
    """The server rounds."""

    def round(self, server: ServerState, context: RoundContext) -> Generator[Exchange, Answers]:
        yield from super().round(server, context)
        server.model = server.model.astype(np.int64)


class Leaving(FedAvg):
    """Client 3's code ends the process, as it believes."""

    def client_update(self, client: ClientContext, model: torch.Tensor) -> ClientUpdate[Answer]:
        if client.id == 3:
            raise SystemExit(7)
        return (yield from super().client_update(client, model))


class Interrupting(FedAvg):
    """Client 3's code raises what Ctrl-C raises."""

    def client_update(self, client: ClientContext, model: torch.Tensor) -> ClientUpdate[Answer]:
        if client.id == 3:
            raise KeyboardInterrupt
        return (yield from super().client_update(client, model))


class PanicError(BaseException):
    """As libraries in Rust raise it."""


class Panicking(FedAvg):
    """Client 3's code raises it."""

    def client_update(self, client: ClientContext, model: torch.Tensor) -> ClientUpdate[Answer]:
        if client.id == 3:
            raise PanicError("index out of range")
        return (yield from super().client_update(client, model))


class Poisoning(FedAvg):
    """Client 3 leaves a model that is not finite."""

    def relay(self, client: ClientContext, model: torch.Tensor) -> ClientUpdate[torch.Tensor]:
        yield from ()
        return model * (float("nan") if client.id == 3 else 1.0)


class Querying(FedAvg):
    """Asks for a gradient at the received model, on a part of the samples of its own and augmented; no training."""

    trains: ClassVar[bool] = False

    def client_update(self, client: ClientContext, model: torch.Tensor) -> ClientUpdate[Answer]:
        part, _ = client.data.split(0.5, client.streams.numpy("split"))
        delta = torch.zeros_like(model)
        delta[: client.num_params] = -0.1 * (yield Gradient(model, data=part.augmented()))
        return Answer(1.0, delta=delta)


class Counting(nn.Module):
    """Counts its calls in a buffer that no state dict has, and lets the count matter."""

    calls: torch.Tensor

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()), persistent=False)
        self.layer = nn.Linear(784, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        logits: torch.Tensor = self.layer(x.flatten(1)) * (1 + 0.01 * self.calls)
        return logits


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("OtherNames", r"its Answer has \['other'\], but those of other clients have \['delta'\]"),
        ("Meddling", "modified a vector that was sent to all clients"),
        ("Empty", "its Answer must contain at least one named vector"),
        (
            "Short",
            r"it answered with 'delta' of 12272 values; it must have 24544 \(the parameters' part of a model vector, ",
        ),
        ("Negative", "its answer has the weight -1.0; weights must be finite, not negative"),
        ("Truncated", r"it answered with 'delta' of dtype torch\.int64, which holds no fractions of a change; return"),
        ("TruncatedStart", r"a model of dtype torch\.int32 has lost its fractions; make it floating point numbers"),
        ("Leaving", "SystemExit: 7"),
        ("Interrupting", "(?s)its code raised.*in client_update.*KeyboardInterrupt"),
        ("Panicking", "(?s)its code raised.*in client_update.*PanicError: index out of range"),
    ],
)
def test_an_answer_that_cannot_be_summed_names_its_client(name: str, message: str) -> None:
    phase = FEDERATED | {"algorithm": f"{__name__}:{name}", "cohort": {"explicit": [[1, 2, 3]]}}
    with pytest.raises(ClientError, match=message) as caught:
        run_on_hosts(prepared(phases=[phase | {"local": {"batch_size": "full"}}]), 1)
    assert caught.value.client == 3


def test_ctrl_c_in_a_client_update_in_the_programs_own_process_is_not_the_clients() -> None:
    phase = FEDERATED | {"algorithm": f"{__name__}:Interrupting", "cohort": {"explicit": [[1, 2, 3]]}}
    job = prepared(phases=[phase | {"local": {"batch_size": "full"}}])
    with pytest.raises(KeyboardInterrupt), interruptible():
        run_on_hosts(job, 1)


def test_a_relay_blames_the_client_that_left_a_broken_model_not_the_next_one() -> None:
    phase = PRETRAIN | {"algorithm": f"{__name__}:Poisoning", "cohort": {"explicit": [[1, 3, 2]]}}
    with pytest.raises(ClientError, match="must return a model: a vector of the same length, with finite") as caught:
        run_on_hosts(prepared(phases=[phase]), 2)
    assert caught.value.client == 3


def test_models_of_integers_are_refused_in_a_relay_and_on_the_server() -> None:
    """Their fractions are lost, so that nothing would train."""
    relay = PRETRAIN | {"algorithm": f"{__name__}:TruncatedStart", "cohort": {"explicit": [[1, 3, 2]]}}
    with pytest.raises(ClientError, match=r"its update returned a model of dtype torch\.int32; return") as caught:
        run_on_hosts(prepared(phases=[relay]), 1)
    assert caught.value.client == 3
    server = FEDERATED | {"algorithm": f"{__name__}:TruncatingServer"}
    with pytest.raises(RayflError, match="the server's step in round 1 left a model of dtype int64, which holds no"):
        run_on_hosts(prepared(phases=[server]), 1)


def test_a_client_update_without_training_draws_for_itself() -> None:
    phase = FEDERATED | {"algorithm": f"{__name__}:Querying", "local": {}}
    job = prepared(phases=[phase], evaluation={"every": 1})
    expected, _ = run_on_hosts(job, 1)
    assert not np.array_equal(expected, job.result.initial.vector)
    assert np.array_equal(run_on_hosts(job, 3)[0], expected)


def test_buffers_that_are_not_persistent_do_not_pass_from_client_to_client() -> None:
    job = prepared(model={"name": f"{__name__}:Counting"})
    expected, _ = run_on_hosts(job, 1)
    assert np.array_equal(run_on_hosts(job, 3)[0], expected)
