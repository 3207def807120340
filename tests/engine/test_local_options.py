"""Combined options of local training in several phases: the same bits everywhere, and rejected combinations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import rayfl
from rayfl.config import load_scenario
from rayfl.errors import ScenarioError
from rayfl.runs.resolution import resolve
from tests.engine.scenes import by_kind, prepared, run_on_hosts

PHASES: list[dict[str, Any]] = [
    {
        "name": "pretrain",
        "schedule": "relay",
        "rounds": 2,
        "cohort": 3,
        "train": "body",
        "local": {"optimizer": "adamw", "weight_decay": 0.1, "lr_schedule": "cosine", "precision": "bf16"},
    },
    {
        "name": "stragglers",
        "algorithm": {"name": "fedprox", "mu": 0.1},
        "rounds": 2,
        "cohort": 3,
        "local": {
            "epochs": {"uniform": [1, 4]},
            "batch_size": 3,
            "accumulate": 2,
            "optimizer": {"name": "adam", "betas": [0.8, 0.9]},
            "lr_schedule": {"name": "linear", "warmup": 2},
            "round_schedule": {"name": "cosine", "final": 0.1},
            "clip_value": 0.5,
            "unfreeze": {"share": 0.7},
        },
    },
    {
        "name": "corrected",
        "algorithm": {"name": "scaffold", "option": "I"},
        "rounds": 2,
        "cohort": 3,
        "train": ["second", "read_out"],
        "local": {"optimizer": "adafactor", "batch_size": 4, "sample_weights": "inverse_frequency"},
    },
    {
        "name": "normalised",
        "algorithm": "fednova",
        "rounds": 2,
        "cohort": 3,
        "local": {"steps": {"choices": [1, 3]}, "batch_size": 4, "momentum": 0.5, "lr_schedule": {"warmup": 0.5}},
    },
    {
        "name": "orthogonal",
        "rounds": 2,
        "cohort": 3,
        "local": {"optimizer": {"name": "muon", "ns_steps": 3, "others": {"name": "rmsprop", "momentum": 0.5}}},
    },
    {
        "name": "own",
        "rounds": 1,
        "cohort": 3,
        "train": "head",
        "local": {"optimizer": {"name": "tests.local.test_optimizers:Lion", "beta": 0.8}},
    },
]
"""Every option of local training once."""
TABLES: dict[str, Any] = {
    "data": {"name": "tests.algorithms.scene:people"},
    "model": {"name": "tests.algorithms.scene:TanhNet", "dropout": 0.3},
    "phases": PHASES,
    "evaluation": {
        "every": 2,
        "personalize": {"optimizer": "nadam", "epochs": {"choices": [1, 2]}, "train": "head", "lr_schedule": "cosine"},
    },
}


def test_model_and_metrics_are_the_same_on_any_number_of_hosts() -> None:
    job = prepared(**TABLES)
    expected, expected_events = run_on_hosts(job, 1)
    model, events = run_on_hosts(job, 3)
    assert np.array_equal(model, expected)
    assert repr(by_kind(events)) == repr(by_kind(expected_events))


@pytest.mark.parametrize("phase", PHASES, ids=lambda phase: phase["name"])
def test_every_phase_trains_and_leaves_what_does_not_train(phase: dict[str, Any]) -> None:
    job = prepared(**TABLES | {"phases": [phase], "evaluation": {"every": 9}})
    model, _ = run_on_hosts(job, 1)
    layout, initial = job.result.initial.layout, job.result.initial.vector
    trains = {"all": ["first", "second", "read_out"], "body": ["first", "second"], "head": ["read_out"]}
    given = phase.get("train", "all")
    expected = trains[given] if isinstance(given, str) else given
    for slot in layout:
        moved = not np.array_equal(model[slot.offset : slot.end], initial[slot.offset : slot.end])
        assert moved == (slot.name.split(".")[0] in expected), slot.name


def test_the_resolved_scenario_runs_again_to_the_same_bits(tmp_path: Path) -> None:
    quiet = Console(quiet=True)
    first = rayfl.run(TABLES, backend="inline", out=tmp_path, console=quiet)
    again = rayfl.run(first.directory / "scenario.toml", backend="inline", out=tmp_path, console=quiet)
    assert again.scenario == first.scenario
    assert all(np.array_equal(value, again.state_dict[name]) for name, value in first.state_dict.items())
    local = first.scenario.phases[1].local
    assert local.optimizer.options["eps"] == 1e-8
    assert "weight_decay" not in local.optimizer.options
    others = first.scenario.phases[4].local.optimizer.options["others"]
    assert (others["name"], others["alpha"]) == ("rmsprop", 0.99)


def refusal(local: dict[str, Any], **phase: Any) -> str:
    tables = TABLES | {"phases": [{"name": "p", "rounds": 1, "cohort": 2, "local": local, **phase}]}
    with pytest.raises(ScenarioError) as caught:
        prepared(**tables)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("optimizer", "complaint"),
    [
        ("adamm", ": unknown optimizer 'adamm'; did you mean 'adam'"),
        ("lbfgs", ": 'lbfgs' cannot train clients: it evaluates the loss several times a step, by a closure"),
        ("sparseadam", ": 'sparseadam' cannot train clients: it is for sparse gradients, and gradients here are dense"),
        ("torch.optim:LBFGS", ": 'torch.optim:LBFGS' cannot train clients: it evaluates the loss several times a step"),
        ("torch.nn:Linear", ": 'torch.nn:Linear' is not a class derived from torch.optim.Optimizer"),
        ({"name": "adam", "lr": 0.1}, ".lr: is not an option of the optimizer: set lr of `local` instead"),
        (
            {"name": "adam", "weight_decay": 0.1},
            ".weight_decay: is not an option of the optimizer: set weight_decay of `local` instead",
        ),
        (
            {"name": "sgd", "momentum": 0.1},
            ".momentum: is not an option of the optimizer: set momentum of `local` instead",
        ),
        ({"name": "adam", "params": [1]}, ".params: is not an option of the optimizer: rayfl gives it"),
        ({"name": "adam", "betas": [1.5, 0.9]}, ": Invalid beta parameter at index 0: 1.5"),
        ({"name": "sgd", "nesterov": True}, ": Nesterov momentum requires a momentum and zero dampening"),
        (
            {"name": "muon", "others": "muon"},
            ".others: trains the parameters that 'muon' cannot train; choose another optimizer",
        ),
        ({"name": "muon", "others": "lbfgs"}, ".others: 'lbfgs' cannot train clients"),
        ({"name": "adam", "others": "sgd"}, ".others: not an option of 'phases.p.local.optimizer'"),
    ],
    ids=str,
)
def test_only_optimizers_are_accepted(optimizer: Any, complaint: str) -> None:
    assert refusal({"optimizer": optimizer}).startswith(f"phases.p.local.optimizer{complaint}")


def test_an_optimizer_that_takes_no_decay_refuses_one() -> None:
    assert refusal({"optimizer": "rprop", "weight_decay": 0.1}) == (
        "phases.p.local.optimizer: 'rprop' takes no weight_decay; leave it out"
    )


def test_momentum_is_that_of_sgd() -> None:
    assert refusal({"optimizer": "adamw", "momentum": 0.9}).endswith(
        "momentum has no effect with optimizer 'adamw', whose options are in its own table; leave it out"
    )


def test_personalisation_has_no_rounds_to_schedule_over() -> None:
    with pytest.raises(ScenarioError, match=r"evaluation\.personalize: does not support lr_decay, lr_drops and round"):
        load_scenario(TABLES | {"evaluation": {"personalize": {"round_schedule": "cosine"}}})
    with pytest.raises(ScenarioError, match=r"evaluation\.personalize\.fixed_last: is now called evaluation\.personal"):
        load_scenario(TABLES | {"evaluation": {"personalize": {"fixed_last": 1}}})
    with pytest.raises(ScenarioError, match=r"evaluation\.personalize: train: model TanhNet has no module 'secnd'"):
        prepared(**TABLES | {"evaluation": {"personalize": {"train": ["secnd"]}}})


def test_an_override_reaches_an_option_of_the_optimizer() -> None:
    scenario = resolve(load_scenario(TABLES, ["phases.pretrain.local.optimizer.eps=1e-4"]))
    assert scenario.phases[0].local.optimizer.options["eps"] == 1e-4
    scenario = load_scenario(TABLES, ["phases.normalised.local.optimizer.nesterov=true", "phases.own.train=['first']"])
    assert scenario.phases[3].local.optimizer.options == {"nesterov": True}
    assert scenario.phases[5].train == ("first",)
