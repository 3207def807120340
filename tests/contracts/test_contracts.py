"""What holds for every section of a scenario and every registered component, generated from schemas and registries."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest

from rayfl.config import Scenario, load_scenario
from rayfl.errors import ScenarioError
from tests.contracts.edges import edges
from tests.contracts.places import ELSEWHERE, PLACES, Place

BUILT = [place for place in PLACES if place.name.rpartition(" ")[2] not in ELSEWHERE]
EVERY = pytest.mark.parametrize("place", BUILT, ids=lambda place: f"{place.key()} {place.name}".strip())

COMPANIONS: dict[str, dict[str, Any]] = {
    "draw": {"places": [[0, 4]]},
    "mean": {"std": [1] * 1},
    "run": {"file": None},
    "weights": {"file": None},
    "scenario": {"file": None},
    "quick": {"file": None, "scenario": "femnist_cyclic"},
    "compute_watts": {"steps_per_s": 1},
    "transmit_watts": {"up_bytes_per_s": 1},
    "until": {"rounds": None},
    "ema_decay": {"eval_model": "ema"},
    "keep_momentum": {"local": {"momentum": 0.5}},
    "lr_drop": {"lr_drops": [1]},
    "final": {"name": "cosine"},
    "exponent": {"name": "polynomial"},
    "slope": {"name": "hinge"},
    "delay": {"name": "hinge"},
    "target_epsilon": {"noise_multiplier": None},
    "noise_for": {"noise_multiplier": None, "target_epsilon": 1},
    "max_epsilon": {"accountant": "rdp"},
    "when_spent": {"accountant": "rdp", "max_epsilon": 1},
    "task regression.delta": {"distance": "huber"},
    "algorithm fedexp.decay": {"form": "code"},
    "algorithm perfedavg.delta": {"variant": "hessian_free"},
    "metric": {"mode": "max"},
}
"""Keys without which an option means nothing."""

IN_RANGE: dict[str, Any] = {
    "rounds": 1,
    "Devices.dropout": 0.5,
    "Devices.availability": 0.5,
    "Between.uniform": [1, 2],
    "LogNormal.lognormal": [1, 0.5],
    "Kinds.kinds": [1],
    "Quantile.noise_multiplier": 20,
    "RelayPhase.schedule": "relay",
    "algorithm fedprox.penalties": ["proximal"],
    "algorithm moon.penalties": ["contrastive"],
    "algorithm feddecorr.penalties": ["decorrelation"],
    "optimizer adadelta.rho": 0.9,
    "optimizer adafactor.beta2_decay": -0.8,
    "optimizer adamax.betas": [0.9, 0.99],
    "optimizer muon.adjust_lr_fn": "original",
    "optimizer nadam.betas": [0.9, 0.99],
    "optimizer radam.betas": [0.9, 0.99],
    "optimizer rprop.etas": [0.5, 1.2],
    "callback best_model.phase": "p",
    "callback early_stopping.phase": "p",
}
"""A value of each key that is refused at every edge of its schema, by a rule that the schema does not have."""

NEVER = {"Personalization.lr_drop": "lr_drops, without which it means nothing, is refused there"}
"""Keys without any value that is accepted, and why."""

OF_ANOTHER_KEY = (
    r"has no effect|does not support|lists .* twice|usable as a folder's name|one value per channel|overlap"
    r"|local.optimizer: "
)
"""What may be said about a value that is in its range: it does not fit another key, or its section has more rules."""

IN_OWN_WORDS = (
    r"allowed are |must be a number \(1, 2, \.\.\.\), |must be 'all', 'head', 'body', or a|schedule must be '"
)
"""Texts that list all forms of a key, whichever part of it is wrong."""


def refusal(place: Place, tables: Any) -> str:
    with pytest.raises(ScenarioError) as caught:
        place.build(tables)
    message = str(caught.value).removeprefix("scenario 'scenario':\n")
    assert "\n" not in message
    return re.sub(r"^([\w.]+): (\w+(\.\w+)*): ", r"\1.\2: ", message)  # a component does not know where it is


@EVERY
def test_it_is_built_from_the_least_and_names_each_key_that_is_missing(place: Place) -> None:
    place.build(place.tables)
    for key in place.least:
        said = rf"\b{key}(: is missing|,| or)|needs (.*, )?{key}|without any key|{IN_OWN_WORDS}"
        assert re.search(said, refusal(place, place.with_options(**{key: None})))


@EVERY
def test_each_value_at_the_edge_of_its_range_goes_through_toml_and_back(place: Place) -> None:
    for key, schema in place.options.items():
        name = f"{place.name}.{key}"
        companions = COMPANIONS.get(name, COMPANIONS.get(key, {}))
        usable = IN_RANGE.get(name, IN_RANGE.get(key))
        values = edges(schema, place.definitions)[0] if usable is None else [usable]
        accepted = 0
        for value in values:
            tables = place.with_options(**companions, **{key: value})
            try:
                built = place.build(tables)
            except ScenarioError as error:
                if "has no effect" in str(error) and companions:
                    raise
                if not re.search(OF_ANOTHER_KEY, str(error)):
                    raise
                continue
            accepted += 1
            if isinstance(built, Scenario):
                tables = tomllib.loads(built.to_toml())
                assert load_scenario(tables) == built
        assert not values or bool(accepted) != (name in NEVER), f"{name}: {accepted} of {values} accepted"


@EVERY
def test_each_value_beyond_its_range_is_refused_in_a_line_with_its_key_and_bound(place: Place) -> None:
    for key, schema in place.options.items():
        for value, (inside, said) in edges(schema, place.definitions)[1]:
            message = refusal(place, place.with_options(**{key: value}))
            where, _, text = message.partition(": ")
            in_own_words = re.search(IN_OWN_WORDS, text)
            assert in_own_words or re.search(said, text), f"{place.key(key)} = {value!r}: {message}"
            assert f"{place.key(key, *inside)}.".startswith(f"{where}."), f"{place.key(key)} = {value!r}: {message}"
            assert in_own_words or f"{where}.".startswith(f"{place.key(key)}."), f"{place.key(key)}: {message}"


@EVERY
def test_a_misspelt_option_is_answered_with_the_right_one(place: Place) -> None:
    for key in place.options:
        message = refusal(place, place.with_options(**{f"{key}x": 1}))
        assert re.match(rf"{re.escape(place.key(f'{key}x'))}: .*'{key}'|[\w.]+: ({IN_OWN_WORDS})", message), message
