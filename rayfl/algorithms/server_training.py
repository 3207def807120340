"""Training on the server's own samples after every round of any algorithm (`phases.N.server_training`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rayfl.algorithms.algorithm import Round
from rayfl.algorithms.exchange import Answer, Exchange
from rayfl.algorithms.server_state import ServerState
from rayfl.local.requests import LocalTraining

if TYPE_CHECKING:
    import torch

    from rayfl.local.context import ClientContext
    from rayfl.local.requests import ClientUpdate


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
