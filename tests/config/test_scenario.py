"""A scenario written out and read again is the same scenario."""

from __future__ import annotations

import tomllib
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from rayfl.config import Scenario, load_scenario
from rayfl.config.cohort import Bernoulli, BySize, Explicit
from rayfl.config.data import Data, Normalization
from rayfl.config.execution import ClientStatistic, Evaluation, Numerics, Resources
from rayfl.config.local import Local
from rayfl.config.phase import Phase
from rayfl.config.section import Named
from rayfl.errors import ScenarioError
from rayfl.runs.resolution import resolve

positive = st.floats(0, 3.4e38, exclude_min=True)
share = st.floats(min_value=0, max_value=1, exclude_min=True)
count = st.integers(1, 10**9)
word = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True)
text = st.text(max_size=20)
scalar: st.SearchStrategy[Any] = st.booleans() | st.integers(-(2**63), 2**63 - 1) | text | st.floats(allow_nan=False)
option: st.SearchStrategy[Any] = st.recursive(
    scalar, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3), max_leaves=5
)


@st.composite
def named(draw: st.DrawFn) -> Named:
    """A short name or an import path, with some options."""
    name = draw(word | st.builds("{}.{}:{}".format, word, word, word))
    options = draw(st.dictionaries(word.filter(lambda key: key != "name"), option, max_size=3))
    return Named.model_validate({"name": name, **options})


@st.composite
def normalizations(draw: st.DrawFn) -> Normalization:
    channels = draw(st.integers(1, 3))
    values = st.lists(positive, min_size=channels, max_size=channels)
    return Normalization(mean=tuple(draw(values)), std=tuple(draw(values)))


cohorts = (
    count
    | share
    | st.builds(Bernoulli, bernoulli=share)
    | st.builds(BySize, by_size=count)
    | st.builds(
        Explicit,
        explicit=st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=3).map(tuple), min_size=1, max_size=3).map(
            tuple
        ),
    )
)
locals_ = st.builds(
    Local,
    epochs=count,
    steps=st.none() | count,
    batch_size=count,
    drop_last=st.booleans(),
    lr=positive,
    lr_decay=share,
    momentum=st.floats(0, 1, exclude_max=True),
    weight_decay=positive,
    clip_norm=st.none() | positive,
) | st.builds(Local, lr=positive, batch_size=st.just("full"))


ORDERS = ["sampled", "fixed", "no_repeat"]


@st.composite
def phases(draw: st.DrawFn) -> tuple[Phase, ...]:
    result = []
    for name in draw(
        st.lists(
            text.filter(lambda name: "." not in name and not name.isdecimal()), min_size=1, max_size=3, unique=True
        )
    ):
        schedule = draw(st.sampled_from(["relay", "parallel"]))
        result.append(
            TypeAdapter(Phase).validate_python(
                {
                    "name": name,
                    "schedule": schedule,
                    "algorithm": draw(named()),
                    "rounds": draw(count),
                    "cohort": draw(cohorts),
                    "local": draw(locals_),
                    **({"order": draw(st.sampled_from(ORDERS))} if schedule == "relay" else {}),
                }
            )
        )
    return tuple(result)


scenarios = st.builds(
    Scenario,
    name=word,
    title=text,
    seed=st.integers(0, 2**62),
    data=st.builds(
        Data,
        name=word,
        source=st.sampled_from(["auto", "files", "generated"]),
        clients=st.none() | count,
        partition=st.none() | named(),
        normalize=st.none() | normalizations(),
        augment=st.lists(named(), max_size=2).map(tuple),
        options=st.dictionaries(text, option, max_size=3),
    ),
    model=named(),
    phases=phases(),
    evaluation=st.builds(
        Evaluation,
        every=count,
        batch_size=count,
        per_client=st.booleans(),
        over_clients=st.lists(st.sampled_from(get_args(ClientStatistic)), unique=True).map(tuple),
    ),
    numerics=st.builds(Numerics, threads=count, fraction_bits=st.integers(8, 48)),
    resources=st.builds(
        Resources,
        hosts=st.just("auto") | count,
        cpus_per_host=positive,
        gpus_per_host=st.floats(0, 1) | st.integers(2, 8).map(float),
        device=st.sampled_from(["auto", "cpu", "cuda"]),
        relay=st.sampled_from(["packed", "spread"]),
        restarts=st.integers(0, 9),
        watchdog_s=positive,
    ),
)


@settings(max_examples=15)
@given(scenarios)
def test_a_written_scenario_loads_as_an_equal_scenario(scenario: Scenario) -> None:
    again = load_scenario(tomllib.loads(scenario.to_toml()))
    assert again == scenario
    assert again.to_toml() == scenario.to_toml()


def test_every_default_is_written_out() -> None:
    tables = {"data": {"name": "femnist"}, "model": "lenet5", "phases": [{"name": "a", "rounds": 1, "cohort": 1}]}
    written = tomllib.loads(resolve(load_scenario(tables)).to_toml())
    assert written["phases"][0]["algorithm"] == {
        "name": "fedavg",
        "weighting": "samples",
        "buffers": "average",
        "penalties": [],
        "server_optimizer": {"name": "sgd", "lr": 1.0},
        "aggregation": {"name": "mean"},
    }
    assert written["phases"][0]["local"]["lr"] == Local().lr
    assert written["data"]["source"] == "auto"
    assert set(written) == set(Scenario.model_fields) - {"start", "participation"}  # nothing, unless they are there


def test_a_title_has_a_length_that_can_be_printed_and_recorded() -> None:
    tables = {
        "data": {"name": "handwriting"},
        "model": "mlp",
        "phases": [{"schedule": "parallel", "rounds": 1, "cohort": 2}],
    }
    assert Scenario.from_tables(tables | {"title": "x" * 10_000}).title
    with pytest.raises(ScenarioError, match=r"^title: must have at most 10000 characters") as caught:
        Scenario.from_tables(tables | {"title": "x" * 10_001})
    assert len(str(caught.value)) < 500
