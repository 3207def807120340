"""The base of FedAvg and its relatives: algorithms whose clients train locally, with regularisers."""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Literal

from rayfl.algorithms.algorithm import Algorithm
from rayfl.algorithms.limits import Requirement
from rayfl.algorithms.penalty import Penalty, PenaltyField
from rayfl.local.requests import NO_OWN_GRADIENTS, Affine, ClientUpdate, LocalTraining
from rayfl.local.state import Declaration, merged

if TYPE_CHECKING:
    import torch

    from rayfl.config.local import Train
    from rayfl.local.batches import TrainingStep
    from rayfl.local.context import ClientContext
    from rayfl.local.queries import DataView


class LocalTrainingAlgorithm(Algorithm):
    """An algorithm whose clients train with regularisers, whatever the server does with their models.

    Derive from it if your server step is new and your clients train as `local` says; derive from `FedAvg` to change
    only the local training.

    Attributes:
        penalties: Regularisers added to the local objective: `proximal`, `contrastive`, `decorrelation`, or your own
            `Penalty`.
        buffers: The batch norm buffers that a client starts from. `average`: the server's, which are the mean of what
            clients returned (MOON, NIID-Bench). `keep`: the client's own from its last update, which are never sent
            (FedBN). `reset`: the network's initial ones. The server always averages the returned buffers for
            evaluation. Integers and flags are not averaged: the server takes those of the participant with most
            samples.

    Example:
        >>> from rayfl.algorithms import Answer, Exchange, LocalTrainingAlgorithm
        >>> class SignMajority(LocalTrainingAlgorithm):
        ...     server_lr: float = 0.001
        ...
        ...     def client_update(self, client, model):
        ...         trained = yield from self.train(client, model)
        ...         return Answer(signs=(trained - model)[: client.num_params].sign(), trained=trained)
        ...
        ...     def round(self, server, context):
        ...         answers = yield Exchange(self.client_update, server.model, up=("params",))
        ...         server.apply_update(self.server_lr * answers.mean("signs"))
        >>> SignMajority(penalties=("proximal",)).penalties
        (Proximal(name='proximal', mu=0.01),)
    """

    local_options: ClassVar[frozenset[str]] = frozenset({"penalties", "buffers"})

    penalties: tuple[PenaltyField, ...] = ()
    buffers: Literal["average", "keep", "reset"] = "average"

    def relay(self, client: ClientContext, model: torch.Tensor) -> ClientUpdate[torch.Tensor]:
        return (yield from self.train(client, model))

    def train(
        self,
        client: ClientContext,
        model: torch.Tensor,
        gradient: tuple[Affine, ...] = (),
        after_step: tuple[Affine, ...] = (),
        weight_decay: float = 0.0,
        train: Train = "all",
        epochs: int | None = None,
        steps: int | None = None,
        data: DataView | None = None,
    ) -> Generator[LocalTraining, torch.Tensor, torch.Tensor]:
        """Trains from a model vector with the algorithm's regularisers; use it with `yield from`.

        Args:
            client: The client.
            model: float32 [length of the model], the model to start from.
            gradient: Further terms added to every gradient before it is clipped.
            after_step: Terms applied as `params -= lr * term` after the optimizer step.
            weight_decay: Added to the weight decay of `local`.
            train: The part of the network to train, within what the phase trains.
            epochs: Passes over the samples, overriding `local`.
            steps: Number of steps, overriding `local`.
            data: The samples to train on; by default all of the client's.

        Returns:
            float32 [length of the model], the trained model vector.
        """
        start = self.with_buffers(client, model)
        affine = [term for term in (penalty.affine(client, start) for penalty in self.penalties) if term is not None]
        opened = [(penalty, penalty.term(client, start)) for penalty in self.penalties]
        terms = [(penalty, term) for penalty, term in opened if term is not None]
        trained = yield LocalTraining(
            start,
            gradient=(*affine, *gradient),
            after_step=after_step,
            weight_decay=weight_decay,
            terms=tuple(term for _, term in terms),
            reads_features=any(penalty.reads_features() for penalty, _ in terms),
            step_gradient=partial(self.step_gradient, client) if self._has_own_gradients else None,
            train=train,
            epochs=epochs,
            steps=steps,
            data=data,
        )
        for penalty in self.penalties:
            penalty.after_training(client, trained)
        if self.buffers == "keep":
            client.state["buffers"] = trained[client.num_params :]
            client.discrete.keep("buffers")
        return trained

    def step_gradient(self, client: ClientContext, step: TrainingStep) -> torch.Tensor:
        """Computes the gradient of a local training step; override it to use another than the batch's.

        Args:
            client: The client.
            step: The step: its parameters, and the gradient of its batch there or elsewhere.

        Returns:
            float32 [num_params]. Clipping, weight decay and the optimizer of `local` are applied afterwards.
        """
        return step.gradient()

    @property
    def _has_own_gradients(self) -> bool:
        return type(self).step_gradient is not LocalTrainingAlgorithm.step_gradient

    def with_buffers(self, client: ClientContext, model: torch.Tensor) -> torch.Tensor:
        """Returns the model vector with the buffers that the client starts from, as `buffers` says."""
        if self.buffers == "average":
            return model
        if self.buffers == "reset":
            client.discrete.reset()
        else:
            client.discrete.take("buffers")
        own = client.initial_buffers if self.buffers == "reset" else client.state.get("buffers")
        if own is None:
            return model
        start = model.clone()
        start[client.num_params :] = own
        return start

    def no_sample_dp(self) -> str:
        if self._has_own_gradients:
            return NO_OWN_GRADIENTS
        for penalty in self.penalties:
            if type(penalty).term is not Penalty.term:
                return f"its penalty '{penalty.name}' depends on the whole batch, not on single samples; leave it out"
        return ""

    def requirements(self) -> set[Requirement]:
        requirements: set[Requirement] = set()
        if any(penalty.reads_features() for penalty in self.penalties):
            requirements.add("features")
        if self.buffers != "average":
            requirements.add("buffers")
        return requirements

    def has_personal_model(self) -> bool:
        return self.buffers == "keep"

    def personal_model(self, client: ClientContext, model: torch.Tensor) -> torch.Tensor:
        return self.with_buffers(client, model)

    def client_state(self) -> Declaration:
        own: Declaration = {"buffers": "phase"} if self.buffers == "keep" else {}
        parts = [(f"penalty '{penalty.name}'", penalty.client_state()) for penalty in self.penalties]
        return merged([("buffers = 'keep'", own), *parts])

    def reads_first_model(self) -> bool:
        return any(penalty.reads_first_model() for penalty in self.penalties)

    def buffers_are_sent(self) -> bool:
        return self.buffers == "average"
