"""What clients that do not answer cost of privacy: as much as if they had; and divisors that tell nothing of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rayfl.engine.events import RoundDone
from rayfl.engine.plan.run_plan import RunPlan
from tests.engine.scenes import prepared, run_on_hosts
from tests.privacy.clients.scenes import PEOPLE, central, phase
from tests.privacy.samples.scene import dp


def made(own: dict[str, Any], **participation: Any) -> RunPlan:
    more = {"participation": participation} if participation else {}
    return prepared(**PEOPLE | more, phases=[phase(**own)])


def rounds(job: RunPlan) -> list[RoundDone]:
    return [event for event in run_on_hosts(job, 2)[1] if isinstance(event, RoundDone)]


@pytest.mark.parametrize("schedule", [{}, {"schedule": "relay", "algorithm": "fedavg"}])
@pytest.mark.parametrize("limit", [{"max_epsilon": 8.0}, {"target_epsilon": 20.0, "noise_multiplier": None}])
def test_samples_of_who_does_not_answer_are_charged_as_if_it_had(
    schedule: dict[str, Any], limit: dict[str, Any]
) -> None:
    private = {"steps": 3, "batch_size": 4, "lr": 0.1, "dp": dp(accountant="rdp", **limit)}
    own = schedule | {"rounds": 6, "cohort": 5, "local": private}
    whole, lossy = rounds(made(own)), rounds(made(own, dropout=0.5))
    assert [done.spent for done in lossy] == [done.spent for done in whole]
    assert [done.left_out for done in lossy] == [done.left_out for done in whole]
    assert any(done.left_out for done in whole) == ("max_epsilon" in limit)
    assert sum(done.client_updates for done in lossy) < sum(done.client_updates for done in whole)


def test_samples_of_who_is_not_available_are_not_charged() -> None:
    private = {"steps": 3, "batch_size": 4, "lr": 0.1, "dp": dp(accountant="rdp", max_epsilon=8.0)}
    for done in rounds(made({"rounds": 6, "cohort": 5, "local": private}, availability=0.5)):
        assert len(done.spent) == done.client_updates


def test_noised_sums_are_divided_by_how_many_were_to_take_part(tmp_path: Path) -> None:
    file = tmp_path / "devices.parquet"
    pq.write_table(pa.table({"client": range(12), "dropout": [float(client == 2) for client in range(12)]}), file)
    silent = central(noise_multiplier=1e-9)
    own = {"rounds": 1, "dp": silent}
    lost = made(own | {"cohort": {"explicit": [[0, 1, 2, 3]]}}, dropout={"file": str(file)})
    three = made(own | {"cohort": {"explicit": [[0, 1, 3]]}})
    start = lost.initial_models[0].vector
    moved = [run_on_hosts(job, 1)[0] - start for job in (lost, three)]
    assert np.allclose(moved[0], 3 / 4 * moved[1], rtol=1e-4, atol=1e-6)
    assert np.abs(moved[1]).max() > 1e-3


def test_a_round_of_hidden_clients_without_an_answer_is_noise_alone() -> None:
    job = made({"rounds": 1, "dp": central()}, dropout=1.0)
    model, events = run_on_hosts(job, 1)
    assert next(event for event in events if isinstance(event, RoundDone)).client_updates == 0
    noise = (model - job.initial_models[0].vector)[job.initial_models[0].vector != 0]
    assert noise.std() == pytest.approx(0.3 / 4, rel=0.25)
