"""The networks in a flat vector: the same training as torch.optim.SGD on a plain copy, in either memory layout."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

from rayfl.models.cnn import CNNFedBABU
from rayfl.models.flat import FlatModel
from rayfl.models.heads import projected
from rayfl.models.network import Network
from rayfl.models.resnet import ResNet8
from rayfl.models.text import CharLSTM

NETWORKS: dict[str, Callable[[], Network]] = {
    "resnet8": ResNet8,
    "resnet8, shortcut B": lambda: ResNet8(shortcut="B"),
    "resnet8, group norm": lambda: ResNet8(norm="group"),
    "cnn_fedbabu": lambda: CNNFedBABU(10, (16, 16, 3)),
    "char_lstm": lambda: CharLSTM(80, (20,), hidden=32),
    "char_lstm, one bias": lambda: CharLSTM(80, (20,), hidden=32, biases=1),
    "projected": lambda: projected({"name": "resnet8", "norm": "group"}, 10, (32, 32, 3)),
}


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("name", NETWORKS)
def test_steps_of_sgd_equal_those_of_torch_on_a_plain_copy(name: str, channels_last: bool) -> None:
    torch.manual_seed(0)
    plain = NETWORKS[name]()
    flat = FlatModel(copy.deepcopy(plain), torch.device("cpu"), channels_last)
    optimizer = torch.optim.SGD([p for p in plain.parameters() if p.requires_grad], lr=0.05, weight_decay=1e-3)
    for _ in range(4):
        x = torch.randint(80, (8, 20)) if isinstance(plain, CharLSTM) else torch.randn(8, 3, 16, 16)
        y = torch.randint(10, (8,))
        optimizer.zero_grad()
        torch.autograd.backward(functional.cross_entropy(plain(x), y))
        optimizer.step()
        flat.zero_gradient()
        torch.autograd.backward(functional.cross_entropy(flat.module(x), y))
        flat.params.sub_(flat.gradient.add_(flat.params, alpha=1e-3), alpha=0.05)
    flat.check()
    rtol, atol = (1e-3, 1e-5) if channels_last else (0, 0)
    learnt = {name: tensor for name, tensor in plain.state_dict().items() if tensor.is_floating_point()}
    state = flat.state_dict()
    torch.testing.assert_close({name: state[name] for name in learnt}, learnt, rtol=rtol, atol=atol)
