"""Whether phases, algorithms and network fit each other, before anything starts."""

from __future__ import annotations

import torch
from torch import nn

from rayfl.algorithms.algorithm import Algorithm
from rayfl.config.phase import Local, RelayPhase
from rayfl.config.scenario import Scenario
from rayfl.data.batches import BatchSource
from rayfl.data.store import ShardStore
from rayfl.engine.phase_plan import PhasePlan, plan_phases
from rayfl.errors import ScenarioError
from rayfl.local.features import features_and_outputs
from rayfl.local.steps import update_steps
from rayfl.local.unfreezing import training_stages

RATE = {"lr", "lr_decay", "lr_decay_from", "lr_drops", "lr_drop"}
"""The keys of `local` that an algorithm without local training uses."""


ONLY_ON_CUDA = {"numerics": ("deterministic", "tf32"), "resources": ("device_cache_gb",)}
"""Keys of the scenario that nothing on the CPU reads."""


def check_scenario(scenario: Scenario) -> None:
    """Checks what can be checked without data and network.

    Raises:
        ScenarioError: An algorithm or option has no meaning with the phase's schedule, or no effect; names its key.
    """
    if not scenario.resources.uses_cuda:
        _check_cpu(scenario)
    for plan in plan_phases(scenario):
        where = f"phases.{plan.phase.name}"
        if isinstance(plan.phase, RelayPhase):
            _check_relay(plan, where)
        if not plan.algorithm.trains:
            _check_no_training(plan, where)
        _ = plan.client_state, plan.server_state


def check_requirements(scenario: Scenario, network: nn.Module, store: ShardStore) -> None:
    """Checks what needs data and network.

    Raises:
        ScenarioError: The network declares no features or no modules, or not enough of them, or has no buffers where an
            option is about them; or a client update is too short to unfreeze in. Names the phase.
    """
    for plan in plan_phases(scenario):
        where = f"phase '{plan.phase.name}' ({plan.phase.algorithm.name})"
        requirements = plan.algorithm.requirements()
        if "features" in requirements:
            _check_features(network, store, where)
        if "buffers" in requirements and not any(buffer.is_floating_point() for buffer in network.buffers()):
            raise ScenarioError(
                f"{where}: 'buffers' has no effect, for model {type(network).__name__} has none; leave it out"
            )
        _check_stages(plan.phase.local, plan.algorithm, network, store, where)
    if scenario.evaluation.personalize:
        _check_stages(scenario.evaluation.personalize, None, network, store, "evaluation.personalize")


def _check_cpu(scenario: Scenario) -> None:
    for section, keys in ONLY_ON_CUDA.items():
        chosen = getattr(scenario, section)
        for key in keys:
            if getattr(chosen, key) != type(chosen).model_fields[key].default:
                raise ScenarioError(f"{section}.{key}: has no effect on the CPU, on which this runs; leave it out")


def _check_relay(plan: PhasePlan, where: str) -> None:
    name, algorithm = plan.phase.algorithm.name, plan.algorithm
    if algorithm.no_relay:
        raise ScenarioError(f"{where}: there is no relay of '{name}': {algorithm.no_relay}; use it in a parallel phase")
    if not algorithm.trains:
        raise ScenarioError(f"{where}: there is no relay of '{name}': its clients do not train")
    if algorithm.reads_first_model():
        raise ScenarioError(
            f"{where}: there is no relay of '{name}' with the phase's first model, which a server sends"
        )
    for field in _server_side(type(algorithm)):
        if getattr(algorithm, field) != type(algorithm).model_fields[field].get_default():
            raise ScenarioError(
                f"{where}.algorithm.{field}: has no effect in a relay, which has a local objective only; leave it out"
            )


def _server_side(kind: type[Algorithm]) -> list[str]:
    """The fields that a relay ignores; rayfl cannot know this of fields that a user's own class adds."""
    shipped = next(base for base in kind.__mro__ if base.__module__.startswith("rayfl."))
    assert issubclass(shipped, Algorithm)
    return [field for field in shipped.model_fields if field not in kind.local_options]


def _check_no_training(plan: PhasePlan, where: str) -> None:
    name, default = plan.phase.algorithm.name, Local()
    for field in type(default).model_fields:
        if field not in RATE and getattr(plan.phase.local, field) != getattr(default, field):
            raise ScenarioError(f"{where}.local.{field}: has no effect: clients of '{name}' do not train; leave it out")
    if plan.evaluated.rule in ("participants", "all"):
        raise ScenarioError(
            f"{where}.eval_model: '{plan.evaluated.rule}' needs trained models; clients of '{name}' do not train"
        )


def _check_features(network: nn.Module, store: ShardStore, where: str) -> None:
    if not hasattr(network, "feature_layer"):
        raise ScenarioError(
            f"{where} reads the network's features, and model {type(network).__name__} does not say which they are; "
            "derive it from rayfl.models.network.Network and declare feature_layer"
        )
    x, _ = BatchSource(store, torch.device("cpu")).test_batch(slice(0, 2))
    network.eval()
    with torch.no_grad():
        features, _ = features_and_outputs(network, x)
    if len(features) != len(x):
        raise ScenarioError(
            f"{where}: what enters feature_layer '{network.feature_layer}' of model {type(network).__name__} is "
            f"{list(features.shape)} for {len(x)} samples, not a vector for each"
        )


def _check_stages(local: Local, algorithm: Algorithm | None, network: nn.Module, store: ShardStore, where: str) -> None:
    sizes = store.train_shards.sizes
    fixed = algorithm.fixed_last if algorithm else 0
    try:
        for size in {int(sizes.min()), int(sizes.max())}:
            training_stages(local, fixed, network, update_steps(local, size))
    except ScenarioError as error:
        raise ScenarioError(f"{where}: {error}") from None
