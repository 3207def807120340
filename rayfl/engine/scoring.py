"""Scores models on slices of samples, in batches with the views that the task reads, and combines the scores."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from rayfl.config.execution import NUMBER_OF_CLIENTS
from rayfl.data.batches import BatchSource
from rayfl.data.held_out import BANK
from rayfl.engine.client_statistics import ClientStatistics
from rayfl.engine.events import ClientScore, Evaluated
from rayfl.engine.plan.headline import part_column
from rayfl.engine.plan.rounds import RoundIndex
from rayfl.engine.plan.slices import Slice
from rayfl.errors import RayflError
from rayfl.interruption import is_of_user_code
from rayfl.local.batches import EvaluationBatch
from rayfl.streams import stream
from rayfl.tasks.metrics.by_class import ClassMetric
from rayfl.tasks.metrics.features import BankMetric
from rayfl.tasks.metrics.metric import Metric, State
from rayfl.tasks.metrics.over_clients import hits_by_class, number_defined, over_clients
from rayfl.tasks.task import Task
from rayfl.wording import their_traceback


@dataclass(frozen=True)
class Score:
    """A model's score on a slice.

    Attributes:
        part: The slice.
        loss: The task's loss, summed over the slice's samples.
        divisor: Divisor that turns the sum into the mean loss; 0 if the samples have no loss.
        states: The state of every metric, by label.
        hits: int64 [2, classes], hits on test samples as from `hits_by_class`, if a statistic over clients needs them.
    """

    part: Slice
    loss: float
    divisor: float
    states: Mapping[str, State]
    hits: np.ndarray | None = None


class Scorer:
    """Scores models as a scenario's evaluation asks.

    Args:
        task: The task.
        metrics: The metrics, by label.
        statistics: Statistics over clients, if any are reported.
    """

    def __init__(self, task: Task, metrics: Mapping[str, Metric], statistics: ClientStatistics | None = None) -> None:
        self._task, self._metrics, self._statistics = task, metrics, statistics

    def score(self, batches: Iterable[EvaluationBatch], part: Slice) -> Score:
        """Scores a network, which is in evaluation mode, on the batches of a slice."""
        loss, divisor = 0.0, 0.0
        states: dict[str, list[State]] = {label: [] for label in self._metrics}
        classes = self._statistics.pool_classes if self._statistics and part.set == "test" else None
        hits = None if classes is None else np.zeros((2, classes), np.int64)
        for batch in batches:
            with torch.no_grad():  # networks may differentiate in forward, or keep tensors for training
                if part.set == BANK:
                    self._add_states(states, batch, None)
                    continue
                outputs, y = self._task.evaluated(batch), batch.y
                if self._task.has_loss:
                    loss += float(self._task.loss(outputs, y, "sum"))
                    divisor += float(self._task.total(y))
                self._add_states(states, batch, outputs)
                if hits is not None:
                    hits += hits_by_class(outputs, y, hits.shape[1])
        return Score(part, loss, divisor, {of: self._merged(of, added) for of, added in states.items() if added}, hits)

    def _add_states(
        self, states: Mapping[str, list[State]], batch: EvaluationBatch, outputs: torch.Tensor | None
    ) -> None:
        """Adds a batch's state to every metric; without outputs (the bank), only to metrics that read the bank."""
        for label, metric in self._metrics.items():
            if outputs is None and not isinstance(metric, BankMetric):
                continue
            shown = batch.features if metric.reads_features or outputs is None else outputs
            with _naming_metric(label):
                states[label].append(metric.state(shown, batch.y))

    def summarize(self, round_index: RoundIndex, phase: str, scores: Iterable[Score]) -> Evaluated:
        """Combines the scores of all slices, in the order of the slices.

        Args:
            round_index: The round whose model was scored.
            phase: The name of the round's phase.
            scores: One score per slice, in any order.
        """
        ordered = sorted(scores, key=lambda score: (score.part.set != "test", score.part.set, score.part.start))
        bank = self._bank([score for score in ordered if score.part.set == BANK])
        plain = [score for score in ordered if not score.part.personalized and score.part.set != BANK]
        sets: dict[str, list[Score]] = {}
        by_client: dict[tuple[int, str], list[Score]] = {}
        for score in plain:
            sets.setdefault(score.part.set, []).append(score)
            if score.part.client >= 0:
                by_client.setdefault((score.part.client, score.part.set), []).append(score)
        personalized = {
            (score.part.client, score.part.set): self._values([score], bank)
            for score in ordered
            if score.part.personalized
        }
        clients = [
            ClientScore(
                client,
                _samples(by_client[client, name]),
                self._values(by_client[client, name], bank) | _personalized(personalized.get((client, name), {})),
                name,
            )
            for client, name in sorted(by_client, key=lambda pair: pair[0])
        ]
        means: dict[str, float | None] = {}
        for name in self._metrics if personalized else ():
            of_clients = [values[name] for values in personalized.values()]
            means[name] = over_clients("mean", of_clients, [0] * len(of_clients), higher_is_better=True)
            means[f"{name}_{NUMBER_OF_CLIENTS}"] = number_defined(of_clients)
        values = {of: self._values(sets[of], bank, with_parts=True) for of in sets}
        columns = {f"{of}_{name}": value for of in sets for name, value in values[of].items()}
        columns |= _personalized(means)
        of_test = [(label, metric, values["test"][label]) for label, metric in self._metrics.items()]
        remarked = [(label, value, metric.remark(value)) for label, metric, value in of_test if value is not None]
        remarks = tuple(f"{label} {value:.4g}: {text}" for label, value, text in remarked if text)
        if self._statistics:
            counted = [score.hits for score in plain if score.hits is not None]
            columns |= self._statistics.columns(clients, np.sum(counted, axis=0) if counted else None)
        confusion = self._confusion(sets["test"])
        return Evaluated(phase, round_index.round, columns, _samples(sets["test"]), tuple(clients), remarks, confusion)

    def _confusion(self, scores: Sequence[Score]) -> tuple[tuple[int, ...], ...]:
        """The confusion matrix of some scores, from the first metric that counts it; empty without one."""
        for label, metric in self._metrics.items():
            if isinstance(metric, ClassMetric):
                counts = metric.confusion(self._merged(label, [score.states[label] for score in scores]))
                return tuple(map(tuple, counts.tolist()))
        return ()

    def _bank(self, scores: Sequence[Score]) -> dict[str, State]:
        """Returns the bank's state for each metric that compares samples with it."""
        labels = scores[0].states if scores else ()
        return {label: self._merged(label, [score.states[label] for score in scores]) for label in labels}

    def _values(
        self, scores: Sequence[Score], bank: Mapping[str, State], with_parts: bool = False
    ) -> dict[str, float | None]:
        """Returns the loss and every metric over some scores of a set; None where the labels leave one undefined."""
        divisor = math.fsum(score.divisor for score in scores)
        values: dict[str, float | None] = {
            "loss": math.fsum(score.loss for score in scores) / divisor if divisor else None
        }
        for label, metric in self._metrics.items():
            state = self._merged(label, [score.states[label] for score in scores])
            with _naming_metric(label, _samples_in_words(scores)):
                if isinstance(metric, BankMetric):
                    value: float | None = metric.value_beside(state, bank[label])
                else:
                    value = metric.value(state)
                values[label] = None if value is None else float(value)
                if with_parts:
                    values |= {part_column(label, name): part for name, part in metric.parts(state).items()}
        return values

    def _merged(self, label: str, states: Sequence[State]) -> State:
        with _naming_metric(label):
            return states[0] if len(states) == 1 else self._metrics[label].merged(states)


@contextmanager
def _naming_metric(label: str, of: str = "") -> Iterator[None]:
    """Names the metric in its exceptions, and the samples that it was computed of."""
    try:
        yield
    except RayflError as error:
        raise RayflError(f"metric '{label}'{of}: {error}") from None
    except BaseException as error:  # a user's metric may raise anything
        if not is_of_user_code(error):
            raise
        raise RayflError(f"metric '{label}'{of} raised\n{their_traceback(error)}") from None


def _samples(scores: Sequence[Score]) -> int:
    return sum(score.part.stop - score.part.start for score in scores)


def _samples_in_words(scores: Sequence[Score]) -> str:
    number, part = _samples(scores), scores[0].part
    client = f" of client {part.client}" if part.client >= 0 and part.client == scores[-1].part.client else ""
    return f" on the {number} {part.set} sample{'s' if number > 1 else ''}{client}"


def _personalized(values: Mapping[str, float | None]) -> dict[str, float | None]:
    return {f"personalized_{name}": value for name, value in values.items() if name != "loss"}


def evaluation_batches(
    source: BatchSource, module: nn.Module, task: Task, part: Slice, size: int, seed: int
) -> Iterator[EvaluationBatch]:
    """Yields the batches of a slice.

    Args:
        source: Source of the samples.
        module: The evaluated network.
        task: The task, which sets the number of views.
        part: The slice.
        size: Number of samples per batch.
        seed: The data's seed. Together with a sample's set and batch it determines the sample's views, which are
            therefore the same in every round and on any host.
    """
    for first in range(part.start, part.stop, size):
        rows = slice(first, min(first + size, part.stop))
        x, y = source.batch(part.set, rows)
        yield EvaluationBatch(module, x, y, tuple(_views(source, task, part.set, rows, seed)))


def _views(source: BatchSource, task: Task, name: str, rows: slice, seed: int) -> list[Any]:
    if not task.evaluation_views:
        return []
    purpose, places = f"evaluation view of {name}", np.arange(rows.start, rows.stop)
    rngs = [stream(seed, purpose, view, rows.start, rows.stop) for view in range(task.evaluation_views)]
    ((views, _),) = source.training_views(places, len(places), rngs, name=name)
    return views
