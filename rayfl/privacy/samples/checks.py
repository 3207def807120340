"""Which scenarios cannot have `local.dp`, and why: said before anything starts."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

from rayfl.algorithms.support_query import SupportQuery
from rayfl.config.local import Local
from rayfl.config.phase import ParallelPhase
from rayfl.config.privacy import SampleDP
from rayfl.config.scenario import Scenario
from rayfl.errors import ScenarioError
from rayfl.tasks.building import build_task
from rayfl.tasks.task import Task

if TYPE_CHECKING:
    from rayfl.data.store import ShardStore
    from rayfl.engine.phase_plan import PhasePlan
    from rayfl.local.selection import Selection
    from rayfl.models.flat import FlatModel

PROBED = 3
"""Samples on which Opacus' gradients are compared with a loop over samples."""

OWN, ANY = 2e-2, 1e-4
"""By how much a parameter's may differ, as shares of its own norm and of the largest: rounding alone flips some
rectifiers of a deep network."""


def check_sample_dp(scenario: Scenario, plans: Sequence[PhasePlan]) -> None:
    """Checks what needs neither data nor network.

    Args:
        scenario: The scenario.
        plans: Its phases.

    Raises:
        ScenarioError: An algorithm, task or option leaks what samples are, or has no effect; names its key.
    """
    personalize = scenario.evaluation.personalize
    if personalize and personalize.dp:
        raise ScenarioError(
            "evaluation.personalize.dp: has no effect on privacy: evaluation is the experimenter's own view, which "
            "nobody else sees; leave it out"
        )
    for plan in plans:
        where = f"phases.{plan.phase.name}"
        if isinstance(plan.phase, ParallelPhase) and plan.phase.server_training and plan.phase.server_training.dp:
            raise ScenarioError(
                f"{where}.server_training.dp: samples are private at clients (local.dp), not the server's own; leave "
                "it out"
            )
        if plan.phase.local.dp:
            _check_algorithm(plan, where)
            _check_task(scenario, where)
            _check_options(plan.phase.local, scenario, plan, f"{where}.local")
    _check_parts([plan for plan in plans if plan.phase.local.dp])


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


def _check_algorithm(plan: PhasePlan, where: str) -> None:
    name = plan.phase.algorithm.name
    if reason := plan.algorithm.no_sample_dp():
        raise ScenarioError(f"{where}.local.dp: there is none with '{name}': {reason}")
    if plan.sampler is not None and plan.sampler.reads_scalars:
        raise ScenarioError(
            f"{where}.cohort: '{plan.sampler.name}' reads what clients report, such as training losses, without noise, "
            "so that who takes part tells of their samples; with local.dp use another cohort"
        )


def _check_task(scenario: Scenario, where: str) -> None:
    task = build_task(scenario)
    if not task.per_sample or task.views > 1 or type(task).objective is not Task.objective:
        raise ScenarioError(
            f"{where}.local.dp: task '{scenario.task.name}' has no losses of single samples to clip the gradients of; "
            "use a task that has, such as 'classification'"
        )


def _check_options(local: Local, scenario: Scenario, plan: PhasePlan, where: str) -> None:
    dp = local.dp
    assert dp is not None
    refused = {
        "sample_weights": (local.sample_weights is not None, "weights follow from all of a client's labels"),
        "accumulate": (local.accumulate > 1, "dp.physical_batch_size bounds memory; use a larger batch_size"),
        "drop_last": (local.drop_last, "batches are drawn, and the update has ceil(samples / batch_size) an epoch"),
        "precision": (local.precision != "float32", "clipping and noise are computed in float32"),
        "shuffle": (not local.shuffle and dp.sampling == "poisson", "Poisson sampling has no order"),
    }
    for key, (given, reason) in refused.items():
        if given:
            raise ScenarioError(f"{where}.{key}: does not go with dp: {reason}; leave it out")
    if dp.secure and dp.noise_multiplier == 0:
        raise ScenarioError(f"{where}.dp.secure: without noise nothing is hidden, whatever its source; leave it out")
    if dp.augmentations > dp.physical_batch_size:
        raise ScenarioError(
            f"{where}.dp.augmentations: {dp.augmentations} copies of a sample do not fit a physical batch of "
            f"{dp.physical_batch_size}; use a larger physical_batch_size"
        )
    if dp.augmentations > 1 and not scenario.data.augment:
        raise ScenarioError(
            f"{where}.dp.augmentations: has no effect without data.augment, as all copies are the same; leave it out"
        )
    if not plan.algorithm.trains:
        _check_untrained(dp, plan.phase.algorithm.name, where)


def _check_untrained(dp: SampleDP, name: str, where: str) -> None:
    for key in ("sampling", "augmentations"):
        if getattr(dp, key) != SampleDP.model_fields[key].default:
            raise ScenarioError(
                f"{where}.dp.{key}: has no effect: clients of '{name}' do not train, they answer with gradients of all "
                "their samples; leave it out"
            )


def _check_parts(plans: Sequence[PhasePlan]) -> None:
    """Parts that are drawn once compose in parallel, hence must be the same in all phases."""
    shares = {
        plan.phase.name: plan.algorithm.query_share
        for plan in plans
        if isinstance(plan.algorithm, SupportQuery) and plan.algorithm.split == "client"
    }
    if len(set(shares.values())) > 1:
        listed = ", ".join(f"{name}: {share:g}" for name, share in shares.items())
        raise ScenarioError(
            f"phases.{list(shares)[-1]}.algorithm.query_share: with local.dp, phases that split clients' samples once "
            f"must split them alike ({listed}); use one query_share, or split = 'round'"
        )


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
    rows = np.arange(min(PROBED, len(store.train)))
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
                if not difference <= OWN * float(gradient.norm()) + ANY * largest:
                    raise ScenarioError(
                        f"{where}: Opacus' gradient of single samples is wrong for '{name}' of model {kind}; call "
                        "every layer as a module, with samples in the first dimension, and let none change what "
                        "another's output is"
                    )
        model.zero_gradient()
