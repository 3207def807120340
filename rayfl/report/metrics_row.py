"""One row of a run's metrics."""

from __future__ import annotations

import math

from rayfl.planning.events import Evaluated, RoundDone
from rayfl.planning.totals import Simulated
from rayfl.report.columns import joined


def metrics_row(done: RoundDone, evaluated: Evaluated) -> dict[str, object]:
    """A round and its evaluation as a row of metrics.jsonl; values that are not finite are None.

    Raises:
        RayflError: A reported scalar has the name of another column.
    """
    fixed = {
        "phase": done.phase,
        "round": done.round,
        "round_in_phase": done.round_in_phase,
        **evaluated.scores,
        "train_loss": done.train_loss,
        "seconds": done.seconds,
        "bytes": done.traffic.bytes,
        "transfers": done.traffic.transfers,
        "bytes_down": done.traffic.down_bytes,
        "bytes_up": done.traffic.up_bytes,
        **simulated_columns(done.simulated),
    }
    return {name: _finite(value) for name, value in joined(fixed, done.scalars).items()}


def simulated_columns(simulated: Simulated | None) -> dict[str, object]:
    """Totals that a run with [participation] has simulated since its start; empty without."""
    if simulated is None:
        return {}
    return {
        "simulated_seconds": simulated.seconds,
        **({} if simulated.joules is None else {"energy_joules": simulated.joules}),
        "unavailable": simulated.unavailable,
        "dropped": simulated.dropped,
        "late": simulated.late,
    }


def _finite(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value
