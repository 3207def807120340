"""Small runs with `local.dp`, and the spending of each client in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rayfl.algorithms.fedavg import FedAvg
from rayfl.algorithms.limits import SampleRequest
from rayfl.config.scenario import Scenario
from rayfl.engine.events import Event, RoundDone
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.local.spending import Mechanism
from rayfl.runs.preparation import prepare

if TYPE_CHECKING:
    import torch

    from rayfl.local.context import ClientContext
    from rayfl.local.requests import LocalTraining


class Greedy(FedAvg):
    """Spends more than it declares, past all requests."""

    def sample_requests(self) -> tuple[SampleRequest, ...]:
        return (SampleRequest(),)

    def train(
        self, client: ClientContext, model: torch.Tensor, *others: Any, **more: Any
    ) -> Generator[LocalTraining, torch.Tensor, torch.Tensor]:
        trained = yield from super().train(client, model, *others, **more)
        if client.local.dp is not None and client.local.dp.noise_multiplier is not None:
            client.spent[Mechanism(client.local.dp.noise_multiplier, 1.0)] += 1
        return trained


class Frugal(FedAvg):
    """Declares more than it asks for."""

    def sample_requests(self) -> tuple[SampleRequest, ...]:
        return (*super().sample_requests(), SampleRequest("query"))


def dp(**options: Any) -> dict[str, Any]:
    """`local.dp`; noise_multiplier = 1.0 unless the options say otherwise."""
    noise = {} if "target_epsilon" in options else {"noise_multiplier": 1.0}
    return {"max_grad_norm": 1.0, **noise, **options}


def phase(name: str, rounds: int = 3, schedule: str = "parallel", cohort: Any = 2, **more: Any) -> dict[str, Any]:
    """A phase of FedAvg, two epochs of batches of 4, by default with `dp`."""
    local = {"epochs": 2, "batch_size": 4, "lr": 0.1, "dp": dp()} | more.pop("local", {})
    return {"name": name, "rounds": rounds, "schedule": schedule, "cohort": cohort, "local": local, **more}


def tables(*phases: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A scenario on five clients of 5, 8, 13, 6 and 9 samples."""
    return {
        "name": "private",
        "seed": 3,
        "data": {"name": "tests.user_code:pictures"},
        "model": "tests.user_code:Linear",
        "phases": list(phases),
        **more,
    }


def job(*phases: dict[str, Any], **more: Any) -> RunPlan:
    prepared, _ = prepare(Scenario.from_tables(tables(*phases, **more)), Path("no-data-here"))
    return prepared


def spent_in(events: list[Event]) -> dict[int, Counter[Mechanism]]:
    """Returns the spending of clients in the rounds of these events."""
    total: dict[int, Counter[Mechanism]] = {}
    for event in events:
        if isinstance(event, RoundDone):
            for client, spending in event.spent.items():
                total.setdefault(client, Counter()).update(spending)
    return total
