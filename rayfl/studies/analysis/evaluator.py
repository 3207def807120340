"""Loss, headline metric and gradient of model vectors on chosen samples, outside the rounds of a run."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from rayfl.data.batches import BatchSource
from rayfl.data.dataset import Samples
from rayfl.engine.device import choose_device
from rayfl.engine.initial_model import model_as_built
from rayfl.engine.plan.headline import headline_label
from rayfl.engine.plan.rounds import RoundIndex
from rayfl.engine.plan.slices import Slice
from rayfl.engine.scoring import Scorer, evaluation_batches
from rayfl.errors import ScenarioError
from rayfl.local.batches import EvaluationBatch
from rayfl.models.modes import twice_differentiable
from rayfl.streams import stream
from rayfl.studies.analysis.opened_run import OpenedRun, as_tensor
from rayfl.tasks.metrics.construction import build_metrics

BATCH_NORMS = nn.modules.batchnorm._BatchNorm


class Scores(NamedTuple):
    """The scores of a model.

    Attributes:
        loss: The mean loss.
        metric: The headline metric.
    """

    loss: float
    metric: float


class Evaluator:
    """Evaluates models of one phase of a run on a set of samples.

    Args:
        run: The run.
        round: Any round with a model of the same layout as those to evaluate.
        samples: Number of samples to draw, from a separate stream; None for all.
        on: `test`: the test samples of the run. `train`: the training samples of all clients.
        client: Take only the training samples of this client.
    """

    def __init__(
        self, run: OpenedRun, round: int, samples: int | None = None, on: str = "test", client: int | None = None
    ) -> None:
        scenario, workload = run.plan.scenario, run.workload(round)
        self._scenario, self._workload = scenario, workload
        self._device = choose_device(scenario.resources, scenario.numerics)
        self.model = model_as_built(scenario, workload, self._device)
        chosen = chosen_samples(run, round, samples, on, client)
        self._source = BatchSource(replace(workload.store, test=chosen, test_shards=None, held_out={}), self._device)
        self._part = Slice(0, len(chosen))
        self._label = headline_label(workload.evaluation)
        self._scorer = Scorer(
            workload.task, build_metrics(workload.evaluation.metrics, workload.task, workload.num_outputs)
        )

    def __len__(self) -> int:
        """Number of samples."""
        return self._part.stop

    def score(self, vector: np.ndarray, re_estimate_on: Evaluator | None = None) -> Scores:
        """Scores a model vector.

        Args:
            vector: [length of the model].
            re_estimate_on: Its samples give new batch norm statistics; None keeps the stored ones.
        """
        self.model.load(as_tensor(vector))
        if re_estimate_on is not None:
            self._re_estimate(re_estimate_on)
        self.model.module.eval()
        score = self._scorer.score(self._batches(), self._part)
        scores = self._scorer.summarize(RoundIndex(0, 1, 1), "", [score]).scores
        loss, metric = (scores.get(f"test_{name}") for name in ("loss", self._label))
        return Scores(*(math.nan if value is None else value for value in (loss, metric)))

    def gradient(self, vector: np.ndarray) -> tuple[float, np.ndarray]:
        """The mean loss and its gradient, float64 [length of the parameters], in evaluation mode."""
        parts = list(self._gradients(vector))
        total = sum(weight for _, _, weight in parts)
        loss = sum(loss for loss, _, _ in parts) / total
        return loss, np.sum([gradient for _, gradient, _ in parts], axis=0) / total

    def batch_gradients(self, vector: np.ndarray, size: int) -> Iterator[tuple[np.ndarray, float]]:
        """The gradient of the mean loss of every batch of the given size, and the weight of the batch."""
        for _, gradient, weight in self._gradients(vector, size):
            yield gradient / weight, weight

    def hessian_product(self, vector: np.ndarray, direction: np.ndarray) -> np.ndarray:
        """The Hessian of the mean loss times a direction, in evaluation mode: the exact derivative of the gradient.

        Args:
            vector: [length of the model].
            direction: [length of the parameters].

        Returns:
            float64 [length of the parameters].
        """
        self.model.load(as_tensor(vector))
        self.model.module.eval()
        self.model.zero_gradient()
        task, parameters, total = self._workload.task, self.model.trained_parameters, 0.0
        along = as_tensor(direction).to(self._device)
        with twice_differentiable(self.model.module):
            for batch in self._batches():
                loss = task.loss(task.evaluated(batch), batch.y, "sum")
                gradients = torch.autograd.grad(loss, parameters, create_graph=True, materialize_grads=True)
                torch.autograd.backward(self.model.dot(gradients, along), inputs=parameters)
                total += float(task.total(batch.y))
        return self.model.gradient.cpu().numpy().astype(np.float64) / total

    def _gradients(self, vector: np.ndarray, size: int | None = None) -> Iterator[tuple[float, np.ndarray, float]]:
        self.model.load(as_tensor(vector))
        self.model.module.eval()
        task = self._workload.task
        for batch in self._batches(size):
            self.model.zero_gradient()
            with torch.backends.cudnn.flags(enabled=False):  # cuDNN's LSTM has gradients only in training mode
                loss = task.loss(task.evaluated(batch), batch.y, "sum")
                torch.autograd.backward(loss)
            yield float(loss.detach()), self.model.gradient.cpu().numpy().astype(np.float64), float(task.total(batch.y))

    def _batches(self, size: int | None = None) -> Iterator[EvaluationBatch]:
        size = size or self._workload.evaluation.batch_size
        module, task = self.model.module, self._workload.task
        return evaluation_batches(self._source, module, task, self._part, size, self._scenario.data_seed)

    def _re_estimate(self, on: Evaluator) -> None:
        """Sets the batch norm statistics to their plain mean over the batches of other samples."""
        module = self.model.module
        norms = [layer for layer in module.modules() if isinstance(layer, BATCH_NORMS)]
        momenta = [layer.momentum for layer in norms]
        module.eval()
        for layer in norms:
            layer.reset_running_stats()
            layer.momentum = None
            layer.train()
        with torch.no_grad():
            for batch in on._batches():
                module(batch.x)
        for layer, momentum in zip(norms, momenta, strict=True):
            layer.momentum = momentum


def chosen_samples(run: OpenedRun, round: int, samples: int | None, on: str, client: int | None = None) -> Samples:
    """All or some test or training samples, drawn from a separate stream; see `Evaluator`."""
    store = run.workload(round).store
    whole = store.test if on == "test" else store.train
    rows = np.arange(len(whole))
    if on == "train":
        rows = np.sort(store.train_shards.rows) if client is None else np.asarray(store.train_shards[client])
    if samples is not None and samples < len(rows):
        rng = stream(run.plan.scenario.data_seed, f"analysis of {on}")
        rows = np.sort(rng.choice(rows, samples, replace=False, shuffle=False))
    if not len(rows):
        raise ScenarioError(f"'{run.folder.path}' has no {on} samples to evaluate on")
    return whole.take(rows)
