"""FedDyn against algorithm 1 of its paper, in the paper's letters, and against its code, in the code's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.algorithms.reference import Vector, Visit, assert_equal_and_unlike, fedavg, linear, mean, rounds
from tests.algorithms.scene import EVERYTHING, FULL, PLAIN, Setting, trained

SETTINGS = {"plain": PLAIN, "everything": EVERYTHING, "full": FULL}


def paper(setting: Setting, alpha: float, report: str = "participants") -> Vector:
    """Gradients g_i and the server's h."""
    w = setting.initial()
    h, g = torch.zeros_like(w), [torch.zeros_like(w) for _ in range(setting.clients)]
    last = [w] * setting.clients
    for cohort in rounds(setting):
        models = []
        for visit in cohort:
            own = g[visit.client]
            y = visit.sgd(w, penalty=linear(-own, alpha, w))
            g[visit.client] = own - alpha * (y - w)
            last[visit.client] = y
            models.append(y)
        h = h - alpha / setting.clients * sum((y - w for y in models), torch.zeros(()))
        w = mean(models) - h / alpha
    return {"participants": mean(models), "all": mean(last), "cloud": w}[report]


def code(setting: Setting, alpha: float, report: str = "participants", *, scaled: bool = False) -> Vector:
    """A table of all p_i; the quadratic term is weight decay, outside of clipping."""
    w = setting.initial()
    table = torch.zeros(setting.clients, len(w), dtype=torch.float64)
    last = w.repeat(setting.clients, 1)
    for cohort in rounds(setting):
        for visit in cohort:
            alpha_i = alpha_of(visit, alpha, scaled)
            y = visit.sgd(w, penalty=linear(alpha_i * (table[visit.client] - w)), decay=alpha_i)
            table[visit.client] += y - w
            last[visit.client] = y
        models = last[[visit.client for visit in cohort]]
        w = models.mean(dim=0) + table.mean(dim=0)
    return {"participants": models.mean(dim=0), "all": last.mean(dim=0), "cloud": w}[report]


def alpha_of(visit: Visit, alpha: float, scaled: bool) -> float:
    return alpha / (visit.n / visit.mean_n) if scaled else alpha


REPORTS = ["participants", "all", "cloud"]


@pytest.mark.parametrize("report", REPORTS)
@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS.keys())
def test_the_papers_form(setting: Setting, report: str) -> None:
    ours = trained({"name": "feddyn", "alpha": 0.2, "report": report}, setting)
    assert_equal_and_unlike(ours, paper(setting, 0.2, report), fedavg(setting, uniform=True), setting)


@pytest.mark.parametrize("report", REPORTS)
@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS.keys())
def test_the_codes_form(setting: Setting, report: str) -> None:
    ours = trained({"name": "feddyn", "alpha": 0.2, "report": report, "penalty": "decay"}, setting)
    assert_equal_and_unlike(ours, code(setting, 0.2, report), fedavg(setting, uniform=True), setting)


def test_without_clipping_both_forms_are_one() -> None:
    assert_equal_and_unlike(paper(PLAIN, 0.2), code(PLAIN, 0.2), fedavg(PLAIN, uniform=True), PLAIN)


def test_clipping_sees_the_quadratic_term_in_the_papers_form_only() -> None:
    setting = PLAIN.with_local(clip_norm=0.3)
    forms: list[tuple[str, Callable[..., Vector], Callable[..., Vector]]] = [
        ("gradient", paper, code),
        ("decay", code, paper),
    ]
    for penalty, same, other in forms:
        ours = trained({"name": "feddyn", "alpha": 0.5, "penalty": penalty}, setting)
        assert_equal_and_unlike(ours, same(setting, 0.5), other(setting, 0.5), setting)


@pytest.mark.parametrize("penalty", ["gradient", "decay"])
def test_alpha_may_be_scaled_by_relative_sizes(penalty: str) -> None:
    """Without clipping, where both penalties are one. p_i is not scaled."""
    options: dict[str, Any] = {"alpha": 0.3, "scale_alpha": True, "penalty": penalty}
    for report in REPORTS:
        ours = trained({"name": "feddyn", "report": report, **options}, PLAIN)
        expected = code(PLAIN, 0.3, report, scaled=True)
        assert_equal_and_unlike(ours, expected, code(PLAIN, 0.3, report), PLAIN)


def test_the_three_models_are_different_ones() -> None:
    models = [paper(PLAIN, 0.2, report) for report in REPORTS]
    change = (models[0] - PLAIN.initial()).norm()
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert (models[one] - models[other]).norm() > 0.05 * change
