"""A finished run in memory: the same data and networks, and its kept models as vectors."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import safetensors.torch
import torch

from rayfl.engine.initial_model import flat_model
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.engine.plan.workload import Workload
from rayfl.errors import DataError, ScenarioError
from rayfl.files import reading
from rayfl.models.flat import FlatModel
from rayfl.models.tensors import WholeModel
from rayfl.runs.environment import changed_code
from rayfl.runs.initial_weights import first_model, given, start_from
from rayfl.runs.preparation import prepare
from rayfl.runs.weight_sources import from_run
from rayfl.studies.analysis.run_folder import RunFolder


@dataclass(frozen=True, eq=False)
class OpenedRun:
    """A finished run, with its data and networks in memory again.

    Attributes:
        folder: The folder of the run.
        plan: A plan with the same scenario, data and initial weights.
    """

    folder: RunFolder
    plan: RunPlan

    def workload(self, round: int) -> Workload:
        """The workload of the phase of a model; for the initial model, round 0, that of the first phase."""
        return self.plan.workloads[self.folder.phase_of_model(round)]

    def vector(self, round: int) -> np.ndarray:
        """float32 [length of the model]: the model after a round; the initial model for round 0.

        Raises:
            DataError: The model was not kept.
            ScenarioError: It differs from a newly built network in more than a vector: in integers or flags.
        """
        workload = self.workload(round)
        if not round and not workload.initial.discrete:
            return np.array(workload.initial.vector)
        model = flat_model(self.plan.scenario, workload)
        if round:
            self.folder.check_kept([round])
            with reading(self.folder.models[round], "as the model of the run"):
                model.load_state_dict(safetensors.torch.load_file(self.folder.models[round]))
        built = model.initial_discrete()
        if changed := [name for name, value in model.discrete().items() if not torch.equal(value, built[name])]:
            raise ScenarioError(
                f"'{self.folder.path}': training or [start] changed the integer or boolean buffer '{changed[0]}', and "
                "analyses move models as vectors without such buffers; analyse a run of a network without them"
            )
        return model.vector.numpy()

    def received(self, round: int) -> np.ndarray:
        """Returns the model that a round starts from, float32: the previous round's, converted by `taken_over`."""
        phases = self.folder.phase_of_model(round - 1), self.folder.phase_of_model(round)
        return self.plan.taken_over(WholeModel(self.vector(round - 1), {}), *phases).vector


@cache
def open_run(path: Path, data_dir: Path) -> OpenedRun:
    """Opens a run, once per process.

    Raises:
        DataError: The data, the user's code or the initial weights have changed since the run.
    """
    folder = RunFolder.read(path)
    run_plan, model = prepare(folder.scenario, data_dir, whole=True)
    digest, before = run_plan.result.store.provenance.digest, folder.provenance.digest
    if digest != before:
        raise DataError(
            f"'{path}': the data has changed since the run (digest {digest[:12]}, before {str(before)[:12]}); use "
            "--data-dir with the folder of the original data"
        )
    if changed := changed_code(folder.code, run_plan.code):
        raise DataError(
            f"'{path}': code has changed since the run: {', '.join(changed)}; restore it to analyse the run"
        )
    return OpenedRun(folder, _started(folder, run_plan, model) if run_plan.scenario.start else run_plan)


def _started(folder: RunFolder, run_plan: RunPlan, model: FlatModel) -> RunPlan:
    start, recorded = run_plan.scenario.start, folder.environment["start"] or {}
    assert start is not None
    source = given(start) if start.scenario is None else from_run(_kept(folder.path, Path(recorded["path"])))
    if source.origin.get("sha256") != recorded.get("sha256"):
        raise DataError(f"'{folder.path}': {source.where} has changed since the run; restore the old weights")
    return start_from(run_plan, first_model(run_plan, model), source)[0]


def _kept(run: Path, recorded: Path) -> Path:
    """The run that a run started from: at the recorded place, or near the run in a grid that has moved."""
    for folder in (recorded, *(folder / "starts" / recorded.name for folder in run.parents)):
        if folder.is_dir():
            return folder
    raise DataError(f"'{run}': the model that it started from is no longer in '{recorded}'; run it again")


def as_tensor(vector: np.ndarray) -> torch.Tensor:
    """A float32 copy for a model to load."""
    return torch.from_numpy(np.array(vector, np.float32))
