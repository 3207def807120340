"""What a client update asks for, against autograd in float64; and whose the results are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from rayfl.errors import RayflError, ScenarioError
from rayfl.local.batches import TrainingBatch
from rayfl.local.context import ClientContext
from rayfl.local.queries import DataView, Gradient, HessianVectorProduct, Loss, LossAndGradient, Rehearsal
from rayfl.local.requests import ClientUpdate, LocalTraining, Request
from tests.algorithms.reference import X, Y, cross_entropy
from tests.algorithms.scene import EVERYTHING, SEED, SIZES, TanhNet
from tests.local.bench import Bench

CLIENT = 4
BATCHES = {"epochs": 2, "batch_size": 6}
LOUD_NET = {"name": "tests.algorithms.scene:TanhNet", "loudness": 1.7, "dropout": 0.5}
"""Training mode would tell."""


@pytest.fixture(scope="module")
def bench() -> Bench:
    return Bench(model=LOUD_NET)


def asked(bench: Bench, request: Request, **client: Any) -> torch.Tensor:
    """The result of a client update's only request."""

    def update(client: ClientContext) -> ClientUpdate[torch.Tensor]:
        result: torch.Tensor = yield request
        return result

    return bench.run(bench.client(CLIENT, BATCHES, **client), update)


def plain(bench: Bench, vector: torch.Tensor) -> torch.Tensor:
    """float64, without padding, in the order of the network's parameters."""
    state = bench.model.state_dict(torch.cat([vector, bench.initial[len(vector) :]]))
    return torch.cat([part.flatten() for part in state.values()]).double()


def flat(bench: Bench, values: torch.Tensor) -> torch.Tensor:
    """The reverse: float32 [num_params]."""
    vector, start = torch.zeros(len(bench.model.params)), 0
    for slot in bench.model.layout:
        slot.view(vector).copy_(values[start : start + slot.size].reshape(slot.view(vector).shape))
        start += slot.size
    return vector


def loss_on(view: DataView) -> Callable[[torch.Tensor], torch.Tensor]:
    """The mean loss on some of the client's samples, as a function of the parameters."""
    rows = sum(SIZES[:CLIENT]) + view.places
    return lambda w: cross_entropy(w, X[rows], Y[rows])


def views(bench: Bench) -> Mapping[str, DataView | None]:
    client = bench.client(CLIENT, BATCHES)
    support, query = client.data.split(0.3, client.streams.numpy("split"))
    return {"all": None, "support": support, "query": query, "twice": DataView(np.array([3, 3, 0]))}


@pytest.mark.parametrize("at_once", [256, 3], ids=["at once", "in pieces"])
@pytest.mark.parametrize("part", ["all", "support", "query", "twice"])
def test_losses_gradients_and_hessian_vector_products_are_those_of_autograd(
    bench: Bench, part: str, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rayfl.engine.executors.executor.SAMPLES_AT_ONCE", at_once)
    view = views(bench)[part]
    function = loss_on(view or DataView(np.arange(SIZES[CLIENT])))
    w = plain(bench, bench.initial)
    direction = torch.from_numpy(np.random.default_rng(0).normal(size=len(w)))
    (gradient,) = torch.autograd.grad(function(w.requires_grad_()), w)
    _, product = torch.autograd.functional.hvp(function, w.detach(), direction)  # type: ignore[no-untyped-call]

    loss = asked(bench, Loss(bench.initial, data=view))
    assert loss.shape == (1,)
    assert loss.item() == pytest.approx(float(function(w.detach())), rel=1e-6)
    ours = asked(bench, Gradient(bench.initial, data=view))
    assert torch.allclose(plain(bench, ours), gradient, rtol=1e-4, atol=1e-6)
    both = asked(bench, LossAndGradient(bench.initial, data=view))
    assert both[0].item() == pytest.approx(loss.item(), rel=1e-6)
    assert torch.equal(both[1], ours)
    ours = asked(bench, HessianVectorProduct(bench.initial, data=view, vector=flat(bench, direction)))
    assert product.abs().max() > 0.1
    assert torch.allclose(plain(bench, ours), product, rtol=1e-3, atol=1e-5)


def test_a_hessian_vector_product_is_the_slope_of_the_gradient(bench: Bench) -> None:
    """Central differences, at another point than the initial one and through rayfl's own gradients."""
    generator = torch.Generator().manual_seed(1)
    at = bench.initial.clone()
    at[: len(bench.model.params)] += 0.3 * flat(bench, torch.randn(bench.model.num_params, generator=generator))
    vector = flat(bench, torch.randn(bench.model.num_params, generator=generator))
    step = 1e-2 * torch.cat([vector, torch.zeros(len(at) - len(vector))])
    slope = (asked(bench, Gradient(at + step)) - asked(bench, Gradient(at - step))) / 2e-2
    assert torch.allclose(
        asked(bench, HessianVectorProduct(at, vector=vector)), slope, rtol=0, atol=2e-3 * float(slope.norm())
    )


def test_support_and_query_share_no_sample_and_leave_none_out(bench: Bench) -> None:
    parts = views(bench)
    support, query = parts["support"], parts["query"]
    assert support is not None
    assert query is not None
    assert sorted([*support.places, *query.places]) == list(range(SIZES[CLIENT]))
    assert len(support) == round(0.3 * SIZES[CLIENT])


def test_training_on_a_view_sees_its_samples_alone(bench: Bench) -> None:
    seen: list[torch.Tensor] = []

    def update(client: ClientContext) -> ClientUpdate[None]:
        def watch(batch: TrainingBatch) -> torch.Tensor:
            seen.append(batch.x)
            return batch.outputs.new_zeros(())

        yield LocalTraining(bench.initial, terms=(watch,), data=DataView(np.array([1, 5, 8])))

    bench.run(bench.client(CLIENT, {"epochs": 2, "batch_size": 2}), update)
    assert [len(x) for x in seen] == [2, 1, 2, 1]
    expected = X[sum(SIZES[:CLIENT]) + np.array([1, 5, 8])].float()
    for epoch in (torch.cat(seen[:2]), torch.cat(seen[2:])):
        assert sorted(epoch.tolist()) == sorted(expected.tolist())


def drawn(bench: Bench, exchange: int, requests: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Of each of some training requests from the same model, its first batch's inputs and logits."""
    seen: list[tuple[torch.Tensor, torch.Tensor]] = []

    def update(client: ClientContext) -> ClientUpdate[None]:
        for _ in range(requests):

            def watch(batch: TrainingBatch) -> torch.Tensor:
                seen.append((batch.x, batch.outputs.detach()))
                return batch.outputs.new_zeros(())

            yield LocalTraining(bench.initial, terms=(watch,))

    bench.run(bench.client(CLIENT, {"batch_size": "full"}, exchange=exchange), update)
    return seen


def test_every_training_request_of_a_round_draws_its_own_order_and_dropout(bench: Bench) -> None:
    """Two in the first exchange and one in the second; a repeated client update draws what it drew before."""
    seen = [*drawn(bench, 0, 2), *drawn(bench, 1, 1)]
    again = [*drawn(bench, 0, 2), *drawn(bench, 1, 1)]
    for (x, logits), (same_x, same_logits) in zip(seen, again, strict=True):
        assert torch.equal(x, same_x)
        assert torch.equal(logits, same_logits)
    for first, second in ((0, 1), (0, 2), (1, 2)):
        assert not torch.equal(seen[first][0], seen[second][0]), "the order of the samples"
        rows = [sorted(zip(x.tolist(), logits.tolist(), strict=True)) for x, logits in (seen[first], seen[second])]
        assert [x for x, _ in rows[0]] == [x for x, _ in rows[1]]
        assert rows[0] != rows[1], "dropout"


def test_results_belong_to_the_algorithm(bench: Bench) -> None:
    """It may change them in place: what comes after, and what was asked with, stays as it was."""
    results: list[list[torch.Tensor]] = []

    def update(client: ClientContext, meddles: bool) -> ClientUpdate[None]:
        start = bench.initial.clone()
        own = []
        for request in (
            LocalTraining(start), Loss(start), Gradient(start),
            HessianVectorProduct(start, vector=start[: client.num_params]), LocalTraining(start), Gradient(start),
        ):  # fmt: skip
            result = yield request
            own.append(result.clone())
            if meddles:
                result.fill_(7.0)
        assert torch.equal(start, bench.initial)
        results.append(own)

    for meddles in (False, True):
        bench.run(bench.client(CLIENT, EVERYTHING.local), partial(update, meddles=meddles))
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))


def test_a_view_can_only_be_split_where_there_is_something_to_split() -> None:
    rng = np.random.default_rng(SEED)
    one, two = DataView(np.array([4])), DataView(np.array([4, 7]))
    assert [len(part) for part in two.split(0.01, rng)] == [1, 1]
    with pytest.raises(RayflError, match="1 training samples cannot be split in two"):
        one.split(0.5, rng)
    for share in (0.0, 1.0, 1.5):
        with pytest.raises(RayflError, match="must lie between 0 and 1"):
            two.split(share, rng)


def test_only_requests_are_accepted(bench: Bench) -> None:
    def update(client: ClientContext) -> ClientUpdate[None]:
        yield bench.initial  # type: ignore[misc]

    with pytest.raises(RayflError, match=r"its client update yielded a Tensor, not a request of rayfl\.local"):
        bench.run(bench.client(CLIENT, BATCHES), update)


@pytest.mark.parametrize("kind", [LocalTraining, Loss, Gradient, LossAndGradient, HessianVectorProduct])
def test_a_request_on_no_samples_is_rejected_instead_of_answered_with_zeros(kind: Any, bench: Bench) -> None:
    nothing = DataView(np.empty(0, np.int64))
    more = {"vector": bench.initial} if kind is HessianVectorProduct else {}
    with pytest.raises(ScenarioError, match="on a DataView without samples has no result: skip the request"):
        kind(bench.initial, data=nothing, **more)


class CalmNet(TanhNet):
    """Never leaves evaluation mode, but is built in training mode, as every network is."""

    def train(self, mode: bool = True) -> CalmNet:
        return super().train(False)


@pytest.mark.parametrize("request_of", [Rehearsal, Loss, LocalTraining], ids=lambda kind: kind.__name__)
def test_a_new_network_enters_every_mode_by_its_own_train(request_of: Callable[[torch.Tensor], Request]) -> None:
    """Its loss on all samples is then always that of evaluation mode."""
    bench = Bench(model=LOUD_NET | {"name": f"{__name__}:CalmNet", "dropout": 0.0})
    for module in bench.model.module.modules():
        module.training = True
    w, view = plain(bench, bench.initial), DataView(np.arange(SIZES[CLIENT]))
    client = bench.client(CLIENT, {"batch_size": "full"})

    def update(client: ClientContext) -> ClientUpdate[torch.Tensor]:
        result: torch.Tensor = yield request_of(bench.initial)
        return result

    result = bench.run(client, update)
    found = client.losses[0] if request_of is LocalTraining else float(result)
    assert found == pytest.approx(float(loss_on(view)(w)), rel=1e-5)
