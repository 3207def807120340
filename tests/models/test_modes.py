"""Evaluation mode with gradients: the outputs of eval(), and every mode restored afterwards; second derivatives."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional

from rayfl.models.flat import FlatModel
from rayfl.models.modes import evaluation_mode, training_without_dropout, twice_differentiable
from rayfl.models.resnet import ResNet8
from rayfl.models.text import CharLSTM
from rayfl.privacy.samples.opacus_layers import contiguous_copy, copy_modes


class Reader(nn.Module):
    """A recurrent network with dropout between its layers and after them, and batch norm."""

    def __init__(self, kind: Callable[..., nn.RNNBase] = nn.LSTM) -> None:
        super().__init__()
        self.layers = kind(4, 5, num_layers=2, dropout=0.5)
        self.norm = nn.BatchNorm1d(5)
        self.dropout = nn.Dropout(0.5)
        self.fc = nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.fc(self.dropout(self.norm(self.layers(x)[0][-1])))
        return logits


@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM])
def test_outputs_and_gradients_are_those_of_evaluation_mode(kind: Callable[..., nn.RNNBase]) -> None:
    torch.manual_seed(0)
    network, x = Reader(kind), torch.randn(7, 6, 4)
    results = []
    for within in (True, False):
        network.train()
        if within:
            with evaluation_mode(network):
                output = network(x)
        else:
            output = network.eval()(x)
        results.append((output, torch.autograd.grad(output.square().sum(), list(network.parameters()))))
    torch.testing.assert_close(results[0], results[1], rtol=1e-6, atol=1e-7)
    assert network.norm.num_batches_tracked == 0


def test_recurrent_layers_stay_in_training_mode_without_dropout() -> None:
    network = Reader()
    with evaluation_mode(network):
        assert [name for name, module in network.named_modules() if module.training] == ["layers"]
        assert network.layers.dropout == 0
    assert network.layers.dropout == 0.5


class FixedNorm(Reader):
    """Its batch norm stays in evaluation mode, as is common in fine-tuning."""

    def train(self, mode: bool = True) -> FixedNorm:
        super().train(mode)
        self.norm.eval()
        return self


@pytest.mark.parametrize("kind", [Reader, FixedNorm])
def test_training_mode_is_what_the_network_makes_of_it_whatever_mode_it_was_in(kind: type[Reader]) -> None:
    network, wanted = kind(), kind().train()
    modes = [module.training for module in wanted.modules()]
    for change in (lambda: None, network.train, network.eval, network.dropout.eval):
        change()
        with training_without_dropout(network):
            assert [module.training for module in network.modules()] == modes


class Loud(nn.Linear):
    """Keeps in an attribute what its modes do."""

    loudness = 1.0

    def train(self, mode: bool = True) -> Loud:
        self.loudness = 3.0 if mode else 1.0
        return super().train(mode)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * self.loudness


def test_modes_are_entered_left_and_copied_by_the_networks_own_train() -> None:
    model = FlatModel(Loud(2, 2), torch.device("cpu"))
    network, x = model.module, torch.ones(1, 2)
    quiet = network(x)
    network.train()
    with evaluation_mode(network):
        assert torch.equal(network(x), quiet)
    assert torch.equal(network(x), 3 * quiet)
    with model.frozen_copy(model.vector) as frozen:
        assert torch.equal(frozen.module(x), quiet)
    copied = contiguous_copy(model).eval()
    copy_modes(network, copied)
    assert torch.equal(copied(x), 3 * quiet)


@pytest.mark.parametrize("error", [False, True])
def test_every_module_returns_to_the_mode_it_was_in(error: bool) -> None:
    network = ResNet8()
    network.layer2.eval()
    network.fc.eval()
    before = [module.training for module in network.modules()]
    try:
        with evaluation_mode(network):
            assert not any(module.training for module in network.modules())
            if error:
                raise KeyError
    except KeyError:
        pass
    assert [module.training for module in network.modules()] == before
    assert {True, False} == set(before)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no CUDA device")
def test_an_lstm_on_a_gpu_has_gradients_in_evaluation_mode() -> None:
    network = CharLSTM(20, (12,), hidden=16).to("cuda").train()
    x, y = torch.randint(20, (5, 12), device="cuda"), torch.randint(20, (5,), device="cuda")
    with evaluation_mode(network):
        torch.autograd.backward(functional.cross_entropy(network(x), y))
    assert all(parameter.grad is not None for parameter in network.parameters())


@pytest.mark.parametrize("network", [Reader(), nn.Linear(2, 2)], ids=["recurrent", "linear"])
def test_recurrent_layers_alone_do_without_cudnn_where_gradients_have_gradients(network: nn.Module) -> None:
    with twice_differentiable(network):
        assert torch.backends.cudnn.enabled == isinstance(network, nn.Linear)
    assert torch.backends.cudnn.enabled


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no CUDA device")
def test_an_lstm_on_a_gpu_has_second_derivatives() -> None:
    network = CharLSTM(20, (12,), hidden=16).to("cuda").train()
    x, y = torch.randint(20, (5, 12), device="cuda"), torch.randint(20, (5,), device="cuda")
    with evaluation_mode(network), twice_differentiable(network):
        loss, parameters = functional.cross_entropy(network(x), y), list(network.parameters())
        gradients = torch.autograd.grad(loss, parameters, create_graph=True)
        torch.autograd.backward(torch.stack([gradient.square().sum() for gradient in gradients]).sum())
    assert all(parameter.grad is not None for parameter in network.parameters())
