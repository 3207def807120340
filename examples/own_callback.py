"""Your own callback: it ends a run once a traffic budget is spent, and adds a column to the metrics.

    python examples/own_callback.py             # in this process, a few seconds
    python examples/own_callback.py ray         # on Ray: it stops after the same round, with bit-identical results

The scenario, own_callback.toml, combines it with two built-in callbacks.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import PositiveFloat

import rayfl


class TrafficBudget(rayfl.Callback):
    """The fields are options in the scenario, validated by pydantic; names with a leading underscore hold state."""

    megabytes: PositiveFloat

    _rounds: int = 0

    def on_round(self, run: rayfl.RunSoFar) -> None:
        """Runs after every round, in order, even if later rounds have already started on the workers."""
        assert run.round is not None
        self._rounds += 1
        spent = run.round.traffic.bytes / 1e6
        run.log(megabytes_per_round=spent / self._rounds)  # appears in metrics.jsonl
        if spent >= self.megabytes:
            run.stop(f"{spent:.2f} of {self.megabytes:g} MB are spent")

    def state(self) -> Mapping[str, Any]:
        """Returns the state that a resumed run needs, as plain data."""
        return {"rounds": self._rounds}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restores that state."""
        self._rounds = state["rounds"]


def main(backend: str = "inline", *overrides: str) -> rayfl.Result:
    """Runs the scenario; overrides such as `callbacks.0.megabytes=2.0` replace its values."""
    return rayfl.run(
        Path(__file__).with_suffix(".toml"), overrides=overrides, backend="ray" if backend == "ray" else "inline"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
