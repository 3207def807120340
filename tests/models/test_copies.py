"""Modules that follow others: never trained, sent with the buffers, and equal to their originals after a start."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from rayfl.engine.plan.workload import InitialModel
from rayfl.errors import ScenarioError
from rayfl.models.flat import FlatModel
from rayfl.models.network import Network
from rayfl.models.transfer import transfer

CPU = torch.device("cpu")


class Encoder(Network):
    ordered_modules: tuple[str, ...] = ("body", "head")
    feature_layer = "head"

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
        self.head: nn.Module = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.head(self.body(x))
        return outputs


class WithTarget(Encoder):
    """A target of the body outside the head, and one inside."""

    ordered_modules = ("body", "head.online")
    copies = {"target": "body", "head.key": "body"}  # noqa: RUF012

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.ModuleDict({"online": nn.Linear(3, 2), "key": follower(self.body)})
        self.target = follower(self.body)


def follower(module: nn.Module) -> nn.Module:
    return copy.deepcopy(module).requires_grad_(False)


def state(fill: float, module: nn.Module) -> dict[str, torch.Tensor]:
    return {name: torch.full_like(tensor, fill) for name, tensor in module.state_dict().items()}


def initial(module: Network) -> InitialModel:
    model = FlatModel(module, CPU)
    return InitialModel(model.vector.numpy().copy(), model.layout, module.feature_layer, module.copies)


def equal(states: dict[str, Any], one: str, other: str) -> bool:
    names = [name.removeprefix(f"{other}.") for name in states if name.startswith(f"{other}.")]
    return bool(names) and all(torch.equal(states[f"{one}.{name}"], states[f"{other}.{name}"]) for name in names)


def test_they_are_carried_along_with_the_buffers() -> None:
    model = FlatModel(WithTarget(), CPU)
    assert model.num_params == 4 * 3 + 3 + 3 + 3 + 3 * 2 + 2
    assert not any(slot.is_parameter for slot in model.layout if slot.name.startswith(("target.", "head.key.")))


@pytest.mark.parametrize("head", ["keep", "fresh"])
def test_parts_of_a_copy_that_a_start_lacks_equal_the_original(head: Any) -> None:
    model = FlatModel(WithTarget(), CPU)
    lacking = {name: tensor for name, tensor in state(5.0, Encoder()).items() if name.startswith("body.")}
    taken = transfer(lacking, model, head, ["head.online.*"] if head == "keep" else [])
    states = model.state_dict(taken.vector)
    assert float(states["body.0.weight"].mean()) == 5
    assert equal(states, "target", "body")
    assert equal(states, "head.key", "body")


def test_parts_of_a_copy_that_a_start_has_are_taken() -> None:
    model = FlatModel(WithTarget(), CPU)
    given = state(5.0, WithTarget()) | {name: 7 * t for name, t in state(1.0, WithTarget()).items() if "target" in name}
    states = model.state_dict(transfer(given, model).vector)
    assert float(states["target.0.weight"].mean()) == 7
    assert float(states["head.key.0.weight"].mean()) == 5


@pytest.mark.parametrize("fresh_head", [False, True])
def test_a_phase_hands_over_to_copies_too(fresh_head: bool) -> None:
    torch.manual_seed(1)
    before, after = initial(Encoder()), initial(WithTarget())
    vector = after.take(before.vector, before, fresh_head)
    states = FlatModel(WithTarget(), CPU).state_dict(torch.from_numpy(vector))
    original = FlatModel(Encoder(), CPU).state_dict(torch.from_numpy(before.vector))
    assert torch.equal(states["body.0.weight"], original["body.0.weight"])
    assert equal(states, "target", "body")
    assert equal(states, "head.key", "body")
    again = vector + 1
    kept = FlatModel(WithTarget(), CPU).state_dict(torch.from_numpy(after.take(again, after, fresh_head)))
    assert torch.equal(kept["target.0.weight"], states["target.0.weight"] + 1)
    assert torch.equal(kept["head.key.0.weight"], states["target.0.weight"] + 1)


def test_copies_that_train_or_differ_are_rejected() -> None:
    trains, differs = WithTarget(), WithTarget()
    trains.target.requires_grad_(True)
    with pytest.raises(ScenarioError, match="WithTarget: 'target' follows 'body', so its parameters must not train"):
        trains.check_declaration()
    differs.target = nn.Linear(4, 3).requires_grad_(False)
    with pytest.raises(ScenarioError, match="'target' is not a copy of 'body': they have different tensors"):
        differs.check_declaration()
    missing = WithTarget()
    missing.copies = {"teacher": "body"}
    with pytest.raises(ScenarioError, match="declares 'teacher', which is not one of its submodules"):
        missing.check_declaration()
