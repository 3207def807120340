"""Optional scalars that a round reports if `phases.N.report` asks for them; unrequested ones cost nothing."""

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
"""Diagnostics that every algorithm can report; `Algorithm.reports` lists those an algorithm adds."""

CHANGE, NORMS = "change to report", "norms to report"


class Diagnostics:
    """The diagnostics that one phase reports for any algorithm, on both sides; buffers are not included.

    `step` reports `step_norm`, the norm of the server's step ||w_new - w||. `divergence` is about the last exchange in
    which clients trained: with d_i = w_i - w, what client i trained minus what it received, `divergence` is the mean of
    ||d_i||, and `divergence_ratio` is the mean of ||d_i||^2 over ||mean d_i||^2. The ratio is 1 where all clients
    agree, and the number of clients where their changes are orthogonal and equally long. These are plain means of exact
    sums. They cost one more vector per worker process, which is not counted as protocol traffic.

    Args:
        names: `phases.N.report`.
    """

    def __init__(self, names: Collection[str]) -> None:
        self.reads_step, self.reads_trained = STEP in names, DIVERGENCE in names

    def diagnose(self, num_params: int, change: torch.Tensor) -> dict[str, torch.Tensor]:
        """Returns the values that a client adds to its answer.

        Args:
            num_params: Length of the parameters' part of the model vector.
            change: [length of the model], the trained minus the received model.
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
        """Reports the requested diagnostics at the end of a round.

        Args:
            server: The server's working copy, after the algorithm's round.
            before: float32 [length of the model], the global model before the round; None if the step is not requested.
            answers: The answers of the last exchange in which clients trained.

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
    """The Euclidean norm, without a BLAS product, whose bits would depend on the number of threads."""
    return math.sqrt(float(np.square(values).sum()))
