"""Networks by name: other objects are rejected without a call, and errors name the constructor."""

from __future__ import annotations

import re
from functools import lru_cache, partial
from typing import Any

import pytest
import torch
from torch import nn

from rayfl.errors import ScenarioError
from rayfl.models.construction import build_module
from rayfl.models.heads import projected

GIVEN: dict[str, Any] = {"num_classes": 10, "input_shape": (32, 32, 3)}


class Net(nn.Linear):
    def __init__(self, num_classes: int, width: int = 4) -> None:
        if width < 0:
            raise ValueError("width must not be negative")
        super().__init__(width, num_classes)


def make_net(num_classes: int) -> Net:
    return Net(num_classes)


@lru_cache
def make_net_once(num_classes: int) -> Net:
    return Net(num_classes)


half = partial(Net, width=2)
built = Net(10)
called: list[str] = []


def scripted(num_classes: int) -> nn.Module:
    network: nn.Module = torch.jit.script(Net(num_classes))
    return network


def scripted_without_tensors(num_classes: int) -> nn.Module:
    return nn.Sequential(torch.jit.script(nn.Softplus()), Net(num_classes))


def partly_scripted(num_classes: int) -> nn.Module:
    traced: nn.Module = torch.jit.trace(Net(num_classes), torch.zeros(1, 4))  # type: ignore[no-untyped-call]
    return nn.Sequential(nn.Flatten(), traced)


class Calls:
    """Records that it was called."""

    def __init__(self) -> None:
        called.append("class")

    def __call__(self) -> None:
        called.append("object")


calls = Calls.__new__(Calls)


def build(name: str, **options: Any) -> nn.Module:
    return build_module(name, options, GIVEN, "model")


def refusal(name: str, **options: Any) -> str:
    with pytest.raises(ScenarioError) as caught:
        build(name, **options)
    return str(caught.value)


@pytest.mark.parametrize("name", ["Net", "make_net", "make_net_once", "half"])
def test_a_class_a_function_and_what_is_made_of_them_build_networks(name: str) -> None:
    assert isinstance(build(f"{__name__}:{name}"), Net)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("os:system", "model 'os:system': is part of Python, so"),
        ("builtins:print", "model 'builtins:print': is part of Python, so"),
        ("json:dumps", "model 'json:dumps': is part of Python, so"),
        (f"{__name__}:Calls", f"model.name: '{__name__}:Calls' is the class Calls; a model is a class derived from"),
        (f"{__name__}:calls", f"model.name: '{__name__}:calls' is of type Calls; a model is a class derived from"),
        (f"{__name__}:GIVEN", f"model.name: '{__name__}:GIVEN' is of type dict; a model is a class derived from"),
        (f"{__name__}:built", f"model.name: '{__name__}:built' is already built"),
        ("torch:empty", "model.name: 'torch:empty' is of type builtin_function_or_method"),
    ],
)
@pytest.mark.parametrize("wrapped", [False, True])
def test_targets_that_make_no_network_are_rejected_before_a_call(name: str, message: str, wrapped: bool) -> None:
    if wrapped:  # the same names inside another network's options
        with pytest.raises(ScenarioError, match=re.escape(message.replace("model.name", "model.network.name"))):
            projected(name, **GIVEN)
    else:
        assert message in refusal(name)
    assert called == []


def test_an_error_in_a_constructor_is_shown_with_its_key_and_the_traceback_of_its_code() -> None:
    first, header, place, *rest = refusal(f"{__name__}:Net", width=-1).splitlines()
    assert first == f"model: '{__name__}:Net' raised ValueError: width must not be negative"
    assert header == "Traceback (most recent call last):"
    assert place.startswith(f'  File "{__file__}", line')
    assert rest[-1] == "ValueError: width must not be negative"


def test_a_network_that_does_not_fit_in_memory_is_told_in_one_line() -> None:
    (line,) = refusal("mlp", hidden=[10**9, 10**9]).splitlines()
    assert line.startswith("model: 'rayfl.models.mlp:MLP' ran out of memory (")
    assert "you tried to allocate" in line


def test_options_of_an_inner_network_are_told_by_their_whole_key_path() -> None:
    inner: dict[str, Any] = {"name": "cnn_femnist", "widths": [4, 0]}
    assert refusal("projected", network=inner) == "model.network.widths.1: must be greater than 0 (got 0)"
    assert refusal("projected", network={"name": f"{__name__}:Net", "width": -1}).startswith(
        f"model.network: '{__name__}:Net' raised ValueError"
    )


def test_building_draws_the_same_initial_values_from_the_same_seed() -> None:
    states = []
    for _ in range(2):
        torch.manual_seed(3)
        states.append(build("lenet5").state_dict())
    torch.testing.assert_close(states[0], states[1], rtol=0, atol=0)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:.*torch.jit.*")
@pytest.mark.parametrize(("name", "which"), [("scripted", ""), ("partly_scripted", "'1' in the network of ")])
def test_compiled_networks_are_refused_by_name(name: str, which: str) -> None:
    said = refusal(f"{__name__}:{name}")
    assert said.startswith(f"model.name: {which}'{__name__}:{name}' is a ScriptModule")
    assert said.endswith("return the module itself, without torch.jit.script or torch.jit.trace")
    build(f"{__name__}:scripted_without_tensors")
