"""The executor that trains several clients at once: their models are rows of one matrix, and vmap maps over rows.

Linear and quadratic terms of the clients' objectives are computed for all rows at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import torch
from torch import nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from rayfl.engine.device import TorchGenerators, seed_torch
from rayfl.engine.executors.executor import ClientSamples, Executor, Requested, view_of
from rayfl.errors import DivergenceError, ScenarioError
from rayfl.local.context import ClientContext
from rayfl.local.requests import Affine, LocalTraining
from rayfl.local.sgd import adds_terms, check_finite
from rayfl.local.training_plan import plan_training, select
from rayfl.models.flat import FlatModel
from rayfl.models.tensors import Slot
from rayfl.tasks.task import Task

NOTHING = Affine()


class StackedTerms:
    """Adds the gradients of every client's terms, each at the client's own row.

    Args:
        terms: The terms of each row; rows may have different numbers of them.
        matrix: [rows, num_params]; the terms are moved to its device.
    """

    def __init__(self, terms: Sequence[Sequence[Affine]], matrix: torch.Tensor) -> None:
        self._terms = [_OfRows(one, matrix) for one in zip_longest(*terms, fillvalue=NOTHING)]

    def add(self, gradient: torch.Tensor, params: torch.Tensor, scale: torch.Tensor | None = None) -> None:
        """Adds the terms' gradients in place.

        Args:
            gradient: [n, num_params], for the first n rows.
            params: [n, num_params], where the terms are evaluated; may be `gradient` itself.
            scale: [n, 1], factors; None for 1.
        """
        for term in self._terms:
            values = term.at(params)
            gradient.add_(values if scale is None else values * scale)


class _OfRows:
    """One term of each row: linear + quadratic * (params - centre)."""

    def __init__(self, terms: Sequence[Affine], matrix: torch.Tensor) -> None:
        self._quadratic = matrix.new_tensor([[term.quadratic] for term in terms])
        self._linear = _rows([term.linear for term in terms], matrix)
        self._centre = _rows([term.centre for term in terms], matrix)
        self._pulls = any(term.quadratic for term in terms)

    def at(self, params: torch.Tensor) -> torch.Tensor:
        """Returns the term's gradient at the first rows' parameters."""
        number = len(params)
        pull = torch.zeros_like(params)
        if self._pulls:
            away = params if self._centre is None else params - self._centre[:number]
            pull = away * self._quadratic[:number]
        return pull if self._linear is None else pull.add_(self._linear[:number])


def _rows(vectors: Sequence[torch.Tensor | None], matrix: torch.Tensor) -> torch.Tensor | None:
    """Stacks one vector per row, zero if missing; expands a vector that all rows share; None if all are missing."""
    present = [vector for vector in vectors if vector is not None]
    if not present:
        return None
    if len(present) == len(vectors) and all(vector is present[0] for vector in present):
        return present[0].expand(len(vectors), -1)
    return torch.stack([torch.zeros_like(matrix[0]) if vector is None else vector for vector in vectors])


class Stacked(Executor):
    """Trains clients together by plain SGD, with one forward and one backward pass for a batch of every client.

    A step does to every row what `rayfl.local.sgd` does to the resident model. Shorter batches are padded with samples
    of weight zero, and clients with fewer steps drop out when they are done. Of the resident model, only the module's
    structure is used.
    """

    at_least = 2

    def __init__(self, model: FlatModel, samples: ClientSamples, task: Task, generators: TorchGenerators) -> None:
        super().__init__(model, samples, task, generators)
        self._stacks = (
            task.per_sample
            and task.views == 1
            and type(task).objective is Task.objective
            and type(task).after_step is Task.after_step
            and not task.reads_features
            and len(model.vector) == len(model.params)  # no buffers
            and not model.constants.slots
            and not any(True for _ in model.module.buffers())
            and not any(isinstance(module, _DropoutNd | nn.RNNBase | _BatchNorm) for module in model.module.modules())
        )
        self._pads_well = False  # until it is checked

    def accepts(self, client: ClientContext, request: Any) -> bool:
        """See `Executor.accepts`: accepts training of the whole network by SGD, without terms of the batch."""
        local = client.local
        return (
            self._stacks
            and isinstance(request, LocalTraining)
            and not request.terms
            and request.step_gradient is None
            and len(view_of(client, request)) > 0
            and select(client.train, self._model.module) is None
            and local.dp is None
            and local.is_plain_sgd
            and local.accumulate == 1
            and not local.module_lr
            and local.precision == "float32"
            and local.unfreeze is None
            and local.sample_weights is None
            and local.sampling == "uniform"
        )

    def answer(self, client: ClientContext, request: LocalTraining, number: int) -> Any:
        """See `Executor.answer`; what is accepted comes in groups."""
        return self.run([Requested(client, request, number)])[0]

    def run(self, requests: Sequence[Requested]) -> list[Any]:
        """See `Executor.run`; trains all clients at once."""
        rows = sorted((self._row(place, one) for place, one in enumerate(requests)), key=lambda row: -row.steps)
        matrix = torch.stack([row.request.start for row in rows])
        losses = self._train(rows, matrix)
        results: list[Any] = [None] * len(rows)
        for row, params, of_row in zip(rows, matrix, losses, strict=True):
            of_row = of_row[: row.steps]
            try:
                check_finite(of_row, params, row.steps)
            except DivergenceError as error:
                results[row.place] = error
                continue
            row.client.add_losses(of_row)
            results[row.place] = params.clone()
        return results

    def _row(self, place: int, requested: Requested) -> _Row:
        client, request, view = requested.client, requested.request, view_of(requested.client, requested.request)
        plan = plan_training(client.local, None, self._model.module, len(view))
        self._generators.enter(client)
        # as in one-by-one training; stacked training draws nothing, but the algorithm may draw afterwards
        seed_torch(client.streams.torch_seed("model", requested.number), self._model.vector.device)
        batches = self._samples.training_batches(client, view, requested.number)
        rates = [client.lr * rate for rate in plan.rates]
        return _Row(place, client, request, len(plan.batches), rates, batches)

    def _train(self, rows: Sequence[_Row], matrix: torch.Tensor) -> list[list[float]]:
        """Trains the rows of a matrix of models in place, sorted by decreasing steps; returns each row's losses."""
        gradient = torch.zeros_like(matrix)
        velocity = torch.zeros_like(matrix) if rows[0].client.local.momentum else None
        terms = StackedTerms([row.request.gradient for row in rows], matrix)
        after_step = StackedTerms([row.request.after_step for row in rows], matrix)
        decay = matrix.new_tensor([[row.client.local.weight_decay + row.request.weight_decay] for row in rows])
        losses = matrix.new_zeros(len(rows), rows[0].steps)
        # all at once: a step that copies numbers to a GPU waits for it
        all_rates = matrix.new_tensor([[*row.rates, *[0.0] * (rows[0].steps - row.steps)] for row in rows])
        self._model.module.train()
        for step in range(rows[0].steps):
            active = sum(row.steps > step for row in rows)
            params, slope = matrix[:active], gradient[:active]
            losses[:active, step], unreached = self._gradients(rows[:active], params, slope)
            rates = all_rates[:active, step : step + 1]
            with torch.no_grad():
                saved = _kept(rows[:active], unreached, params, velocity)
                self._step(rows[0].client, params, slope, velocity, terms, decay[:active])
                params.addcmul_(slope if velocity is None else velocity[:active], rates, value=-1.0)
                after_step.add(params, params, -rates)
                for tensor, place, values in saved:
                    tensor[place] = values
        losses_by_row: list[list[float]] = losses.tolist()
        return losses_by_row

    def _gradients(
        self, rows: Sequence[_Row], params: torch.Tensor, gradient: torch.Tensor
    ) -> tuple[torch.Tensor, list[Slot]]:
        """Writes the gradient of each row's mean loss on its next batch to `gradient`.

        Returns:
            The losses, and the slots of the parameters that they do not reach.
        """
        drawn = []
        for row in rows:
            self._generators.enter(row.client)  # an augmentation may draw
            drawn.append(next(row.batches))
        labels = [y for _, y in drawn]
        widest = max(map(len, labels))
        counted = torch.stack([_counted(y, widest) for y in labels]).to(params.dtype)
        divisors = torch.stack([_on_device(self._task.divisor(y), params.device) for y in labels])
        tensors = {slot.name: _stacked(slot, params).detach().requires_grad_() for slot in self._model.layout}
        inputs, padded = [x for x, _ in drawn], _padded(labels, widest)
        losses = torch.vmap(self._summed_loss)(tensors, _stacked_inputs(inputs, widest), padded, counted)
        if not self._pads_well and min(map(len, labels)) < widest:
            self._check_padding(tensors, _stacked_inputs(inputs, widest, other=True), padded, counted, losses)
        losses = losses / divisors
        gradients = torch.autograd.grad(losses.sum(), list(tensors.values()), allow_unused=True)
        by_slot: list[torch.Tensor | None] = list(gradients)
        unreached = []
        for slot, values in zip(self._model.layout, by_slot, strict=True):
            if values is None:
                unreached.append(slot)
                _stacked(slot, gradient).zero_()
            else:
                _stacked(slot, gradient).copy_(values)
        return losses.detach(), unreached

    def _check_padding(
        self, tensors: dict[str, torch.Tensor], x: Any, y: torch.Tensor, counted: torch.Tensor, losses: torch.Tensor
    ) -> None:
        """Compares the losses with those of the same batches with other padding.

        Raises:
            ScenarioError: They differ, so the network computes with other samples of the batch.
        """
        with torch.no_grad():
            others = torch.vmap(self._summed_loss)(tensors, x, y, counted)
        if not torch.allclose(others, losses, rtol=1e-5, atol=1e-6, equal_nan=True):
            raise ScenarioError(
                "what the network returns for a sample depends on the other samples of its batch, and here short "
                "batches are padded"
            )
        self._pads_well = True

    def _summed_loss(
        self, tensors: dict[str, torch.Tensor], x: Any, y: torch.Tensor, counted: torch.Tensor
    ) -> torch.Tensor:
        """Returns the loss of one client's batch, summed over the samples that count."""
        outputs = functional_call(self._model.module, tensors, (x,))
        return torch.where(counted > 0, self._task.loss(outputs, y, "none"), 0).sum()

    @staticmethod
    def _step(
        client: ClientContext,
        params: torch.Tensor,
        gradient: torch.Tensor,
        velocity: torch.Tensor | None,
        terms: StackedTerms,
        decay: torch.Tensor,
    ) -> None:
        """Applies a step's terms, clipping, decay and momentum to the gradients; all clients have the same options."""
        local = client.local
        terms.add(gradient, params)
        if local.clip_value is not None:
            gradient.clamp_(-local.clip_value, local.clip_value)
        if local.clip_norm is not None:
            gradient.mul_((local.clip_norm / (gradient.norm(dim=1, keepdim=True) + 1e-6)).clamp(max=1.0))
        gradient.addcmul_(params, decay)
        if velocity is not None:
            velocity[: len(params)].mul_(local.momentum).add_(gradient)


@dataclass(frozen=True)
class _Row:
    """One client's training.

    Attributes:
        place: Position of its request in the list passed to `run`.
        client: The client.
        request: The training request.
        steps: Number of steps.
        rates: [steps] the learning rates.
        batches: Its batches, one per step.
    """

    place: int
    client: ClientContext
    request: LocalTraining
    steps: int
    rates: Sequence[float]
    batches: Iterator[tuple[Any, ...]]


def _kept(
    rows: Sequence[_Row], unreached: Sequence[Slot], *tensors: torch.Tensor | None
) -> list[tuple[torch.Tensor, tuple[list[int], slice], torch.Tensor]]:
    """Returns tensors, places and values of what a step leaves alone; see `rayfl.local.sgd.train`."""
    alone = [index for index, row in enumerate(rows) if not adds_terms(row.request)] if unreached else []
    places = [(alone, slice(slot.offset, slot.end)) for slot in unreached if alone]
    return [(tensor, place, tensor[place]) for tensor in tensors if tensor is not None for place in places]


def _stacked(slot: Slot, matrix: torch.Tensor) -> torch.Tensor:
    """Returns a slot of every row, [rows, *shape], as a view of the matrix."""
    part = matrix[:, slot.offset : slot.offset + slot.size]
    return part.as_strided((len(matrix), *slot.shape), (matrix.stride(0), *slot.strides), part.storage_offset())


def _stacked_inputs(inputs: Sequence[Any], length: int, other: bool = False) -> Any:
    if isinstance(inputs[0], dict):
        return {name: _padded([of_client[name] for of_client in inputs], length, other) for name in inputs[0]}
    return _padded(inputs, length, other)


def _padded(batches: Sequence[torch.Tensor], length: int, other: bool = False) -> torch.Tensor:
    """Stacks batches, padding short ones with their first sample, which any network accepts, or the longest's last."""
    longest = max(batches, key=len)[-1:]
    fillers = [longest if other else one[:1] for one in batches]
    pairs = zip(batches, fillers, strict=True)
    return torch.stack([torch.cat([one, filler.expand(length - len(one), *one.shape[1:])]) for one, filler in pairs])


def _on_device(number: torch.Tensor | int, device: torch.device) -> torch.Tensor:
    """Returns a number as a tensor; `torch.as_tensor` would copy it to a GPU and wait."""
    return number.to(device) if isinstance(number, torch.Tensor) else torch.full((), number, device=device)


def _counted(labels: torch.Tensor, length: int) -> torch.Tensor:
    """Returns [length], True for the samples of a batch and False for padding."""
    return torch.arange(length, device=labels.device) < len(labels)
