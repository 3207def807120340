"""Keeps callbacks of a private run from deciding by figures computed from clients' samples without noise."""

from __future__ import annotations

from rayfl.callbacks.callback import Callback
from rayfl.engine.job import Job
from rayfl.errors import ScenarioError
from rayfl.planning.headline import headline_label
from rayfl.tasks.metrics.building import metric_label


def check_decisions(callback: Callback, job: Job, where: str) -> None:
    """Checks that a callback does not decide by clients' data if the run has differential privacy.

    Test samples that belong to no client are public. Those that clients hold, or that were cut from their training
    samples, are private, and so is everything computed from training losses.

    Args:
        callback: A callback; only those that declare the column they decide by can be checked.
        job: The job to run.
        where: The callback's key, for the error message.

    Raises:
        ScenarioError: The callback decides by something other than a score on public samples.
    """
    column = callback.decides_by(job.headlines)
    if column is None or not (job.sample_plan.phases or job.client_plan):
        return
    public = _public_columns(job)
    if column not in public:
        level = "phases.N.dp" if job.client_plan else "local.dp"
        remedy = f"use metric = '{sorted(public)[0]}'" if public else "leave it out: this data has no public test set"
        raise ScenarioError(
            f"{where}.metric: '{column}' is computed from clients' data without noise, and with {level} no callback "
            f"may decide by it; {remedy}"
        )


def _public_columns(job: Job) -> set[str]:
    store = job.result.store
    sets = [name for name, held in store.held_out.items() if held.shards is None]
    if store.test_shards is None:
        sets.append("test")
    evaluations = [job.scenario.evaluation_of(phase) for phase in job.scenario.phases]
    labels = {"loss", *(metric_label(metric) for evaluation in evaluations for metric in evaluation.metrics)}
    labels.update(headline_label(evaluation) for evaluation in evaluations)
    return {f"{name}_{label}" for name in sets for label in labels}
