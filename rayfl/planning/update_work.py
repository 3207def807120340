"""The work of a client in each exchange of a round, in steps and samples, known in advance."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from rayfl.config.local import Local
from rayfl.local.draws import drawn
from rayfl.local.steps import batches_of_steps, other_length, steps_per_epoch
from rayfl.planning.phase_plan import PhasePlan
from rayfl.planning.round_index import RoundIndex
from rayfl.streams import client_stream


class Work(NamedTuple):
    """The work of a client in an exchange.

    Attributes:
        steps: Number of local steps. A loss or gradient over all samples counts as the steps of an epoch.
        samples: Number of training samples that pass through the network, with repetitions.
    """

    steps: int
    samples: int

    def __add__(self, other: object) -> Work:
        assert isinstance(other, Work)
        return Work(self.steps + other.steps, self.samples + other.samples)


class UpdateWork:
    """The work of a phase's client updates, as the algorithm declares it (`sample_requests`).

    Args:
        plan: The phase.
        sizes: [clients], the number of training samples of each client.
        seed: The scenario's seed.
    """

    def __init__(self, plan: PhasePlan, sizes: np.ndarray, seed: int) -> None:
        self._plan, self._sizes, self._seed = plan, sizes, seed
        self._exchanges = exchanges_of_cohort(plan)
        self._of_kind = cache(self._planned)

    def of(self, index: RoundIndex, client: int) -> Sequence[Work]:
        """The work in each exchange that the cohort answers, with the epochs and steps that the client draws."""
        local = drawn(
            self._plan.phase.local,
            lambda purpose: client_stream(self._seed, purpose, index.phase, index.round, client),
        )
        return self._of_kind(int(self._sizes[client]), local.epochs, local.steps)

    def _planned(self, samples: int, epochs: int, steps: int | None) -> Sequence[Work]:
        local = self._plan.phase.local.model_copy(update={"epochs": epochs, "steps": steps})
        trained = int(self._plan.algorithm.training_sizes(np.array([samples]))[0])
        work = dict.fromkeys(self._exchanges, Work(0, 0))
        for request in self._plan.algorithm.sample_requests():
            if request.kind == "training":
                asked = local.model_copy(update=other_length(request.epochs, request.steps))
                done = _training(asked, trained)
            elif request.every_step:
                done = _training(local, samples)
            else:
                done = Work(steps_per_epoch(local, samples), samples)
            work[request.exchange if len(work) > 1 else self._exchanges[0]] += done
        return tuple(work.values())


def exchanges_of_cohort(plan: PhasePlan) -> list[int]:
    """Numbers of a round's exchanges that clients answer; a relay has a single one, the hop."""
    if not plan.phase.has_server:
        return [0]
    return [number for number, asked in enumerate(plan.asked) if asked == "cohort"]


def _training(local: Local, samples: int) -> Work:
    batches = batches_of_steps(local, samples)
    return Work(len(batches), sum(map(sum, batches)))
