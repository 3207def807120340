"""Statistics of the headline metric over clients (`evaluation.over_clients`), as columns of the metrics."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from rayfl.config.execution import NUMBER_OF_CLIENTS
from rayfl.data.client_rows import all_labels
from rayfl.engine.events import ClientScore
from rayfl.engine.plan.headline import Headline
from rayfl.engine.plan.workload import Workload
from rayfl.errors import ScenarioError
from rayfl.tasks.metrics.construction import build_metrics
from rayfl.tasks.metrics.outputs import Accuracy, TopKAccuracy
from rayfl.tasks.metrics.over_clients import LocalClasses, number_defined, over_clients, pooled_accuracies

if TYPE_CHECKING:
    from rayfl.data.store import ShardStore


class ClientStatistics:
    """Computes the statistics that a scenario asks for.

    Args:
        headline: The metric that they describe.
        workload: The evaluated workload.
    """

    def __init__(self, headline: Headline, workload: Workload) -> None:
        self._headline, self._workload = headline, workload
        self._pooled = workload.evaluation.pooled_statistics
        self._own = [name for name in workload.evaluation.over_clients if name not in self._pooled]

    @property
    def pool_classes(self) -> int | None:
        """Number of classes for which hits on test samples are counted; None if no statistic needs them."""
        return self._workload.num_outputs if self._pooled else None

    def columns(self, clients: Sequence[ClientScore], hits: np.ndarray | None) -> dict[str, float | None]:
        """Returns the statistics of one evaluation and the numbers of clients, by column of metrics.jsonl.

        Args:
            clients: The scores of all evaluated clients, on all sets.
            hits: Hits on all test samples by class (`hits_by_class`); None unless `pool_classes` is set.
        """
        metric, higher = self._headline.metric, self._headline.higher_is_better
        columns: dict[str, float | None] = {}
        for column, scores in self._by_column(clients).items() if self._own else ():
            values, samples = [value for value, _ in scores], [number for _, number in scores]
            columns |= {f"{column}_{name}": over_clients(name, values, samples, higher) for name in self._own}
            columns[f"{column}_{NUMBER_OF_CLIENTS}"] = number_defined(values)
        if hits is not None:
            shares = pooled_accuracies(hits, self._local_classes).tolist()
            accuracies = [None if math.isnan(share) else share for share in shares]  # no class of theirs is in the pool
            none = [0] * len(accuracies)
            for name in self._pooled:
                columns[f"test_{metric}_{name}"] = over_clients(name.removeprefix("pooled_"), accuracies, none, higher)
            columns[f"test_{metric}_pooled_{NUMBER_OF_CLIENTS}"] = number_defined(accuracies)
        return columns

    def _by_column(self, clients: Sequence[ClientScore]) -> Mapping[str, list[tuple[float | None, int]]]:
        """Returns the clients' (value, number of samples), by the column that the statistics are named after."""
        metric = self._headline.metric
        by_column: dict[str, list[tuple[float | None, int]]] = {}
        for score in clients:
            by_column.setdefault(f"{score.set}_{metric}", []).append((score.scores[metric], score.samples))
        for score in clients:
            if (personalized := f"personalized_{metric}") in score.scores:
                by_column.setdefault(personalized, []).append((score.scores[personalized], score.samples))
        return by_column

    @cached_property
    def _local_classes(self) -> LocalClasses:
        return local_classes(self._workload.store)


def local_classes(store: ShardStore) -> LocalClasses:
    """Counts the classes of each client's samples, both those it trains on and those held out of its shard."""
    parts = [(all_labels(store.train.y, "evaluation.over_clients"), store.train_shards)]
    parts += [(held.samples.y, held.shards) for held in store.held_out.values() if held.shards is not None]
    owners = [np.repeat(np.arange(store.num_clients), shards.sizes) for _, shards in parts]
    labels = [y[shards.rows] for y, shards in parts]
    return LocalClasses.count(np.concatenate(owners), np.concatenate(labels), store.num_clients)


def check_client_statistics(workload: Workload, headline: Headline) -> None:
    """Checks that the statistics which a scenario asks for are defined for its headline metric and data.

    Raises:
        ScenarioError: One is undefined, or its column would have the name of another one.
    """
    where, metric = "evaluation.over_clients", headline.metric
    metrics = build_metrics(workload.evaluation.metrics, workload.task, workload.num_outputs)
    one_class = workload.task.kind == "multiclass" and workload.task.ignored_label is None
    one_class = one_class and workload.store.train.y.ndim == 1
    statistics = workload.evaluation.over_clients
    for name in (*statistics, *((NUMBER_OF_CLIENTS, f"pooled_{NUMBER_OF_CLIENTS}") if statistics else ())):
        if f"{metric}_{name}" in metrics:
            raise ScenarioError(
                f"{where}: the column of '{name}' would be '{metric}_{name}', which is also a metric; label the metric "
                "differently"
            )
    for name in statistics:
        pooled, corrected = name in workload.evaluation.pooled_statistics, name == "variance_corrected"
        kind = Accuracy if pooled else TopKAccuracy
        if (pooled or corrected) and not (one_class and isinstance(metrics.get(metric), kind)):
            allowed = "accuracy" if pooled else "accuracy or top_k"
            raise ScenarioError(
                f"{where}: '{name}' needs {allowed} as the headline metric, and a task with one class per sample; here "
                f"the headline is '{metric}' of task '{workload.task.name}'"
            )
        if pooled:
            _check_pool(workload.store, where, name)
        if corrected:
            _check_two_samples(workload.store, where, name)


def _check_two_samples(store: ShardStore, where: str, name: str) -> None:
    """Checks that some client has two samples in some set, to estimate the variance of its accuracy."""
    sets = [store.test_shards, *(held.shards for held in store.held_out.values())]
    if all(int(shards.sizes.max(initial=0)) < 2 for shards in sets if shards is not None):
        raise ScenarioError(
            f"{where}: '{name}' needs clients with at least two test samples each, but none has more than one; "
            "hold out more with data.test_share, or leave it out"
        )


def _check_pool(store: ShardStore, where: str, name: str) -> None:
    """Checks that the test samples have at least one class of every client."""
    local = local_classes(store)
    known = np.isin(local.label, all_labels(store.test.y, f"{where}: '{name}'"))
    lacking = np.setdiff1d(np.arange(store.num_clients), local.client[known])
    if len(lacking):
        raise ScenarioError(
            f"{where}: '{name}' weights the classes of the {len(store.test)} test samples by each client's labels, but "
            f"no test sample has a class of client {lacking[0]} ({len(lacking)} such clients); evaluate on more "
            "samples, or leave it out"
        )
