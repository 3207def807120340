"""Events as plain data that JSON can hold, so that consumers of events can resume."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rayfl.engine.events import ClientScalars, Evaluated, RoundDone
from rayfl.engine.totals import Simulated, Traffic
from rayfl.local.spending import Mechanism, SpendingByClient

Plain = Mapping[str, Any]
"""Strings, finite numbers, booleans, None, and lists and mappings of them."""


def plain_round(done: RoundDone) -> dict[str, Any]:
    """A committed round as plain data, for `round_from`."""
    return {
        "phase": done.phase,
        "round": done.round,
        "round_in_phase": done.round_in_phase,
        "train_loss": _plain_number(done.train_loss),
        "client_updates": done.client_updates,
        "steps": done.steps,
        "traffic": asdict(done.traffic),
        "seconds": done.seconds,
        "scalars": plain_numbers(done.scalars),
        "client_scalars": [[client.client, plain_numbers(client.values)] for client in done.client_scalars],
        "spent": plain_spending(done.spent),
        "left_out": list(done.left_out),
        "simulated": done.simulated and asdict(done.simulated),
    }


def round_from(plain: Plain) -> RoundDone:
    """The round from the plain data of `plain_round`."""
    read = {
        "train_loss": float(plain["train_loss"]),
        "traffic": Traffic(**plain["traffic"]),
        "scalars": numbers_from(plain["scalars"]),
        "client_scalars": tuple(
            ClientScalars(client, numbers_from(values)) for client, values in plain["client_scalars"]
        ),
        "spent": spending_from(plain["spent"]),
        "left_out": tuple(plain["left_out"]),
        "simulated": plain["simulated"] and Simulated(**plain["simulated"]),
    }
    return RoundDone(**{**plain, **read})


def plain_evaluation(evaluated: Evaluated) -> dict[str, Any]:
    """An evaluation without the scores of single clients and the confusion matrix, for `evaluation_from`."""
    return {
        "phase": evaluated.phase,
        "round": evaluated.round,
        "scores": _plain_scores(evaluated.scores),
        "samples": evaluated.samples,
    }


def evaluation_from(plain: Plain) -> Evaluated:
    """The evaluation from the plain data of `plain_evaluation`."""
    return Evaluated(plain["phase"], plain["round"], _scores_from(plain["scores"]), plain["samples"])


def plain_spending(spent: SpendingByClient) -> list[Any]:
    """The privacy that clients spent, for `spending_from`."""
    return [
        [client, [[used.noise_multiplier, used.rate, used.part, times] for used, times in spending.items()]]
        for client, spending in spent.items()
    ]


def spending_from(plain: list[Any]) -> dict[int, dict[Mechanism, int]]:
    """The spending from the plain data of `plain_spending`."""
    return {client: {Mechanism(*used): times for *used, times in spending} for client, spending in plain}


def plain_numbers(values: Mapping[str, float]) -> dict[str, float | str]:
    """Numbers by name, for `numbers_from`."""
    return {name: _plain_number(value) for name, value in values.items()}


def numbers_from(plain: Mapping[str, float | str]) -> dict[str, float]:
    """The numbers from the plain data of `plain_numbers`."""
    return {name: float(value) for name, value in plain.items()}


def _plain_scores(scores: Mapping[str, float | None]) -> dict[str, float | str | None]:
    return {name: None if value is None else _plain_number(value) for name, value in scores.items()}


def _scores_from(plain: Mapping[str, float | str | None]) -> dict[str, float | None]:
    return {name: None if value is None else float(value) for name, value in plain.items()}


def _plain_number(value: float) -> float | str:
    """JSON has no infinity and no NaN; Python reads both from text."""
    return float(value) if math.isfinite(value) else str(float(value))
