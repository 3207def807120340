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

OF_ANOTHER_KEY = (
    r"has no effect|does not support|lists .* twice|none of them has any rounds|usable as a folder's name"
    r"|one value per channel|the range .* is empty|above 1 must be a whole number|must be above noise_multiplier"
    r"|no phase is called|but the parts given here do not include it|overlap|local.optimizer: "
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
        for value in edges(schema, place.definitions)[0]:
            companions = COMPANIONS.get(f"{place.name}.{key}", COMPANIONS.get(key, {}))
            tables = place.with_options(**companions, **{key: value})
            try:
                built = place.build(tables)
            except ScenarioError as error:
                if "has no effect" in str(error) and companions:
                    raise
                if not re.search(f"{OF_ANOTHER_KEY}|{IN_OWN_WORDS}", str(error)):
                    raise
                continue
            if isinstance(built, Scenario):
                tables = tomllib.loads(built.to_toml())
                assert load_scenario(tables) == built or place.build(tables) == built  # callbacks hold None until built


@EVERY
def test_each_value_beyond_its_range_is_refused_in_a_line_with_its_key_and_bound(place: Place) -> None:
    for key, schema in place.options.items():
        for value, (inside, said) in edges(schema, place.definitions)[1]:
            message = refusal(place, place.with_options(**{key: value}))
            where, _, text = message.partition(": ")
            assert re.search(f"{said}|{IN_OWN_WORDS}", text), f"{place.key(key)} = {value!r}: {message}"
            assert f"{place.key(key, *inside)}.".startswith(f"{where}."), f"{place.key(key)} = {value!r}: {message}"


@EVERY
def test_a_misspelt_option_is_answered_with_the_right_one(place: Place) -> None:
    for key in place.options:
        message = refusal(place, place.with_options(**{f"{key}x": 1}))
        assert re.match(rf"{re.escape(place.key(f'{key}x'))}: .*'{key}'|[\w.]+: ({IN_OWN_WORDS})", message), message
