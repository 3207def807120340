"""Frozen copies compute with a given vector, do not change the resident model, and share their networks."""

import pytest
import torch
from torch import nn

from rayfl.models.flat import FlatModel
from rayfl.models.resnet import ResNet8

CPU = torch.device("cpu")


@pytest.fixture
def model() -> FlatModel:
    torch.manual_seed(0)
    return FlatModel(ResNet8(), CPU)


def other_vector(model: FlatModel) -> torch.Tensor:
    torch.manual_seed(1)
    vector = FlatModel(ResNet8(), CPU).vector
    assert not torch.equal(vector, model.vector)
    return vector


def outputs(state: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """The output of an ordinary network with these values in evaluation mode."""
    network = ResNet8()
    network.load_state_dict(state)
    result: torch.Tensor = network.eval()(x)
    return result


def test_a_frozen_copy_computes_with_its_vector_in_evaluation_mode_while_the_model_trains(model: FlatModel) -> None:
    vector, x = other_vector(model), torch.randn(4, 3, 32, 32)
    model.module.train()
    before = model.vector.clone()
    with model.frozen_copy(vector) as frozen:
        logits = frozen.module(x)
        assert not frozen.module.training
    torch.testing.assert_close(logits, outputs(model.state_dict(vector), x), rtol=1e-5, atol=1e-6)
    assert model.module.training
    assert torch.equal(model.vector, before)
    model.check()


def test_a_frozen_copy_has_no_gradients_but_lets_them_through_to_its_input(model: FlatModel) -> None:
    x = torch.randn(2, 3, 32, 32, requires_grad=True)
    torch.autograd.backward(model.module(x).sum())
    with model.frozen_copy(model.vector.clone()) as frozen:
        torch.autograd.backward(frozen.module(x).sum())
        assert all(p.grad is None and not p.requires_grad for p in frozen.module.parameters())
    assert x.grad is not None


def test_a_frozen_copy_follows_its_vector_and_can_be_pointed_at_another(model: FlatModel) -> None:
    vector, other, x = model.vector.clone(), other_vector(model), torch.randn(2, 3, 32, 32)
    with model.frozen_copy(vector) as frozen:
        vector.zero_()
        assert (frozen.module(x) == 0).all()
        frozen.load(other)
        torch.testing.assert_close(frozen.module(x), outputs(model.state_dict(other), x), rtol=1e-5, atol=1e-6)


def test_copies_held_at_the_same_time_are_independent(model: FlatModel) -> None:
    zeros, x = torch.zeros_like(model.vector), torch.randn(2, 3, 32, 32)
    with model.frozen_copy(zeros) as first, model.frozen_copy(other_vector(model)) as second:
        assert (first.module(x) == 0).all()
        assert (second.module(x) != 0).any()


def test_a_released_network_is_used_again_instead_of_copying_anew(model: FlatModel) -> None:
    vector, seen = other_vector(model), set()
    for _ in range(3):
        with model.frozen_copy(model.vector) as one, model.frozen_copy(vector) as two:
            seen |= {one.module, two.module}
    assert len(seen) == 2
    assert model.module not in seen


def test_a_released_copy_refuses_to_be_used(model: FlatModel) -> None:
    frozen = model.frozen_copy(model.vector)
    frozen.release()
    frozen.release()
    with pytest.raises(RuntimeError, match="released"):
        frozen.module  # noqa: B018
    with pytest.raises(RuntimeError, match="released"):
        frozen.load(model.vector)
    with model.frozen_copy(model.vector) as one, model.frozen_copy(model.vector) as two:
        assert one.module is not two.module


def test_a_vector_of_another_length_is_rejected(model: FlatModel) -> None:
    with pytest.raises(ValueError, match="the vector has shape"):
        model.frozen_copy(model.vector[:-1])
    with model.frozen_copy(model.vector) as frozen, pytest.raises(ValueError, match="the vector has shape"):
        frozen.load(model.vector[:-1])


class Counter(nn.Module):
    """Its output depends on the number of calls, which is not in the vector."""

    calls: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(1, 1, bias=False)
        self.register_buffer("calls", torch.tensor(0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.add_(1)
        result: torch.Tensor = self.fc(x) * self.calls
        return result


def test_tensors_outside_the_vector_start_from_their_initial_values() -> None:
    model = FlatModel(Counter(), CPU)
    x, ones = torch.ones(1, 1), torch.ones_like(model.vector)
    model.module(x)
    for _ in range(2):
        with model.frozen_copy(ones) as frozen:
            assert frozen.module(x).item() == 1
