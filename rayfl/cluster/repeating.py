"""What may be repeated after a death: no run whose noise would be drawn anew, since its account counts it once."""

from __future__ import annotations

from rayfl.config.execution import Resources
from rayfl.config.scenario import Scenario


def resources_of(scenario: Scenario) -> Resources:
    """The scenario's resources, without restarts where nothing may be repeated."""
    resources = scenario.resources
    return resources if scenario.repeatable else resources.model_copy(update={"restarts": 0})
