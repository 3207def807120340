"""Errors for keys with the names of other simulators, and for keys in the wrong section."""

from __future__ import annotations

import pytest

from rayfl.algorithms.penalty import penalties
from rayfl.config.data import Data
from rayfl.config.execution import Evaluation, Resources
from rayfl.config.loader import load_scenario
from rayfl.config.local import Local
from rayfl.config.phase import ParallelPhase
from rayfl.config.privacy import SampleDP
from rayfl.config.registry import MEANT, nearest
from rayfl.config.scenario import Scenario
from rayfl.errors import ScenarioError

SCHEMAS = (Scenario, ParallelPhase, Local, SampleDP, Data, Evaluation, Resources)


@pytest.mark.parametrize(
    ("key", "suggestion"),
    [
        ("phases.federated.local.learning_rate", "did you mean 'lr'?"),
        ("phases.federated.local.Learning_Rate", "did you mean 'lr'?"),
        ("phases.federated.num_rounds", "did you mean 'rounds'?"),
        ("phases.federated.fraction_fit", "did you mean 'cohort'?"),
        ("phases.federated.learning_rate", "did you mean 'phases.federated.local.lr'?"),
        ("phases.federated.epochs", "did you mean 'phases.federated.local.epochs'?"),
        ("phases.federated.local.rounds", "did you mean 'phases.federated.rounds'?"),
        ("num_rounds", "did you mean 'phases.cyclic.rounds'?"),
        ("learning_rate", "did you mean 'phases.cyclic.local.lr'?"),
        ("num_clients", "did you mean 'data.clients'?"),
        ("dataset", "did you mean 'data'?"),
        ("evaluation.eval_every", "did you mean 'every'?"),
        ("resources.num_gpus", "did you mean 'gpus_per_host'?"),
        ("evaluation.evry", "did you mean 'every'"),
        ("phases.federated.local.transforms", "did you mean 'phases.federated.transforms'?"),
    ],
)
def test_an_unknown_key_is_told_what_it_is_called_here_and_where(key: str, suggestion: str) -> None:
    with pytest.raises(ScenarioError, match="unknown key; ") as error:
        load_scenario("femnist_cyclic", {key: 1})
    assert suggestion in str(error.value)


def test_every_meaning_is_a_key_and_no_key_is_a_synonym() -> None:
    keys = {name for schema in SCHEMAS for name in schema.model_fields}
    assert set(MEANT.values()) - keys == {"backend", "beta"}, "of rayfl.run, and of a partition"
    for schema in SCHEMAS:
        assert not {(other, key) for other, key in MEANT.items() if {other, key} <= schema.model_fields.keys()}


def test_options_of_choices_have_synonyms_too() -> None:
    assert nearest("alpha", ["beta", "clients"]) == "did you mean 'beta'?"
    assert nearest("alpha", list(penalties)) == "known: contrastive, decorrelation, proximal"
