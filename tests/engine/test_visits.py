"""What a visit may leave behind: nothing but its answer, and that is checked."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from rayfl.algorithms.exchange import Answer
from rayfl.algorithms.fedavg import FedAvg
from rayfl.errors import ClientError
from rayfl.local.client import Client
from tests.engine.scenes import FEDERATED, PRETRAIN, prepared, run_on_hosts


class OtherNames(FedAvg):
    """Client 3 calls its vector otherwise."""

    def fit(self, client: Client, model: torch.Tensor) -> Answer:
        return Answer(1.0, other=model) if client.id == 3 else Answer(1.0, delta=model)


class Meddling(FedAvg):
    """Client 3 changes what all clients were sent."""

    def fit(self, client: Client, model: torch.Tensor) -> Answer:
        return Answer(1.0, delta=model.add_(1.0) if client.id == 3 else model)


class Empty(FedAvg):
    """Client 3 answers with nothing."""

    def fit(self, client: Client, model: torch.Tensor) -> Answer:
        return Answer(1.0) if client.id == 3 else Answer(1.0, delta=model)


class Short(FedAvg):
    """Client 3 answers with half a vector."""

    def fit(self, client: Client, model: torch.Tensor) -> Answer:
        return Answer(1.0, delta=model[: len(model) // 2] if client.id == 3 else model)


class Leaving(FedAvg):
    """Client 3's code ends the process, as it believes."""

    def local_update(self, client: Client, received: torch.Tensor) -> torch.Tensor:
        if client.id == 3:
            raise SystemExit(7)
        return received


class Poisoning(FedAvg):
    """Client 3 leaves a model that is not finite."""

    def local_update(self, client: Client, received: torch.Tensor) -> torch.Tensor:
        return received * (float("nan") if client.id == 3 else 1.0)


class Querying(FedAvg):
    """Asks for a gradient at the received model, with no training: dropout must be on, and drawn for this visit."""

    def fit(self, client: Client, model: torch.Tensor) -> Answer:
        client.model.load(model)
        client.model.zero_gradient()
        x, y = next(client.batches())
        client.cross_entropy(x, y).backward()  # type: ignore[no-untyped-call]
        return Answer(1.0, delta=torch.cat([-0.1 * client.model.gradient, torch.zeros_like(client.model.buffers)]))


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
        ("OtherNames", r"it answered with \['other'\], others with \['delta'\]"),
        ("Meddling", "changed a vector that was sent to all clients"),
        ("Empty", "an Answer with at least one named vector"),
        ("Short", "its 'delta' has 12272 values, that of others 24544"),
        ("Leaving", "SystemExit: 7"),
    ],
)
def test_an_answer_that_cannot_be_summed_names_its_client(name: str, message: str) -> None:
    phase = FEDERATED | {"algorithm": f"{__name__}:{name}", "cohort": {"given": [[1, 2, 3]]}}
    with pytest.raises(ClientError, match=message) as caught:
        run_on_hosts(prepared(phases=[phase | {"local": {"batch_size": "full"}}]), 1)
    assert caught.value.client == 3


def test_a_relay_blames_the_client_that_left_a_broken_model_not_the_next_one() -> None:
    phase = PRETRAIN | {"algorithm": f"{__name__}:Poisoning", "cohort": {"given": [[1, 3, 2]]}}
    with pytest.raises(ClientError, match="left no model: another length, or values that are not finite") as caught:
        run_on_hosts(prepared(phases=[phase]), 2)
    assert caught.value.client == 3


def test_a_visit_without_training_is_in_training_mode_with_draws_of_its_own() -> None:
    job = prepared(phases=[FEDERATED | {"algorithm": f"{__name__}:Querying"}], evaluation={"every": 1})
    expected, _ = run_on_hosts(job, 1)
    assert np.array_equal(run_on_hosts(job, 3)[0], expected)


def test_buffers_that_are_not_persistent_do_not_pass_from_client_to_client() -> None:
    job = prepared(model={"name": f"{__name__}:Counting"})
    expected, _ = run_on_hosts(job, 1)
    assert np.array_equal(run_on_hosts(job, 3)[0], expected)
