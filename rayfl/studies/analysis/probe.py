"""Quality of the features of kept models for other data: nearest neighbours and a linear probe, round by round.

FPS and SimSiam monitor self-supervised pre-training this way, since its loss says little about the features.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from matplotlib.figure import Figure
from pydantic import BeforeValidator, NonNegativeInt, PositiveInt

from rayfl.data.batches import BatchSource
from rayfl.engine.device import choose_device
from rayfl.engine.initial_model import model_as_built
from rayfl.errors import ScenarioError
from rayfl.models.feature_layer import features_and_outputs, head_of, undeclared
from rayfl.models.flat import FlatModel
from rayfl.runs.figures.style import COLOURS
from rayfl.studies.analysis.analysis import (
    Analysis,
    Open,
    Row,
    WorkUnit,
    by_run,
    listed,
    marker,
    names_of,
    new_figure,
    tidy,
)
from rayfl.studies.analysis.evaluator import chosen_samples
from rayfl.studies.analysis.opened_run import OpenedRun, as_tensor
from rayfl.studies.analysis.run_folder import RunFolder
from rayfl.tasks.metrics.features import KNN, LinearProbe
from rayfl.wording import counted, percent

AT_ONCE = 256
"""Batch size for computing features."""


class Probe(Analysis):
    """Accuracy of two simple classifiers on the features of each run's models, on the data of the last run.

    They learn from the training samples of the last run, and are scored on its test samples.

    Attributes:
        rounds: Models to probe, 0 for the initial one; by default the initial and all kept ones. Of several runs, the
            last one, which has the data, may lack some of them.
        bank: Number of training samples to draw; all if there are fewer.
        samples: Number of test samples to draw; None for all.
        k: Number of neighbours that vote; see `rayfl.tasks.metrics.features`.
    """

    title: ClassVar[str] = "Quality of features"

    rounds: Annotated[tuple[NonNegativeInt, ...], BeforeValidator(listed)] = ()
    bank: PositiveInt = 5000
    samples: PositiveInt | None = None
    k: PositiveInt = 200

    def units(self, runs: Sequence[RunFolder]) -> list[WorkUnit]:
        for run in runs[:-1] or runs:
            run.check_kept(self.rounds)
        return [
            WorkUnit(number, f"run{number}-round{round}", (round, len(runs) - 1))
            for number, run in enumerate(runs)
            for round in sorted({0, *run.models} & set(self.rounds or {0, *run.models}))
        ]

    def cost(self, runs: Sequence[RunFolder], units: Sequence[WorkUnit]) -> str:
        tested = self.samples or runs[-1].environment["data"]["evaluated_samples"]
        samples = self.bank + tested
        return f"features of at most {samples:,} samples for each of {counted(len(units), 'model')}"

    def compute(self, unit: WorkUnit, open: Open) -> list[Row]:
        round, of_data = unit.at
        run, data = open(unit.run), open(of_data)
        bank, tested = (
            _features(run, round, data, number, on) for number, on in ((self.bank, "train"), (self.samples, "test"))
        )
        return [
            {
                "run": unit.run,
                "round": round,
                "knn": KNN(self.k).value_beside(tested, bank),
                "linear_probe": LinearProbe().value_beside(tested, bank),
            }
        ]

    def draw(self, rows: Sequence[Mapping[str, Any]], runs: Sequence[RunFolder]) -> Figure:
        figure = new_figure(self.title, runs[-1:], 10, 4.2 + 0.25 * len(runs))
        shares = [1, 0.07 * len(runs)]
        panels = figure.subplot_mosaic([["knn", "linear_probe"], ["names", "names"]], height_ratios=shares)
        panels["linear_probe"].sharey(panels["knn"])
        for key, words in (("knn", "nearest neighbours"), ("linear_probe", "linear probe")):
            for number, (name, own) in enumerate(zip(names_of(runs), by_run(rows, runs), strict=True)):
                rounds, values = [row["round"] for row in own], [100 * row[key] for row in own]
                panels[key].plot(rounds, values, color=COLOURS[number % len(COLOURS)], label=name, **marker(len(own)))
            tidy(panels[key], "round", "accuracy in %", words, whole_x=True)
        panels["names"].axis("off")
        panels["names"].legend(handles=panels["knn"].get_lines(), loc="center left", frameon=False)
        return figure

    def findings(self, rows: Sequence[Mapping[str, Any]], runs: Sequence[RunFolder]) -> list[str]:
        lines = []
        for name, own in zip(names_of(runs), by_run(rows, runs), strict=True):
            first, last = own[0], own[-1]
            lines.append(
                f"probe    {name}: round {first['round']} to {last['round']}: nearest neighbours "
                f"{percent(first['knn'])} to {percent(last['knn'])}, linear probe "
                f"{percent(first['linear_probe'])} to {percent(last['linear_probe'])}"
            )
        return lines


def _features(run: OpenedRun, round: int, data: OpenedRun, samples: int | None, on: str) -> dict[str, np.ndarray]:
    """Features [n, d] and class labels [n] of samples from the data of one run, with a model of another."""
    own, other = run.workload(round).store.input_shape, data.plan.workloads[0].store.input_shape
    if own is None or other is None or (len(own), own[-1]) != (len(other), other[-1]):
        raise ScenarioError(
            f"'{run.folder.path}' takes inputs {own}, but those of '{data.folder.path}' are {other}; as the last run "
            "name one on images with the same number of channels"
        )
    number, source = _source(data, samples, on)
    model = _model(run, run.folder.phase_of_model(round))
    model.load(as_tensor(run.vector(round)))
    model.module.eval()
    with torch.no_grad():
        batches = [
            (features_and_outputs(model.module, x)[0].cpu().numpy(), y.cpu().numpy())
            for x, y in source.plain_batches(np.arange(number), AT_ONCE, "test")
        ]
    features, labels = (np.concatenate(part) for part in zip(*batches, strict=True))
    return {"features": features, "labels": labels}


@cache
def _model(run: OpenedRun, phase: int) -> FlatModel:
    """A model of the network of a phase, made once per process."""
    scenario, workload = run.plan.scenario, run.plan.workloads[phase]
    model = model_as_built(scenario, workload, choose_device(scenario.resources, scenario.numerics))
    if head_of(model.module) is None:
        raise ScenarioError(f"'{run.folder.path}': features are the inputs of the head: {undeclared(model.module)}")
    return model


@cache
def _source(data: OpenedRun, samples: int | None, on: str) -> tuple[int, BatchSource]:
    """The number of chosen samples, and a source with them as its test samples."""
    chosen = chosen_samples(data, 0, samples, on)
    if chosen.y.ndim != 1 or chosen.y.dtype.kind not in "ui":
        raise ScenarioError(f"'{data.folder.path}': probing features requires class labels, which its data lacks")
    store = replace(data.plan.workloads[0].store, test=chosen, test_shards=None, held_out={})
    return len(chosen), BatchSource(store, choose_device(data.plan.scenario.resources, data.plan.scenario.numerics))
