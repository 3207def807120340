"""Whether phases, algorithms and network fit each other, before anything starts."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from rayfl.algorithms.algorithm import Algorithm
from rayfl.algorithms.diagnostics import ALWAYS_KNOWN, DIVERGENCE
from rayfl.config.local import RATE_KEYS, Local, Train
from rayfl.config.phase import CentralPhase
from rayfl.config.scenario import Scenario
from rayfl.data.batches import BatchSource
from rayfl.data.pools import pool_number
from rayfl.data.store import ShardStore
from rayfl.engine.cohort import cohort_sizes
from rayfl.engine.phase_plan import PhasePlan, plan_phases, scores_personal_models
from rayfl.engine.scoring import Scorer
from rayfl.engine.slices import Slice
from rayfl.engine.workload import Workload
from rayfl.errors import RayflError, ScenarioError
from rayfl.local.draws import smallest
from rayfl.local.features import features_and_outputs
from rayfl.local.sample_weights import sample_weights
from rayfl.local.selection import select
from rayfl.local.training_plan import plan_training
from rayfl.models.flat import FlatModel
from rayfl.registry import nearest
from rayfl.tasks.building import build_task
from rayfl.tasks.metrics.building import build_metrics
from rayfl.tasks.task import Task

ONLY_ON_CUDA = {"numerics": ("deterministic", "tf32"), "resources": ("device_cache_gb",)}
"""Keys of the scenario that nothing on the CPU reads."""


def check_scenario(scenario: Scenario) -> None:
    """Checks what can be checked without data and network.

    Raises:
        ScenarioError: An algorithm or option has no meaning with the phase's schedule, or no effect; names its key.
    """
    if not scenario.resources.uses_cuda:
        _check_cpu(scenario)
    if (views := build_task(scenario).views) > 1 and not scenario.data.augment:
        raise ScenarioError(
            f"task: '{scenario.task.name}' compares {views} augmented views of every batch, and without data.augment "
            "they are the same; name augmentations"
        )
    plans = plan_phases(scenario)
    if scenario.evaluation.client_model == "personal" and not any(
        scores_personal_models(scenario, plan) for plan in plans
    ):
        names = ", ".join(sorted({f"'{plan.phase.algorithm.name}'" for plan in plans}))
        raise ScenarioError(
            "evaluation.client_model: 'personal' needs an algorithm whose clients keep models of their own (ditto, "
            f"fedbn, or buffers = 'keep'), and {names} has none"
        )
    for plan in plans:
        where = f"phases.{plan.phase.name}"
        if plan.phase.local_objective_only:
            _check_local_objective(plan, where)
        else:
            _check_optimizer(plan, where)
        _check_local_keys(plan, where)
        _check_eval_model(plan, where)
        _check_report(plan, where)
        _ = plan.client_state, plan.server_state


def check_requirements(scenario: Scenario, network: nn.Module, store: ShardStore) -> None:
    """Checks what needs data and network.

    Raises:
        ScenarioError: The network declares no features or no modules, lacks a module that is to train, has no buffers
            where an option is about them, or has some that the algorithm would never update; or a client update is too
            short to unfreeze in. Names the phase.
    """
    for plan in plan_phases(scenario):
        where = f"phase '{plan.phase.name}' ({plan.phase.algorithm.name})"
        requirements = plan.algorithm.requirements()
        if "features" in requirements:
            _check_features(network, store, where)
        has_buffers = any(buffer.is_floating_point() for buffer in network.buffers())
        if "no_buffers" in requirements and has_buffers:
            raise ScenarioError(
                f"{where} takes gradients in evaluation mode, in which the buffers of model {type(network).__name__} "
                "(batch norm's statistics) are never updated; use group norm (model.norm = 'group' of the ResNets)"
            )
        if "buffers" in requirements and not has_buffers:
            raise ScenarioError(
                f"{where}: 'buffers' has no effect, for model {type(network).__name__} has none; leave it out"
            )
        if "batch_norm" in requirements and not any(isinstance(module, _BatchNorm) for module in network.modules()):
            name = type(network).__name__
            raise ScenarioError(f"{where} is about batch norm, and model {name} has none; use 'fedavg'")
        _check_server(plan, network, store)
        _check_plan(plan.phase.local, plan.train, network, _update_sizes(plan, store), where)
        _check_cohorts(plan, store)
        try:
            plan.algorithm.check_clients(store.train_shards.sizes)
        except ScenarioError as error:
            raise ScenarioError(f"{where}: {error}") from None
        _check_weights(plan.phase.local, scenario, store, f"phases.{plan.phase.name}.local.sample_weights")
    if personalize := scenario.evaluation.personalize:
        _check_plan(personalize, (personalize.train,), network, store.train_shards.sizes, "evaluation.personalize")
        _check_weights(personalize, scenario, store, "evaluation.personalize.sample_weights")


def check_metrics(workload: Workload, model: FlatModel) -> None:
    """Tries the metrics on two test samples.

    Args:
        workload: What is trained and evaluated.
        model: Its initial model, on the CPU.

    Raises:
        ScenarioError: A metric does not fit the task, or raised something.
    """
    metrics = build_metrics(workload.evaluation.metrics, workload.task, workload.num_outputs)
    batches = iter([BatchSource(workload.store, torch.device("cpu")).test_batch(slice(0, 2))])
    try:
        Scorer(workload.task, metrics).score(model.module, batches, Slice(0, 2))
    except RayflError as error:
        raise ScenarioError(f"evaluation.metrics: {error}") from None


def _check_cpu(scenario: Scenario) -> None:
    for section, keys in ONLY_ON_CUDA.items():
        chosen = getattr(scenario, section)
        for key in keys:
            if getattr(chosen, key) != type(chosen).model_fields[key].default:
                raise ScenarioError(f"{section}.{key}: has no effect on the CPU, on which this runs; leave it out")


def _check_local_objective(plan: PhasePlan, where: str) -> None:
    name, algorithm, noun = plan.phase.algorithm.name, plan.algorithm, plan.phase.noun
    if algorithm.no_relay:
        raise ScenarioError(
            f"{where}: there is no {noun} of '{name}': {algorithm.no_relay}; use it in a parallel phase"
        )
    if not algorithm.trains:
        raise ScenarioError(f"{where}: there is no {noun} of '{name}': its clients do not train")
    if algorithm.reads_first_model():
        raise ScenarioError(
            f"{where}: there is no {noun} of '{name}' with the phase's first model, which a server sends"
        )
    for field in _server_side(type(algorithm)):
        if getattr(algorithm, field) != type(algorithm).model_fields[field].get_default():
            raise ScenarioError(
                f"{where}.algorithm.{field}: has no effect in a {noun}, which has a local objective only; leave it out"
            )


def _server_side(kind: type[Algorithm]) -> list[str]:
    """The fields that a relay ignores; rayfl cannot know this of fields that a user's own class adds."""
    shipped = next(base for base in kind.__mro__ if base.__module__.startswith("rayfl."))
    assert issubclass(shipped, Algorithm)
    return [field for field in shipped.model_fields if field not in kind.local_options]


def _check_optimizer(plan: PhasePlan, where: str) -> None:
    name, chosen, reason = plan.phase.algorithm.name, plan.phase.local.optimizer.name, plan.algorithm.assumes_sgd()
    if reason and not plan.phase.local.is_plain_sgd:
        options = " with options" if chosen == "sgd" else ""
        raise ScenarioError(f"{where}.local.optimizer: '{name}' does not go with '{chosen}'{options}: {reason}")


def _check_report(plan: PhasePlan, where: str) -> None:
    known = (*ALWAYS_KNOWN, *plan.algorithm.reports)
    for name in plan.phase.report:
        if name not in known:
            raise ScenarioError(
                f"{where}.report: '{plan.phase.algorithm.name}' reports no '{name}'; {nearest(name, known)}"
            )
        if name == DIVERGENCE and not plan.algorithm.trains:
            algorithm = plan.phase.algorithm.name
            raise ScenarioError(
                f"{where}.report: 'divergence' needs trained models; clients of '{algorithm}' do not train"
            )


def _check_local_keys(plan: PhasePlan, where: str) -> None:
    """Checks that nothing is set that an algorithm which reads a part of `local` would ignore."""
    name, default, keys = plan.phase.algorithm.name, Local(), plan.algorithm.local_keys()
    if keys is None:
        return
    untrained = f"clients of '{name}' do not train"
    for field in type(default).model_fields:
        if field not in keys and getattr(plan.phase.local, field) != getattr(default, field):
            never = not plan.algorithm.trains and field not in RATE_KEYS
            reason = untrained if never else f"of local, '{name}' with these options reads {', '.join(sorted(keys))}"
            raise ScenarioError(f"{where}.local.{field}: has no effect: {reason}; leave it out")
    if plan.phase.train != "all":
        reason = f"'{name}' takes its steps on the whole network" if plan.algorithm.trains else untrained
        raise ScenarioError(f"{where}.train: has no effect: {reason}; leave it out")


def _check_eval_model(plan: PhasePlan, where: str) -> None:
    if plan.evaluated.reads_trained and not plan.algorithm.trains:
        raise ScenarioError(
            f"{where}.eval_model: '{plan.evaluated.rule}' needs trained models; clients of "
            f"'{plan.phase.algorithm.name}' do not train"
        )


def _check_features(network: nn.Module, store: ShardStore, where: str) -> None:
    if not hasattr(network, "feature_layer"):
        raise ScenarioError(
            f"{where} reads the network's features, and model {type(network).__name__} does not say which they are; "
            "derive it from rayfl.models.network.Network and declare feature_layer"
        )
    x, y = BatchSource(store, torch.device("cpu")).test_batch(slice(0, 2))
    network.eval()
    with torch.no_grad():
        features, _ = features_and_outputs(network, x)
    if len(features) != len(y):
        raise ScenarioError(
            f"{where}: what enters feature_layer '{network.feature_layer}' of model {type(network).__name__} is "
            f"{list(features.shape)} for {len(y)} samples, not a vector for each"
        )


def _check_cohorts(plan: PhasePlan, store: ShardStore) -> None:
    sizes = cohort_sizes(plan.phase, store.num_clients)
    try:
        plan.algorithm.check_cohort(*sizes)
    except ScenarioError as error:
        raise ScenarioError(f"phases.{plan.phase.name}.algorithm.aggregation: {error}") from None


def _check_server(plan: PhasePlan, network: nn.Module, store: ShardStore) -> None:
    """Checks what a phase does with the samples that only the server holds."""
    where = f"phases.{plan.phase.name}"
    if store.server is None:
        wanted = ""
        if isinstance(plan.phase, CentralPhase) and plan.phase.data == "server":
            wanted = f"{where}.data"
        elif "server" in plan.algorithm.asks():
            wanted = f"{where}.algorithm"
        elif plan.phase.server_training:
            wanted = f"{where}.server_training"
        if wanted:
            raise ScenarioError(f"{wanted}: the server holds no samples; give it some with data.server_share")
        return
    try:
        plan.algorithm.check_server(len(store.server), cohort_sizes(plan.phase, store.num_clients)[1])
    except ScenarioError as error:
        raise ScenarioError(f"{where}.algorithm: {error}") from None
    if plan.phase.server_training:
        _check_plan(
            plan.phase.server_training, plan.train, network, np.array([len(store.server)]), f"{where}.server_training"
        )


def _update_sizes(plan: PhasePlan, store: ShardStore) -> np.ndarray:
    """The numbers of samples of the phase's client updates."""
    if not isinstance(plan.phase, CentralPhase):
        return store.train_shards.sizes
    source = BatchSource(store, torch.device("cpu"))
    return np.array([source.num_samples(pool_number(plan.phase.data, store.num_clients))])


def _check_plan(local: Local, train: tuple[Train, ...], network: nn.Module, sizes: np.ndarray, where: str) -> None:
    try:
        selection = select(train, network)
        for size in {int(sizes.min()), int(sizes.max())}:
            plan_training(smallest(local), selection, network, size)
    except ScenarioError as error:
        raise ScenarioError(f"{where}: {error}") from None


def _check_weights(local: Local, scenario: Scenario, store: ShardStore, where: str) -> None:
    """Tries the weighting on the smallest client's labels."""
    if local.sample_weights is None:
        return
    task = build_task(scenario)
    if not task.per_sample or type(task).objective is not Task.objective:
        raise ScenarioError(f"{where}: task '{scenario.task.name}' has no losses of single samples; leave it out")
    rows = store.train_shards[int(store.train_shards.sizes.argmin())]
    sample_weights(local.sample_weights, BatchSource(store, torch.device("cpu")).labels(rows), where)
