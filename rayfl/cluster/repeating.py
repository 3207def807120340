"""Disables restarts for runs with `secure` noise: repeated updates would draw new noise, but the account counts one."""

from __future__ import annotations

from rayfl.config.execution import Resources
from rayfl.config.scenario import Scenario


def resources_of(scenario: Scenario) -> Resources:
    """The scenario's resources, without restarts if rounds must not be repeated."""
    resources = scenario.resources
    return resources if scenario.repeatable else resources.model_copy(update={"restarts": 0})
