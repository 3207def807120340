"""The results of a round beside its global model: the model to evaluate, and the scalars that a phase asks for.

The evaluated model (`phases.N.eval_model`) is also exported and passed to the next phase. Scalars that
`phases.N.report` does not request cost nothing.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rayfl.algorithms.exchange import Answer, Answers
from rayfl.algorithms.server_state import ServerState
from rayfl.config.base_phase import EvalModel
from rayfl.errors import RayflError
from rayfl.local.state import Declaration

if TYPE_CHECKING:
    import torch

    from rayfl.local.context import ClientContext


Trained = tuple[np.ndarray, Answers]
"""An exchange in which clients trained: the float32 model that was sent, and their answers."""


NOBODY_TRAINED = (
    "needs trained models, but no client trained in this round, or the answers name no trained model; return "
    "Answer(..., trained=...)"
)


class EvaluatedModel:
    """The `eval_model` rule of one phase, on the server and on the clients.

    `participants` and `all` need what clients returned, and hence an algorithm whose clients train. A round costs one
    vector, whatever the number of clients: for `all` the server keeps the sum of all changes since the phase's first
    model. `ema` costs the server one float64 vector.

    Args:
        rule: See `EvalModel`.
        decay: The decay of `ema`.
    """

    def __init__(self, rule: EvalModel, decay: float = 0.99) -> None:
        self.rule, self._decay = rule, decay

    @property
    def reads_trained(self) -> bool:
        """Whether the rule needs the models that clients trained."""
        return self.rule in ("participants", "all")

    def client_state(self) -> Declaration:
        """Declares the state that clients keep for the rule."""
        return {"last": "phase"} if self.rule == "all" else {}

    def server_state(self) -> Declaration:
        """Declares the state that the server keeps for the rule."""
        states: dict[str, Declaration] = {"all": {"first": "phase", "change": "phase"}, "ema": {"ema": "phase"}}
        return states.get(self.rule, {})

    def diagnose(
        self,
        client: ClientContext,
        answer: Answer,
        received: torch.Tensor,
        change: torch.Tensor,
        summed: bool = True,
    ) -> dict[str, torch.Tensor]:
        """Returns the values that the rule needs from a client; they are not part of the protocol's traffic.

        Args:
            client: The client.
            answer: Its answer.
            received: [length of the model], the model that it received.
            change: [length of the model], the trained minus the received model.
            summed: Whether the answer's values are summed rather than kept one by one.
        """
        if self.rule == "participants" and not (summed and "delta" in answer.values):
            return {"returned": answer.weight * change}
        if self.rule != "all":
            return {}
        last = client.state.get("last")
        client.state["last"] = received + change
        since_last = change if last is None else client.state["last"] - last
        return {"change_since_last": since_last, "newcomers": change.new_full((1,), float(last is None))}

    def reads(self, answers: Answers) -> bool:
        """Whether these are answers of clients that trained."""
        if self.rule == "all":
            return "change_since_last" in answers.sums
        return self.rule == "participants" and ("delta" in answers.totals or "returned" in answers.sums)

    def before_round(self, server: ServerState) -> dict[str, Any]:
        """Returns the values that `after_round` needs from before the round."""
        return {} if self.rule == "global" else {"received": server.model.astype(np.float64)}

    def after_round(
        self, server: ServerState, trained: Sequence[Trained], first_round: bool, received: np.ndarray | None = None
    ) -> None:
        """Sets the model to evaluate.

        Args:
            server: The server's working copy, after the algorithm's round.
            trained: The exchanges in which clients trained, in order.
            first_round: Whether this is the phase's first round.
            received: float64, the global model before the round.

        Raises:
            RayflError: No client trained.
        """
        if self.reads_trained and not trained:
            raise RayflError(f"eval_model = '{self.rule}' {NOBODY_TRAINED}")
        if received is None:
            server.eval_model = None
        elif self.rule == "average":
            server.eval_model = None if first_round else ((server.model + received) / 2).astype(np.float32)
        elif self.rule == "ema":
            server.eval_model = self._moving_average(server)
        elif self.rule == "participants":
            sent, last = trained[-1]
            mean = last.mean("delta") if "delta" in last.totals else last.sums["returned"] / last.weight
            server.eval_model = np.array(sent)
            server.eval_model += mean
        else:
            server.eval_model = self._mean_of_last(server, trained, received)

    def _moving_average(self, server: ServerState) -> np.ndarray:
        now = server.model.astype(np.float64)
        average = self._decay * server.state["ema"] + (1 - self._decay) * now if "ema" in server.state else now
        server.keep("ema", average)
        rounded: np.ndarray = average.astype(np.float32)
        return rounded

    def _mean_of_last(self, server: ServerState, trained: Sequence[Trained], received: np.ndarray) -> np.ndarray:
        first = server.state.get("first", received)
        total = server.state.get("change", np.zeros_like(first))
        for sent, answers in trained:
            total = total + (answers.sums["change_since_last"] + answers.sums["newcomers"] * (sent - first))
        server.keep("first", first)
        server.keep("change", total)
        mean: np.ndarray = (first + total / server.num_clients).astype(np.float32)
        return mean


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
