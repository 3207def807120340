"""Resolves a scenario: looks up its names, checks their options, and writes out every default."""

from __future__ import annotations

from pydantic import ValidationError

from rayfl.algorithms.construction import with_algorithm_defaults
from rayfl.callbacks.selection import with_callback_defaults
from rayfl.config.component import with_defaults
from rayfl.config.execution import Evaluation
from rayfl.config.local import Local
from rayfl.config.phase import LocalPhase
from rayfl.config.scenario import Scenario
from rayfl.config.section import Named
from rayfl.data.section import with_data_defaults
from rayfl.errors import ScenarioError
from rayfl.local.optimizers import with_optimizer_defaults
from rayfl.local.sample_weights import with_weighting_defaults
from rayfl.models import models
from rayfl.models.feature_layer import OPTION, split_off
from rayfl.runs.start_chain import scenario_to_start_from
from rayfl.tasks.defaults import with_task_defaults


def resolve(scenario: Scenario) -> Scenario:
    """Resolves a scenario before any data is loaded.

    Args:
        scenario: The scenario as loaded from files and overrides.

    Returns:
        The same scenario with every default written out.

    Raises:
        ScenarioError: A task, metric, algorithm, optimizer, model, data set, partition, augmentation or callback is
            unknown, or one of its options is unknown, missing or out of range.
    """
    if scenario.start:
        scenario_to_start_from(scenario.start)
    scenario = scenario.model_copy(
        update={"data": with_data_defaults(scenario.data), "evaluation": with_evaluation_defaults(scenario)}
    )
    scenario = with_local_defaults(with_algorithm_defaults(with_task_defaults(scenario)))
    return with_callback_defaults(with_model_defaults(scenario))


def with_evaluation_defaults(scenario: Scenario) -> Evaluation:
    """Scores clients with their own models if a phase trains them alone.

    Raises:
        ScenarioError: Another option of the evaluation requires the global model.
    """
    evaluation = scenario.evaluation
    alone = next((phase.name for phase in scenario.phases if isinstance(phase, LocalPhase)), None)
    if alone is None or evaluation.client_model == "personal":
        return evaluation
    if "client_model" in evaluation.model_fields_set:
        raise ScenarioError(
            f"evaluation.client_model: 'global' scores a model that no client trains in phase '{alone}'; leave it out"
        )
    try:
        return Evaluation.model_validate({**dict(evaluation), "client_model": "personal"})
    except ValidationError as error:
        why = str(error.errors()[0]["ctx"]["error"])
        raise ScenarioError(
            f"evaluation: clients of phase '{alone}' train alone and are scored with their own models: {why}"
        ) from None


def with_local_defaults(scenario: Scenario) -> Scenario:
    """Writes out every option of the clients' optimisers, and of the weights of their samples.

    Raises:
        ScenarioError: A name is unknown, an optimizer cannot train clients, or an option is unknown or out of range.
    """
    phases = tuple(
        phase.model_copy(
            update={
                key: _with_defaults(local, f"phases.{phase.name}.{key}")
                for key in ("local", "server_training")
                if (local := getattr(phase, key, None)) is not None
            }
        )
        for phase in scenario.phases
    )
    evaluation = scenario.evaluation
    if evaluation.personalize:
        personalize = _with_defaults(evaluation.personalize, "evaluation.personalize")
        evaluation = evaluation.model_copy(update={"personalize": personalize})
    return scenario.model_copy(update={"phases": phases, "evaluation": evaluation})


def _with_defaults(local: Local, where: str) -> Local:
    return with_weighting_defaults(with_optimizer_defaults(local, where), where)


def with_model_defaults(scenario: Scenario) -> Scenario:
    """Writes out every option of the scenario's model, and of models of single phases.

    Raises:
        ScenarioError: The name is unknown, or an option is unknown, missing or out of range.
    """
    phases = tuple(
        phase.model_copy(update={"model": _network(phase.model, f"phases.{phase.name}.model")})
        if phase.model
        else phase
        for phase in scenario.phases
    )
    return scenario.model_copy(update={"model": _network(scenario.model, "model"), "phases": phases})


def _network(chosen: Named, where: str) -> Named:
    target = models.resolve(chosen.name)
    options, layer = split_off(target, chosen.options)
    own = Named.model_validate({**options, "name": chosen.name})
    whole = with_defaults(own, target, ("num_classes", "input_shape"), where)
    return whole if layer is None else Named.model_validate({**whole.options, OPTION: layer, "name": chosen.name})
