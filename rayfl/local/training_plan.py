"""The steps of one client update, known before it starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from rayfl.config.local import Local
from rayfl.errors import ScenarioError
from rayfl.local.rates import rates
from rayfl.local.selection import Selection
from rayfl.local.steps import batches_of_steps
from rayfl.local.unfreezing import training_stages


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
    modules, found = dict(network.named_modules()), []
    for name, rate in local.module_lr.items():
        if name not in modules:
            raise ScenarioError(f"module_lr: model {type(network).__name__} has no module '{name}'")
        if around := next((other for other in local.module_lr if name.startswith(f"{other}.")), None):
            raise ScenarioError(f"module_lr: '{name}' lies in '{around}', which has its own rate; leave one out")
        tensors = {parameter for parameter, tensor in modules[name].named_parameters(name) if tensor.requires_grad}
        if selection is not None:
            tensors &= selection.tensors
        if not tensors:
            raise ScenarioError(f"module_lr: no parameter of '{name}' trains; leave it out")
        found.append((rate, frozenset(tensors)))
    return found
