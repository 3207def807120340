"""Checks before the run that algorithms, networks and data fit together, batch norm and lone samples included."""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence

import numpy as np
import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from rayfl.config.local import Local, Train
from rayfl.config.scenario import Scenario
from rayfl.data.batches import BatchSource
from rayfl.data.checks import are_class_labels
from rayfl.data.held_out import pool_number
from rayfl.data.store import ShardStore
from rayfl.engine.plan.cohort import cohort_sizes, drawn_size
from rayfl.engine.plan.phase_plan import PhasePlan
from rayfl.engine.plan.workload import Workload
from rayfl.engine.schedules.schedule import schedule_of
from rayfl.errors import ScenarioError
from rayfl.local.sample_weights import sample_weights
from rayfl.local.steps import batches_of_steps, largest, smallest
from rayfl.local.training_plan import plan_training, select
from rayfl.models.feature_layer import features_and_outputs, head_of, undeclared
from rayfl.tasks.task import Task


def check_lone_samples(
    local: Local,
    network: nn.Module,
    frozen: Collection[str],
    store: ShardStore,
    sizes: np.ndarray,
    where: str,
    pool: str = "",
) -> None:
    """Tries the network on one sample in training mode, if some client has a batch of one.

    Batch norm can normalise a single image by its pixels, but not a single vector.

    Args:
        local: Local training options, with numbers already drawn.
        network: The network with its initial parameters, on the CPU; it is not changed.
        frozen: Names of the modules that compute in evaluation mode.
        store: The data.
        sizes: int64 [clients], number of samples that each trains on; [1] for a pool.
        where: The key of local training.
        pool: Name of the training on pooled samples, for the message; empty if clients train.

    Raises:
        ScenarioError: The network raises; names the client or pool, and what to change.
    """
    if not any(isinstance(module, _BatchNorm) for module in network.modules()):
        return

    def with_lone(drop_last: bool) -> list[int]:
        one_pass = local.model_copy(update={"epochs": 1, "drop_last": drop_last})
        return [
            size for size in np.unique(sizes).tolist() if any(1 in step for step in batches_of_steps(one_pass, size))
        ]

    lone = with_lone(local.drop_last)
    if not lone:
        return
    x, _ = BatchSource(store, torch.device("cpu")).test_batch(slice(0, 1))
    tried = copy.deepcopy(network).train()
    for name in frozen:
        tried.get_submodule(name).eval()
    try:
        with torch.no_grad():
            tried(x)
    except ValueError as error:
        who = pool or f"client {int(np.flatnonzero(sizes == lone[0])[0])}"
        has, remedy = f"{lone[0]} samples, which leave a batch of one that", "choose another batch_size"
        if lone[0] == 1:
            has = "a single sample, which"
            remedy = "give it more" if pool else "leave such clients out with a data.partition of your own"
            remedy += ", or use group norm (model.norm = 'group' for the ResNets)"
        elif not with_lone(drop_last=True):
            remedy = f"set drop_last = true, or {remedy}"
        raise ScenarioError(f"{where}: {who} has {has} batch norm cannot normalise ({error}); {remedy}") from None


def check_requirements(
    scenario: Scenario, plans: Sequence[PhasePlan], networks: Sequence[nn.Module], workloads: Sequence[Workload]
) -> None:
    """Checks a scenario against its data and networks.

    Args:
        scenario: The scenario.
        plans: Its phases.
        networks: The network of each phase.
        workloads: The workload of each phase.

    Raises:
        ScenarioError: A network declares no features or no modules, lacks a module that should train, has no buffers
            although an option concerns them, or has buffers that the algorithm would never update; or a client update
            is too short for its unfreezing. Names the phase.
    """
    for plan, network, workload in zip(plans, networks, workloads, strict=True):
        _check_phase(plan, scenario, network, workload)
    if personalize := scenario.evaluation.personalize:
        distinct = {id(workload): (network, workload) for network, workload in zip(networks, workloads, strict=True)}
        for network, workload in distinct.values():
            sizes = workload.store.train_shards.sizes
            _check_no_state(workload.task, network, "evaluation.personalize")
            frozen = _check_plan(personalize, (personalize.train,), network, sizes, "evaluation.personalize")
            check_lone_samples(largest(personalize), network, frozen, workload.store, sizes, "evaluation.personalize")
            _check_weights(personalize, workload, "evaluation.personalize.sample_weights")
            _check_sampling(personalize, scenario, workload.store, "evaluation.personalize.sampling")


def _check_phase(plan: PhasePlan, scenario: Scenario, network: nn.Module, workload: Workload) -> None:
    store, task = workload.store, workload.task
    where = f"phase '{plan.phase.name}' ({plan.phase.algorithm.name})"
    requirements = plan.algorithm.requirements()
    if "features" in requirements or task.reads_features:
        check_features(network, store, where)
    if "no_running_statistics" in requirements and (name := _running_statistics(network)):
        raise ScenarioError(
            f"{where} computes gradients in evaluation mode, which never updates the running statistics of '{name}' of "
            f"model {type(network).__name__}; use group norm (model.norm = 'group' for the ResNets)"
        )
    if "plain_objective" in requirements and type(task).objective is not Task.objective:
        raise ScenarioError(
            f"{where} requests losses and gradients, which leave out the training objective that task '{task.name}' "
            "defines; use an algorithm that only trains, such as 'fedavg'"
        )
    unkept = {*task.symbolic_state(network)}.difference(plan.client_state) if plan.algorithm.trains else None
    if unkept:
        raise ScenarioError(
            f"{where}: task '{task.name}' keeps {', '.join(sorted(unkept))} with each client, which this algorithm "
            "does not declare in client_state; use the algorithm that goes with the task"
        )
    try:
        plan.algorithm.stays_local(network)
    except ScenarioError as error:
        raise ScenarioError(f"phases.{plan.phase.name}.algorithm.{error}") from None
    _check_server(plan, scenario, network, workload)
    sizes = _update_sizes(plan, store)
    try:
        task.check_local(plan.phase.local, sizes)
    except ScenarioError as error:
        raise ScenarioError(f"{where}: {error}") from None
    frozen = _check_plan(plan.phase.local, plan.train, network, sizes, where)
    active = [
        module
        for name, module in network.named_modules()
        if not any(f"{name}.".startswith(f"{outer}.") for outer in frozen)
    ]
    model = f"model {type(network).__name__} has none{' that the phase trains' if frozen else ''}"
    averaged = any(buffer.is_floating_point() for module in active for buffer in module.buffers(recurse=False))
    if "buffers" in requirements and not averaged and not workload.initial.discrete:
        raise ScenarioError(f"{where}: 'buffers' has no effect, since {model}; leave it out")
    if "buffers" in requirements and (copies := getattr(network, "copies", None)):
        raise ScenarioError(
            f"{where}: 'buffers' would also bring back the values of '{next(iter(copies))}' of model "
            f"{type(network).__name__}, which follows trained modules; leave it out"
        )
    if "batch_norm" in requirements and not any(isinstance(module, _BatchNorm) for module in active):
        raise ScenarioError(f"{where} needs batch norm, and {model}; use 'fedavg'")
    if plan.algorithm.trains:
        local, pool = largest(plan.phase.local), "central training" if plan.phase.pool else ""
        check_lone_samples(local, network, frozen, store, sizes, f"phases.{plan.phase.name}.local", pool)
    _check_cohorts(plan, store, plan.phase.settings.quorum if scenario.participation else None)
    try:
        plan.algorithm.check_clients(store.train_shards.sizes)
    except ScenarioError as error:
        raise ScenarioError(f"phases.{plan.phase.name}.algorithm: {error}") from None
    try:
        trained = plan.algorithm.training_sizes(store.train_shards.sizes)
        plan.algorithm.check_training(task, plan.phase.local, trained)
    except ScenarioError as error:
        raise ScenarioError(f"phases.{plan.phase.name}: {error}") from None
    _check_weights(plan.phase.local, workload, f"phases.{plan.phase.name}.local.sample_weights")
    _check_sampling(plan.phase.local, scenario, store, f"phases.{plan.phase.name}.local.sampling")


def check_features(network: nn.Module, store: ShardStore, where: str) -> None:
    """Checks that the network declares its features, and that they are one vector per sample.

    Raises:
        ScenarioError: They are not; begins with `where`.
    """
    if head_of(network) is None:
        raise ScenarioError(f"{where} reads the network's features, the input of its head: {undeclared(network)}")
    x, y = BatchSource(store, torch.device("cpu")).test_batch(slice(0, 2))
    network.eval()
    with torch.no_grad():
        features, _ = features_and_outputs(network, x)
    if len(features) != len(y):
        raise ScenarioError(
            f"{where}: the input of feature_layer '{network.feature_layer}' of model {type(network).__name__} must be "
            f"one vector per sample, but has the shape {list(features.shape)} for {len(y)} samples"
        )


def _check_cohorts(plan: PhasePlan, store: ShardStore, quorum: int | None) -> None:
    """Checks the sizes that cohorts can have, down to the quorum if clients may fail to answer."""
    fewest, most = cohort_sizes(plan.phase, store.num_clients)
    if quorum is not None and quorum > most:
        raise ScenarioError(
            f"phases.{plan.phase.name}.quorum: at most {most} answers count in a round, fewer than the quorum of "
            f"{quorum}; use a smaller one"
        )
    if plan.phase.settings.over_selection > 1 and drawn_size(plan.phase, store.num_clients) == most:
        raise ScenarioError(
            f"phases.{plan.phase.name}.over_selection: has no effect, since cohort has all {most} clients; leave it out"
        )
    sizes = fewest if quorum is None else min(fewest, quorum), most
    try:
        plan.algorithm.check_cohort(*sizes)
    except ScenarioError as error:
        fewer = "; with [participation], a round may have only phases.N.quorum answers" if sizes[0] < fewest else ""
        raise ScenarioError(f"phases.{plan.phase.name}.algorithm.{error}{fewer}") from None
    try:
        schedule_of(plan.phase).check_cohort(plan, *sizes)
    except ScenarioError as error:
        raise ScenarioError(f"phases.{plan.phase.name}.{error}") from None


def _running_statistics(network: nn.Module) -> str:
    """Returns the name of a module with running statistics; empty if there is none."""
    names = (name for name, module in network.named_modules() if getattr(module, "running_mean", None) is not None)
    return next(names, "")


def _check_server(plan: PhasePlan, scenario: Scenario, network: nn.Module, workload: Workload) -> None:
    """Checks a phase's use of the samples that only the server holds."""
    where, store = f"phases.{plan.phase.name}", workload.store
    if store.server is None:
        wanted = ""
        if plan.phase.pool == "server":
            wanted = f"{where}.data"
        elif "server" in plan.own_exchanges:
            wanted = f"{where}.algorithm"
        elif plan.phase.settings.server_training:
            wanted = f"{where}.server_training"
        if wanted:
            raise ScenarioError(f"{wanted}: the server has no samples; give it some with data.server_share")
        return
    try:
        plan.algorithm.check_server(len(store.server), cohort_sizes(plan.phase, store.num_clients)[1])
    except ScenarioError as error:
        raise ScenarioError(f"{where}.algorithm: {error}") from None
    if training := plan.phase.settings.server_training:
        where = f"{where}.server_training"
        _check_no_state(workload.task, network, where)
        sizes = np.array([len(store.server)])
        frozen = _check_plan(training, plan.train, network, sizes, where)
        check_lone_samples(largest(training), network, frozen, store, sizes, where, "the server")
        pool = pool_number("server", store.num_clients)
        _check_weights(training, workload, f"{where}.sample_weights", pool)
        _check_sampling(training, scenario, store, f"{where}.sampling")


def _check_no_state(task: Task, network: nn.Module, where: str) -> None:
    """Refuses training beside the clients' updates by a task that keeps something from one update to the next."""
    if state := {*task.client_state(), *task.symbolic_state(network)}:
        raise ScenarioError(
            f"{where}: task '{task.name}' keeps {', '.join(sorted(state))} in a client's state, which this training "
            "does not have; leave it out"
        )


def _update_sizes(plan: PhasePlan, store: ShardStore) -> np.ndarray:
    """Returns the numbers of samples of the phase's client updates."""
    pool = plan.phase.pool
    if pool is None:
        return plan.algorithm.training_sizes(store.train_shards.sizes)
    source = BatchSource(store, torch.device("cpu"))
    return np.array([source.num_samples(pool_number(pool, store.num_clients))])


def _check_plan(
    local: Local, train: tuple[Train, ...], network: nn.Module, sizes: np.ndarray, where: str
) -> tuple[str, ...]:
    """Checks the training plans; returns the names of the frozen modules."""
    try:
        selection = select(train, network)
        for size in {int(sizes.min()), int(sizes.max())}:
            plan_training(smallest(local), selection, network, size)
    except ScenarioError as error:
        raise ScenarioError(f"{where}: {error}") from None
    return selection.frozen if selection else ()


def _check_weights(local: Local, workload: Workload, where: str, client: int | None = None) -> None:
    """Tries the weighting on the labels of a client or pool, by default those of the smallest client."""
    if local.sample_weights is None:
        return
    task, store = workload.task, workload.store
    if not task.per_sample or type(task).objective is not Task.objective:
        raise ScenarioError(f"{where}: task '{task.name}' has no loss per sample; leave it out")
    source = BatchSource(store, torch.device("cpu"))
    client = int(store.train_shards.sizes.argmin()) if client is None else client
    sample_weights(local.sample_weights, source.labels(source.shard(client), source.set_of(client)), where)


def _check_sampling(local: Local, scenario: Scenario, store: ShardStore, where: str) -> None:
    labels = store.train.y
    if local.sampling == "balanced" and not are_class_labels(labels, store.num_classes):
        raise ScenarioError(
            f"{where}: 'balanced' needs one class per sample, but labels of data '{scenario.data.name}' are "
            f"{labels.dtype}{list(labels.shape[1:]) or ''}; leave it out"
        )
