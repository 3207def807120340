"""Evaluations as the scheduler reports them for a classification task."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from rayfl.engine.events import ClientScore, Evaluated
from rayfl.engine.plan.headline import Headline

ACCURACY = Headline("accuracy", higher_is_better=True, is_share=True)
HEADLINES: Mapping[str, Headline] = defaultdict(lambda: ACCURACY)


def evaluated(
    phase: str,
    round: int,
    loss: float,
    accuracy: float | None,
    samples: int,
    clients: tuple[ClientScore, ...] = (),
    **others: float | None,
) -> Evaluated:
    """`others`: additional scores by column."""
    return Evaluated(phase, round, {"test_loss": loss, "test_accuracy": accuracy, **others}, samples, clients)


def client_score(client: int, samples: int, loss: float, accuracy: float | None, **others: float) -> ClientScore:
    """`others`: additional scores by column."""
    return ClientScore(client, samples, {"loss": loss, "accuracy": accuracy, **others})
