"""Which networks can have `local.dp`: those of which Opacus computes the per-sample gradients, and rightly."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

from rayfl.config.scenario import Scenario
from rayfl.errors import ScenarioError
from rayfl.tasks.building import build_task
from rayfl.tasks.task import Task

if TYPE_CHECKING:
    from rayfl.data.store import ShardStore
    from rayfl.engine.phase_plan import PhasePlan
    from rayfl.local.selection import Selection
    from rayfl.models.flat import FlatModel

COMPARED_SAMPLES = 3
"""How many samples' gradients by Opacus are compared with a loop over samples."""

TOLERANCE, TOLERANCE_OF_LARGEST = 2e-2, 1e-4
"""How far a parameter's gradient may be off: a share of its own norm, and a share of the largest norm of any parameter,
since rounding alone flips some rectifiers of a deep network."""


def check_network(scenario: Scenario, plans: Sequence[PhasePlan], model: FlatModel, store: ShardStore) -> None:
    """Checks that Opacus computes the network's per-sample gradients, and rightly: it may be wrong silently.

    Args:
        scenario: The scenario.
        plans: Its phases.
        model: The initial model, on the CPU.
        store: The data.

    Raises:
        ScenarioError: A layer mixes samples (batch norm), has no norm sampler where `clipping = "ghost"`, or its
            gradients differ from those of single samples.
    """
    from rayfl.local.selection import select

    checked: set[tuple[bool, Selection | None]] = set()
    for plan in plans:
        if plan.phase.local.dp is None:
            continue
        where, ghost = f"phases.{plan.phase.name}.local.dp", plan.phase.local.dp.clipping == "ghost"
        selection = select(plan.train, model.module)
        _check_batch_norm(model, selection, where)
        if ghost:
            _check_norm_samplers(model, selection, where)
        if (ghost, selection) not in checked:
            _compare_with_loop(model, build_task(scenario), store, selection, ghost, where)
        checked.add((ghost, selection))


def _check_batch_norm(model: FlatModel, selection: Selection | None, where: str) -> None:
    from torch.nn.modules.batchnorm import _BatchNorm

    frozen = selection.frozen if selection else ()
    for name, module in model.module.named_modules():
        runs = getattr(module, "running_mean", None) is not None
        constant = runs and any(name == one or name.startswith(f"{one}.") for one in frozen)
        if (isinstance(module, _BatchNorm) or runs) and not constant:
            kind = type(module).__name__
            raise ScenarioError(
                f"{where}: '{name}' of model {type(model.module).__name__} is {kind}, whose statistics mix the samples "
                "of a batch; use group norm (model.norm = 'group' of the ResNets), or "
                "opacus.validators.ModuleValidator.fix on a network of your own"
            )


def _check_norm_samplers(model: FlatModel, selection: Selection | None, where: str) -> None:
    from rayfl.privacy.samples.per_sample import norm_sampled

    for name, module in model.module.named_modules():
        for own, parameter in module.named_parameters(name, recurse=False):
            trains = parameter.requires_grad and (selection is None or own in selection.tensors)
            if trains and not norm_sampled(module):
                kinds = [kind.__name__ for kind in type(module).__mro__ if kind.__module__.startswith("torch.nn.")]
                raise ScenarioError(
                    f"{where}.clipping: 'ghost' needs norms that Opacus computes without the gradients, which it does "
                    f"of linear and embedding layers; '{name}' is {kinds[0]}; use 'per_sample'"
                )
    if any(len(slot.names) > 1 for slot in model.layout if slot.is_parameter):
        raise ScenarioError(f"{where}.clipping: 'ghost' cannot have tied weights; use 'per_sample'")


def _compare_with_loop(
    model: FlatModel, task: Task, store: ShardStore, selection: Selection | None, ghost: bool, where: str
) -> None:
    import numpy as np
    import torch

    from rayfl.data.batches import BatchSource
    from rayfl.models.modes import evaluation_mode
    from rayfl.privacy.samples.per_sample import PerSampleGradients

    kind = type(model.module).__name__
    rows = np.arange(min(COMPARED_SAMPLES, len(store.train)))
    source = BatchSource(store, torch.device("cpu"))
    x, y = source.batch("train", rows)
    training = nullcontext() if selection is None else model.training_only(selection.tensors)
    with evaluation_mode(model.module), training:
        slots = model.training_slots
        try:
            found = PerSampleGradients(model, task, ghost).of_each(x, y)
        except Exception as error:  # Opacus, and a network that it was not made for, may raise anything
            said = str(error).partition("\n")[0]
            raise ScenarioError(
                f"{where}: Opacus cannot compute gradients of single samples of model {kind} ({said}); use layers that "
                "opacus.validators.ModuleValidator accepts, called as modules"
            ) from None
        for index in range(len(y)):
            model.zero_gradient()
            alone, label = source.batch("train", rows[index : index + 1])  # not padded to the length of others
            torch.autograd.backward(task.loss(model.module(alone), label, "sum"))
            wanted = {slot.name: slot.view(model.gradient) for slot in slots}
            largest = max(float(gradient.norm()) for gradient in wanted.values())
            for name, gradient in wanted.items():
                own = found[name][index] if name in found else torch.zeros(())
                difference = float((own - (gradient.norm() if ghost else gradient)).norm())
                if not difference <= TOLERANCE * float(gradient.norm()) + TOLERANCE_OF_LARGEST * largest:
                    raise ScenarioError(
                        f"{where}: Opacus' gradient of single samples is wrong for '{name}' of model {kind}; call "
                        "every layer as a module, with samples in the first dimension, and let none change what "
                        "another's output is"
                    )
        model.zero_gradient()
