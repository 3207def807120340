"""Parts that compose: penalties, server optimizers and algorithms; and combinations that have no meaning."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rayfl.algorithms.construction import PRESETS
from rayfl.config.scenario import Scenario
from rayfl.errors import ScenarioError
from rayfl.runs.preparation import prepare
from tests.algorithms.reference import (
    Vector,
    assert_equal_and_unlike,
    fedavg,
    linear,
    mean,
    rounds,
    sizes,
)
from tests.algorithms.scene import EVERYTHING, PLAIN, SEED, Setting, prepared, trained

GENERAL: dict[str, dict[str, Any]] = {
    "fedprox": {"penalties": [{"name": "proximal", "mu": 0.4}]},
    "moon": {"penalties": [{"name": "contrastive", "mu": 2.0, "tau": 0.3}]},
    "feddecorr": {"penalties": [{"name": "decorrelation", "beta": 0.05, "scaling": "code"}]},
    "fedavgm": {"server_optimizer": {"name": "momentum", "lr": 0.7, "momentum": 0.5}},
    "fedadagrad": {"server_optimizer": {"name": "adagrad", "lr": 0.2, "tau": 0.05}},
    "fedadam": {"server_optimizer": {"name": "adam", "lr": 0.2, "tau": 0.05, "beta_1": 0.5}},
    "fedyogi": {"server_optimizer": {"name": "yogi", "lr": 0.2, "tau": 0.05, "beta_2": 0.9}},
}
"""Of every preset, what it is short for; its own options are those of the part."""

ADAM = {"name": "adam", "lr": 0.2, "tau": 0.05, "beta_1": 0.7}


def own_options(name: str) -> dict[str, Any]:
    """The options of a preset's part."""
    general = GENERAL[name]
    part: dict[str, Any] = general["penalties"][0] if "penalties" in general else general["server_optimizer"]
    return {key: value for key, value in part.items() if key != "name"}


class Adam:
    """Reddi et al., algorithm 2, with the options of `ADAM`."""

    def __init__(self) -> None:
        self._mean, self._second = torch.zeros(()), torch.tensor(0.05**2, dtype=torch.float64)

    def step(self, change: Vector) -> Vector:
        self._mean = 0.7 * self._mean + 0.3 * change
        self._second = 0.99 * self._second + 0.01 * change**2
        return 0.2 * self._mean / (self._second.sqrt() + 0.05)


def test_every_preset_is_covered_here() -> None:
    assert GENERAL.keys() == PRESETS.keys()


@pytest.mark.parametrize("name", GENERAL)
def test_a_preset_is_its_general_form_to_the_last_bit(name: str) -> None:
    preset = trained({"name": name, "weighting": "uniform", **own_options(name)}, EVERYTHING)
    general = trained({"name": "fedavg", "weighting": "uniform", **GENERAL[name]}, EVERYTHING)
    assert torch.equal(preset, general)
    assert (preset - fedavg(EVERYTHING, uniform=True)).norm() > 1e-2


def fedprox_with_adam(setting: Setting, mu: float) -> Vector:
    w, adam = setting.initial(), Adam()
    for cohort in rounds(setting):
        proximal = linear(torch.zeros_like(w), mu, w)
        w = w + adam.step(mean([update.sgd(w, penalty=proximal) - w for update in cohort], sizes(cohort)))
    return w


def test_fedprox_with_adam_at_the_server_in_three_notations() -> None:
    notations: list[dict[str, Any]] = [
        {"name": "fedavg", "penalties": [{"name": "proximal", "mu": 0.4}], "server_optimizer": ADAM},
        {"name": "fedprox", "mu": 0.4, "server_optimizer": ADAM},
        {"name": "fedadam", "lr": 0.2, "tau": 0.05, "beta_1": 0.7, "penalties": [{"name": "proximal", "mu": 0.4}]},
    ]
    models = [trained(algorithm, EVERYTHING) for algorithm in notations]
    assert torch.equal(models[0], models[1])
    assert torch.equal(models[0], models[2])
    expected, without = (fedprox_with_adam(EVERYTHING, mu) for mu in (0.4, 0.0))
    assert_equal_and_unlike(models[0], expected, without, EVERYTHING)


def test_fedexp_with_a_proximal_penalty() -> None:
    """The prox changes what clients return; the extrapolation is of what they return."""
    longer = replace(EVERYTHING.with_local(lr=1.0, epochs=6), cohorts=((0, 3, 4), (2, 4, 7, 9), (4, 0, 11)))
    w, rates = longer.initial(), []
    for cohort in rounds(longer):
        proximal = linear(torch.zeros_like(w), 0.2, w)
        changes = [update.sgd(w, penalty=proximal) - w for update in cohort]
        change = mean(changes)
        squared = sum(float(one.square().sum()) for one in changes) / len(changes)
        rates.append(max(1.0, squared / (2 * (float(change.square().sum()) + 1e-3))))
        w = w + rates[-1] * change
    assert max(rates) > 1.05
    ours = trained({"name": "fedexp", "penalties": [{"name": "proximal", "mu": 0.2}]}, longer, eval_model="global")
    assert_equal_and_unlike(ours, w, trained("fedexp", longer, eval_model="global"), longer)


def test_scaffold_with_adam_at_the_server() -> None:
    """The optimizer steps by the mean change; control variates are the clients' affair and stay as they are."""
    w, adam = PLAIN.initial(), Adam()
    c, own = torch.zeros_like(w), {client: torch.zeros_like(w) for client in range(PLAIN.clients)}
    for cohort in rounds(PLAIN):
        changes, control_changes = [], []
        for update in cohort:
            y = update.sgd(w, penalty=linear(c - own[update.client]))
            new = own[update.client] - c + (w - y) / (update.K * update.lr)
            control_changes.append(new - own[update.client])
            changes.append(y - w)
            own[update.client] = new
        w = w + adam.step(mean(changes))
        c = c + sum(control_changes, torch.zeros(())) / PLAIN.clients
    ours = trained({"name": "scaffold", "server_optimizer": ADAM}, PLAIN)
    assert_equal_and_unlike(ours, w, trained("scaffold", PLAIN), PLAIN)


def test_two_penalties_add_up() -> None:
    """Two proximal terms of half the weight each are one: the second penalty of a kind is not lost."""
    half, other, whole = (
        trained({"name": "fedavg", "penalties": penalties}, PLAIN)
        for penalties in (
            [{"name": "proximal", "mu": 0.5}, {"name": "proximal", "mu": 0.5}],
            [{"name": "proximal", "mu": 0.5}],
            [{"name": "proximal", "mu": 1.0}],
        )
    )
    assert_equal_and_unlike(half, whole, other, PLAIN)
    assert_equal_and_unlike(whole, whole, fedavg(PLAIN), PLAIN)


def refusal(schedule: str = "relay", **phase: Any) -> str:
    tables: dict[str, Any] = {
        "seed": SEED,
        "data": {"name": "tests.algorithms.scene:people"},
        "model": {"name": "tests.algorithms.scene:TanhNet"},
        "phases": [{"name": "p", "schedule": schedule, "rounds": 1, "cohort": 3, **phase}],
    }
    with pytest.raises(ScenarioError) as caught:
        prepare(Scenario.from_tables(tables), Path("no-data-here"))
    return str(caught.value)


@pytest.mark.parametrize("key", [{"eval_model": "all"}, {"transforms": ["top_k"]}], ids=str)
def test_a_relay_has_no_answers_to_transform_and_one_model_only(key: dict[str, Any]) -> None:
    (name,) = key
    assert refusal(**key).startswith(f"phases.p.{name}: has no effect with this schedule; leave it out")


def test_two_penalties_that_would_overwrite_each_others_state_are_rejected() -> None:
    twice = [{"name": "contrastive"}, {"name": "contrastive", "mu": 2.0}]
    message = refusal("parallel", algorithm={"name": "fedavg", "penalties": twice})
    assert message == (
        "phases.p.algorithm: penalty 'contrastive' and penalty 'contrastive' both keep a state named 'previous'; "
        "leave one of them out"
    )


def test_a_server_optimizer_without_a_name_is_the_algorithms_own() -> None:
    rate = {"server_optimizer": {"lr": 0.4, "tau": 0.05}}
    assert torch.equal(
        trained({"name": "fedadam", **rate}, PLAIN), trained({"name": "fedadam", **rate["server_optimizer"]}, PLAIN)
    )
    half = {"name": "fedavg", "server_optimizer": {"lr": 0.5}}
    assert_equal_and_unlike(trained(half, PLAIN), fedavg(PLAIN, server_lr=0.5), fedavg(PLAIN), PLAIN)
    message = refusal("parallel", algorithm={"name": "fedavg", "penalties": [{"mu": 0.5}]})
    assert message.startswith(
        "phases.p.algorithm.penalties.0: name is missing: which penalty? known: contrastive, decorrelation, proximal"
    )


def test_components_are_named_with_what_is_known() -> None:
    message = refusal("parallel", algorithm={"name": "fedavg", "penalties": ["proximate"]})
    assert "phases.p.algorithm.penalties.0: " in message
    assert "did you mean 'proximal'?" in message
    message = refusal("parallel", algorithm={"name": "fedavg", "server_optimizer": "tests.user_code:Linear"})
    assert "'tests.user_code:Linear' does not derive from rayfl.algorithms.ServerOptimizer" in message


def test_a_preset_with_another_part_of_its_kind_keeps_both() -> None:
    both = [{"name": "proximal", "mu": 0.4}, {"name": "decorrelation", "beta": 0.05}]
    short = trained({"name": "fedprox", "mu": 0.4, "penalties": ["proximal", both[1]]}, PLAIN)
    assert np.array_equal(short, trained({"name": "fedavg", "penalties": both}, PLAIN))


@pytest.mark.parametrize(
    "algorithm",
    [
        {"name": "fedprox", "mu": 0.5, "penalties": ["contrastive"]},
        {"name": "fedadam", "lr": 0.3, "server_optimizer": "yogi"},
        {"name": "fedavgm", "server_optimizer": "sgd"},
    ],
)
def test_a_preset_without_its_own_part_is_rejected(algorithm: dict[str, Any]) -> None:
    with pytest.raises(ScenarioError, match=r"phases\.federated\.algorithm: this preset stands for '\w+'"):
        prepared(algorithm, PLAIN)
