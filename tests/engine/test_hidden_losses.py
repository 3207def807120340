"""Losses of training steps, which nothing noises, are the experimenter's: with `local.dp` no algorithm reads them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rayfl.algorithms.exchange import Answer
from rayfl.algorithms.fedavg import FedAvg
from rayfl.algorithms.limits import SampleRequest
from rayfl.data.dataset import Dataset, NaturalClients, Provenance, Samples, Shards
from rayfl.engine.events import RoundDone
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.errors import ClientError
from rayfl.local.context import ClientContext
from rayfl.local.requests import ClientUpdate
from rayfl.privacy.samples.released_sums import bounded
from tests.engine.scenes import prepared, run_on_hosts

PEOPLE = {"data": {"name": "tests.algorithms.scene:people"}, "model": {"name": "tests.algorithms.scene:TanhNet"}}
DP = {"noise_multiplier": 1.1, "max_grad_norm": 0.7, "accountant": "rdp"}
OFF = {"noise_multiplier": 0.0, "max_grad_norm": float("inf"), "max_loss": 1e6}
READING = f"{__name__}:Reading"


class Reading(FedAvg):
    """Answers with its clients' training losses."""

    def sample_requests(self) -> tuple[SampleRequest, ...]:
        return (SampleRequest(),)

    def client_update(self, client: ClientContext, model: torch.Tensor) -> ClientUpdate[Answer]:
        answer = yield from super().client_update(client, model)
        answer.sums["losses"] = torch.tensor([float(len(client.losses)), sum(client.losses)])
        return answer


def job(dp: dict[str, Any] | None, **phase: Any) -> RunPlan:
    local = {"epochs": 2, "batch_size": "full", "lr": 0.1, **({"dp": dp} if dp else {})}
    return prepared(**PEOPLE, phases=[{"name": "p", "rounds": 1, "cohort": 3, "local": local} | phase])


def train_losses(made: RunPlan, hosts: int = 1) -> list[float]:
    return [event.train_loss for event in run_on_hosts(made, hosts)[1] if isinstance(event, RoundDone)]


def test_an_algorithm_that_reads_training_losses_is_stopped_where_samples_are_private() -> None:
    with pytest.raises(
        ClientError, match=r"ClientContext\.losses cannot be read with local\.dp: .*yield Loss"
    ) as caught:
        run_on_hosts(job(DP, algorithm=READING), 1)
    assert "\n" not in str(caught.value)
    assert "client" in str(caught.value)
    assert "phase 'p', round 1" in str(caught.value)


def test_without_it_an_algorithm_may_read_them() -> None:
    assert train_losses(job(None, algorithm=READING)) == train_losses(job(None))


@pytest.mark.parametrize("phase", [{}, {"schedule": "relay"}, {"algorithm": "perfedavg"}], ids=str)
def test_reports_have_the_training_loss_all_the_same(phase: dict[str, Any]) -> None:
    plain = train_losses(job(None, **phase))
    np.testing.assert_allclose(train_losses(job(OFF, **phase)), plain, rtol=1e-5)
    noisy = train_losses(job(DP, **phase), 3)
    assert np.isfinite(noisy).all()
    assert noisy != plain


def test_the_servers_own_training_reports_its_loss_beside_private_clients() -> None:
    data = PEOPLE["data"] | {"server_share": 0.2}
    local = {"batch_size": 4, "lr": 0.1, "dp": DP}
    phase = {
        "name": "p",
        "rounds": 1,
        "cohort": 3,
        "local": local,
        "server_training": {"epochs": 2, "batch_size": 64, "lr": 0.01},
    }
    made = prepared(data=data, model=PEOPLE["model"], phases=[phase])
    (done,) = (event for event in run_on_hosts(made, 2)[1] if isinstance(event, RoundDone))
    assert np.isfinite(done.scalars["server_train_loss"])
    assert done.scalars["server_steps"] == 2


def labels(outlier: float) -> Dataset:
    rng, n = np.random.default_rng(0), 64
    y = rng.normal(size=n).astype(np.float32)
    y[5] = outlier
    samples = Samples(rng.normal(size=(n, 8)).astype(np.float32), y)
    owners = np.repeat([0, 1], n // 2)
    clients = NaturalClients(("a", "b"), Shards.by_owner(owners, 2), Shards.by_owner(np.array([0, 1]), 2))
    return Dataset("labels", samples, samples.take(np.arange(6, 8)), None, Provenance("arrays", "made here"), clients)


def with_an_outlier() -> Dataset:
    return labels(1e20)


@pytest.mark.parametrize("algorithm", ["fedavg", "perfedavg", {"name": "scaffold", "option": "I"}], ids=str)
def test_a_single_infinite_loss_does_not_end_a_private_run(algorithm: Any) -> None:
    """Its gradient is clipped like any other; had the run ended, everybody would know of the sample."""
    scene = {"data": {"name": f"{__name__}:with_an_outlier"}, "task": "regression", "model": "mlp"}
    phase = {"name": "p", "rounds": 2, "cohort": 2, "algorithm": algorithm}
    local = {"epochs": 2, "batch_size": 16, "lr": 0.1}
    dp = {"noise_multiplier": 2.0, "max_grad_norm": 1.0, "accountant": "rdp"}
    made = prepared(**scene, phases=[phase | {"local": local | {"dp": dp}}])
    model, events = run_on_hosts(made, 1)
    assert np.isfinite(model).all()
    reported = [event.train_loss for event in events if isinstance(event, RoundDone)]
    assert any(np.isnan(reported)) == (algorithm != "perfedavg")  # whose losses are requests, bounded and noised
    with pytest.raises(ClientError, match=r"training diverged: the loss is inf|not finite"):
        run_on_hosts(prepared(**scene, phases=[phase | {"local": local}]), 1)


def test_a_loss_that_is_not_a_number_counts_as_the_largest() -> None:
    losses = torch.tensor([float("nan"), float("inf"), -float("inf"), 3.0, 5.0, -1.0])
    assert float(bounded(losses, 4.0).sum()) == 4.0 + 4.0 + 0.0 + 3.0 + 4.0 + 0.0
