"""What may be repeated after a death: no run whose noise would be drawn anew, since its account counts it once."""

from __future__ import annotations

from rayfl.config.execution import Resources
from rayfl.config.scenario import Scenario


def repeatable(scenario: Scenario) -> bool:
    """Whether a repeated client update has the same bits; with `secure` it would release its samples once more."""
    private = [dp for phase in scenario.phases for dp in (phase.settings.dp, phase.local.dp) if dp is not None]
    return not any(dp.secure for dp in private)


def resources_of(scenario: Scenario) -> Resources:
    """The scenario's resources, without restarts where nothing may be repeated."""
    resources = scenario.resources
    return resources if repeatable(scenario) else resources.model_copy(update={"restarts": 0})
