"""Callbacks that report a run's metrics elsewhere: to MLflow, TensorBoard, Weights & Biases, or a trial of Ray Tune.

Each imports its library when a run starts.
"""

from __future__ import annotations

import importlib.util
import time
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from rayfl.backends.ray.tune import in_trial, report_to_trial
from rayfl.callbacks.callback import Callback, RunSoFar
from rayfl.config.scenario import Scenario
from rayfl.errors import ScenarioError


class Tracker(Callback):
    """Reports the numbers of every evaluated round under the names of their columns.

    Attributes:
        packages: Packages that must be installed.
        extra: The extra of rayfl that installs them.
    """

    settles: ClassVar[bool] = False
    packages: ClassVar[tuple[str, ...]]
    extra: ClassVar[str]

    def check(self, scenario: Scenario) -> None:
        missing = [package for package in self.packages if importlib.util.find_spec(package) is None]
        if missing:
            raise ScenarioError(f"{', '.join(missing)} not installed: pip install 'rayfl[{self.extra}]'")

    def on_evaluation(self, run: RunSoFar) -> None:
        row = run.metrics[-1]
        numbers = {name: float(value) for name, value in row.items() if isinstance(value, int | float)}
        self.report(row["round"], {name: value for name, value in numbers.items() if name != "round"})

    @abstractmethod
    def report(self, round: int, numbers: Mapping[str, float]) -> None:
        """Reports the numbers of one evaluated round."""


def options_of(scenario: Scenario) -> dict[str, Any]:
    """The resolved scenario as a flat dictionary with dotted keys."""
    return dict(_flat("", scenario.model_dump(mode="json", exclude_none=True)))


def _flat(prefix: str, value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        inner = [(str(key), part) for key, part in value.items()]
    elif isinstance(value, list) and any(isinstance(part, dict | list) for part in value):
        inner = [(str(index), part) for index, part in enumerate(value)]
    else:
        return [(prefix, value)]
    return [pair for key, part in inner for pair in _flat(f"{prefix}.{key}" if prefix else key, part)]


MLFLOW_DATABASE = "mlflow.db"
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
        from mlflow.entities import Param
        from mlflow.tracking import MlflowClient

        self._client = MlflowClient(self.tracking_uri or f"sqlite:///{run.folder.parent / MLFLOW_DATABASE}")
        experiment = self._client.get_experiment_by_name(self.experiment)
        number = experiment.experiment_id if experiment else self._client.create_experiment(self.experiment)
        self._run_id = self._client.create_run(number, run_name=run.folder.name).info.run_id
        values = options_of(run.scenario).items()
        parameters = [Param(key, str(value)[:LONGEST_PARAMETER]) for key, value in values]
        self._client.log_batch(self._run_id, params=parameters)

    def report(self, round: int, numbers: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        now = time.time_ns() // 1_000_000
        metrics = [Metric(name, value, now, round) for name, value in numbers.items()]
        self._client.log_batch(self._run_id, metrics=metrics)

    def on_end(self, run: RunSoFar) -> None:
        statuses = {"finished": "FINISHED", "failed": "FAILED", "interrupted": "KILLED"}
        if self._run_id and run.ended:
            self._client.set_terminated(self._run_id, statuses[run.ended])


TENSORBOARD_FOLDER = "tensorboard"


class TensorBoard(Tracker):
    """Writes the metrics, and the scenario as text, to `tensorboard/` in the run's folder.

    `tensorboard --logdir runs` shows all runs.
    """

    packages: ClassVar[tuple[str, ...]] = ("tensorboard",)
    extra: ClassVar[str] = "tensorboard"

    _writer: Any = None

    def on_start(self, run: RunSoFar) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(run.folder / TENSORBOARD_FOLDER)
        self._writer.add_text("scenario", f"```\n{run.scenario.to_toml()}\n```")

    def report(self, round: int, numbers: Mapping[str, float]) -> None:
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, round)
        self._writer.flush()

    def on_end(self, run: RunSoFar) -> None:
        if self._writer is not None:
            self._writer.close()


class WandB(Tracker):
    """Reports the metrics and the scenario to Weights & Biases.

    Attributes:
        project: The project there.
        mode: `offline` writes to `wandb/` in the run's folder, for `wandb sync`; `online` needs an account and a
            network.
    """

    packages: ClassVar[tuple[str, ...]] = ("wandb",)
    extra: ClassVar[str] = "wandb"

    project: str = "rayfl"
    mode: Literal["offline", "online"] = "offline"

    _wandb_run: Any = None

    def on_start(self, run: RunSoFar) -> None:
        import wandb

        self._wandb_run = wandb.init(
            project=self.project,
            name=run.folder.name,
            dir=run.folder,
            mode=self.mode,
            config=run.scenario.model_dump(mode="json", exclude_none=True),
            reinit="create_new",  # a process may follow several runs at once
            settings=wandb.Settings(console="off", silent=True),
        )

    def report(self, round: int, numbers: Mapping[str, float]) -> None:
        self._wandb_run.log(dict(numbers), step=round)

    def on_end(self, run: RunSoFar) -> None:
        if self._wandb_run is not None:
            self._wandb_run.finish(exit_code=0 if run.ended == "finished" else 1)


class RayTune(Callback):
    """Reports every evaluated round to the trial, under the names of the metrics' columns.

    Runs inside a trial use it automatically; naming it in a scenario restricts the scenario to trials.
    """

    settles: ClassVar[bool] = False

    def check(self, scenario: Scenario) -> None:
        if not in_trial():
            raise ScenarioError("ray_tune reports to a trial of Ray Tune, but this program is not one; leave it out")

    def on_evaluation(self, run: RunSoFar) -> None:
        report_to_trial({name: value for name, value in run.metrics[-1].items() if value is not None})
