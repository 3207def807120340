"""Local training: mini-batch steps on the flat parameter vector of a resident model."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import islice
from typing import Any, Generic, TypeVar

import torch

from rayfl.config.local import Local
from rayfl.errors import DivergenceError
from rayfl.local.batches import TrainingBatch, TrainingStep
from rayfl.local.context import ClientContext
from rayfl.local.requests import LocalTraining, Objective, nonzero
from rayfl.local.state import VELOCITY
from rayfl.local.stepping import Stepping, stepping
from rayfl.local.training_plan import plan_training, select
from rayfl.models.flat import FlatModel
from rayfl.models.modes import enter_training_mode, evaluation_mode
from rayfl.models.tensors import all_finite

T = TypeVar("T")


class PeekableIterator(Iterator[T], Generic[T]):
    """Yields the items of another iterator, in order."""

    def __init__(self, items: Iterator[T]) -> None:
        self._items = items
        self._seen: deque[T] = deque()

    def __next__(self) -> T:
        return self._seen.popleft() if self._seen else next(self._items)

    def peek(self, number: int) -> list[T]:
        """Returns the next `number` items, or as many as remain, without consuming them."""
        self._seen.extend(islice(self._items, max(number - len(self._seen), 0)))
        return list(islice(self._seen, max(number, 0)))

    def drop(self, number: int) -> None:
        """Discards the next `number` items, or as many as remain."""
        for _ in islice(self, number):
            pass


Batches = PeekableIterator[tuple[Any, ...]]
"""Inputs, labels, and further views of the inputs, batch by batch."""

StepGradient = Callable[[int], torch.Tensor | None]
"""Writes the gradient of the next step, which takes this many batches, into the model's gradient vector.

Returns the step's mean loss, or None if the step has no samples.
"""


def train(
    model: FlatModel,
    step_gradient: StepGradient,
    client: ClientContext,
    request: LocalTraining,
    samples: int,
    after_step: Callable[[], None] = lambda: None,
) -> torch.Tensor:
    """Trains a client's model in the resident one from the request's start, with a fresh optimizer.

    One step: `step_gradient` plus the request's `gradient` terms, clipped elementwise to `local.clip_value` and then by
    norm to `local.clip_norm`; then the optimizer (PyTorch's SGD: g + weight_decay w into the momentum buffer, which the
    client keeps if the phase `keeps_momentum`); then the `after_step` terms. FedDyn's, FedBug's and FedExP's code also
    clips before weight decay, which belongs to the optimizer there.

    As in PyTorch, where its gradient is None and not zero, a parameter that no loss of the step reaches is left alone
    by the optimizer with its momentum and decay, unless the request itself adds to gradients or steps (`adds_terms`).
    Under `local.dp` all parameters take all steps, since which ones are reached may depend on the samples.

    Args:
        model: The resident model.
        step_gradient: Computes the gradient of the loss, such as `BatchGradients`.
        client: The client: clipping, decay, the optimizer and the round's learning rate; receives the loss of every
            step that has one.
        request: The start, and terms to add to gradients and steps.
        samples: Number of samples to train on. Frozen parts do not change; their momentum starts when they thaw.
        after_step: Called after every step, without gradients.

    Returns:
        A copy of the trained model vector.

    Raises:
        DivergenceError: A loss or a parameter is not finite; the message names the step. Under `local.dp` losses, which
            are not noised, are not checked.
        ScenarioError: As `plan_training`.
    """
    local = client.local
    plan = plan_training(local, select(client.train, model.module), model.module, samples)
    model.load(request.start, client.discrete.values)
    velocity = None
    if client.keeps_momentum:
        velocity = client.state[VELOCITY] if VELOCITY in client.state else torch.zeros_like(model.params)
        client.state[VELOCITY] = velocity  # updated in place by the optimizer
    enter_training_mode(model.module)
    stages = [(number, _Stage(model, names, plan.own_rates)) for number, names in plan.stages]
    parts = [parts for _, stage in stages for parts, _ in stage.groups]
    optimizer = stepping(model, parts, local, request.weight_decay, velocity)
    steps = zip(plan.batches, plan.rates, strict=True)
    losses: list[torch.Tensor] = []
    idle = local.is_plain_sgd and not local.momentum and not local.weight_decay  # leaves alone what has no gradient
    all_step = idle or adds_terms(request) or local.dp is not None
    if not all_step:
        model.reached()  # counts from here on
    frozen = [model.module.get_submodule(name) for name in plan.frozen]
    with evaluation_mode(*frozen) if frozen else nullcontext():
        for number, stage in stages:
            with nullcontext() if stage.names is None else model.training_only(stage.names):
                for sizes, rate in islice(steps, number):
                    loss = step_gradient(len(sizes))
                    if loss is not None:
                        losses.append(loss)
                    groups = stage.groups if all_step else stage.reached(request)
                    with torch.no_grad():
                        _step(model, groups, optimizer, request, local, client.lr * rate)
                        after_step()
    values: list[float] = torch.stack(losses).tolist() if losses else []
    check_finite([] if local.dp else values, model.params, len(plan.batches))
    client.add_losses(values)
    model.check()
    client.discrete.leave()
    return model.vector.clone()


def adds_terms(request: LocalTraining) -> bool:
    """Whether the algorithm itself adds to gradients or steps: its terms move parameters that no loss reaches."""
    affine = (*request.gradient, *request.after_step)
    return bool(request.weight_decay) or any(term.linear is not None or term.quadratic for term in affine)


class BatchGradients:
    """Computes the gradient of the mean loss of each step's batches, including the request's terms; a `StepGradient`.

    Args:
        model: The resident model.
        batches: All the batches (x, y) of the client update.
        request: Terms to add to the loss.
        client: The client.
        task: The task.
        weights: [n], the sample weights of every batch; None if all samples count alike.
    """

    def __init__(
        self,
        model: FlatModel,
        batches: Batches,
        request: LocalTraining,
        client: ClientContext,
        task: Objective,
        weights: Iterator[torch.Tensor] | None = None,
    ) -> None:
        self._model, self._batches, self._request = model, batches, request
        self._client, self._task = client, task
        self._weights = None if weights is None else PeekableIterator(weights)
        self._steps = 0
        self._reads_features = request.reads_features or task.reads_features

    def __call__(self, number: int) -> torch.Tensor | None:
        mean: torch.Tensor | None
        if self._request.step_gradient is None:
            self._model.zero_gradient()
            mean = self._backward(number)
        else:
            step = TrainingStep(self._model, self._steps, partial(self._backward, number))
            step.take(self._request.step_gradient(step))
            mean = step.losses[0] if step.losses else None
        self._steps += 1
        self._batches.drop(number)
        if self._weights is not None:
            self._weights.drop(number)
        return mean

    def _backward(self, number: int) -> torch.Tensor:
        """Adds the gradient of the next batches without consuming them; returns their mean loss."""
        model, batches, task, client = self._model, self._batches.peek(number), self._task, self._client
        weights = self._weights.peek(number) if self._weights is not None else [None] * number
        # weighted as in the mean over the large batch: by samples, unless the task counts otherwise
        totals = [task.total(y) for _, y, *_ in batches] if number > 1 else []
        mean: torch.Tensor | None = None
        for index, (x, y, *others) in enumerate(batches):
            upcoming = partial(self._inputs_after, index + 1)
            batch = TrainingBatch(model.module, client, (x, *others), y, upcoming, self._reads_features)
            with _precision(client.local, model.params.device):
                loss = self._loss(batch, weights[index]).float()
            if totals:
                loss = loss * (totals[index] / nonzero(sum(totals)))
            loss.backward()  # type: ignore[no-untyped-call]
            mean = loss.detach() if mean is None else mean + loss.detach()
        assert mean is not None
        return mean

    def _inputs_after(self, first: int, number: int) -> list[Any]:
        return inputs_of(self._batches, first + number)[first:]

    def _loss(self, batch: TrainingBatch, weights: torch.Tensor | None) -> torch.Tensor:
        task = self._task
        if weights is None:
            loss = task.objective(batch)
        else:
            loss = (weights * task.loss(batch.outputs, batch.y, "none")).sum() / task.divisor(batch.y)
        for term in self._request.terms:
            loss = loss + term(batch)
        return loss


def inputs_of(batches: Batches, number: int) -> list[Any]:
    """Returns the inputs of up to this many upcoming batches; of several views, the first."""
    return [inputs for inputs, *_ in batches.peek(number)]


def _precision(local: Local, device: torch.device) -> AbstractContextManager[Any]:
    return torch.autocast(device.type, torch.bfloat16) if local.precision == "bf16" else nullcontext()


Group = tuple[Sequence[slice], float | None]
"""Parts of the vector that train at the same rate: their own, or the step's if that is None."""


def _groups(
    model: FlatModel, names: Collection[str] | None, own_rates: Sequence[tuple[float, frozenset[str]]]
) -> list[Group]:
    """The parts of the parameters that train in a stage, grouped by rate."""
    if not own_rates:
        return [(model.parts_of(names), None)]
    trained = {name for slot in model.training_slots for name in slot.names if names is None or name in names}
    own = [(tensors & trained, rate) for rate, tensors in own_rates]
    rest = trained.difference(*(tensors for tensors, _ in own))
    return [(model.parts_of(tensors), rate) for tensors, rate in [(rest, None), *own] if tensors]


class _Stage:
    """Steps of a client update in which the same parameters may train.

    Attributes:
        names: Names of these parameters; None for all.
        groups: Their parts of the vector.
    """

    def __init__(
        self, model: FlatModel, names: Collection[str] | None, own_rates: Sequence[tuple[float, frozenset[str]]]
    ) -> None:
        self.names, self.groups = names, _groups(model, names, own_rates)
        self._model, self._own_rates = model, own_rates
        self._of_reached: dict[tuple[bool, ...], list[Group]] = {}

    def reached(self, request: LocalTraining) -> list[Group]:
        """Returns the groups without the parameters that no loss of this step has reached.

        Args:
            request: The training request. Its `step_gradient` reaches what it gives a gradient to, and everything if it
                computes no gradient of the loss.
        """
        hits = self._model.reached()
        if all(hits):
            return self.groups
        slots = [slot for slot in self._model.layout if slot.is_parameter]
        if request.step_gradient is not None:
            if not any(hits):
                return self.groups
            gradient = self._model.gradient
            hits = tuple(hit or bool(slot.view(gradient).any()) for hit, slot in zip(hits, slots, strict=True))
        if hits not in self._of_reached:
            names = {name for hit, slot in zip(hits, slots, strict=True) if hit for name in slot.names}
            chosen = names if self.names is None else names.intersection(self.names)
            self._of_reached[hits] = _groups(self._model, chosen, self._own_rates)
        return self._of_reached[hits]


def _step(
    model: FlatModel, groups: Sequence[Group], optimizer: Stepping, request: LocalTraining, local: Local, lr: float
) -> None:
    """Takes one step on the parts of the vector that train; elsewhere the gradient is zero."""
    params, gradient = model.params, model.gradient
    for affine in request.gradient:
        correction = affine.at(params)
        for parts, _ in groups:
            for part in parts:
                gradient[part].add_(correction[part])
    if local.clip_value is not None:
        gradient.clamp_(-local.clip_value, local.clip_value)
    if local.clip_norm is not None:
        gradient.mul_((local.clip_norm / (gradient.norm() + 1e-6)).clamp(max=1.0))
    for parts, own in groups:
        optimizer.step(parts, lr if own is None else own)
    for affine in request.after_step:
        correction = affine.at(params)
        for parts, own in groups:
            for part in parts:
                params[part].add_(correction[part], alpha=-(lr if own is None else own))


def check_finite(losses: list[float], params: torch.Tensor, steps: int) -> None:
    """Checks once, after the last step: a non-finite loss stays so, and a check per step would stall a GPU."""
    for step, value in enumerate(losses, start=1):
        if not math.isfinite(value):
            raise DivergenceError(
                f"training diverged: the loss is {value} at step {step} of {len(losses)}; a smaller lr or clip_norm "
                "may help"
            )
    if not all_finite(params):
        raise DivergenceError(
            f"training diverged: parameters are not finite after step {steps}; a smaller lr or clip_norm may help"
        )
