"""Wrappers around an algorithm: local-only training, and training on the server's samples after a round.

`Alone` is the algorithm of `schedule = "local"`, in which every client trains without the others: the baseline of
personalised federated learning. `followed_by_training` is `phases.N.server_training`, for any algorithm.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import SkipValidation

from rayfl.algorithms.algorithm import Algorithm, Round
from rayfl.algorithms.exchange import Answer, Exchange
from rayfl.algorithms.limits import Requirement
from rayfl.algorithms.server_state import RoundContext, ServerState
from rayfl.local.requests import LocalTraining
from rayfl.local.state import Declaration, merged

if TYPE_CHECKING:
    import torch

    from rayfl.config.local import Local
    from rayfl.local.context import ClientContext
    from rayfl.local.requests import ClientUpdate


class Alone(Algorithm):
    """The algorithm of `schedule = "local"`: each client continues its own model and sends nothing.

    Attributes:
        objective: The algorithm whose relay objective clients train with.
    """

    objective: SkipValidation[Algorithm]

    def round(self, server: ServerState, context: RoundContext) -> Round:
        yield Exchange(self.client_update, server.model, down=(), up=())

    def client_update(self, client: ClientContext, model: torch.Tensor) -> ClientUpdate[Answer]:
        """Continues from the client's own model, which starts as the phase's first model."""
        with client.discrete.apart("own model"):
            trained = yield from self.objective.relay(client, self.personal_model(client, model))
        client.state["own model"] = trained
        return Answer(diagnostics={"clients": model.new_ones(1)}, trained=trained)  # not sent

    def has_personal_model(self) -> bool:
        return True

    def personal_model(self, client: ClientContext, model: torch.Tensor) -> torch.Tensor:
        client.discrete.take("own model")
        return client.state.get("own model", model)

    def client_state(self) -> Declaration:
        return merged([("the schedule", {"own model": "phase"}), ("the algorithm", self.objective.client_state())])

    def requirements(self) -> set[Requirement]:
        return self.objective.requirements()

    def local_keys(self) -> frozenset[str] | None:
        return self.objective.local_keys()

    def assumes_sgd(self) -> str:
        return self.objective.assumes_sgd()

    def check_clients(self, sizes: np.ndarray) -> None:
        self.objective.check_clients(sizes)

    def training_sizes(self, sizes: np.ndarray) -> np.ndarray:
        return self.objective.training_sizes(sizes)

    def check_training(self, task: Any, local: Local, sizes: np.ndarray) -> None:
        self.objective.check_training(task, local, sizes)

    def no_sample_dp(self) -> str:
        return self.objective.no_sample_dp()


def followed_by_training(steps: Round, server: ServerState) -> Round:
    """Appends an exchange to a round, in which the new global model is trained on the server's samples.

    CoPreFL's baselines in its scenario II are an algorithm's usual round followed by five steps of this. The mean loss
    and the number of the steps are reported as `server_train_loss` and `server_steps`.

    Args:
        steps: The algorithm's round.
        server: The working copy that the round updates.
    """
    yield from steps
    answers = yield Exchange(train_at_server, server.model, at="server")
    change = answers.mean("delta")
    server.apply_update(change[: server.num_params], change[server.num_params :])
    server.report(server_train_loss=answers.mean("loss")[0], server_steps=answers.mean("steps")[0])


def train_at_server(client: ClientContext, model: torch.Tensor) -> ClientUpdate[Answer]:
    """Trains on all samples that the server holds; answers with the change and the mean loss of the steps."""
    trained = yield LocalTraining(model)
    steps = len(client.losses)
    loss = model.new_full((1,), sum(client.losses) / steps)
    return Answer(delta=trained - model, loss=loss, steps=model.new_full((1,), steps))
