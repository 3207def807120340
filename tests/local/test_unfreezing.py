"""Client updates that thaw modules one after another, against ordinary modules and torch.optim.SGD in float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from rayfl.models.network import Network
from tests.algorithms.reference import (
    MODULE_OF,
    PlainUpdate,
    Vector,
    assert_equal,
    assert_equal_and_unlike,
    fedavg,
    linear,
    mean,
    rounds,
    sizes,
)
from tests.algorithms.scene import CLASSES, EVERYTHING, PLAIN, Setting, TanhNet, trained


def thawed_modules(k: int, steps: int, units: Sequence[Sequence[int]], share: float, order: str) -> set[int]:
    """m = min(M, ceil(k M / (P K))) units, from the input or from the output."""
    units = units[::-1] if order == "top_down" else units
    m = min(len(units), math.ceil(k * len(units) / (Fraction(str(share)) * steps))) if share else len(units)
    return {index for unit in units[:m] for index in unit}


UNITS = {"modules": [[0], [1], [2]], "halves": [[0], [1, 2]]}


def torch_update(
    setting: Setting, w: Vector, update: PlainUpdate, units: Sequence[Sequence[int]], share: float, order: str
) -> Vector:
    """FedBug's algorithm 1 with PyTorch's own optimiser, for which a frozen parameter has no gradient at all."""
    net = TanhNet(CLASSES).double()
    torch.nn.utils.vector_to_parameters(w.clone(), net.parameters())
    modules = [net.first, net.second, net.read_out]
    local = setting.local
    optimizer = torch.optim.SGD(
        net.parameters(),
        lr=update.lr,
        momentum=local.get("momentum", 0.0),
        weight_decay=local.get("weight_decay", 0.0),
    )
    for k, rows in enumerate(update.batches, start=1):
        thawed = thawed_modules(k, update.K, units, share, order)
        for index, module in enumerate(modules):
            module.requires_grad_(index in thawed)
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(net(update.x[rows]), update.y[rows]).backward()  # type: ignore[no-untyped-call]
        if "clip_norm" in local:
            torch.nn.utils.clip_grad_norm_([p for p in net.parameters() if p.grad is not None], local["clip_norm"])
        optimizer.step()
    return torch.nn.utils.parameters_to_vector(net.parameters()).detach()


def fedbug(
    setting: Setting, fixed_last: int = 0, share: float = 0.0, units: str = "modules", order: str = "bottom_up"
) -> Vector:
    left = [[index for index in unit if index < 3 - fixed_last] for unit in UNITS[units]]
    left = [unit for unit in left if unit]
    w = setting.initial()
    for cohort in rounds(setting):
        w = mean([torch_update(setting, w, update, left, share, order) for update in cohort], sizes(cohort))
    return w


def masks(update: PlainUpdate, share: float, order: str) -> Callable[[int], torch.Tensor]:
    """By step, ones for the parameters that train."""
    return lambda k: torch.from_numpy(
        np.isin(MODULE_OF, list(thawed_modules(k, update.K, UNITS["modules"], share, order)))
    ).double()


ROOMY = {"epochs": 3, "batch_size": 4}
"""Client updates of 3 to 12 steps."""
SETTINGS = {"plain": PLAIN.with_local(**ROOMY), "everything": EVERYTHING.with_local(**ROOMY, momentum=0.9)}

WAYS: dict[str, dict[str, Any]] = {
    "all": {"share": 1.0},
    "halves": {"share": 0.8, "units": "halves"},
    "top_down_halves": {"share": 0.7, "order": "top_down", "units": "halves"},
}


@pytest.mark.parametrize("unfreeze", WAYS.values(), ids=WAYS.keys())
def test_gradual_unfreezing(unfreeze: dict[str, Any]) -> None:
    setting = SETTINGS["everything"]
    ours = trained("fedavg", setting.with_local(unfreeze=unfreeze))
    assert_equal_and_unlike(ours, fedbug(setting, **unfreeze), fedavg(setting), setting)


WITHOUT_LAST: dict[int, Any] = {1: "body", 2: ["first"]}
"""What trains where this many modules from the output do not."""


@pytest.mark.parametrize("fixed_last", [1, 2])
def test_fixed_modules(fixed_last: int) -> None:
    setting = SETTINGS["everything"]
    ours = trained("fedavg", setting, train=WITHOUT_LAST[fixed_last])
    assert_equal_and_unlike(ours, fedbug(setting, fixed_last), fedavg(setting), setting)


@pytest.mark.parametrize("order", ["bottom_up", "top_down"])
def test_fixed_modules_and_unfreezing_together(order: str) -> None:
    setting, unfreeze = SETTINGS["everything"], {"share": 0.8, "order": order}
    ours = trained("fedavg", setting.with_local(unfreeze=unfreeze), train=WITHOUT_LAST[1])
    assert_equal_and_unlike(ours, fedbug(setting, 1, 0.8, order=order), fedbug(setting, 1), setting)


class MiddleFrozen(TanhNet):
    """As a network with a pre-trained part."""

    def __init__(self, num_classes: int) -> None:
        super().__init__(num_classes)
        self.second.requires_grad_(False)


@pytest.mark.parametrize("order", ["bottom_up", "top_down"])
def test_a_module_that_the_network_freezes_is_no_unit(order: str) -> None:
    w = PLAIN.initial()
    for cohort in rounds(PLAIN):
        updates = [torch_update(PLAIN, w, update, [[0], [2]], 0.8, order) for update in cohort]
        w = mean(updates, sizes(cohort))
    local = PLAIN.with_local(unfreeze={"share": 0.8, "order": order})
    assert_equal(trained("fedavg", local, model=f"{__name__}:MiddleFrozen"), w, PLAIN)


@pytest.mark.parametrize("schedule", ["paper", "code"])
def test_both_schedules_where_they_are_one(schedule: str) -> None:
    """Full batches, six epochs: three units share six steps evenly."""
    setting = EVERYTHING.with_local(epochs=6, batch_size="full")
    ours = trained("fedavg", setting.with_local(unfreeze={"share": 1.0, "schedule": schedule}))
    assert_equal_and_unlike(ours, fedbug(setting, share=1.0), fedavg(setting), setting)


def test_the_codes_schedule_thaws_earlier_where_periods_are_no_whole_numbers() -> None:
    """K = 8, three units: phi = 2, so the last unit trains in steps 5 to 8; the paper's in steps 6 to 8."""
    setting = PLAIN.with_local(epochs=8, batch_size="full")
    ours = trained("fedavg", setting.with_local(unfreeze={"share": 1.0, "schedule": "code"}))
    as_paper = setting.with_local(unfreeze={"share": 1.0})
    assert_equal_and_unlike(ours, fedbug(setting, share=0.75), fedbug(setting, share=1.0), setting)
    assert_equal(trained("fedavg", as_paper), fedbug(setting, share=1.0), setting)


@pytest.mark.parametrize("share", [0, 0.01])
def test_a_share_of_nothing_or_of_less_than_a_step_is_fedavg_to_the_last_bit(share: float) -> None:
    setting = SETTINGS["everything"]
    assert torch.equal(trained("fedavg", setting.with_local(unfreeze={"share": share})), trained("fedavg", setting))


def test_fedprox_thaws_with_its_penalty() -> None:
    setting, order = SETTINGS["everything"], "top_down"
    w, other = setting.initial(), trained({"name": "fedprox", "mu": 0.5}, setting)
    for cohort in rounds(setting):
        models = [
            update.sgd(w, penalty=linear(torch.zeros_like(w), 0.5, w), trains=masks(update, 0.9, order))
            for update in cohort
        ]
        w = mean(models, sizes(cohort))
    ours = trained({"name": "fedprox", "mu": 0.5}, setting.with_local(unfreeze={"share": 0.9, "order": order}))
    assert_equal_and_unlike(ours, w, other, setting)


@pytest.mark.parametrize(
    ("setting", "penalty", "order"),
    [
        (SETTINGS["everything"], "gradient", "top_down"),
        (SETTINGS["plain"], "decay", "bottom_up"),
    ],
    ids=["gradient", "decay"],
)
def test_feddyn_thaws_with_its_penalties_and_remembers_the_whole_change(
    setting: Setting, penalty: str, order: str
) -> None:
    """Neither the linear nor the quadratic term acts on what is frozen, whichever way the latter is realised."""
    alpha, w = 0.2, setting.initial()
    table = torch.zeros(setting.clients, len(w), dtype=torch.float64)
    quadratic = alpha if penalty == "gradient" else 0.0
    for cohort in rounds(setting):
        models = []
        for update in cohort:
            y = update.sgd(
                w,
                penalty=linear(alpha * (table[update.client] - w), quadratic),
                decay=alpha - quadratic,
                trains=masks(update, 0.9, order),
            )
            table[update.client] += y - w
            models.append(y)
        w = mean(models) + table.mean(dim=0)
    algorithm = {"name": "feddyn", "alpha": alpha, "penalty": penalty}
    ours = trained(algorithm, setting.with_local(unfreeze={"share": 0.9, "order": order}), eval_model="global")
    assert_equal_and_unlike(ours, w, trained(algorithm, setting, eval_model="global"), setting)


def test_the_network_declares_what_the_reference_assumes() -> None:
    assert issubclass(TanhNet, Network)
    assert [list(unit) for unit in TanhNet.groupings["halves"]] == [["first"], ["second", "read_out"]]
