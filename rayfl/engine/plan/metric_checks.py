"""Checks before the run that metrics fit the task, the network and the samples that they are computed from."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from rayfl.data.batches import BatchSource
from rayfl.engine.plan.network_outputs import wrong_reduction
from rayfl.engine.plan.requirements import check_features
from rayfl.engine.plan.slices import Slice
from rayfl.engine.plan.workload import Workload
from rayfl.engine.scoring import Scorer, evaluation_batches
from rayfl.errors import RayflError, ScenarioError
from rayfl.models.attributes import changed
from rayfl.tasks.metrics.construction import build_metrics
from rayfl.tasks.metrics.features import BankMetric
from rayfl.tasks.metrics.metric import Metric, State
from rayfl.wording import report_as_theirs


def check_metrics(workload: Workload, network: nn.Module, where: str, seed: int) -> None:
    """Tries the metrics and the loss on two test samples, which also serve as the bank.

    Args:
        workload: The workload.
        network: The network with its initial parameters, on the CPU.
        where: The key that names the metrics.
        seed: The data's seed.

    Raises:
        ScenarioError: A metric does not fit the task, has another value than a number, keeps something outside its
            state, or needs features that the network does not declare or a bank that does not exist; the losses by
            different reductions disagree; or the metric or the task raised.
    """
    task, source, part = workload.task, BatchSource(workload.store, torch.device("cpu")), Slice(0, 2)
    metrics = build_metrics(workload.evaluation.metrics, task, workload.num_outputs, where)
    of_features = [label for label, metric in metrics.items() if metric.reads_features]
    if of_features:
        check_features(network, workload.store, f"{where}: '{of_features[0]}'")
    compared = [label for label, metric in metrics.items() if isinstance(metric, BankMetric)]
    if compared:
        _check_bank(workload, f"{where}: '{compared[0]}'")
    network.eval()
    try:
        (batch,) = evaluation_batches(source, network, task, part, 2, seed)
        states = Scorer(task, metrics).score([batch], part).states
        with torch.no_grad():
            outputs = task.evaluated(batch)
            for label, metric in metrics.items():
                _check_state(label, metric, batch.features if metric.reads_features else outputs, batch.y)
                if not isinstance(metric, BankMetric):
                    _check_value(label, metric, states[label])
            classes = workload.store.num_classes
            wrong = wrong_reduction(task, outputs, batch.y, classes) if task.has_loss else ""
    except RayflError as error:
        raise ScenarioError(f"{where}: {error}") from None
    except (Exception, SystemExit) as error:  # a user's task may raise anything
        raise ScenarioError(report_as_theirs(error, f"task '{task.name}' on two test samples")) from None
    if wrong:
        raise ScenarioError(f"task '{task.name}': {wrong}")


def _check_state(label: str, metric: Metric, shown: torch.Tensor, y: torch.Tensor) -> None:
    """Compares what a metric keeps outside its state after a batch and after a longer one."""
    kept = []
    for rows in ([0, -1], [0, -1, -1]):
        metric.state(shown[rows], y[rows])
        kept.append(metric.undeclared())
    for _, name in changed(*kept):
        raise ScenarioError(
            f"metric '{label}' keeps a batch's '{name}' outside its state, which alone is merged; declare it with "
            "add_state (torchmetrics), or return it from state (rayfl.tasks.Metric)"
        )


def _check_value(label: str, metric: Metric, state: State) -> None:
    """Checks that a metric returns a number; other errors may be due to so few samples."""
    try:
        metric.value(state)
    except RayflError as error:
        raise ScenarioError(f"metric '{label}': {error}") from None
    except Exception:
        pass


def check_bank_is_read(workloads: Sequence[Workload]) -> None:
    """Checks that some metric reads the bank, if there is one.

    Raises:
        ScenarioError: No metric reads it.
    """
    built = (build_metrics(of.evaluation.metrics, of.task, of.num_outputs) for of in workloads)
    read = any(isinstance(metric, BankMetric) for metrics in built for metric in metrics.values())
    if workloads[0].store.bank is not None and not read:
        raise ScenarioError(
            "evaluation.bank: has no effect, since no metric reads it; add 'knn' or 'linear_probe', or leave it out"
        )


def _check_bank(workload: Workload, what: str) -> None:
    evaluation = workload.evaluation
    if workload.store.bank is None:
        raise ScenarioError(
            f"{what} compares test samples with training samples; set their number, for instance evaluation.bank = 5000"
        )
    others = {"personalize": evaluation.personalize, "client_model = 'personal'": evaluation.client_model == "personal"}
    for key in (key for key, chosen in others.items() if chosen):
        raise ScenarioError(
            f"{what} compares features of a single model with the bank's, but evaluation.{key} scores several models; "
            "leave one of them out"
        )
