"""FedDyn against algorithm 1 of its paper, in the paper's letters, and against its code, in the code's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.algorithms.reference import PlainUpdate, Vector, assert_equal_and_unlike, fedavg, linear, mean, rounds
from tests.algorithms.scene import EVERYTHING, FULL, PLAIN, Setting, trained


def paper(setting: Setting, alpha: float, eval_model: str = "participants") -> Vector:
    """Gradients g_i and the server's h."""
    w = setting.initial()
    h, g = torch.zeros_like(w), [torch.zeros_like(w) for _ in range(setting.clients)]
    last = [w] * setting.clients
    for cohort in rounds(setting):
        models = []
        for update in cohort:
            own = g[update.client]
            y = update.sgd(w, penalty=linear(-own, alpha, w))
            g[update.client] = own - alpha * (y - w)
            last[update.client] = y
            models.append(y)
        h = h - alpha / setting.clients * sum((y - w for y in models), torch.zeros(()))
        w = mean(models) - h / alpha
    return {"participants": mean(models), "all": mean(last), "global": w}[eval_model]


def code(setting: Setting, alpha: float, eval_model: str = "participants", *, scaled: bool = False) -> Vector:
    """A table of all p_i; the quadratic term is weight decay, outside of clipping."""
    w = setting.initial()
    table = torch.zeros(setting.clients, len(w), dtype=torch.float64)
    last = w.repeat(setting.clients, 1)
    for cohort in rounds(setting):
        for update in cohort:
            alpha_i = alpha_of(update, alpha, scaled)
            y = update.sgd(w, penalty=linear(alpha_i * (table[update.client] - w)), decay=alpha_i)
            table[update.client] += y - w
            last[update.client] = y
        models = last[[update.client for update in cohort]]
        w = models.mean(dim=0) + table.mean(dim=0)
    return {"participants": models.mean(dim=0), "all": last.mean(dim=0), "global": w}[eval_model]


def alpha_of(update: PlainUpdate, alpha: float, scaled: bool) -> float:
    return alpha / (update.n / update.mean_n) if scaled else alpha


@pytest.mark.parametrize(
    ("setting", "eval_model"),
    [(FULL, "participants"), (PLAIN, "all"), (EVERYTHING, "global")],
    ids=["full-participants", "plain-all", "everything-global"],
)
def test_the_papers_form(setting: Setting, eval_model: str) -> None:
    ours = trained({"name": "feddyn", "alpha": 0.2}, setting, eval_model=eval_model)
    assert_equal_and_unlike(ours, paper(setting, 0.2, eval_model), fedavg(setting, uniform=True), setting)


@pytest.mark.parametrize(
    ("setting", "eval_model"), [(PLAIN, "global"), (EVERYTHING, "all")], ids=["plain-global", "everything-all"]
)
def test_the_codes_form(setting: Setting, eval_model: str) -> None:
    ours = trained({"name": "feddyn", "alpha": 0.2, "penalty": "decay"}, setting, eval_model=eval_model)
    assert_equal_and_unlike(ours, code(setting, 0.2, eval_model), fedavg(setting, uniform=True), setting)


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
    ours = trained({"name": "feddyn", **options}, PLAIN, eval_model="global")
    assert_equal_and_unlike(ours, code(PLAIN, 0.3, "global", scaled=True), code(PLAIN, 0.3, "global"), PLAIN)
