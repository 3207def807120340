"""Per-sample gradients of one layer equal PyTorch's gradients for each sample alone."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from rayfl.models.flat import FlatModel
from rayfl.privacy.samples.opacus_layers import MOST_GROUPED_WEIGHTS, layer_gradients
from rayfl.privacy.samples.per_sample import PerSampleGradients
from rayfl.privacy.samples.released_sums import OuterProducts, mean_of_copies
from rayfl.tasks.supervised import Classification

SAMPLES = 6
LAYERS = [
    (nn.Linear(5, 3), (5,)),
    (nn.Linear(5, 3, bias=False), (5,)),
    (nn.Linear(5, 3), (4, 5)),  # at every place of a sequence
    (nn.Conv2d(3, 4, 3), (3, 7, 7)),
    (nn.Conv2d(3, 4, (3, 2), stride=(2, 1), padding=(1, 0), bias=False), (3, 8, 9)),
    (nn.Conv2d(4, 6, 3, dilation=2, groups=2, padding=2), (4, 8, 8)),
    (nn.Conv2d(4, 8, 3, groups=4), (4, 6, 6)),
    (nn.Conv2d(3, 4, 3, padding="same"), (3, 7, 7)),
    (nn.Conv2d(192, 192, 3), (192, 4, 4)),  # too many weights for one grouped convolution
    (nn.Conv1d(3, 4, 3), (3, 9)),
    (nn.GroupNorm(2, 4), (4, 3, 3)),
]


@pytest.mark.parametrize(("layer", "shape"), LAYERS, ids=lambda value: str(value))
def test_gradients_of_a_layer_are_those_of_a_loop_over_samples(layer: nn.Module, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    x = torch.randn(SAMPLES, *shape)
    to_outputs = torch.randn_like(layer(x))
    found = layer_gradients(layer, [x], to_outputs)
    assert set(found) == set(layer.parameters())
    weights = torch.linspace(0, 1, SAMPLES)
    for parameter, gradients in found.items():
        expected = torch.stack(
            [
                torch.autograd.grad(layer(x[i : i + 1]), parameter, to_outputs[i : i + 1])[0].double()
                for i in range(SAMPLES)
            ]
        )
        scale = float(expected.abs().max())
        assert torch.allclose(gradients.each().double(), expected, rtol=0, atol=1e-5 * scale)
        assert torch.allclose(gradients.norms().double(), expected.flatten(1).norm(dim=1), rtol=1e-5)
        summed = torch.einsum("n,n...->...", weights.double(), expected)
        assert torch.allclose(gradients.weighted_sum(weights).double(), summed, rtol=0, atol=1e-5 * scale)


def test_the_padding_of_an_embedding_has_no_gradient() -> None:
    torch.manual_seed(0)
    layer, x = nn.Embedding(5, 3, padding_idx=2), torch.randint(5, (SAMPLES, 7))
    to_outputs = torch.randn_like(layer(x))
    found = layer_gradients(layer, [x], to_outputs)[layer.weight].each()
    for index in range(SAMPLES):
        (expected,) = torch.autograd.grad(layer(x[index]), layer.weight, to_outputs[index])
        assert torch.allclose(found[index], expected, atol=1e-6)
        assert (expected[2] == 0).all()


def test_layers_of_both_kinds_of_convolution_are_compared() -> None:
    sizes = [layer.weight.numel() for layer, _ in LAYERS if isinstance(layer, nn.Conv2d)]
    assert min(sizes) <= MOST_GROUPED_WEIGHTS < max(sizes)


def test_frozen_parameters_have_no_gradient() -> None:
    layer = nn.Linear(5, 3)
    layer.weight.requires_grad_(False)
    assert set(layer_gradients(layer, [torch.randn(2, 5)], torch.randn(2, 3))) == {layer.bias}


def test_the_weight_of_a_linear_layer_is_kept_as_two_factors() -> None:
    layer = nn.Linear(5, 3)
    kept = layer_gradients(layer, [torch.randn(4, 5)], torch.randn(4, 3))[layer.weight]
    assert isinstance(kept, OuterProducts)
    assert torch.allclose(mean_of_copies(kept, 2).each(), kept.each().view(2, 2, 3, 5).mean(dim=1))


class CalledTwice(nn.Module):
    """One layer that is called twice, and two layers with one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.twice, self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.second(self.first(self.twice(self.twice(x).tanh()).tanh()).tanh())
        return logits


def test_gradients_of_a_layer_that_is_called_twice_are_sums_over_its_calls() -> None:
    torch.manual_seed(0)
    model, task = FlatModel(CalledTwice(), torch.device("cpu")), Classification()
    x, y = torch.randn(SAMPLES, 4), torch.randint(4, (SAMPLES,))
    found = PerSampleGradients(model, task).of_each(x, y)
    parameters = dict(model.module.named_parameters())
    assert set(found) == set(parameters)
    for index in range(SAMPLES):
        loss = task.loss(model.module(x[index : index + 1]), y[index : index + 1])
        for name, expected in zip(parameters, torch.autograd.grad(loss, list(parameters.values())), strict=True):
            assert torch.allclose(found[name][index], expected, atol=1e-6), name
