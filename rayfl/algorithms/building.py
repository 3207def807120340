"""From the algorithms that a scenario names to the algorithms themselves."""

from __future__ import annotations

from pydantic import ValidationError
from pydantic_core import to_json

from rayfl.algorithms import algorithms
from rayfl.algorithms.algorithm import Algorithm
from rayfl.config.scenario import Scenario
from rayfl.config.section import Named
from rayfl.config.validation import explain
from rayfl.errors import ScenarioError


def build_algorithms(scenario: Scenario) -> list[Algorithm]:
    """The algorithm of each phase, with its hyper-parameters.

    Raises:
        ScenarioError: an unknown name, something that is no algorithm, or a hyper-parameter that is unknown or out of
            range.
    """
    return [_build(phase.algorithm, f"phases.{phase.name}.algorithm") for phase in scenario.phases]


def with_algorithm_defaults(scenario: Scenario) -> Scenario:
    """The same scenario with every hyper-parameter of its algorithms written out.

    Raises:
        ScenarioError: as `build_algorithms`.
    """
    phases = tuple(
        phase.model_copy(update={"algorithm": Named(name=phase.algorithm.name, **algorithm.model_dump())})
        for phase, algorithm in zip(scenario.phases, build_algorithms(scenario), strict=True)
    )
    return scenario.model_copy(update={"phases": phases})


def _build(chosen: Named, where: str) -> Algorithm:
    kind = algorithms.resolve(chosen.name)
    if not (isinstance(kind, type) and issubclass(kind, Algorithm)):
        raise ScenarioError(
            f"{where}: '{chosen.name}' is not a class derived from rayfl.algorithms.algorithm.Algorithm"
        )
    try:
        # strict, so that neither true nor "1" passes for the number 1; as JSON, so that a list passes for a tuple
        return kind.model_validate_json(to_json(chosen.options), strict=True)
    except ValidationError as error:
        raise ScenarioError(explain(error, kind, chosen.options, f"{where}.")) from None
