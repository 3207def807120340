"""SCAFFOLD: control variates correct every local step for the clients' drift.

Karimireddy et al., "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning", ICML 2020, alg. 1.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from rayfl.algorithms.exchange import Answer, Answers, Exchange, ServerState
from rayfl.algorithms.fedavg import FedAvg
from rayfl.local.steps import effective_steps

if TYPE_CHECKING:
    import torch

    from rayfl.local.client import Client


class SCAFFOLD(FedAvg):
    """y <- y - eta (g(y) - c_i + c); w <- w + eta_g mean(dy_i), c <- c + 1/N sum(dc_i), all c zero at the start.

    The sum of the dc_i is divided by the number N of all clients, not of the participants; the others keep their c_i.

    option: "II": c_i+ = c_i - c + (w - y) / (K eta), with the K steps that this client took and the rate of this round
        (FedDyn's code has the initial rate and one K for all). "I": c_i+ is the gradient of the client's data at the
        received model, in evaluation mode; an extra pass. With gradual unfreezing K is that of the whole visit, also
        for modules that were frozen for a part of it.
    correction: where c - c_i enters: the `gradient`, before clipping and momentum, as a linear term of the loss
        (FedDyn's and FedExP's code), or the `step`, after them (NIID-Bench's code). Without clipping and momentum both
        are the paper's; what is meant with them it does not say. Where momentum multiplies the correction too, K is
        the effective number of steps: dividing by K would let the c_i grow without bound from momentum 0.5 on.
    weighting: uniform in the paper and FedDyn's code; NIID-Bench weights the models' mean by `samples`.
    """

    stateful: ClassVar[bool] = True

    option: Literal["I", "II"] = "II"
    correction: Literal["gradient", "step"] = "gradient"
    weighting: Literal["samples", "uniform"] = "uniform"

    def round(self, server: ServerState, cohort: Sequence[int]) -> Generator[Exchange, Answers, None]:
        control = server.recall("control", 0.0)
        answers = yield Exchange(self.fit_controlled, server.model, control.astype(np.float32))
        self.update(server, answers, answers.mean("delta"))
        server.memory["control"] = control + answers.sums["control_delta"] / server.num_clients

    def fit_controlled(self, client: Client, model: torch.Tensor, control: torch.Tensor) -> Answer:
        own = client.state.get("control", control.new_zeros(control.shape))
        client.scratch["drift"] = control - own
        new = client.mean_gradient(model) if self.option == "I" else None
        delta = self.local_update(client, model) - model
        if new is None:
            momentum = client.local.momentum if self.correction == "gradient" else 0.0
            steps = effective_steps(len(client.losses), momentum)
            new = own - control - delta[: len(control)] / (steps * client.lr)
        client.state["control"] = new
        asides = self.asides(client, model, delta)
        return Answer(self.weight(client), sums={"control_delta": new - own}, asides=asides, delta=delta)

    def gradient_correction(self, client: Client, params: torch.Tensor) -> torch.Tensor | None:
        return client.scratch.get("drift") if self.correction == "gradient" else None

    def step_correction(self, client: Client, params: torch.Tensor) -> torch.Tensor | None:
        return client.scratch.get("drift") if self.correction == "step" else None
