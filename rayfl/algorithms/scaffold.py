"""SCAFFOLD: control variates correct every local step for the clients' drift.

Karimireddy et al., "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning", ICML 2020, alg. 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from pydantic import model_validator

from rayfl.algorithms.algorithm import Round
from rayfl.algorithms.exchange import Answer, Exchange, Released
from rayfl.algorithms.fedavg import FedAvg
from rayfl.algorithms.limits import Requirement
from rayfl.algorithms.server_state import RoundContext, ServerState
from rayfl.config.section import check_idle
from rayfl.local.queries import Gradient
from rayfl.local.requests import Affine
from rayfl.local.state import Declaration, merged

if TYPE_CHECKING:
    import torch

    from rayfl.local.context import ClientContext
    from rayfl.local.requests import ClientUpdate


class SCAFFOLD(FedAvg):
    """y <- y - eta (g(y) - c_i + c); w <- w + eta_g mean(dy_i), c <- c + 1/N sum(dc_i), all c zero at the start.

    The sum of the dc_i is divided by the number N of all clients, not of the participants; the other clients keep their
    c_i. `report = ["norms"]` reports `control_norm`, the norm of the new c, and `client_control_norm`, those of the
    participants' new c_i.

    Example-level DP (`local.dp`): training is noised. Option II derives the c_i from the noised models and is free; the
    gradient of option I is clipped sample by sample, noised, and charged in addition. Client-level DP (`phases.N.dp`):
    dy_i and dc_i are clipped as one vector and both are noised; a client's own c_i is what it computed, not what it
    released.

    Attributes:
        option: `II`: c_i+ = c_i - c + (w - y) / (K eta), with the K steps that this client took and this round's
            learning rate (FedDyn's code uses the initial rate and one K for all). `I`: c_i+ is the gradient of the
            client's data at the received model, in evaluation mode, which costs an extra pass. Under gradual
            unfreezing, K counts the whole client update, also for modules that were frozen during a part of it.
        correction: Where c - c_i is added: to the `gradient`, before clipping and momentum, as a linear term of the
            loss (FedDyn's and FedExP's code), or to the `step`, after them (NIID-Bench's code). Without clipping and
            momentum both are the paper's algorithm; the paper does not say how to combine it with them. `step` accepts
            only SGD, because other optimizers rescale gradients.
        steps: K of option II. `effective`: if momentum multiplies the correction, too, the effective number of steps;
            dividing by the plain number lets the c_i grow without bound from momentum 0.5 on. `plain`: the number of
            steps whatever the momentum, as in all the code bases. Equal without momentum.
        aggregation: Aggregation of the models' changes only; those of the control variates are always summed.
        weighting: `uniform` in the paper and FedDyn's code; NIID-Bench weights the models' mean by `samples`.

    Example:
        >>> from rayfl.algorithms import Scaffold
        >>> class HalfStep(Scaffold):
        ...     def apply(self, server, delta):
        ...         super().apply(server, delta / 2)
        >>> HalfStep(option="I").option
        'I'
    """

    reports: ClassVar[tuple[str, ...]] = ("norms",)
    no_relay: ClassVar[str] = "its control variates need a server"

    option: Literal["I", "II"] = "II"
    correction: Literal["gradient", "step"] = "gradient"
    steps: Literal["effective", "plain"] = "effective"
    weighting: Literal["samples", "uniform"] = "uniform"

    @model_validator(mode="after")
    def _no_idle_options(self) -> SCAFFOLD:
        check_idle(self, {"steps": self.option == "I"}, "with option = 'I'")
        return self

    def assumes_sgd(self) -> str:
        if self.option == "II":
            return "option = 'II' treats the change divided by lr as a mean of gradients; use option = 'I'"
        if self.correction == "step":
            return "correction = 'step' subtracts lr times a gradient from its step; use correction = 'gradient'"
        return ""

    def round(self, server: ServerState, context: RoundContext) -> Round:
        control = server.get("control", 0.0)
        answers = yield Exchange(
            self.controlled_update,
            server.model,
            control.astype(np.float32),
            down=("model", "params"),
            up=("model", "params"),
            each=self.aggregation.each,
        )
        self.apply(server, self.aggregated(server, answers))
        new = control + answers.sums["control_delta"] / server.num_clients
        server.keep("control", new)
        if "norms" in context.reports:
            server.report(control_norm=np.sqrt(np.square(new).sum()))

    def controlled_update(
        self, client: ClientContext, model: torch.Tensor, control: torch.Tensor
    ) -> ClientUpdate[Answer]:
        """Trains with the correction c - c_i; answers with the changes of the model and of c_i."""
        own = client.state.get("control", control.new_zeros(control.shape))
        drift = (Affine(linear=control - own),)
        new = (yield Gradient(model)) if self.option == "I" else None
        if self.correction == "gradient":
            trained = yield from self.train(client, model, gradient=drift)
        else:
            trained = yield from self.train(client, model, after_step=drift)
        delta = trained - model
        if new is None:
            corrected = self.correction == "gradient" and self.steps == "effective"
            steps = client.effective_steps(client.local.momentum if corrected else 0.0)
            new = own - control - delta[: client.num_params] / (steps * client.lr)
        client.state["control"] = new
        if "norms" in client.reports:
            client.report(client_control_norm=float(new.double().square().sum().sqrt()))
        return Answer(self.weight(client), sums={"control_delta": new - own}, delta=delta)

    def releases(self) -> Released:
        return Released(super().releases().values, {"control_delta": "params"})

    def requirements(self) -> set[Requirement]:
        requirements = super().requirements()
        return requirements | {"plain_objective"} if self.option == "I" else requirements

    def client_state(self) -> Declaration:
        return merged([("the algorithm", {"control": "phase"}), ("local training", super().client_state())])

    def server_state(self) -> Declaration:
        return merged([("the algorithm", {"control": "phase"}), ("the server optimizer", super().server_state())])


Scaffold = SCAFFOLD
"""The public name of the class."""
