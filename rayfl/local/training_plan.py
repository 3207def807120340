"""What trains at which step of a client update, known before it starts.

All of the network, its head, its body, or some modules (`train`); under gradual unfreezing, more modules from step to
step: Kao et al., "FedBug: A Bottom-Up Gradual Unfreezing Framework for Federated Learning", alg. 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from fractions import Fraction
from itertools import groupby

from torch import nn

from rayfl.config.local import Local, Train, Unfreezing
from rayfl.config.registry import nearest
from rayfl.errors import ScenarioError
from rayfl.local.steps import batches_of_steps, rates
from rayfl.models.constants import is_trainable
from rayfl.models.feature_layer import head_of, undeclared
from rayfl.models.network import Network
from rayfl.models.tensors import listed


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
    trained = set.intersection(*(_chosen(one, network, held) for one in restrictions))
    ties = _ties(network)
    trained = {name for tie in ties for name in tie if trained.intersection(tie)} | trained
    if not any(parameter.requires_grad for name, parameter in network.named_parameters() if name in trained):
        both = " and ".join(f"train = {_shown(one)}" for one in restrictions)
        raise ScenarioError(f"train: model {kind} has no parameters left to train with {both}")
    frozen = _modules_around(held) - _modules_around(trained)
    outermost = (name for name in frozen if name.rpartition(".")[0] not in frozen)
    return Selection(frozenset(trained), tuple(sorted(outermost)))


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


def _within(name: str, network: nn.Module, held: Sequence[str]) -> set[str]:
    inside = _named(name, network, held, "train")
    trainable = _trainable(network)
    if inside.isdisjoint(trainable):
        kind, modules = type(network).__name__, dict(network.named_modules())
        if name in modules:
            raise ScenarioError(f"train: module '{name}' of model {kind} has no parameters to train")
        raise ScenarioError(
            f"train: '{name}' names only what model {kind} does not train; it trains {listed(sorted(trainable))}"
        )
    return inside


def _named(name: str, network: nn.Module, held: Sequence[str], key: str) -> set[str]:
    """The parameters and buffers that a name or a shell pattern of modules, parameters and buffers stands for.

    Raises:
        ScenarioError: It stands for none; names similar ones.
    """
    modules = [module for module, _ in network.named_modules() if module]
    known, pattern = {*modules, *held}, not {"*", "?", "["}.isdisjoint(name)
    chosen = {name} & known or {one for one in known if pattern and fnmatchcase(one, name)}
    if not chosen:
        kind = type(network).__name__
        if pattern:
            close = nearest(name.strip("*."), {part for one in known for part in one.split(".")})
            raise ScenarioError(f"{key}: no module and no parameter of model {kind} matches '{name}'; {close}")
        what, among = ("module or parameter", known) if "." in name else ("module", modules)
        raise ScenarioError(f"{key}: model {kind} has no {what} '{name}'; {nearest(name, among)}")
    return {tensor for tensor in held if tensor in chosen or not chosen.isdisjoint(_modules_around([tensor]))}


def _trainable(network: nn.Module) -> set[str]:
    return {name for name, one in network.named_parameters(remove_duplicate=False) if is_trainable(one)}


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


def training_stages(
    local: Local, selection: Selection | None, network: nn.Module, steps: int
) -> list[tuple[int, frozenset[str] | None]]:
    """Divides a client update into stages, in each of which a fixed set of parameters trains.

    Args:
        local: Options of local training.
        selection: Tensors that may train; None for everything.
        network: The network.
        steps: Number of steps in the client update.

    Returns:
        For each stage, in order, its number of steps and the names of the tensors that train; None stands for all.

    Raises:
        ScenarioError: The network declares no ordered modules, or not the grouping asked for; or the client update is
            too short for the `code` schedule.
    """
    if local.unfreeze is None:
        return [(steps, selection.tensors if selection else None)]
    units = trained_units(local.unfreeze, selection, network)
    if len(units) == 1 and local.unfreeze.share:
        raise ScenarioError("local.unfreeze: has no effect where a single unit trains; leave it out")
    if local.unfreeze.order == "top_down":
        units = units[::-1]
    thawed = [thawed_units(local.unfreeze, step, steps, len(units)) for step in range(1, steps + 1)]
    return [(sum(1 for _ in run), frozenset().union(*units[:count])) for count, run in groupby(thawed)]


def thawed_units(unfreeze: Unfreezing, step: int, steps: int, units: int) -> int:
    """The number of units m that train at one step of a client update.

    With P = `unfreeze.share`, the `paper` schedule has m = min(M, ceil(k M / (P K))), and the `code` schedule
    m = min(M, floor((k - 1) / phi) + 1) with phi = floor(P K / M). Both are computed with exact fractions, because the
    floating-point product P K may fall just below an integer.

    Args:
        unfreeze: Options of gradual unfreezing.
        step: k, counted from 1.
        steps: K, the number of steps in the client update.
        units: M, the number of units that can train.

    Raises:
        ScenarioError: phi is 0 although P is not.
    """
    window = Fraction(str(unfreeze.share)) * steps
    if not window:
        return units
    if unfreeze.schedule == "paper":
        return min(units, -(-step * units // window))
    period = window // units
    if not period:
        raise ScenarioError(
            f"local.unfreeze: with schedule = 'code' a share of {unfreeze.share} of {steps} steps is too short for "
            f"{units} units; it must contain at least {units} steps"
        )
    return min(units, (step - 1) // period + 1)


def trained_units(unfreeze: Unfreezing, selection: Selection | None, network: nn.Module) -> list[frozenset[str]]:
    """Returns the units that thaw one after another, from input to output, without parameters that never train.

    Args:
        unfreeze: Options of gradual unfreezing.
        selection: Tensors that may train; None for everything.
        network: The network.

    Returns:
        The names of each unit's parameters.

    Raises:
        ScenarioError: The network declares no ordered modules, or lacks the requested grouping.
    """
    kind = type(network).__name__
    if not isinstance(network, Network):
        raise ScenarioError(
            f"model {kind}: unfreezing modules needs their order; derive it from rayfl.models.Network and "
            "declare ordered_modules"
        )
    if unfreeze.units == "modules":
        units: Sequence[tuple[str, ...]] = [(name,) for name in network.ordered_modules]
    elif unfreeze.units in network.groupings:
        units = network.groupings[unfreeze.units]
    else:
        known = ", ".join(f"'{name}'" for name in ("modules", *network.groupings))
        raise ScenarioError(f"local.unfreeze.units: model {kind} has no units '{unfreeze.units}'; it has {known}")
    trainable = _trainable(network) if selection is None else _trainable(network) & selection.tensors
    tensors = (
        frozenset(name for name in trainable if any(name.startswith(f"{module}.") for module in unit)) for unit in units
    )
    return [unit for unit in tensors if unit]


@dataclass(frozen=True)
class TrainingPlan:
    """The steps of one client update.

    Attributes:
        batches: [steps], the sample counts of every batch of a step.
        rates: [steps], the learning rate of every step relative to the round's.
        stages: (number of steps, names of the tensors that train in them or None for all); together they make up all
            steps.
        frozen: Names of the modules that compute in evaluation mode throughout.
        own_rates: (learning rate, names of the tensors) for tensors with their own rate in every step.
    """

    batches: Sequence[Sequence[int]]
    rates: Sequence[float]
    stages: Sequence[tuple[int, frozenset[str] | None]]
    frozen: Sequence[str] = ()
    own_rates: Sequence[tuple[float, frozenset[str]]] = ()


def plan_training(local: Local, selection: Selection | None, network: nn.Module, num_samples: int) -> TrainingPlan:
    """Plans a client update.

    Args:
        local: Options of local training, with numbers drawn.
        selection: Tensors that train; None for everything.
        network: The network.
        num_samples: Number of samples to train on.

    Raises:
        ScenarioError: As `training_stages`; or a module of `module_lr` does not exist, is inside another one, or does
            not train.
    """
    batches = batches_of_steps(local, num_samples)
    return TrainingPlan(
        batches,
        rates(local.lr_schedule, len(batches)),
        training_stages(local, selection, network, len(batches)),
        selection.frozen if selection else (),
        _own_rates(local, selection, network),
    )


def _own_rates(local: Local, selection: Selection | None, network: nn.Module) -> list[tuple[float, frozenset[str]]]:
    if not local.module_lr:
        return []
    held, trainable, module_rates = _held(network), _trainable(network), list[tuple[float, frozenset[str]]]()
    for name, rate in local.module_lr.items():
        tensors = _named(name, network, held, "module_lr") & trainable
        if around := next((other for other in local.module_lr if name.startswith(f"{other}.")), None):
            raise ScenarioError(f"module_lr: '{name}' lies in '{around}', which has its own rate; leave one out")
        if selection is not None:
            tensors &= selection.tensors
        if not tensors:
            raise ScenarioError(f"module_lr: no parameter of '{name}' trains; leave it out")
        if twice := [tensor for _, others in module_rates for tensor in tensors & others]:
            raise ScenarioError(f"module_lr: '{min(twice)}' has two rates, one of them by '{name}'; leave one out")
        module_rates.append((rate, frozenset(tensors)))
    return module_rates
