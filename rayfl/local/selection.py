"""Selects the part of a network that trains: all of it, its head, its body, or some modules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from torch import nn

from rayfl.config.local import Train
from rayfl.errors import ScenarioError
from rayfl.models.feature_layer import head_of, undeclared
from rayfl.registry import nearest


@dataclass(frozen=True)
class Selection:
    """Tensors that may change in a client update.

    Attributes:
        tensors: Names of the parameters that train and of the buffers that are updated. A tied parameter is included
            with all of its names or with none.
        frozen: Names of the outermost modules in which nothing trains; they compute in evaluation mode.
    """

    tensors: frozenset[str]
    frozen: tuple[str, ...]


def select(chosen: Sequence[Train], network: nn.Module) -> Selection | None:
    """Combines several restrictions on what trains.

    A tied parameter trains if any module that holds it does. A module without its own parameters and buffers (dropout)
    is frozen with the module that contains it, never by itself.

    Args:
        chosen: The restrictions, such as those of the algorithm and of the phase.
        network: The network.

    Returns:
        None if everything trains.

    Raises:
        ScenarioError: The network declares no feature layer or has no such module, its head is tied to its body, or
            nothing is left to train.
    """
    restrictions = [one for one in chosen if one != "all"]
    if not restrictions:
        return None
    kind, held = type(network).__name__, _held(network)
    left = set.intersection(*(_chosen(one, network, held) for one in restrictions))
    ties = _ties(network)
    left = {name for tie in ties for name in tie if left.intersection(tie)} | left
    if not any(parameter.requires_grad for name, parameter in network.named_parameters() if name in left):
        both = " and ".join(f"train = {_shown(one)}" for one in restrictions)
        raise ScenarioError(f"train: model {kind} has no parameters left to train with {both}")
    frozen = _modules_around(held) - _modules_around(left)
    outermost = (name for name in frozen if name.rpartition(".")[0] not in frozen)
    return Selection(frozenset(left), tuple(sorted(outermost)))


def _chosen(train: Train, network: nn.Module, held: Sequence[str]) -> set[str]:
    kind = type(network).__name__
    if isinstance(train, tuple):
        return set().union(*(_within(module, network, held) for module in train))
    layer = head_of(network)
    if layer is None:
        raise ScenarioError(f"train: {undeclared(network)}; or give names of modules")
    head = {name for name in held if name.startswith(f"{layer}.")}
    for tie in _ties(network):
        inside = [name for name in tie if name in head]
        if 0 < len(inside) < len(tie):
            outside = next(name for name in tie if name not in head)
            raise ScenarioError(
                f"train: the head of model {kind} cannot be cut off: '{inside[0]}' and '{outside}' are one tensor "
                "(tied weights); give names of modules"
            )
    return head if train == "head" else set(held) - head


def _within(module: str, network: nn.Module, held: Sequence[str]) -> set[str]:
    known = [name for name, _ in network.named_modules() if name]
    if module not in known:
        raise ScenarioError(f"train: model {type(network).__name__} has no module '{module}'; {nearest(module, known)}")
    inside = {name for name in held if name.startswith(f"{module}.")}
    if not any(parameter.requires_grad for parameter in network.get_submodule(module).parameters()):
        raise ScenarioError(f"train: module '{module}' of model {type(network).__name__} has no parameters to train")
    return inside


def _held(network: nn.Module) -> list[str]:
    parameters = network.named_parameters(remove_duplicate=False)
    buffers = network.named_buffers(remove_duplicate=False)
    return [name for name, _ in (*parameters, *buffers)]


def _ties(network: nn.Module) -> list[list[str]]:
    """The names of every parameter that has several names."""
    names: dict[int, list[str]] = {}
    for name, parameter in network.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    return [tie for tie in names.values() if len(tie) > 1]


def _modules_around(tensors: Iterable[str]) -> set[str]:
    """The names of all modules that contain the tensors, at any depth, except the network itself."""
    around = set()
    for name in tensors:
        while name := name.rpartition(".")[0]:
            around.add(name)
    return around


def _shown(train: Train) -> str:
    return f"'{train}'" if isinstance(train, str) else str(list(train))
