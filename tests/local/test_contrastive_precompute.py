"""What MOON computes for the coming batches of a client update at once is what it would have computed for each."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rayfl.algorithms import penalty as moon
from rayfl.local.batches import TrainingBatch
from rayfl.local.context import ClientContext
from rayfl.local.requests import ClientUpdate, LocalTraining
from tests.local.bench import shared_bench


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
def test_a_batch_is_computed_with_those_that_follow_it_in_the_client_update(
    monkeypatch: pytest.MonkeyPatch, at_once: int, local: dict[str, Any], computed: list[int]
) -> None:
    monkeypatch.setattr(moon, "SAMPLES_AT_ONCE", at_once)
    sizes: list[int] = []

    def double(samples: torch.Tensor) -> torch.Tensor:
        sizes.append(len(samples))
        return 2 * samples

    doubled = moon._TogetherWithComingBatches(double)

    def asking_twice(batch: TrainingBatch) -> torch.Tensor:
        assert torch.equal(doubled(batch), 2 * batch.x)
        assert torch.equal(doubled(batch), 2 * batch.x)
        return batch.outputs.new_zeros(())

    def precomputing(client: ClientContext) -> ClientUpdate[torch.Tensor]:
        trained: torch.Tensor = yield LocalTraining(bench.initial, terms=(asking_twice,))
        return trained

    def plain(client: ClientContext) -> ClientUpdate[torch.Tensor]:
        trained: torch.Tensor = yield LocalTraining(bench.initial)
        return trained

    bench = shared_bench()
    trained = bench.run(bench.client(6, local), precomputing)
    assert sizes == computed
    assert torch.equal(bench.run(bench.client(6, local), plain), trained)
