"""Evaluation on a sample of clients (`evaluation.clients`): which of them a round's model is scored on."""

from __future__ import annotations

from collections.abc import Sequence

from rayfl.config.execution import Evaluation
from rayfl.planning.round_index import RoundIndex
from rayfl.planning.slices import Slice
from rayfl.streams import stream


def slices_of_round(slices: Sequence[Slice], config: Evaluation, seed: int, index: RoundIndex) -> Sequence[Slice]:
    """The slices on which a round is evaluated: all, or those of clients drawn for this round from its own stream."""
    if config.clients is None:
        return slices
    of_clients = "test" if any(part.set == "test" and part.client >= 0 for part in slices) else "client_test"
    owners = sorted({part.client for part in slices if part.set == of_clients})
    rng = stream(seed, "evaluated clients", index.round)
    drawn = set(rng.choice(owners, config.clients, replace=False, shuffle=False).tolist())
    return [part for part in slices if part.client < 0 or part.client in drawn]
