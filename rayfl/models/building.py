"""Builds a network by registered name or import path, with the options of a scenario."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import nn

from rayfl.errors import ScenarioError
from rayfl.models import models
from rayfl.models.feature_layer import declare, split_off
from rayfl.models.memory_limit import within_memory
from rayfl.registry import call_with_options


def build_module(name: str, options: Mapping[str, Any], given: Mapping[str, Any], where: str) -> nn.Module:
    """Builds a network.

    Args:
        name: A registered name, or the import path of a class or function.
        options: Options of the constructor from the scenario, and possibly `feature_layer`.
        given: Arguments from rayfl, passed if the constructor names them: `num_classes` and `input_shape`.
        where: Key path of the table with name and options, for messages.

    Raises:
        ScenarioError: The name or an option is unknown; the object is neither a network class nor a function (it is
            then not called), raises an exception, or does not return a network; or the parameters do not fit into the
            memory of this machine.
    """
    target = models.resolve(name)
    _check_makes_networks(target, name, where)
    own, layer = split_off(target, options)
    with within_memory(where):
        network = call_with_options(target, own, given, where)
    if not isinstance(network, nn.Module):
        raise ScenarioError(f"{where}.name: '{name}' made a {type(network).__name__}, not a torch.nn.Module")
    for path, part in network.named_modules():
        if isinstance(part, torch.jit.ScriptModule) and part.state_dict():
            which = f"'{path}' in the network of '{name}'" if path else f"'{name}'"
            raise ScenarioError(
                f"{where}.name: {which} is a ScriptModule, whose parameters rayfl cannot lay out; return the module "
                "itself, without torch.jit.script or torch.jit.trace"
            )
    if layer is not None:
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
