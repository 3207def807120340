"""Scalars that a round reports where `phases.N.report` asks for them; what nobody asks for costs nothing."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np

from rayfl.algorithms.eval_model import NOBODY_TRAINED
from rayfl.algorithms.exchange import Answers
from rayfl.algorithms.server_state import ServerState
from rayfl.errors import RayflError

if TYPE_CHECKING:
    import torch

STEP, DIVERGENCE = "step", "divergence"
ALWAYS_KNOWN = (STEP, DIVERGENCE)
"""What every algorithm's rounds can report; `Algorithm.reports` has what an algorithm adds."""

CHANGE, NORMS = "change to report", "norms to report"


class Diagnostics:
    """What one phase reports of all algorithms alike, on both sides; buffers do not count.

    `step`: `step_norm`, the norm of the server's step ||w_new - w||. `divergence`: of the last exchange in which
    clients trained, with d_i = w_i - w of what a client received and trained, `divergence`, the mean of ||d_i||, and
    `divergence_ratio`, the mean of ||d_i||^2 over ||mean d_i||^2: 1 where all clients agree, the number of clients
    where their changes are orthogonal and equally long. These are plain means of exact sums; they cost one more vector
    per host, which is not the protocol's.

    Args:
        names: `phases.N.report`.
    """

    def __init__(self, names: Collection[str]) -> None:
        self.reads_step, self.reads_trained = STEP in names, DIVERGENCE in names

    def diagnose(self, num_params: int, change: torch.Tensor) -> dict[str, torch.Tensor]:
        """What a client adds to its answer.

        Args:
            num_params: Length of the parameters' part.
            change: [length of the model], the model that it trained less what it received.
        """
        if not self.reads_trained:
            return {}
        change = change[:num_params]
        square = change.double().square().sum()
        return {CHANGE: change, NORMS: square.new_tensor([float(square.sqrt()), float(square)])}

    def reads(self, answers: Answers) -> bool:
        """Whether clients trained for these answers."""
        return CHANGE in answers.sums

    def report(self, server: ServerState, before: np.ndarray | None, answers: Answers | None) -> None:
        """Reports what was asked for, at the end of a round.

        Args:
            server: The server's working copy, after the algorithm's round.
            before: float32 [length of the model], the global model before the round, where the step is wanted.
            answers: Of the last exchange in which clients trained.

        Raises:
            RayflError: No client trained.
        """
        if before is not None:
            step = (server.model - before.astype(np.float64))[: server.num_params]
            server.report(step_norm=norm(step))
        if not self.reads_trained:
            return
        if answers is None:
            raise RayflError(f"report = ['divergence'] {NOBODY_TRAINED}")
        length, square = answers.sums[NORMS] / answers.count
        mean = norm(answers.sums[CHANGE] / answers.count) ** 2
        server.report(divergence=length, divergence_ratio=square / mean if mean else math.nan)


def norm(values: np.ndarray) -> float:
    """The Euclidean length, by no product of BLAS, whose bits depend on its threads."""
    return math.sqrt(float(np.square(values).sum()))
