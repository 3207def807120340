"""A data section with its options written out, as in a resolved scenario."""

from __future__ import annotations

from rayfl.config.data import Data
from rayfl.config.scenario import Scenario
from rayfl.runs.resolution import resolve

_PHASE = {"name": "p", "rounds": 1, "cohort": 1}


def resolved(config: Data) -> Data:
    scenario = Scenario.from_tables({"data": {"name": "femnist"}, "model": "mlp", "phases": [_PHASE]})
    return resolve(scenario.model_copy(update={"data": config})).data
