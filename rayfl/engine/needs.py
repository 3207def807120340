"""Whether the network has what the phases' algorithms and their local training need, before anything starts."""

from __future__ import annotations

import torch
from torch import nn

from rayfl.algorithms.algorithm import Algorithm
from rayfl.algorithms.building import build_algorithms
from rayfl.config.phase import Local, Phase
from rayfl.config.scenario import Scenario
from rayfl.data.batches import BatchSource
from rayfl.data.store import ShardStore
from rayfl.errors import ScenarioError
from rayfl.local.features import features_and_logits
from rayfl.local.steps import visit_steps
from rayfl.local.unfreezing import training_stages


def check_needs(scenario: Scenario, network: nn.Module, store: ShardStore) -> None:
    """Raises ScenarioError, naming the phase: the network declares no features or no modules, or not enough of them, or
    has running statistics that nobody would average; or a visit is too short to unfreeze in; or `local` says what the
    algorithm cannot heed.
    """
    for phase, algorithm in zip(scenario.phases, build_algorithms(scenario), strict=True):
        where = f"phase '{phase.name}' ({phase.algorithm.name})"
        needs = algorithm.needs()
        if "features" in needs:
            _check_features(network, store, where)
        if "no running statistics" in needs and phase.schedule == "parallel":
            _check_no_running_statistics(network, where)
        if not algorithm.trains:
            _check_no_training(phase, where)
        _check_stages(phase.local, algorithm, network, store, where)
    if scenario.evaluation.personalize:
        _check_stages(scenario.evaluation.personalize, None, network, store, "evaluation.personalize")


def _check_features(network: nn.Module, store: ShardStore, where: str) -> None:
    if not hasattr(network, "feature_layer"):
        raise ScenarioError(
            f"{where} reads the network's features, and model {type(network).__name__} does not say which they are; "
            "derive it from rayfl.models.network.Network and declare feature_layer"
        )
    x, _ = BatchSource(store, torch.device("cpu")).test_batch(slice(0, 2))
    network.eval()
    with torch.no_grad():
        features, _ = features_and_logits(network, x)
    if len(features) != len(x):
        raise ScenarioError(
            f"{where}: what enters feature_layer '{network.feature_layer}' of model {type(network).__name__} is "
            f"{list(features.shape)} for {len(x)} examples, not a vector for each"
        )


def _check_no_running_statistics(network: nn.Module, where: str) -> None:
    tracked = [name for name, module in network.named_modules() if getattr(module, "running_mean", None) is not None]
    if tracked:
        raise ScenarioError(
            f"{where} has buffers = 'keep', so the running statistics of model {type(network).__name__} "
            f"('{tracked[0]}', ...) would stay as they were made; use group norm, or buffers = 'average'"
        )


def _check_no_training(phase: Phase, where: str) -> None:
    if phase.schedule == "relay" or phase.local.unfreeze or phase.local.fixed_last:
        raise ScenarioError(f"{where} does no local training: it knows no relay, no unfreeze and no fixed_last")


def _check_stages(local: Local, algorithm: Algorithm | None, network: nn.Module, store: ShardStore, where: str) -> None:
    sizes = store.train_shards.sizes
    fixed = algorithm.fixed_last if algorithm else 0
    try:
        for size in {int(sizes.min()), int(sizes.max())}:
            training_stages(local, fixed, network, visit_steps(local, size))
    except ScenarioError as error:
        raise ScenarioError(f"{where}: {error}") from None
