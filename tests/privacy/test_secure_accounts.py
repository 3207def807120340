"""Accounts of secure noise: Google's dp-accounting at the same integer orders; and what cannot be secure."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from dp_accounting import DpEvent, GaussianDpEvent, NeighboringRelation, PoissonSampledDpEvent
from dp_accounting import SampledWithoutReplacementDpEvent as Fixed
from dp_accounting.rdp import RdpAccountant
from torch import nn

from rayfl.algorithms.exchange import Answer
from rayfl.errors import ScenarioError
from rayfl.local.context import ClientStreams
from rayfl.local.spending import Mechanism
from rayfl.privacy.clients.accounting import Release, epsilon_of
from rayfl.privacy.clients.mechanism import hide_answer
from rayfl.privacy.composition import LATTICE_ORDERS, RenyiFilter, epsilons_by_rdp, history, orders_of
from rayfl.privacy.samples.accounting import Accountant
from rayfl.privacy.secure_noise import Lattice
from tests.engine.plan.test_client_statement import statement
from tests.engine.scenes import prepared
from tests.privacy.clients.scenes import central, job, local, phase

DELTA = 1e-5
SECURE = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "secure": True}


def by_dp_accounting(
    orders: np.ndarray,
    event: DpEvent,
    times: int,
    relation: NeighboringRelation = NeighboringRelation.ADD_OR_REMOVE_ONE,
) -> float:
    accountant = RdpAccountant(orders.tolist(), relation)
    accountant.compose(event, times)
    return float(accountant.get_epsilon(DELTA))


@pytest.mark.parametrize(
    ("noise", "rate", "times"), [(1.0, 0.1, 100), (0.7, 0.3, 20), (2.0, 1.0, 5), (1.3, 0.01, 1000)]
)
def test_poisson_samples_and_clients_have_the_epsilon_of_integer_orders(noise: float, rate: float, times: int) -> None:
    event = PoissonSampledDpEvent(rate, GaussianDpEvent(noise))
    samples = by_dp_accounting(orders_of(secure=True), event, times)
    spending = {Mechanism(noise, rate): times}
    assert Accountant("rdp", DELTA, secure=True).epsilon(spending) == pytest.approx(samples, rel=1e-6)
    assert epsilons_by_rdp([spending], DELTA, secure=True)[0] == pytest.approx(samples, rel=1e-6)
    sampling: Any = "none" if rate == 1 else "poisson"
    clients = epsilon_of(history({Release(noise, sampling, rate): times}), DELTA, "rdp", secure=True)
    assert clients == pytest.approx(by_dp_accounting(LATTICE_ORDERS, event, times), rel=1e-6)


@pytest.mark.parametrize(("noise", "taken", "of", "times"), [(2.0, 10, 100, 30), (4.0, 3, 12, 10)])
def test_fixed_cohorts_have_the_epsilon_of_integer_orders(noise: float, taken: int, of: int, times: int) -> None:
    """The best order is well below 48; dp-accounting takes long for larger ones."""
    found = epsilon_of(history({Release(noise, "without_replacement", taken / of): times}), DELTA, "rdp", secure=True)
    expected = by_dp_accounting(
        LATTICE_ORDERS[LATTICE_ORDERS <= 48],
        Fixed(of, taken, GaussianDpEvent(noise)),
        times,
        NeighboringRelation.REPLACE_ONE,
    )
    assert found == pytest.approx(expected, rel=0.01)


def test_integer_orders_are_an_upper_bound_and_every_order_used_is_an_integer() -> None:
    assert (orders_of(secure=True) % 1 == 0).all()
    assert (LATTICE_ORDERS % 1 == 0).all()
    spent = {Mechanism(0.8, 0.2): 40}
    rdp, secure = (epsilons_by_rdp([spent], DELTA, secure=secure)[0] for secure in (False, True))
    assert rdp <= secure < 1.05 * rdp


def test_a_budget_is_kept_at_integer_orders() -> None:
    spent = {Mechanism(0.5, 0.2): 40}
    exact, secure = (float(epsilons_by_rdp([spent], DELTA, secure=secure)[0]) for secure in (False, True))
    assert exact < secure
    between = (exact + secure) / 2
    assert RenyiFilter(between, DELTA).admits(spent)
    assert not RenyiFilter(between, DELTA, secure=True).admits(spent)
    assert RenyiFilter(secure * (1 + 1e-9), DELTA, secure=True).admits(spent)


@pytest.mark.parametrize("dp", [central, local])
def test_clients_records_tell_the_accountant(dp: Any) -> None:
    found = statement(job(phase(dp=dp(secure=True))), 3)
    assert found["accountant"] == "rdp"
    assert "integer orders" in found["composition"]
    assert not any("floating point" in text for text in found["not_covered"])
    seeded = statement(job(phase(dp=dp())), 3)
    assert any("floating point" in text for text in seeded["not_covered"])


def samples(**dp: Any) -> dict[str, Any]:
    return {"phases": [{"name": "p", "rounds": 1, "cohort": 2, "local": {"batch_size": 4, "dp": SECURE | dp}}]}


@pytest.mark.parametrize(
    ("dp", "said"),
    [
        ({"accountant": "prv"}, "secure needs accountant = 'rdp'"),
        ({"clipping": "ghost"}, "secure needs clipping = 'per_sample'"),
        ({"noise_multiplier": 0.01}, r"phases\.p\.local\.dp: secure noise needs a noise multiplier of at least"),
    ],
)
def test_options_that_cannot_be_secure_are_rejected(dp: dict[str, Any], said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        prepared(**samples(**dp))


def test_one_account_has_one_source_of_noise() -> None:
    both = samples()["phases"] + samples(secure=False, accountant="rdp")["phases"]
    both[1]["name"] = "q"
    with pytest.raises(ScenarioError, match=r"phases\.q\.local\.dp\.secure: is False, but True in 'p'"):
        prepared(phases=both)
    with pytest.raises(ScenarioError, match=r"phases\.second\.dp\.secure: is false, unlike in phase"):
        job(phase(dp=central(secure=True)), phase(name="second", dp=central()))


def test_clients_noise_that_has_no_lattice_is_rejected() -> None:
    with pytest.raises(ScenarioError, match=r"secure noise needs a noise multiplier of at least 0\.0625"):
        job(phase(dp=central(secure=True, noise_multiplier=0.05)))
    with pytest.raises(ScenarioError, match="secure needs accountant = 'rdp'"):
        job(phase(cohort={"bernoulli": 0.5}, dp=central(secure=True, accountant="prv")))
    with pytest.raises(ScenarioError, match=r"secure: with a bound of .*e-31[89] the grid has step 0"):
        Lattice(1.0, 1e-318).in_steps(torch.ones(1, 1), torch.ones(1))


def test_clients_that_train_at_once_are_rejected() -> None:
    said = r"numerics\.clients_at_once: the last bits of an update .* phases\.hidden\.dp\.secure"
    with pytest.raises(ScenarioError, match=said):
        job(phase(dp=central(secure=True)), numerics={"clients_at_once": 2})
    job(phase(dp=central()), numerics={"clients_at_once": 2})


class ByTheRow(nn.Module):
    """Scales every sample by its place in the batch, by less than other checks would see."""

    def __init__(self, num_classes: int, input_shape: tuple[int, ...]) -> None:
        super().__init__()
        self.head = nn.Linear(int(np.prod(input_shape)), num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        factors = 1 + 1e-6 * torch.arange(len(x), device=x.device)
        logits: torch.Tensor = self.head(x.flatten(1) * factors.unsqueeze(1))
        return logits


def test_a_network_whose_gradients_depend_on_the_rest_of_a_batch_is_rejected() -> None:
    model = {"name": f"{__name__}:ByTheRow"}
    said = r"p\.local\.dp\.secure: the last bits .* 'head.weight' of model ByTheRow.* \(physical_batch_size = 1\)"
    with pytest.raises(ScenarioError, match=said):
        prepared(**samples(), model=model)
    prepared(**samples(physical_batch_size=1), model=model)
    prepared(**samples(secure=False, accountant="rdp"), model=model)


def test_samples_of_different_lengths_are_rejected() -> None:
    texts = "tests.data.test_inputs"
    data = {"name": f"{texts}:ragged", "clients": 4, "collate": f"{texts}:tokens_and_mask"}
    with pytest.raises(ScenarioError, match=r"p\.local\.dp\.secure: samples of different lengths are padded"):
        prepared(**samples(), data=data, model=f"{texts}:MeanOfWords")


def test_an_answer_that_is_not_finite_counts_as_zero() -> None:
    mechanism = job(phase(dp=central(secure=True))).phases[0].hiding
    assert mechanism is not None
    for spoilt in (float("nan"), float("inf"), 1e30):
        delta = torch.full((mechanism.places("model")[-1][1],), 1.0)
        delta[3] = spoilt
        answer = Answer(delta=delta)
        hide_answer(mechanism, answer, 0.3, len(delta), ClientStreams(0, 0, 1, 0, 0))
        steps = answer.values["delta"]
        assert bool(steps.any()) == (spoilt == 1e30)
        assert float(steps.double().norm()) <= Lattice(mechanism.vector_noise, 0.3).largest_norm
