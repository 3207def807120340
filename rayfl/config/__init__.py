"""The scenario schema as frozen pydantic models, and how scenarios are found, read and overridden."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rayfl.lazy_names import lazy_names

if TYPE_CHECKING:
    from rayfl.config.loader import load_scenario as load_scenario
    from rayfl.config.scenario import Scenario as Scenario
    from rayfl.config.scenario_files import find_scenarios as find_scenarios
else:
    __getattr__, __dir__ = lazy_names(__name__)
