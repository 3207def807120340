"""The snapshot of a run between two rounds: plain data that names stored states by digest."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import TypeAdapter

from rayfl.engine.privacy_budget import BudgetSnapshot
from rayfl.engine.server import ServerSnapshot
from rayfl.engine.state_store import StoredState
from rayfl.local.spending import Mechanism
from rayfl.planning.round_index import RoundIndex
from rayfl.planning.sampling import SamplingSnapshot
from rayfl.planning.totals import Simulated, Traffic


@dataclass(frozen=True)
class RunSnapshot:
    """Together with its states, everything that a run needs to continue, on any number of hosts.

    Attributes:
        index: The last committed round.
        sampling: The state that later cohorts depend on.
        traffic: Total since the start of the run.
        evaluations: Rounds whose evaluation has not been reported yet; the server has their models.
        privacy: Privacy spent so far.
        in_flight: What the phase's schedule has submitted and not committed.
        server: The server's part.
        clients: The manifest of the clients' states.
        simulated: Simulated totals so far; None without [participation].
    """

    index: RoundIndex
    sampling: SamplingSnapshot
    traffic: Traffic
    evaluations: Sequence[RoundIndex]
    privacy: BudgetSnapshot
    in_flight: Mapping[str, Any]
    server: ServerSnapshot
    clients: Sequence[StoredState]
    simulated: Simulated | None = None

    def to_json(self) -> str:
        """Returns the snapshot as JSON."""
        plain = _SCHEMA.dump_python(replace(self, privacy=BudgetSnapshot()), mode="json")
        spent = [
            [client, [[step.noise_multiplier, step.rate, step.part, times] for step, times in spending.items()]]
            for client, spending in self.privacy.spent.items()
        ]
        return json.dumps(plain | {"privacy": {"spent": spent, "left_out": list(self.privacy.left_out)}})

    @classmethod
    def from_json(cls, text: str) -> RunSnapshot:
        """Reads the result of `to_json`.

        Raises:
            ValueError: The text is not a snapshot.
        """
        plain = json.loads(text)
        privacy = plain.pop("privacy")
        spent = {
            client: {Mechanism(noise, rate, part): times for noise, rate, part, times in spending}
            for client, spending in privacy["spent"]
        }
        return replace(
            _SCHEMA.validate_python(plain | {"privacy": {}}), privacy=BudgetSnapshot(spent, tuple(privacy["left_out"]))
        )


_SCHEMA: TypeAdapter[RunSnapshot] = TypeAdapter(RunSnapshot)
