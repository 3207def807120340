"""Personalised relatives of FedAvg: clients keep a part of the model to themselves, or a model of their own.

FedPer: Arivazhagan, Aggarwal, Singh and Choudhary, "Federated Learning with Personalization Layers", 2019,
alg. 1 and 2.

FedBN: Li, Jiang, Zhang, Kamp and Dou, "FedBN: Federated Learning on Non-IID Features via Local Batch Normalization",
ICLR 2021, alg. 1.

FedBABU: Oh, Kim and Yun, "FedBABU: Toward Enhanced Representation for Federated Image Classification", ICLR 2022.

Ditto: Li, Hu, Beirami and Smith, "Ditto: Fair and Robust Federated Learning Through Personalization", ICML 2021,
alg. 1.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import NonNegativeFloat, model_validator

from rayfl.algorithms.algorithm import Round
from rayfl.algorithms.exchange import Answer, Exchange, Released
from rayfl.algorithms.fedavg import FedAvg
from rayfl.algorithms.limits import Requirement
from rayfl.algorithms.server_state import RoundContext, ServerState
from rayfl.config.local import Local, Train
from rayfl.config.section import check_idle
from rayfl.errors import ScenarioError
from rayfl.local.requests import Affine, LocalTraining
from rayfl.local.state import Declaration, merged

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch import nn

    from rayfl.local.context import ClientContext
    from rayfl.local.requests import ClientUpdate


class PersonalParts(FedAvg):
    """FedAvg of the shared part of the model; each client keeps the part that `stays_local` names from its last update.

    `evaluation.client_model = "personal"` evaluates every client with its own part. In the global model, which clients
    that never took part use, that part stays as it was at the start of the phase. Client-level DP (`phases.N.dp`) is
    not supported: its noise would fall on that part, too.

    Example:
        >>> from torch import nn
        >>> from rayfl.algorithms import PersonalParts
        >>> class PersonalBiases(PersonalParts):
        ...     def stays_local(self, network):
        ...         return [name for name, _ in network.named_parameters() if name.endswith("bias")]
        >>> PersonalBiases().stays_local(nn.Linear(4, 2))
        ['bias']
    """

    no_relay: ClassVar[str] = "its clients keep a part of the model to themselves"

    @model_validator(mode="after")
    def _keeps_its_buffers(self) -> PersonalParts:
        check_idle(self, {"buffers": True}, "where clients keep a part of the model and its buffers")
        return self

    def round(self, server: ServerState, context: RoundContext) -> Round:
        answers = yield Exchange(self.client_update, server.model, each=self.aggregation.each)
        self.apply(server, self.aggregated(server, answers, "shared"))

    def client_update(self, client: ClientContext, model: torch.Tensor) -> ClientUpdate[Answer]:
        """Trains with the client's own part; answers with the change of everything else."""
        with client.discrete.apart("own part", self.stays_local):
            trained = yield from self.train_parts(client, self.personal_model(client, model))
        own = client.places_of(self.stays_local)
        client.state["own part"] = trained[own]
        return Answer(self.weight(client), trained=trained, shared=(trained - model) * ~own)

    def train_parts(self, client: ClientContext, start: torch.Tensor) -> ClientUpdate[torch.Tensor]:
        """Trains both parts; by default together.

        Args:
            client: The client.
            start: float32 [length of the model], the client's own part combined with what the server sent.

        Returns:
            float32 [length of the model], the trained model vector.
        """
        return (yield from self.train(client, start))

    def releases(self) -> Released:
        raise ScenarioError("noise would also fall on what clients keep to themselves; use 'fedavg'")

    def has_personal_model(self) -> bool:
        return True

    def personal_model(self, client: ClientContext, model: torch.Tensor) -> torch.Tensor:
        client.discrete.take("own part", self.stays_local)
        own = client.state.get("own part")
        if own is None:
            return model
        personal = model.clone()
        personal[client.places_of(self.stays_local)] = own
        return personal

    def client_state(self) -> Declaration:
        return merged([("the algorithm", {"own part": "phase"}), ("local training", super().client_state())])


class FedPer(PersonalParts):
    """Clients train body and head together, and send only the body.

    All heads start as the head of the phase's first model; in the paper each client draws its own.

    Attributes:
        keeps: The part that stays on a client: its `head`, or module names, such as those of the paper's last blocks.
            With `body` it is LG-FedAvg's local representation under a global head (Liang et al., "Think Locally, Act
            Globally", 2020).

    Example:
        >>> from torch import nn
        >>> from rayfl.algorithms import FedPer
        >>> network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        >>> sorted(FedPer(keeps=("2",)).stays_local(network))
        ['2.bias', '2.weight']
    """

    keeps: Train = "head"

    def stays_local(self, network: nn.Module) -> Collection[str]:
        from rayfl.local.training_plan import select

        try:
            selection = select((self.keeps,), network)
        except ScenarioError as error:
            raise ScenarioError(f"keeps: {str(error).removeprefix('train: ')}") from None
        if selection is None:
            raise ScenarioError("keeps: with 'all' there is nothing to share; see schedule = 'local'")
        return selection.tensors


class FedBN(PersonalParts):
    """FedAvg of everything outside batch norm layers; a client reuses its own batch norm from its last update.

    `evaluation.client_model = "personal"` evaluates every client with its own batch norm. In the global model, which
    clients that never took part use and a client's first update starts from, batch norm is the mean of what the
    participants' became, like the statistics under `buffers = "keep"`; no protocol sends it. (In the paper all clients
    take part in every round.)

    Example-level DP (`local.dp`) is not supported, because batch norm mixes samples. Client-level DP (`phases.N.dp`) is
    not supported: the global model contains the mean of what clients keep to themselves.
    """

    def round(self, server: ServerState, context: RoundContext) -> Round:
        answers = yield Exchange(self.client_update, server.model, each=self.aggregation.each)
        self.apply(server, self.aggregated(server, answers, "shared"))
        server.model += answers.sums["kept"] / answers.weight

    def client_update(self, client: ClientContext, model: torch.Tensor) -> ClientUpdate[Answer]:
        """Trains with the client's own batch norm; answers with the change of everything else."""
        answer = yield from super().client_update(client, model)
        assert answer.trained is not None
        own = client.places_of(self.stays_local)
        answer.diagnostics["kept"] = answer.weight * (answer.trained - model) * own
        return answer

    def releases(self) -> Released:
        raise ScenarioError("batch norm's statistics cannot be clipped; use 'fedavg' and a network without batch norm")

    def stays_local(self, network: nn.Module) -> Collection[str]:
        from torch.nn.modules.batchnorm import _BatchNorm

        norms = [(name, module) for name, module in network.named_modules() if isinstance(module, _BatchNorm)]
        return {f"{name}.{tensor}" for name, module in norms for tensor in module.state_dict()}

    def requirements(self) -> set[Requirement]:
        return {*super().requirements(), "batch_norm"}


class FedBABU(FedAvg):
    """FedAvg of the network's body; the head (its feature layer) keeps its initial weights on all clients.

    Evaluating the global model gives the paper's "initial accuracy"; `evaluation.personalize` fine-tunes it for every
    client.

    Example-level DP (`local.dp`): the body's gradients are clipped and noised; the head gets no noise.
    """

    trains_only: ClassVar[Train] = "body"

    weighting: Literal["samples", "uniform"] = "uniform"


class Ditto(FedAvg):
    """Adds personal models to FedAvg: v_k <- v_k - eta (grad F_k(v_k) + lambda (v_k - w)).

    FedAvg's training of w stays bitwise the same. v_k, the client's personal model, starts from the first global model
    that the client receives and stays on the client. (In the paper it starts from the initial global model, which is
    the same under full participation.) It is trained as `local` says, after the client's update of w; the steps and the
    training loss of a round cover both. Regularisers (`penalties`) apply to w only. `evaluation.client_model =
    "personal"` evaluates the v_k; a client that never took part uses the global model.

    Example-level DP (`local.dp`): both trainings are noised and charged, although the personal model never leaves the
    client.

    Attributes:
        mu: lambda, the weight of the pull, at least 0; 0 trains each personal model by itself. The paper
            tunes it for each data set.
    """

    no_relay: ClassVar[str] = "its personal models are trained beside the server's global model"

    mu: NonNegativeFloat = 0.1

    def client_update(self, client: ClientContext, model: torch.Tensor) -> ClientUpdate[Answer]:
        """Trains the global model, then the personal one; answers with the change of the global model."""
        trained = yield from self.train(client, model)
        pull = Affine(quadratic=self.mu, centre=model[: client.num_params])
        start = client.state.get("personal", model)
        with client.discrete.apart("personal"):
            client.state["personal"] = yield LocalTraining(start, gradient=(pull,))
        return Answer(self.weight(client), delta=trained - model)

    def check_training(self, task: Any, local: Local, sizes: np.ndarray) -> None:
        super().check_training(task, local, sizes)
        if state := task.client_state():
            raise ScenarioError(
                f"algorithm 'ditto' trains two models on a client, which would share what task '{task.name}' keeps "
                f"there ({', '.join(sorted(state))}); use 'fedavg', or a task that keeps nothing (as 'simsiam')"
            )

    def has_personal_model(self) -> bool:
        return True

    def personal_model(self, client: ClientContext, model: torch.Tensor) -> torch.Tensor:
        client.discrete.take("personal")
        return client.state.get("personal", model)

    def client_state(self) -> Declaration:
        return merged([("the algorithm", {"personal": "phase"}), ("local training", super().client_state())])
