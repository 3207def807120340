"""Checks that a network can be trained privately.

For `local.dp`, its per-sample gradients can be computed and are right. Under differential privacy of samples or
clients, training changes none of its integers or flags.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch

from rayfl.config.scenario import Scenario
from rayfl.data.batches import BatchSource
from rayfl.data.store import ShardStore
from rayfl.engine.initial_model import TORCH_GLOBALS, flat_model, load_initial
from rayfl.engine.plan.phase_plan import PhasePlan, has_fresh_head
from rayfl.engine.plan.workload import Workload
from rayfl.errors import ScenarioError
from rayfl.local.client_state import changes_under_dp
from rayfl.local.training_plan import select
from rayfl.models.flat import FlatModel
from rayfl.models.modes import training_without_dropout
from rayfl.models.tensors import Discrete

if TYPE_CHECKING:
    import numpy as np
    from torch import nn

    from rayfl.local.training_plan import Selection
    from rayfl.privacy.samples.per_sample import PerSampleGradients
    from rayfl.tasks.task import Task


Checked = tuple[int, bool, Any]
"""A comparison already made: the model, whether `clipping = "ghost"`, and what trains."""

COMPARED_SAMPLES = 3
"""Number of samples whose jointly computed gradients are compared with those of each sample alone."""

NOISE = 0.1
"""Added to every weight beforehand, as a share of 1 / sqrt(inputs of a unit): a layer that starts at zero passes no
gradient and would hide errors in other layers."""

TOLERANCE, TOLERANCE_OF_LARGEST = 2e-2, 1e-4
"""Tolerated error of a parameter's gradient: a share of its own norm plus a share of the largest norm of any parameter,
because rounding alone flips some rectifiers of a deep network."""


def check_network(plan: PhasePlan, model: FlatModel, workload: Workload, checked: set[Checked]) -> None:
    """Checks that a phase's per-sample gradients can be computed and are right: Opacus may be silently wrong.

    They are compared with PyTorch's own gradients of each sample alone, at the initial weights plus a little noise, in
    evaluation mode and in training mode without dropout.

    Args:
        plan: The phase.
        model: Its initial model, on the CPU.
        workload: What it trains.
        checked: Comparisons already made for any phase; this phase's is added.

    Raises:
        ScenarioError: A layer mixes samples (batch norm), has no norm sampler for `clipping = "ghost"`, or its
            gradients differ from those of single samples; or, with `secure`, they depend on the rest of the batch.
    """
    from rayfl.local.training_plan import select

    if plan.phase.local.dp is None:
        return
    where, ghost = f"phases.{plan.phase.name}.local.dp", plan.phase.local.dp.clipping == "ghost"
    selection = select(plan.train, model.module)
    _check_batch_norm(model, selection, where)
    _check_changed_weights(model, selection, where)
    if ghost:
        _check_norm_samplers(model, selection, where)
    if (id(model), ghost, selection) not in checked:
        _compare_with_loop(model, workload.task, workload.store, selection, ghost, where)
    checked.add((id(model), ghost, selection))
    if plan.phase.local.dp.secure:
        from rayfl.engine.plan.batch_order_checks import check_batch_order

        with _noisy(model, workload.store):
            check_batch_order(plan, model, workload, selection)


def _check_batch_norm(model: FlatModel, selection: Selection | None, where: str) -> None:
    from torch.nn.modules.batchnorm import _BatchNorm

    frozen = selection.frozen if selection else ()
    for name, module in model.module.named_modules():
        runs = getattr(module, "running_mean", None) is not None
        constant = runs and any(name == one or name.startswith(f"{one}.") for one in frozen)
        if (isinstance(module, _BatchNorm) or runs) and not constant:
            kind = type(module).__name__
            remedy = (
                "use group norm (model.norm = 'group' of the ResNets), or opacus.validators.ModuleValidator.fix on "
                "your own network"
            )
            if not isinstance(module, _BatchNorm):
                remedy = "leave track_running_stats out"
            raise ScenarioError(
                f"{where}: '{name}' of model {type(model.module).__name__} is {kind}, whose statistics mix the samples "
                f"of a batch; {remedy}"
            )


def _check_changed_weights(model: FlatModel, selection: Selection | None, where: str) -> None:
    from rayfl.privacy.samples.opacus_layers import changes_weights

    for name, module in model.module.named_modules():
        trains = selection is None or f"{name}.weight" in selection.tensors
        if trains and changes_weights(module):
            raise ScenarioError(
                f"{where}: '{name}' of model {type(model.module).__name__} is {type(module).__name__} with max_norm, "
                "which changes weights outside of the noised steps, as the tokens of a batch say; leave max_norm out"
            )


def _check_norm_samplers(model: FlatModel, selection: Selection | None, where: str) -> None:
    from rayfl.privacy.samples.per_sample import norm_sampled

    for name, module in model.module.named_modules():
        for own, parameter in module.named_parameters(name, recurse=False):
            trains = parameter.requires_grad and (selection is None or own in selection.tensors)
            if trains and not norm_sampled(module):
                kinds = [kind.__name__ for kind in type(module).__mro__ if kind.__module__.startswith("torch.nn.")]
                raise ScenarioError(
                    f"{where}.clipping: 'ghost' needs norms that Opacus computes without gradients, which works only "
                    f"for linear and embedding layers; '{name}' is {kinds[0]}; use 'per_sample'"
                )
    if any(len(slot.names) > 1 for slot in model.layout if slot.is_parameter):
        raise ScenarioError(f"{where}.clipping: 'ghost' does not support tied weights; use 'per_sample'")


def _compare_with_loop(
    model: FlatModel, task: Task, store: ShardStore, selection: Selection | None, ghost: bool, where: str
) -> None:
    import torch

    from rayfl.data.batches import BatchSource
    from rayfl.models.modes import evaluation_mode, training_without_dropout
    from rayfl.privacy.samples.per_sample import PerSampleGradients

    network = model.module
    rows, source = _compared_rows(store), BatchSource(store, torch.device("cpu"))
    training = nullcontext() if selection is None else model.training_only(selection.tensors)
    with _noisy(model, store), torch.random.fork_rng(devices=[]), training:
        try:
            gradients = PerSampleGradients(model, task, ghost)
        except Exception as error:
            raise _impossible(where, network, error) from None
        frozen = selection.frozen if selection else ()
        for mode, when in (
            (evaluation_mode(network), ""),
            (training_without_dropout(network, frozen), " in training mode"),
        ):
            with mode:
                _compare(gradients, model, task, source, rows, ghost, where, when)
        model.zero_gradient()


def _compare(
    gradients: PerSampleGradients,
    model: FlatModel,
    task: Task,
    source: BatchSource,
    rows: np.ndarray,
    ghost: bool,
    where: str,
    when: str,
) -> None:
    """Compares the gradients of samples in a batch, one by one and in sum, with those of each sample alone."""
    import torch

    kind, slots = type(model.module).__name__, model.training_slots
    x, y = source.batch("train", rows)
    model.zero_gradient()
    try:
        per_sample = gradients.of_each(x, y)
        gradients.add_clipped(x, y, math.inf, len(y))
    except Exception as error:  # Opacus may raise anything for a network that it does not support
        raise _impossible(where, model.module, error) from None
    sums = {slot.name: slot.view(model.gradient).clone() for slot in slots}
    rest = sums.copy()
    for index in range(len(y)):
        model.zero_gradient()
        alone, label = source.batch("train", rows[index : index + 1])
        torch.autograd.backward(task.loss(model.module(alone), label, "sum"))
        wanted = {slot.name: slot.view(model.gradient) for slot in slots}
        largest = max(float(gradient.norm()) for gradient in wanted.values())
        for name, gradient in wanted.items():
            own = per_sample[name][index] if name in per_sample else torch.zeros(())
            difference = float((own - (gradient.norm() if ghost else gradient)).norm())
            if not difference <= TOLERANCE * float(gradient.norm()) + TOLERANCE_OF_LARGEST * largest:
                raise _wrong(model, alone, where, name, kind, when)
            rest[name] = rest[name] - gradient
    largest = max(float(total.norm()) for total in sums.values())
    for name, residual in rest.items():
        if not float(residual.norm()) <= TOLERANCE * float(sums[name].norm()) + TOLERANCE_OF_LARGEST * largest:
            raise _wrong(model, x, where, name, kind, when)


def _compared_rows(store: ShardStore) -> np.ndarray:
    """Samples spread over the data, hence of different clients, including the shortest if lengths differ."""
    import numpy as np

    from rayfl.data.inputs import Ragged, named_parts

    rows = np.linspace(0, len(store.train) - 1, min(COMPARED_SAMPLES, len(store.train))).astype(np.int64)
    for part in named_parts(store.train.x).values():
        if isinstance(part, Ragged) and part.lengths.min() not in part.lengths[rows]:
            rows[0] = int(part.lengths.argmin())
    return rows


@contextmanager
def _noisy(model: FlatModel, store: ShardStore) -> Iterator[None]:
    """Adds a little noise, the same in every run, to every weight within the context, then restores the model.

    Layers that initialise themselves from their first batch have done so within the context, as they must have before
    the phase: nothing may change a flag under `local.dp`.
    """
    import torch

    from rayfl.data.batches import BatchSource
    from rayfl.models.modes import training_without_dropout

    original, generator = model.vector.clone(), torch.Generator().manual_seed(0)
    try:
        for slot in model.layout:
            if slot.is_parameter:
                values = slot.view(model.vector)
                inputs = values.numel() / values.shape[0] if values.dim() else 1.0
                values.add_(torch.randn(values.shape, generator=generator), alpha=NOISE / math.sqrt(inputs))
        if model.discrete_names:
            x, _ = BatchSource(store, torch.device("cpu")).batch("train", _compared_rows(store))
            with torch.random.fork_rng(devices=[]), training_without_dropout(model.module), torch.no_grad():
                model.module(x)
        yield
    finally:
        model.load(original)


def _impossible(where: str, network: nn.Module, error: Exception) -> ScenarioError:
    from rayfl.privacy.samples.opacus_layers import unsupported_layer

    if layer := unsupported_layer(network):
        return ScenarioError(f"{where}: {layer}")
    cause = str(error).partition("\n")[0]
    return ScenarioError(
        f"{where}: Opacus cannot compute per-sample gradients of model {type(network).__name__} ({cause}); use layers "
        "that opacus.validators.ModuleValidator accepts, called as modules"
    )


def _wrong(model: FlatModel, x: Any, where: str, name: str, kind: str, when: str) -> ScenarioError:
    import torch

    from rayfl.privacy.samples.opacus_layers import unsupported_layer

    if layer := unsupported_layer(model.module, name):
        return ScenarioError(f"{where}: {layer}")
    with torch.no_grad():
        first, second = (model.module(x) for _ in range(2))
    if not torch.equal(first, second):
        return ScenarioError(
            f"{where}: model {kind} draws random numbers{when} other than for dropout, so its per-sample gradients "
            "cannot be compared with those of a loop; use PyTorch's dropout, or none"
        )
    return ScenarioError(
        f"{where}: per-sample gradients of model {kind} are wrong{when} for '{name}'; call every layer as a module, "
        "with samples in the first dimension, and let no sample or layer affect the outputs of others"
    )


def check_discrete_buffers(scenario: Scenario, plans: Sequence[PhasePlan], workloads: Sequence[Workload]) -> None:
    """Tries a batch of two training samples in every phase that is known to begin with initial values.

    Only phases under differential privacy leave integers and flags as they are, so none after one without it is tried.
    There, and wherever a later batch changes a buffer, the run ends with the same message.

    Args:
        scenario: The resolved scenario.
        plans: Its phases.
        workloads: The workload of each phase; if the scenario has a start, with the weights of that start.

    Raises:
        ScenarioError: An integer or boolean buffer changes, and the phase has `local.dp` or `dp`.
    """
    values: Discrete = {}
    tried = model = None
    for number, (plan, workload) in enumerate(zip(plans, workloads, strict=True)):
        if not plan.hidden_by:
            return
        values = workload.initial.take_discrete(values, has_fresh_head(scenario, number))
        if not values:
            continue
        if model is None or workload is not tried:
            tried, model = workload, flat_model(scenario, workload)
        load_initial(model, workload.initial, values)
        _try(plan, model, workload.store)


def _try(plan: PhasePlan, model: FlatModel, store: ShardStore) -> None:
    selection, before = select(plan.train, model.module), model.discrete()
    x, _ = BatchSource(store, torch.device("cpu")).batch("train", slice(0, 2))
    mode = training_without_dropout(model.module, selection.frozen if selection else ())
    with TORCH_GLOBALS, torch.random.fork_rng(devices=[]), mode, torch.no_grad():
        model.module(x)
    for name, value in model.discrete().items():
        if not torch.equal(value, before[name]):
            raise changes_under_dp(plan.hidden_by, name, model.module)
