"""The executor for `local.dp`: everything that it computes from samples is clipped per sample, noised, and charged."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rayfl.config.privacy import SampleDP
from rayfl.engine.device import seed_torch
from rayfl.engine.executors.executor import Executor, view_of
from rayfl.errors import RayflError, ScenarioError
from rayfl.local.context import ClientContext
from rayfl.local.queries import DataView, Gradient, Loss, LossAndGradient
from rayfl.local.requests import NO_OWN_GRADIENTS, LocalTraining
from rayfl.local.sgd import StepGradient, train
from rayfl.local.spending import Mechanism
from rayfl.local.steps import update_steps
from rayfl.local.training_plan import select
from rayfl.models.modes import evaluation_mode
from rayfl.privacy import secure_noise as system_random
from rayfl.privacy.samples.batches import (
    Randomness,
    Secure,
    Seeded,
    expected_batch_size,
    full_passes,
    pass_length,
    poisson_batches,
    sampling_rate,
    shuffled_batches,
)

if TYPE_CHECKING:
    from rayfl.privacy.samples.per_sample import PerSampleGradients
    from rayfl.privacy.samples.released_sums import ReleasedSums

Hidden = LocalTraining | Loss | Gradient | LossAndGradient
"""The requests that can be answered with example-level DP."""


class Private(Executor):
    """Trains clients with `local.dp` by DP-SGD, and noises the losses and gradients that algorithms request.

    Algorithms see samples only through requests; algorithms whose requests cannot be protected are rejected beforehand.
    The privacy spent is in `ClientContext.spent`. The losses of training steps are not noised; they serve only the
    experimenter's reports.
    """

    def accepts(self, client: ClientContext, request: Any) -> bool:
        return isinstance(request, Hidden) and client.local.dp is not None

    def answer(self, client: ClientContext, request: Hidden, number: int) -> Any:
        view = view_of(client, request)
        _check_distinct(view)
        _check_planned(client, request, view)
        match request:
            case LocalTraining():
                gradients = self._step_gradients(client, request, view, number)
                secure = _options(client)[0].secure
                seed = int(system_random.uniform(1, 63)[0]) if secure else client.streams.torch_seed("model", number)
                seed_torch(seed, self._model.vector.device)
                return train(self._model, gradients, client, request, len(view))
            case Loss():
                return self._mean_loss(client, request, view, number)
            case Gradient():
                return self._loss_and_gradient(client, request, view, number)[1]
            case LossAndGradient():
                return self._loss_and_gradient(client, request, view, number)

    def _step_gradients(
        self, client: ClientContext, request: LocalTraining, view: DataView, number: int
    ) -> StepGradient:
        """Returns the gradients of DP-SGD (Abadi et al., CCS 2016, alg. 1): clipped, summed, noised, divided by q n."""
        if request.terms:
            raise ScenarioError(
                "local.dp: its client update adds terms of the whole batch to the loss, whose gradients cannot be "
                "clipped per sample; use another algorithm or regulariser"
            )
        if request.step_gradient is not None:
            raise ScenarioError(f"local.dp: its client update computes its own gradients: {NO_OWN_GRADIENTS}")
        dp, noise_multiplier = _options(client)
        sums = self._sums(client, "dp noise", number)
        batches = self._drawn_batches(client, dp, view, number)
        divisor = expected_batch_size(client.local, len(view))
        mechanism = Mechanism(noise_multiplier, sampling_rate(client.local, len(view)), view.part)

        def step_gradient(_: int) -> torch.Tensor | None:
            sums.clear()
            losses, labels = [], []
            for x, y, counted in next(batches):
                batch_losses = self._add_clipped(dp, x, y, sums, dp.augmentations, counted)
                losses.append(batch_losses[: counted * dp.augmentations])
                labels.append(y[: counted * dp.augmentations])
            sums.release_gradient()
            self._model.gradient.div_(divisor)
            client.spent[mechanism] += 1
            return _reported(torch.cat(losses).sum() / self._task.divisor(torch.cat(labels))) if losses else None

        return step_gradient

    def _drawn_batches(
        self, client: ClientContext, dp: SampleDP, view: DataView, number: int
    ) -> Iterator[list[tuple[Any, torch.Tensor, int]]]:
        """Yields the passes of every step: inputs, labels, and how many samples count; none for an empty batch."""
        local, samples = client.local, len(view)
        steps, own = update_steps(local, samples), self._samples.source.set_of(client.id)
        size = expected_batch_size(local, samples)
        if dp.sampling == "poisson":
            chance = _randomness(client, dp, "dp batches", number)
            batches = poisson_batches(samples, size, steps, chance)
        else:
            chance = _randomness(client, dp, "order", number)
            batches = shuffled_batches(samples, size, steps, chance, local.shuffle)
        rows, length = self._samples.rows(client, view), pass_length(dp, size, samples)
        rng = system_random.generator() if dp.secure else client.streams.numpy("augment", number)

        def fetched(places: np.ndarray) -> tuple[Any, torch.Tensor]:
            drawn = np.repeat(rows[places], dp.augmentations)
            batch = self._samples.source.training_batches(drawn, len(drawn), rng, view.augment is not False, own)
            return next(iter(batch))

        for places in batches:
            passes = full_passes(places, length) if dp.secure else [(places, len(places))] if len(places) else []
            yield [(*fetched(part), counted) for part, counted in passes]

    def _mean_loss(self, client: ClientContext, request: Loss, view: DataView, number: int) -> torch.Tensor:
        self._model.load(request.at, client.discrete.values)
        sums = self._sums(client, "dp query noise", number)
        with evaluation_mode(self._model.module), torch.no_grad():
            batches = self._samples.all_batches(client, view, number)
            for x, y in self._model.unchanged(batches, request.at, client.discrete.values):
                sums.add_losses(self._task.loss(self._model.module(x), y, "none"))
        return _noised_mean(client, view, sums)

    def _loss_and_gradient(
        self, client: ClientContext, request: Gradient | LossAndGradient, view: DataView, number: int
    ) -> tuple[torch.Tensor | None, torch.Tensor]:
        """Returns the means of bounded losses, if requested, and of clipped gradients, both noised and charged."""
        dp, noise_multiplier = _options(client)
        with_loss = isinstance(request, LossAndGradient)
        self._model.load(request.at, client.discrete.values)
        sums = self._sums(client, "dp query noise", number)
        sums.clear()
        with evaluation_mode(self._model.module), self._training(client):
            for x, y in self._samples.all_batches(client, view, number):
                losses = self._add_clipped(dp, x, y, sums)
                if with_loss:
                    sums.add_losses(losses)
            sums.release_gradient()
        self._model.gradient.div_(len(view))
        self._model.check()
        client.spent[Mechanism(noise_multiplier, 1.0, view.part)] += 1
        loss = _noised_mean(client, view, sums) if with_loss else None
        return loss, self._model.gradient.clone()

    def _training(self, client: ClientContext) -> AbstractContextManager[Any]:
        """Excludes parameters that do not train from gradients, and so from their norms."""
        selection = select(client.train, self._model.module)
        return nullcontext() if selection is None else self._model.training_only(selection.tensors)

    def _sums(self, client: ClientContext, purpose: str, number: int) -> ReleasedSums:
        from rayfl.privacy.samples.released_sums import FloatSums, LatticeSums

        dp, noise_multiplier = _options(client)
        if dp.secure:
            return LatticeSums(self._model, dp, noise_multiplier)
        return FloatSums(self._model, dp, noise_multiplier, Seeded(client.streams.numpy(purpose, number)))

    def _add_clipped(
        self,
        dp: SampleDP,
        x: Any,
        y: torch.Tensor,
        sums: ReleasedSums,
        copies: int = 1,
        counted: int | None = None,
    ) -> torch.Tensor:
        """Adds a batch's clipped gradients to the sums; returns the losses."""
        if dp.clipping == "ghost":
            return self._ghost_clipping.add_clipped(x, y, dp.max_grad_norm, dp.physical_batch_size, copies)
        return self._per_sample.add_clipped(x, y, dp.max_grad_norm, dp.physical_batch_size, copies, sums, counted)

    @cached_property
    def _per_sample(self) -> PerSampleGradients:
        from rayfl.privacy.samples.per_sample import PerSampleGradients  # imports Opacus, which takes seconds

        return PerSampleGradients(self._model, self._task)

    @cached_property
    def _ghost_clipping(self) -> PerSampleGradients:
        from rayfl.privacy.samples.per_sample import PerSampleGradients

        return PerSampleGradients(self._model, self._task, ghost=True)


def _options(client: ClientContext) -> tuple[SampleDP, float]:
    """Returns the client's `local.dp` and its noise multiplier."""
    dp, noise_multiplier = client.local.dp, client.noise_multiplier
    if dp is None or noise_multiplier is None:
        raise RayflError("its worker process did not receive the noise multiplier of local.dp")
    return dp, noise_multiplier


def _check_planned(client: ClientContext, request: Hidden, view: DataView) -> None:
    """Checks, before a sample is read, that the round's plan includes the request."""
    if client.planned is None:
        return
    training = isinstance(request, LocalTraining)
    rate = sampling_rate(client.local, len(view)) if training else 1.0
    asked = update_steps(client.local, len(view)) if training else 1 + isinstance(request, LossAndGradient)
    mechanism = Mechanism(_options(client)[1], rate, view.part)
    if client.spent[mechanism] + asked > client.planned.get(mechanism, 0):
        of_part = f" of part '{view.part}'" if view.part else ""
        raise RayflError(
            f"local.dp: its client update makes a request, {type(request).__name__}{of_part}, that is not planned for "
            f"exchange {client.streams.exchange} of this round, so it was not carried out; the algorithm's "
            "`sample_requests` must list every request that reads samples"
        )


def _check_distinct(view: DataView) -> None:
    """Checks that no sample counts twice, which would need twice the noise."""
    if len(np.unique(view.places)) != len(view):
        raise ScenarioError(
            "local.dp: its client update uses a view that contains a sample twice; draw without replacement"
        )


def _randomness(client: ClientContext, dp: SampleDP, purpose: str, number: int) -> Randomness:
    return Secure() if dp.secure else Seeded(client.streams.numpy(purpose, number))


def _noised_mean(client: ClientContext, view: DataView, sums: ReleasedSums) -> torch.Tensor:
    """Returns the mean of bounded losses from their noised sum, and charges it."""
    client.spent[Mechanism(_options(client)[1], 1.0, view.part)] += 1
    return (sums.release_loss() / len(view)).float()


def _reported(loss: torch.Tensor) -> torch.Tensor:
    """Returns a loss for reports, NaN unless finite: an error from summing infinite ones would reveal samples."""
    return torch.where(loss.isfinite(), loss, torch.nan)
