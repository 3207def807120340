"""Batches of a step: accumulated gradients are those of the large batch, and bfloat16 stays within the forward pass."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from rayfl.config.local import Local
from rayfl.local.context import ClientContext
from rayfl.local.queries import Gradient, Loss
from rayfl.local.requests import Affine, ClientUpdate, LocalTraining
from rayfl.local.steps import batches_of_steps, update_steps
from tests.algorithms.reference import PlainUpdate
from tests.algorithms.scene import CLASSES, PLAIN, Setting, TanhNet, trained
from tests.local.bench import shared_bench


@given(
    st.integers(1, 90),
    st.integers(1, 20),
    st.integers(1, 5),
    st.integers(1, 3),
    st.booleans(),
    st.integers(1, 9) | st.none(),
)
def test_steps_are_those_of_the_large_batch(
    samples: int, size: int, accumulate: int, epochs: int, drop_last: bool, most: int | None
) -> None:
    common = {"epochs": epochs, "steps": most, "drop_last": drop_last}
    small = Local.model_validate(common | {"batch_size": size, "accumulate": accumulate})
    large = Local.model_validate(common | {"batch_size": size * accumulate})
    found = batches_of_steps(small, samples)
    assert [[sum(batches)] for batches in found] == batches_of_steps(large, samples)
    assert len(found) == update_steps(small, samples)
    for batches in found:
        assert len(batches) <= accumulate
        assert set(batches[:-1]) <= {size}
        assert 0 < batches[-1] <= size


PROXIMAL = {"name": "fedprox", "mu": 0.3}


@pytest.mark.parametrize(
    ("algorithm", "more"),
    [  # each option, with terms in the gradient, after the step, and none
        ("fedavg", {}),
        ("scaffold", {"momentum": 0.9, "clip_norm": 0.3}),
        ({"name": "scaffold", "option": "I"}, {"optimizer": "adamw"}),
        (PROXIMAL, {"optimizer": "adamw"}),
        ("fedavg", {"sample_weights": "inverse_frequency"}),
        (PROXIMAL, {"drop_last": True}),
        ("scaffold", {"steps": 3}),
        (PROXIMAL, {"unfreeze": {"share": 0.5}}),
    ],
    ids=str,
)
def test_accumulated_batches_train_as_the_large_one_does(algorithm: Any, more: dict[str, Any]) -> None:
    """Clients of 5 to 16 samples, so that some of the last batches are incomplete."""
    small = trained(algorithm, PLAIN.with_local(batch_size=3, accumulate=2, lr=0.05, **more))
    large = trained(algorithm, PLAIN.with_local(batch_size=6, lr=0.05, **more))
    other = trained(algorithm, PLAIN.with_local(batch_size=3, lr=0.05, **more))
    torch.testing.assert_close(small, large, rtol=0, atol=2e-5)
    assert (small - other).norm() > 1e-3


def test_the_loss_of_a_step_is_the_mean_over_its_samples() -> None:
    def losses(**local: Any) -> list[float]:
        bench = shared_bench()
        client = bench.client(2, {"epochs": 2, **local})

        def update(client: ClientContext) -> ClientUpdate[None]:
            yield LocalTraining(bench.initial)

        bench.run(client, update)
        return list(client.losses)

    assert losses(batch_size=4, accumulate=2) == pytest.approx(losses(batch_size=8), rel=1e-6)


def test_accumulating_full_batches_is_rejected() -> None:
    with pytest.raises(ValueError, match="accumulate has no effect with batch_size = 'full', which is a single step"):
        Local(batch_size="full", accumulate=2)


SETTING = Setting(local={"epochs": 2, "batch_size": 4, "lr": 0.2})


def plain(bf16: bool) -> tuple[torch.Tensor, list[float]]:
    """A loop in float32 with autocast, as PyTorch's tutorials have it."""
    update, net = PlainUpdate(SETTING, 4, 1), TanhNet(CLASSES)
    torch.nn.utils.vector_to_parameters(SETTING.initial().float(), net.parameters())
    optimizer, losses = torch.optim.SGD(net.parameters(), lr=0.2, momentum=0.5), []
    for rows in update.batches:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            loss = F.cross_entropy(net(update.x[rows].float()), update.y[rows])
        loss.backward()  # type: ignore[no-untyped-call]
        for parameter in net.parameters():
            assert parameter.grad is not None
            parameter.grad.add_(parameter.detach(), alpha=0.1)
        optimizer.step()
        losses.append(loss.item())
    return torch.nn.utils.parameters_to_vector(net.parameters()).detach(), losses


def test_bf16_is_autocast_of_forward_pass_and_loss_alone() -> None:
    """To far less than the precision of bfloat16, which is 4e-3, corrections of the gradient included."""
    bench = shared_bench()
    local = {**SETTING.local, "precision": "bf16", "momentum": 0.5}
    client = bench.client(4, local, lr=0.2)

    def update(client: ClientContext) -> ClientUpdate[torch.Tensor]:
        trained: torch.Tensor = yield LocalTraining(bench.initial, gradient=(Affine(quadratic=0.1),))
        return trained

    state = bench.model.state_dict(bench.run(client, update))
    found = torch.cat([part.flatten() for part in state.values()])
    (expected, losses), (float32, _) = plain(bf16=True), plain(bf16=False)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
    assert client.losses == pytest.approx(losses, rel=1e-5)
    assert (expected - float32).abs().max() > 1e-4


def test_losses_and_gradients_that_an_algorithm_asks_for_stay_float32() -> None:
    def asked(precision: str) -> list[torch.Tensor]:
        bench = shared_bench()

        def update(client: ClientContext) -> ClientUpdate[list[torch.Tensor]]:
            loss = yield Loss(bench.initial)
            gradient = yield Gradient(bench.initial)
            return [loss, gradient]

        return bench.run(bench.client(4, {"precision": precision}), update)

    for plain_result, result in zip(asked("float32"), asked("bf16"), strict=True):
        assert torch.equal(plain_result, result)
