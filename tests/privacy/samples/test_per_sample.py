"""Per-sample gradients equal those of a loop for every shipped network, and never exceed the bound."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from rayfl.config.local import Train
from rayfl.config.registry import call_with_options
from rayfl.local.training_plan import select
from rayfl.models import models
from rayfl.models.fast_kernels import use_fast_kernels
from rayfl.models.flat import FlatModel
from rayfl.models.modes import evaluation_mode
from rayfl.models.network import Network
from rayfl.privacy.samples.per_sample import PerSampleGradients
from rayfl.tasks.supervised import Classification
from tests.algorithms.scene import TanhNet

CPU, TASK, CLASSES, SAMPLES = torch.device("cpu"), Classification(), 10, 5
GROUP: dict[str, Any] = {"norm": "group"}
NETWORKS: list[tuple[str, tuple[int, ...], dict[str, Any], Train]] = [
    ("lenet5", (32, 32, 3), {}, "all"),
    ("mlp", (28, 28, 1), {}, "all"),
    ("cnn_femnist", (28, 28, 1), {}, "all"),
    ("cnn_fashion_mnist", (28, 28, 1), {}, "all"),
    ("cnn_fashion_mnist_large", (28, 28, 1), {}, "all"),
    ("cnn_feddyn", (32, 32, 3), {}, "all"),
    ("cnn_feddyn", (32, 32, 3), {}, "body"),
    ("cnn_fedbug_tiny", (64, 64, 3), {}, "all"),
    ("resnet8", (16, 16, 3), GROUP, "all"),
    ("resnet8", (16, 16, 3), GROUP | {"shortcut": "B", "groups": 4}, "all"),
    ("resnet8", (16, 16, 3), {}, "head"),
    ("resnet20", (16, 16, 3), GROUP, "all"),
    ("resnet32", (16, 16, 3), GROUP, "all"),
    ("resnet44", (16, 16, 3), GROUP, "all"),
    ("resnet56", (16, 16, 3), GROUP, "all"),
    ("resnet18", (20, 20, 3), GROUP, "all"),
    ("resnet34", (20, 20, 3), GROUP | {"stem": "cifar"}, "head"),
    ("char_lstm", (SAMPLES,), {"hidden": 16}, "all"),  # as many steps as samples: dimensions must not be mistaken
    ("char_lstm", (7,), {"hidden": 16, "biases": 1}, "all"),
    ("char_lstm", (7,), {"hidden": 16}, "head"),
    ("projected", (32, 32, 3), {"network": "lenet5"}, "all"),
]
DEEP = {"resnet20", "resnet32", "resnet44", "resnet56", "resnet18", "resnet34"}
"""Of the same layers as ResNet-8, so that quick tests go without them."""
BATCH_NORMED = {"cnn_fedbabu", "deeplab_v3_plus", "mobilenet_v2", "momentum_contrast", "orchestra", "siamese"}
"""Networks that mix the samples of a batch in their body and their head."""


def resident(name: str, shape: tuple[int, ...], options: dict[str, Any]) -> FlatModel:
    """As in a worker process: channels-last, with fast kernels."""
    torch.manual_seed(0)
    known = {"num_classes": CLASSES, "input_shape": shape}
    network = call_with_options(models.resolve(name), options, known, "model")
    assert isinstance(network, Network)
    use_fast_kernels(network)
    return FlatModel(network, CPU)


def batch(shape: tuple[int, ...], samples: int = SAMPLES) -> tuple[torch.Tensor, torch.Tensor]:
    """As the data gives them: images channels-last."""
    torch.manual_seed(1)
    y = torch.randint(CLASSES, (samples,))
    if len(shape) == 1:
        return torch.randint(CLASSES, (samples, *shape)), y
    return torch.randn(samples, shape[2], *shape[:2]).contiguous(memory_format=torch.channels_last), y


def loop(model: FlatModel, x: torch.Tensor, y: torch.Tensor, names: list[str]) -> Iterator[dict[str, torch.Tensor]]:
    """Returns the gradients of one sample after the other by parameter, from plain PyTorch."""
    for index in range(len(y)):
        model.zero_gradient()
        torch.autograd.backward(TASK.loss(model.module(x[index : index + 1]), y[index : index + 1]))
        yield {slot.name: slot.view(model.gradient).clone() for slot in model.layout if slot.name in names}


def test_every_shipped_network_is_compared() -> None:
    assert {name for name, *_ in NETWORKS} | BATCH_NORMED | {"distilbert"} == set(models)


@pytest.mark.parametrize(
    ("name", "shape", "options", "train"),
    [pytest.param(*case, marks=[pytest.mark.slow] if case[0] in DEEP else []) for case in NETWORKS],
)
def test_gradients_of_samples_are_those_of_a_loop_over_them(
    name: str, shape: tuple[int, ...], options: dict[str, Any], train: Train
) -> None:
    model, (x, y) = resident(name, shape, options), batch(shape)
    per_sample = PerSampleGradients(model, TASK)
    with torch.no_grad():
        model.params.mul_(1.1)  # what it computes with are the resident values, not those of the time of its copy
    selection = select([train], model.module)
    with evaluation_mode(model.module), nullcontext() if selection is None else model.training_only(selection.tensors):
        names = [slot.name for slot in model.training_slots]
        found = per_sample.of_each(x, y)
        expected = list(loop(model, x, y, names))
    assert set(found) == set(names)
    # rounding alone flips some of a deep network's rectifiers
    own, any_of_them = (2e-2, 1e-4) if name.startswith("resnet") else (1e-5, 1e-6)
    for index, gradients in enumerate(expected):
        largest = max(float(gradient.norm()) for gradient in gradients.values())
        for tensor, gradient in gradients.items():
            difference = float((found[tensor][index] - gradient).norm())
            assert difference <= own * float(gradient.norm()) + any_of_them * largest, (tensor, index)


def small(**options: Any) -> FlatModel:
    torch.manual_seed(0)
    return FlatModel(TanhNet(3, **options), CPU)


def points(samples: int, scale: float = 1.0, seed: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(samples, 4, generator=generator), torch.randint(3, (samples,), generator=generator)


@pytest.mark.parametrize("ghost", [False, True])
@given(
    scale=st.floats(1e-3, 1e3),
    bound=st.floats(1e-4, 1e2),
    seed=st.integers(0, 100),
    body=st.booleans(),
    copies=st.sampled_from([1, 3]),
)
@settings(max_examples=25)
def test_the_contribution_of_a_sample_never_exceeds_the_bound(
    ghost: bool, scale: float, bound: float, seed: int, body: bool, copies: int
) -> None:
    copies = 1 if ghost else copies
    model, (x, y) = small(), points(copies, scale, seed)
    y = y[:1].expand(copies)
    with model.training_only({"first.weight", "first.bias"}) if body else nullcontext():
        model.zero_gradient()
        PerSampleGradients(model, TASK, ghost).add_clipped(x, y, bound, 8, copies)
    assert float(model.gradient.double().norm()) <= bound


@pytest.mark.parametrize("ghost", [False, True])
def test_samples_are_clipped_one_by_one_and_summed(ghost: bool) -> None:
    model, (x, y) = small(), points(40)
    names = [slot.name for slot in model.layout]
    each = [torch.cat([g.flatten().double() for g in found.values()]) for found in loop(model, x, y, names)]
    bound = float(torch.stack(each).norm(dim=1).median())  # half of them are clipped
    expected = sum(gradient * min(1.0, bound / float(gradient.norm())) for gradient in each)
    model.zero_gradient()
    losses = PerSampleGradients(model, TASK, ghost).add_clipped(x, y, bound, 16)
    found = torch.cat([slot.view(model.gradient).flatten() for slot in model.layout])
    assert torch.allclose(found.double(), torch.as_tensor(expected), rtol=0, atol=1e-5)
    assert torch.allclose(losses, TASK.loss(model.module(x), y, "none"))


@pytest.mark.parametrize("ghost", [False, True])
@pytest.mark.parametrize("strange", [float("inf"), float("nan"), 1e30])
def test_a_sample_whose_gradient_is_not_finite_counts_as_nothing(ghost: bool, strange: float) -> None:
    model, (x, y) = small(), points(4)
    per_sample, sums = PerSampleGradients(model, TASK, ghost), []
    for inputs, labels in ((x[1:], y[1:]), (torch.cat([x[:1] * strange, x[1:]]), y)):
        model.zero_gradient()
        per_sample.add_clipped(inputs, labels, 0.5, 8)
        sums.append(model.gradient.clone())
    assert float(sums[0].abs().max()) > 0
    assert torch.allclose(sums[0], sums[1], rtol=0, atol=1e-7)


@pytest.mark.parametrize("at_once", [1, 4, 7, 100])
def test_the_physical_batch_size_does_not_change_the_sum(at_once: int) -> None:
    model, (x, y) = small(), points(20)
    per_sample, sums = PerSampleGradients(model, TASK), []
    for size in (20, at_once):
        model.zero_gradient()
        per_sample.add_clipped(x, y, 0.5, size)
        sums.append(model.gradient.clone())
    assert float((sums[0] - sums[1]).abs().max()) < 1e-6


def test_at_no_time_there_are_more_gradients_than_the_physical_batch_has_samples(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, (x, y) = small(), points(24)
    per_sample, seen = PerSampleGradients(model, TASK), []

    def loss(outputs: torch.Tensor, targets: torch.Tensor, reduction: Any) -> torch.Tensor:
        seen.append(len(targets))
        return nn.functional.cross_entropy(outputs, targets, reduction=reduction)

    monkeypatch.setattr(per_sample, "_task", type("Task", (), {"loss": staticmethod(loss)}))
    per_sample.add_clipped(x, y, 1.0, 7, copies=3)
    assert seen == [6, 6, 6, 6]  # whole samples of three copies


def test_the_mean_gradient_of_copies_is_clipped_as_one() -> None:
    model, (x, _) = small(), points(4)
    y, names = torch.tensor([0, 0, 2, 2]), [slot.name for slot in model.layout]
    each = torch.stack(
        [torch.cat([g.flatten().double() for g in found.values()]) for found in loop(model, x, y, names)]
    )
    means = each.view(2, 2, -1).mean(dim=1)
    bound = 0.9 * float(means.norm(dim=1).min())
    expected = (means * (bound / means.norm(dim=1, keepdim=True))).sum(dim=0)
    model.zero_gradient()
    PerSampleGradients(model, TASK).add_clipped(x, y, bound, 8, copies=2)
    found = torch.cat([slot.view(model.gradient).flatten() for slot in model.layout])
    assert torch.allclose(found.double(), expected, rtol=0, atol=1e-6)


def test_modes_and_dropout_are_those_of_the_resident_network() -> None:
    model, (x, y) = small(loudness=3.0, dropout=0.5), points(6)
    per_sample = PerSampleGradients(model, TASK)
    with evaluation_mode(model.module):
        evaluated = per_sample.add_clipped(x, y, 1.0, 6)
        assert torch.allclose(evaluated, TASK.loss(model.module(x), y, "none"))
    model.module.train()
    torch.manual_seed(5)
    trained = per_sample.add_clipped(x, y, 1.0, 6)
    torch.manual_seed(5)
    assert torch.allclose(trained, TASK.loss(model.module(x), y, "none"))
    assert not torch.allclose(trained, evaluated)


class Recurrent(nn.Module):
    """Two layers with dropout between them, read step by step, batch first, both ways."""

    def __init__(self, kind: Callable[..., nn.RNNBase]) -> None:
        super().__init__()
        self.layers = kind(4, 6, num_layers=2, dropout=0.4, batch_first=True, bidirectional=True)
        self.read_out = nn.Linear(12, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        states, _ = self.layers(x)
        logits: torch.Tensor = self.read_out(states[:, -1])
        return logits


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN, partial(nn.RNN, nonlinearity="relu")])
def test_recurrent_layers_of_users_keep_their_options(kind: Callable[..., nn.RNNBase]) -> None:
    torch.manual_seed(0)
    model = FlatModel(Recurrent(kind), CPU)
    x, y = torch.randn(3, 5, 4), torch.tensor([0, 2, 1])
    per_sample = PerSampleGradients(model, TASK)
    with evaluation_mode(model.module):
        found = per_sample.of_each(x, y)
        for index, gradients in enumerate(loop(model, x, y, list(found))):
            assert len(gradients) == 18
            assert all(torch.allclose(found[name][index], g, atol=1e-6) for name, g in gradients.items())
    model.module.train()
    first, second = (per_sample.add_clipped(x, y, 1.0, 3) for _ in range(2))
    assert not torch.equal(first, second)  # dropout


class WithSpareLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used, self.spare = nn.Linear(4, 3), nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.used(x)
        return logits


@pytest.mark.parametrize("ghost", [False, True])
def test_a_layer_that_is_not_used_has_no_gradient(ghost: bool) -> None:
    model = FlatModel(WithSpareLayer(), CPU)
    model.zero_gradient()
    PerSampleGradients(model, TASK, ghost).add_clipped(*points(3), 1.0, 8)
    spare = {slot.name: bool(slot.view(model.gradient).any()) for slot in model.layout}
    assert spare == {"used.weight": True, "used.bias": True, "spare.weight": False, "spare.bias": False}


class WithSecondHead(nn.Module):
    """In training both heads are called, and `second` says whose outputs are returned."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.second = nn.Linear(4, 3), nn.Linear(4, 3), False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: tuple[torch.Tensor, torch.Tensor] = (self.one(x), self.two(x))
        return logits[int(self.second)]


@pytest.mark.parametrize("ghost", [False, True])
def test_a_layer_that_did_not_enter_the_loss_leaves_nothing_and_trains_later(ghost: bool) -> None:
    torch.manual_seed(0)
    model, (x, y) = FlatModel(WithSecondHead(), CPU), points(3)
    per_sample = PerSampleGradients(model, TASK, ghost)
    for _ in range(2):
        per_sample.add_clipped(x, y, 1.0, 8)
    (copy,) = [module for module in per_sample._network.modules() if isinstance(module, WithSecondHead)]
    assert not hasattr(copy.two, "activations")
    copy.second = True
    model.zero_gradient()
    per_sample.add_clipped(x, y, 1e6, 8)
    (slot,) = [slot for slot in model.layout if slot.name == "two.weight"]
    logits = nn.functional.linear(x, copy.two.weight, copy.two.bias)
    loss = nn.functional.cross_entropy(logits, y, reduction="sum")
    (expected,) = torch.autograd.grad(loss, copy.two.weight)
    assert torch.allclose(slot.view(model.gradient), expected, atol=1e-5)
