"""FedDyn: every client's objective is regularised so that the clients' minima agree with the global one.

Acar et al., "Federated Learning Based on Dynamic Regularization", ICLR 2021, alg. 1.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field, PositiveFloat

from rayfl.algorithms.exchange import Answer, Answers, Exchange, ServerState
from rayfl.algorithms.fedavg import FedAvg
from rayfl.algorithms.last_models import mean_of_last

if TYPE_CHECKING:
    import torch

    from rayfl.local.client import Client


class FedDyn(FedAvg):
    """min f_i(w) + alpha <w, p_i> + alpha / 2 ||w - w_received||^2; then p_i <- p_i + (w_i - w_received).

    p_i = -g_i / alpha in the paper's letters, zero at the start. The server: w <- mean of the participants' w_i plus
    1/N times the sum of p_i over all N clients, which is the paper's -h / alpha.

    Three models: clients start from that w (`cloud`); what is reported is the plain mean of the round's participants
    (`participants`), or the mean over all clients of what each returned last, the first model where it never took part
    (`all`, which the authors' example plots).

    penalty: `gradient` is the paper's objective; `decay` is the authors' code, where alpha ||w||^2 / 2 is weight decay
        of the optimiser, which clipping does not see.
    scale_alpha: alpha_i = alpha / (n_i / mean n), as in the authors' code; equal sizes make no difference.
    """

    stateful: ClassVar[bool] = True

    alpha: PositiveFloat = 0.01
    # other models than FedAvg's can be reported, which mypy takes for a field of another type
    report: Literal["participants", "all", "cloud"] = "participants"  # type: ignore[assignment]
    penalty: Literal["gradient", "decay"] = "gradient"
    scale_alpha: bool = False
    weighting: Literal["uniform"] = "uniform"
    server_lr: Annotated[float, Field(ge=1, le=1)] = 1.0

    def round(self, server: ServerState, cohort: Sequence[int]) -> Generator[Exchange, Answers, None]:
        answers = yield Exchange(self.fit, server.model)
        delta = answers.mean("delta")
        duals = server.recall("duals", 0.0) + len(cohort) * delta[: server.num_params]
        server.memory["duals"] = duals
        if self.report == "participants":
            averaged = len(delta) if self.buffers == "average" else server.num_params
            server.reported = server.model.copy()
            server.reported[:averaged] += delta[:averaged]
        elif self.report == "all":
            server.reported = mean_of_last(server, answers)
        buffers = delta[server.num_params :] if self.buffers == "average" else None
        server.move(delta[: server.num_params] + duals / server.num_clients, buffers)

    def fit(self, client: Client, model: torch.Tensor) -> Answer:
        params = model[: len(client.model.params)]
        dual = client.state.get("dual", params.new_zeros(params.shape))
        client.scratch["linear"] = self._alpha(client) * (dual - params)
        delta = self.local_update(client, model) - model
        client.state["dual"] = dual + delta[: len(params)]
        return Answer(1.0, asides=self.asides(client, model, delta), delta=delta)

    def gradient_correction(self, client: Client, params: torch.Tensor) -> torch.Tensor | None:
        linear = client.scratch.get("linear")
        if linear is None or self.penalty == "decay":
            return linear
        return linear.add(params, alpha=self._alpha(client))

    def extra_weight_decay(self, client: Client) -> float:
        return self._alpha(client) if self.penalty == "decay" and "linear" in client.scratch else 0.0

    def _alpha(self, client: Client) -> float:
        return self.alpha / client.relative_size if self.scale_alpha else self.alpha
