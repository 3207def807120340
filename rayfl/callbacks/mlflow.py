"""Reports a run to MLflow."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, ClassVar

from rayfl.callbacks.callback import RunSoFar
from rayfl.callbacks.tracker import Tracker, options_of

DATABASE = "mlflow.db"
LONGEST_PARAMETER = 6000
"""The most characters that MLflow stores of a parameter."""


class MLflow(Tracker):
    """Reports the metrics, and the scenario's values as parameters, to MLflow.

    Attributes:
        tracking_uri: Where MLflow stores runs; by default the SQLite file `mlflow.db` beside the run's folder, which
            all runs there share (`mlflow ui --backend-store-uri sqlite:///runs/mlflow.db`).
        experiment: Name of the MLflow experiment.
    """

    packages: ClassVar[tuple[str, ...]] = ("mlflow", "sqlalchemy", "alembic")
    extra: ClassVar[str] = "mlflow"

    tracking_uri: str | None = None
    experiment: str = "rayfl"

    _client: Any = None
    _run_id: str = ""

    def on_start(self, run: RunSoFar) -> None:
        """See `Callback.on_start`."""
        from mlflow.entities import Param
        from mlflow.tracking import MlflowClient

        self._client = MlflowClient(self.tracking_uri or f"sqlite:///{run.folder.parent / DATABASE}")
        experiment = self._client.get_experiment_by_name(self.experiment)
        number = experiment.experiment_id if experiment else self._client.create_experiment(self.experiment)
        self._run_id = self._client.create_run(number, run_name=run.folder.name).info.run_id
        values = options_of(run.scenario).items()
        parameters = [Param(key, str(value)[:LONGEST_PARAMETER]) for key, value in values]
        self._client.log_batch(self._run_id, params=parameters)

    def report(self, round: int, numbers: Mapping[str, float]) -> None:
        """See `Tracker.report`."""
        from mlflow.entities import Metric

        now = time.time_ns() // 1_000_000
        metrics = [Metric(name, value, now, round) for name, value in numbers.items()]
        self._client.log_batch(self._run_id, metrics=metrics)

    def on_end(self, run: RunSoFar) -> None:
        """See `Callback.on_end`."""
        statuses = {"finished": "FINISHED", "failed": "FAILED", "interrupted": "KILLED"}
        if self._run_id and run.ended:
            self._client.set_terminated(self._run_id, statuses[run.ended])
