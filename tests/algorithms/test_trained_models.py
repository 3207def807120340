"""Which model an answer says was trained, where a client trains several: a user's pFedMe against float64."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from rayfl.algorithms.algorithm import Round
from rayfl.algorithms.exchange import Answer, Exchange
from rayfl.algorithms.local_training import LocalTrainingAlgorithm
from rayfl.algorithms.server_state import RoundContext, ServerState
from rayfl.engine.events import RoundDone
from rayfl.errors import ClientError
from rayfl.local.context import ClientContext
from rayfl.local.requests import Affine, ClientUpdate, LocalTraining
from rayfl.streams import client_stream
from tests.algorithms.reference import PlainUpdate, Vector, linear, mean, rounds
from tests.algorithms.scene import PLAIN, SEED, prepared
from tests.engine.scenes import run_on_hosts

PULL, STEP, PASSES = 2.0, 0.15, 3


class PFedMe(LocalTrainingAlgorithm):
    """theta minimises f + PULL / 2 ||theta - w_i||^2, then w_i <- w_i - STEP (w_i - theta); the server averages w_i.

    Dinh, Tran and Nguyen, "Personalized Federated Learning with Moreau Envelopes", NeurIPS 2020, alg. 1.
    """

    def round(self, server: ServerState, context: RoundContext) -> Round:
        answers = yield Exchange(self.client_update, server.model)
        server.apply_update(answers.mean("delta")[: server.num_params])

    def client_update(self, client: ClientContext, model: torch.Tensor) -> ClientUpdate[Answer]:
        own = model.clone()
        for _ in range(PASSES):
            pull = Affine(quadratic=PULL, centre=own[: client.num_params].clone())
            theta = yield LocalTraining(own, gradient=(pull,))
            own -= STEP * (own - theta)
        return self.answer(model, own)

    def answer(self, model: torch.Tensor, own: torch.Tensor) -> Answer:
        return Answer(delta=own - model)


class UnderAnotherName(PFedMe):
    """It does not answer with a `delta`, so it names what it trained."""

    def round(self, server: ServerState, context: RoundContext) -> Round:
        answers = yield Exchange(self.client_update, server.model)
        server.apply_update(-answers.mean("slope")[: server.num_params])

    def answer(self, model: torch.Tensor, own: torch.Tensor) -> Answer:
        return Answer(slope=model - own, trained=own)


class ShortModel(PFedMe):
    """It names no model."""

    def answer(self, model: torch.Tensor, own: torch.Tensor) -> Answer:
        return Answer(delta=own - model, trained=own[1:])


class Pass(PlainUpdate):
    """A client's training request of this number, which has its own order."""

    def __init__(self, client: int, round: int, number: int) -> None:
        super().__init__(PLAIN, client, round)
        order = client_stream(SEED, "order", 0, round, client, 0, number)
        passes, size = [order.permutation(self.n) for _ in range(PLAIN.local["epochs"])], PLAIN.local["batch_size"]
        self.batches = [rows[first : first + size] for rows in passes for first in range(0, self.n, size)]


def plainly() -> Iterator[tuple[list[Vector], Vector]]:
    """Round by round, how far each client's own model moved, and the global model after it."""
    w = PLAIN.initial()
    for number, cohort in enumerate(rounds(PLAIN), start=1):
        changes = []
        for update in cohort:
            own = w
            for request in range(PASSES):
                theta = Pass(update.client, number, request).sgd(own, penalty=linear(-PULL * own, PULL))
                own = own - STEP * (own - theta)
            changes.append(own - w)
        w = w + mean(changes)
        yield changes, w


@pytest.mark.parametrize("name", ["PFedMe", "UnderAnotherName"])
def test_divergence_is_that_of_the_models_that_clients_answer_with(name: str) -> None:
    _, events = run_on_hosts(prepared(f"{__name__}:{name}", PLAIN, {"report": ["divergence"]})[0], 2)
    ours = [event.scalars for event in events if isinstance(event, RoundDone)]
    for reported, (changes, _) in zip(ours, plainly(), strict=True):
        squares = [float(change.square().sum()) for change in changes]
        assert reported["divergence"] == pytest.approx(np.mean(np.sqrt(squares)), rel=1e-4)
        ratio = np.mean(squares) / float(mean(changes).square().sum())
        assert reported["divergence_ratio"] == pytest.approx(ratio, rel=1e-4)


@pytest.mark.parametrize("name", ["PFedMe", "UnderAnotherName"])
def test_participants_are_evaluated_with_the_models_that_they_answer_with(name: str) -> None:
    models: list[Any] = []
    for rule in ("global", "participants"):
        job, model = prepared(f"{__name__}:{name}", PLAIN, {"eval_model": rule})
        vector, _ = run_on_hosts(job, 2)
        models.append(torch.cat([part.flatten() for part in model.state_dict(torch.from_numpy(vector)).values()]))
    *_, (_, expected) = plainly()
    for ours in models:
        assert (ours.double() - expected).norm() < 1e-5 * (expected - PLAIN.initial()).norm()


def test_a_trained_model_of_another_length_is_named() -> None:
    with pytest.raises(ClientError, match="answered with a trained model of shape"):
        run_on_hosts(prepared(f"{__name__}:ShortModel", PLAIN, {"report": ["divergence"]})[0], 1)
