"""FedExP: the server extrapolates the clients' mean change as far as their disagreement allows.

Jhunjhunwala, Wang and Joshi, "FedExP: Speeding Up Federated Averaging via Extrapolation", ICLR 2023, eq. 6 and alg. 1.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field, NonNegativeFloat, model_validator

from rayfl.algorithms.algorithm import Round
from rayfl.algorithms.exchange import Answer, Exchange, Released
from rayfl.algorithms.fedavg import check_uniform
from rayfl.algorithms.local_training import LocalTrainingAlgorithm
from rayfl.algorithms.server_state import RoundContext, ServerState
from rayfl.config.base_phase import EvalModel
from rayfl.config.section import check_idle

if TYPE_CHECKING:
    import torch

    from rayfl.local.context import ClientContext
    from rayfl.local.requests import ClientUpdate


class FedExP(LocalTrainingAlgorithm):
    """w <- w + eta_g mean(delta_i), eta_g = max(1, mean ||delta_i||^2 / (2 (||mean(delta_i)||^2 + epsilon))).

    By default the `average` of the last two models is evaluated (in the paper and its code from the second round on),
    while training continues from the last one; FedDecorr's code evaluates that `global` model itself.

    Example-level DP (`local.dp`): training is noised; the norms are those of noised changes and free (and larger
    because of the noise). Client-level DP (`phases.N.dp`): a client clips delta_i to a = C / sqrt(2) and also sends
    ||delta_i||^2 / a, so that both together have at most norm C; both are noised. The noise of mean(delta_i) lowers
    eta_g.

    Attributes:
        form: `paper`: as above. `code`: the authors' code, in which epsilon is multiplied by |S| decay^(2 t) in round
            t, counted from 1 as `local.lr_decay_from` says, because one decay shrinks both there (and
            `weighting = "samples"`). `feddecorr`: FedDecorr's code, the paper's form with norms that include the
            buffers. `fedbug`: FedBug's code, without the factor 2 and with |S| for epsilon. With one participant, all
            forms are FedAvg.
        epsilon: At least 0; the paper uses 1e-3 for CIFAR and CINIC, 0.1 for EMNIST. Not for `form = "fedbug"`.
        decay: Decay per round for `form = "code"` only; above 0, at most 1.
        weighting: Weights of the means: `uniform`, as in the paper, or `samples`.
    """

    default_eval_model: ClassVar[EvalModel] = "average"
    no_stale_answers: ClassVar[str] = "it compares the norms of changes from one model"

    form: Literal["paper", "code", "feddecorr", "fedbug"] = "paper"
    epsilon: NonNegativeFloat = 1e-3
    decay: Annotated[float, Field(gt=0, le=1)] = 0.998
    weighting: Literal["samples", "uniform"] = "uniform"

    @model_validator(mode="after")
    def _no_idle_options(self) -> FedExP:
        check_idle(self, {"decay": self.form != "code", "epsilon": self.form == "fedbug"}, f"with form = '{self.form}'")
        return self

    def round(self, server: ServerState, context: RoundContext) -> Round:
        answers = yield Exchange(self.client_update, server.model, up=("model", 1))
        delta = answers.mean("delta")
        counted = delta if self.form == "feddecorr" else delta[: server.num_params]
        mean = float(np.sum(np.square(counted)))
        squared_norm = float(answers.mean("squared_norm")[0]) * _unit(context.clip_norm)
        rate = self.extrapolation(squared_norm, mean, answers.count, context.decay_round)
        server.report(server_step=rate)
        server.apply_update(rate * delta[: server.num_params], delta[server.num_params :])

    def client_update(self, client: ClientContext, model: torch.Tensor) -> ClientUpdate[Answer]:
        """Trains from the global model; answers with the change and its squared norm."""
        trained = yield from self.train(client, model)
        delta = trained - model
        norm = None
        if client.clip_norm is not None:
            unit, length = _unit(client.clip_norm), float(delta.double().square().sum()) ** 0.5
            delta *= min(1.0, unit / max(length, 1e-30))
            norm = math.hypot(length, length**2 / unit)  # above C if length is above C / sqrt(2)
        counted = delta if self.form == "feddecorr" else delta[: client.num_params]
        squared_norm = (counted.double().square().sum() / _unit(client.clip_norm)).float().reshape(1)
        weight = client.num_samples if self.weighting == "samples" else 1.0
        return Answer(weight, delta=delta, squared_norm=squared_norm, norm=norm)

    def extrapolation(self, squared_norm: float, mean: float, participants: float, round: int) -> float:
        """Computes eta_g.

        Args:
            squared_norm: Mean of the changes' squared norms.
            mean: Squared norm of the mean change.
            participants: |S|, the number of participants.
            round: t, from 1.
        """
        denominator = {
            "paper": 2 * (mean + self.epsilon),
            "feddecorr": 2 * (mean + self.epsilon),
            "code": 2 * (mean + participants * self.epsilon * self.decay ** (2 * round)),
            "fedbug": mean + participants,
        }[self.form]
        return max(1.0, squared_norm / denominator) if denominator else 1.0

    def releases(self) -> Released:
        check_uniform(self.weighting)
        return Released({"delta": "model", "squared_norm": 1})


def _unit(clip_norm: float | None) -> float:
    """The unit in which squared norms are released: 1, or the clipping bound of a change."""
    return 1.0 if clip_norm is None else clip_norm / math.sqrt(2)
