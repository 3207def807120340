"""What an algorithm computes of a visit's coming batches at once is what it would have computed of each."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest
import torch

from rayfl.algorithms.fedavg import FedAvg
from rayfl.config.phase import Local
from rayfl.data.batches import BatchSource
from rayfl.local import client as client_module
from rayfl.local.client import Client
from rayfl.local.lookahead import Lookahead
from tests.algorithms.scene import PLAIN, prepared


def test_items_come_in_order_whatever_was_seen_of_them_before() -> None:
    items = Lookahead(iter(range(6)))
    assert items.peek(0) == items.peek(-1) == []
    assert next(items) == 0
    assert items.peek(2) == [1, 2]
    assert items.peek(3) == [1, 2, 3]
    assert items.peek(1) == [1]
    assert list(islice(items, 2)) == [1, 2]
    assert items.peek(9) == [3, 4, 5]
    assert list(items) == [3, 4, 5]
    assert items.peek(1) == []


class Foreseeing(FedAvg):
    """Asks twice in every step for its batch doubled."""

    def loss(self, client: Client, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        def double(examples: torch.Tensor) -> torch.Tensor:
            COMPUTED.append(len(examples))
            return 2 * examples

        assert torch.equal(client.foreseen(x, double), 2 * x)
        assert torch.equal(client.foreseen(x, double), 2 * x)
        return super().loss(client, x, y)


COMPUTED: list[int] = []
"""How many examples at a time."""


@pytest.mark.parametrize(
    ("at_once", "local", "computed"),
    [
        (6, {"batch_size": 3, "epochs": 2}, [6, 5, 6, 5]),
        (100, {"batch_size": 3, "epochs": 2}, [22]),
        (2, {"batch_size": 3}, [3, 3, 3, 2]),
        (6, {"batch_size": 3, "steps": 3}, [6, 3]),
        (6, {"batch_size": 3, "epochs": 2, "unfreeze": {"share": 1.0}}, [6, 5, 6, 5]),
        (6, {"batch_size": "full", "epochs": 2}, [11, 11]),
    ],
)
def test_a_batch_is_computed_with_those_that_follow_it_in_the_visit(
    monkeypatch: pytest.MonkeyPatch, at_once: int, local: dict[str, Any], computed: list[int]
) -> None:
    monkeypatch.setattr(client_module, "EXAMPLES_AT_ONCE", at_once)
    COMPUTED.clear()
    job, model = prepared("fedavg", PLAIN)
    source = BatchSource(job.store, torch.device("cpu"))
    settings = Local.model_validate(local)
    client = Client(6, source, model, settings, lr=0.1, seed=0, phase=0, round=1, state={})
    foreseeing = client.train(torch.from_numpy(job.initial.copy()), Foreseeing()).clone()
    assert computed == COMPUTED
    plain = Client(6, source, model, settings, lr=0.1, seed=0, phase=0, round=1, state={})
    assert torch.equal(plain.train(torch.from_numpy(job.initial.copy()), FedAvg()), foreseeing)
