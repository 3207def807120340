"""Tied parameters are one slot with several names: trained as PyTorch trains them, exported under every name."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from rayfl.errors import DataError, ScenarioError
from rayfl.models.flat import FlatModel
from rayfl.models.network import Network
from rayfl.models.transfer import transfer

CPU = torch.device("cpu")


class Tied(Network):
    """A language model whose decoder is its embedding."""

    ordered_modules = ("embedding", "hidden", "decoder")
    feature_layer = "decoder"

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 3)
        self.hidden = nn.Linear(3, 3)
        self.decoder = nn.Linear(3, 5)
        self.decoder.weight = self.embedding.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.decoder(torch.tanh(self.hidden(self.embedding(x))))
        return logits


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def test_a_tied_parameter_is_one_slot_where_its_first_name_lies() -> None:
    model = FlatModel(Tied(), CPU)
    assert [slot.names for slot in model.layout] == [
        ("embedding.weight", "decoder.weight"),
        ("hidden.weight",),
        ("hidden.bias",),
        ("decoder.bias",),
    ]
    assert model.num_params == 5 * 3 + 3 * 3 + 3 + 5
    assert model.module.get_parameter("decoder.weight") is model.module.get_parameter("embedding.weight")


def test_steps_of_sgd_equal_those_of_torch_on_a_plain_copy() -> None:
    plain = Tied()
    flat = FlatModel(copy.deepcopy(plain), CPU)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    for _ in range(3):
        x, y = torch.randint(5, (6,)), torch.randint(5, (6,))
        optimizer.zero_grad()
        torch.autograd.backward(functional.cross_entropy(plain(x), y))
        optimizer.step()
        flat.zero_gradient()
        torch.autograd.backward(functional.cross_entropy(flat.module(x), y))
        flat.params.sub_(flat.gradient, alpha=0.1)
        flat.check()
    torch.testing.assert_close(flat.state_dict(), dict(plain.state_dict()), rtol=0, atol=0)


def test_a_state_dict_has_every_name_and_loads_into_a_plain_module_and_back() -> None:
    flat, plain, other = FlatModel(Tied(), CPU), Tied(), FlatModel(Tied(), CPU)
    state = flat.state_dict()
    assert list(state) == list(plain.state_dict())
    plain.load_state_dict(state)
    other.load_state_dict(state)
    assert torch.equal(other.vector, flat.vector)


def test_a_frozen_copy_stays_tied() -> None:
    flat = FlatModel(Tied(), CPU)
    with flat.frozen_copy(torch.zeros_like(flat.vector)) as zeros:
        assert zeros.module.get_parameter("decoder.weight") is zeros.module.get_parameter("embedding.weight")
        assert (zeros.module(torch.arange(5)) == 0).all()


def test_a_tie_that_was_parted_is_noticed_by_name() -> None:
    flat = FlatModel(Tied(), CPU)
    flat.module.get_submodule("decoder").weight = nn.Parameter(torch.zeros(5, 3))
    with pytest.raises(ScenarioError, match=r"'decoder\.weight' was replaced by another tensor"):
        flat.check()


@pytest.mark.parametrize("name", ["embedding.weight", "decoder.weight"])
def test_a_tied_parameter_trains_by_any_of_its_names(name: str) -> None:
    flat = FlatModel(Tied(), CPU)
    with flat.training_only([name, "decoder.bias"]) as parts:
        assert [parameter.requires_grad for parameter in flat.module.parameters()] == [True, False, False, True]
        assert sum(part.stop - part.start for part in parts) == 16 + 16
    assert all(parameter.requires_grad for parameter in flat.module.parameters())


def test_a_tied_buffer_is_one_slot_too() -> None:
    module = nn.Sequential(nn.BatchNorm1d(3), nn.BatchNorm1d(3))
    module[1].running_mean = module[0].running_mean
    flat = FlatModel(module, CPU)
    assert flat.num_buffer_values == 9
    module.train()(torch.randn(4, 3))
    flat.load(flat.vector.clone())
    assert torch.equal(flat.state_dict()["0.running_mean"], flat.state_dict()["1.running_mean"])


def test_one_name_of_a_tied_tensor_is_enough_to_transfer_it() -> None:
    source, target = FlatModel(Tied(), CPU), FlatModel(Tied(), CPU)
    state = source.state_dict()
    del state["embedding.weight"]
    assert torch.equal(transfer(state, target).vector, source.vector)


def test_a_source_whose_values_differ_where_the_model_is_tied_is_rejected() -> None:
    state = FlatModel(Tied(), CPU).state_dict() | {"decoder.weight": torch.zeros(5, 3)}
    with pytest.raises(DataError, match=r"'embedding\.weight' and 'decoder\.weight' differ, but are one tensor"):
        transfer(state, FlatModel(Tied(), CPU))


@pytest.mark.parametrize("rules", [{"head": "fresh"}, {"ignore": ["decoder.*"]}])
def test_a_rule_that_covers_one_end_of_a_tie_alone_is_rejected(rules: dict[str, Any]) -> None:
    source, target = FlatModel(Tied(), CPU), FlatModel(Tied(), CPU)
    with pytest.raises(ScenarioError, match=r"cover 'decoder\.weight' but not 'embedding\.weight'"):
        transfer(source.state_dict(), target, **rules)
    kept = transfer(source.state_dict(), target, ignore=["*.weight"])
    assert set(kept.fresh) == {"embedding.weight", "decoder.weight", "hidden.weight"}
