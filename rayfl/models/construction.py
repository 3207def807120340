"""Builds a network by registered name or import path, within the machine's memory, and puts heads on others."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from rayfl.config.component import Choice
from rayfl.config.section import Named
from rayfl.errors import ScenarioError
from rayfl.models import models
from rayfl.models.feature_layer import OPTION, declare
from rayfl.models.network import Network

COPIES = 3
"""A resident model takes memory for its original parameters, the flat vector, and the gradient."""


class _Models(Choice):
    def set_apart(self, target: Callable[..., Any], chosen: Named, where: str) -> dict[str, Any]:
        if OPTION not in chosen.options or OPTION in inspect.signature(target).parameters:
            return {}
        return {OPTION: chosen.options[OPTION]}


MODELS = _Models(models, given=("num_classes", "input_shape"), says_where=False)


def machine_bytes() -> int:
    """Physical memory of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def within_memory(where: str) -> Iterator[None]:
    """Counts the parameters of a network while it is built.

    A layer allocates its parameters, registers them and then initialises them. Memory that is allocated but not yet
    written costs nothing, so an impossible layer raises before the machine begins to swap.

    Args:
        where: Key path of the table of the network, for messages.

    Raises:
        ScenarioError: The parameters, with their gradient, take more memory than the machine has.
    """
    values, limit = 0, machine_bytes()

    def count(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        nonlocal values
        if parameter is None or nn.parameter.is_lazy(parameter):
            return
        values += parameter.numel()
        if 4 * COPIES * values > limit:
            raise ScenarioError(
                f"{where}: {values:,} parameters take {4 * COPIES * values / 2**30:,.0f} GB with their gradient, but "
                f"this machine has {limit / 2**30:,.0f} GB; make '{name}' of {type(module).__name__} smaller"
            )

    handle = register_module_parameter_registration_hook(count)
    try:
        yield
    finally:
        handle.remove()


def build_module(name: str, options: Mapping[str, Any], arguments: Mapping[str, Any], where: str) -> nn.Module:
    """Builds a network.

    Args:
        name: A registered name, or the import path of a class or function.
        options: Options of the constructor from the scenario, and possibly `feature_layer`.
        arguments: Arguments from rayfl, passed if the constructor names them: `num_classes` and `input_shape`.
        where: Key path of the table with name and options, for messages.

    Raises:
        ScenarioError: The name or an option is unknown; the object is neither a network class nor a function (it is
            then not called), raises an exception, or does not return a network; or the parameters do not fit into the
            memory of this machine.
    """
    target, chosen = MODELS.target(name), Named(name=name, **options)
    _check_makes_networks(target, name, where)
    with within_memory(where):
        network = MODELS.build(chosen, where, **arguments)
    if not isinstance(network, nn.Module):
        raise ScenarioError(f"{where}.name: '{name}' made a {type(network).__name__}, not a torch.nn.Module")
    for path, part in network.named_modules():
        if isinstance(part, torch.jit.ScriptModule) and part.state_dict():
            which = f"'{path}' in the network of '{name}'" if path else f"'{name}'"
            raise ScenarioError(
                f"{where}.name: {which} is a ScriptModule, whose parameters rayfl cannot lay out; return the module "
                "itself, without torch.jit.script or torch.jit.trace"
            )
    if (layer := MODELS.set_apart(target, chosen, where).get(OPTION)) is not None:
        declare(network, layer, where)
    return network


def _check_makes_networks(target: Any, name: str, where: str) -> None:
    if isinstance(target, nn.Module):
        raise ScenarioError(
            f"{where}.name: '{name}' is already built, so its initial weights would not follow the seed; name its "
            "class, or a function that builds it"
        )
    called = inspect.unwrap(target.func if isinstance(target, partial) else target)
    if not (inspect.isfunction(called) or (inspect.isclass(called) and issubclass(called, nn.Module))):
        kind = f"the class {called.__name__}" if inspect.isclass(called) else f"of type {type(called).__name__}"
        raise ScenarioError(
            f"{where}.name: '{name}' is {kind}; a model is a class derived from torch.nn.Module, or a function that "
            "returns one"
        )


def wrapped(network: str | dict[str, Any], num_classes: int, input_shape: Sequence[int]) -> tuple[Network, nn.Linear]:
    """Builds the inner network.

    Args:
        network: A name ("lenet5"), or a table of name and options: { name = "resnet8", width = 32 }.
        num_classes: Width of its output.
        input_shape: Shape of one input.

    Returns:
        The network, and its feature layer.

    Raises:
        ScenarioError: The network is unknown, an option is wrong, or it declares no feature layer (it is not a
            `Network`) or one that is not torch.nn.Linear.
    """
    options = {"name": network} if isinstance(network, str) else dict(network)
    name = options.pop("name", None)
    if not isinstance(name, str):
        raise ScenarioError('model.network: needs a name: "lenet5", or { name = "resnet8", width = 32 }')
    known = {"num_classes": num_classes, "input_shape": input_shape}
    module = build_module(name, options, known, "model.network")
    if not isinstance(module, Network):
        raise ScenarioError(
            f"model.network: '{name}' made a {type(module).__name__}, which declares no feature layer; derive it from "
            "rayfl.models.Network"
        )
    module.check_declaration()
    layer = module.get_submodule(module.feature_layer)
    if not isinstance(layer, nn.Linear):
        raise ScenarioError(
            f"model.network: the feature layer '{module.feature_layer}' of '{name}' is {type(layer).__name__}; a "
            "projection head requires a torch.nn.Linear"
        )
    return module, layer


def put_head(module: Network, head: nn.Module, layers: Sequence[str]) -> tuple[str, ...]:
    """Replaces the feature layer of a network by a head of the same name.

    Args:
        module: The network.
        head: The head.
        layers: Names, within the head, of the submodules with trained parameters, from input to output.

    Returns:
        The names of these submodules in the network.
    """
    replaced = module.feature_layer
    module.set_submodule(replaced, head)
    new = tuple(f"{replaced}.{layer}" for layer in layers)
    module.ordered_modules = _replace(module.ordered_modules, replaced, new)
    module.groupings = {
        grouping: tuple(_replace(unit, replaced, new) for unit in units) for grouping, units in module.groupings.items()
    }
    return new


def _replace(names: Sequence[str], replaced: str, by: Sequence[str]) -> tuple[str, ...]:
    return tuple(new for name in names for new in (by if name == replaced else (name,)))
