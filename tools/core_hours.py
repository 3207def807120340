"""python -m tools.core_hours [GRID...]: estimates how many hours of one core a grid takes in full, starts included.

It counts the samples that all runs train on and evaluate, with the sizes of the complete data sets, and times the
network on this machine, rendering and augmentation included; the fastest of several steps counts, since other programs
may run. Prints the [core_hours] of a paper's file (`scenarios/fps/fps.paper.toml`), rounded to two digits. Left out are
what algorithms compute besides the network's steps (MOON evaluates two more models) and messages.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch.nn import functional
from torch.utils._pytree import tree_leaves

from rayfl.config.local import Choices, Number, Uniform
from rayfl.config.phase import CentralPhase, Phase
from rayfl.config.scenario import Scenario
from rayfl.config.scenario_files import find_grids
from rayfl.config.section import Named
from rayfl.data.batches import BatchSource
from rayfl.data.files import KNOWN, WHOLE, cache_folder
from rayfl.data.store import ShardStore, build_store
from rayfl.engine.initial_model import build_network
from rayfl.engine.plan.cohort import expected_cohort_size
from rayfl.models.flat import FlatModel
from rayfl.runs.resolution import resolve
from rayfl.runs.start_chain import starts_of
from rayfl.studies.grid.schema import load_grid
from rayfl.tasks.construction import build_task

SECONDS = 1.0
"""How long a step is repeated."""

PIXELS = 120_000
"""Pixels in a timed batch; the time of one of more is in proportion."""

SMALL = 64
"""Side of generated images in pixels, if a source can choose it."""

OTHER_SIZES = {
    "chest_xray": (5_232, 624),
    "imagenet": (1_281_167, 0),
    "image_folder": (1_200_000, 0),  # the StyleGAN images of FPS, which are as many as its fractals
    "pacs": (9_991, 0),
    "penn_treebank": (5_101_618, 449_945),  # a window begins at every character
    "sent140": (1_600_498, 359),
    "shakespeare": (3_671_999, 354_680),
}
"""Training and test samples of data sets that are not in `WHOLE`."""

CLASSES = {"cifar10": 10, "cifar100": 100, "tiny_imagenet": 200, "imagenet": 1000}
CLIENTS = {"cityscapes": 18, "geo_10k": 39, "geo_3k": 136, "shakespeare": 679}
"""Natural clients, by data set or, of iNaturalist, by split."""

SENT140_USERS = 660_120

DOMAINS = {"art_painting": 2048, "cartoon": 2344, "photo": 1670, "sketch": 3929}
"""Images of each domain of PACS."""

FEMNIST_WRITER = 200
"""Samples of a writer in LEAF; a tenth is for testing."""


class Speed(NamedTuple):
    """Seconds per sample of one core."""

    training: float
    evaluation: float


def sizes(scenario: Scenario) -> tuple[float, float]:
    """Training and test samples of a scenario with the complete data."""
    data = scenario.data
    if data.name == "fractals":
        return float(data.options["pairs"]), float(data.options["test_images"])
    if data.name == "femnist":
        samples = (data.clients or 0) * FEMNIST_WRITER
        train, test = 0.9 * samples, 0.1 * samples
    else:
        train, test = map(float, WHOLE.get(data.name) or OTHER_SIZES[data.name])
    if data.name == "sent140":
        train *= (data.clients or SENT140_USERS) / SENT140_USERS
    if data.name == "pacs":
        train *= sum(DOMAINS[domain] for domain in data.options["domains"]) / sum(DOMAINS.values())
    if data.classes is not None:
        chosen = data.classes.draw or sum(end - begin for begin, end in data.classes.places)
        train, test = (size * chosen / CLASSES[data.name] for size in (train, test))
    held_out = train * (data.test_share or 0)
    return (train - held_out) * (1 - (data.server_share or 0)), test + held_out


def samples_trained(scenario: Scenario, phase: Phase) -> float:
    """Samples that all client updates of a phase train on, each time that they do."""
    train, _ = sizes(scenario)
    clients = scenario.data.clients or CLIENTS.get(str(scenario.data.options.get("split", scenario.data.name)), 1)
    central = isinstance(phase, CentralPhase)
    of_client = train if central else train / clients
    local = phase.local
    samples = of_client * mean(local.epochs)
    if local.steps is not None and local.batch_size != "full":
        samples = min(samples, mean(local.steps) * local.batch_size)
    return samples * phase.rounds * (1 if central else expected_cohort_size(phase, clients))


def mean(number: Number) -> float:
    """The mean of a number that may be drawn."""
    if isinstance(number, Uniform):
        return sum(number.uniform) / 2
    return sum(number.choices) / len(number.choices) if isinstance(number, Choices) else float(number)


def samples_evaluated(scenario: Scenario, phase: Phase) -> float:
    """Samples of all evaluations in a phase."""
    _, test = sizes(scenario)
    return min(test, scenario.evaluation.samples or test) * phase.rounds / scenario.evaluation.every


class Speeds:
    """Seconds per sample of networks on their data, each measured once."""

    def __init__(self) -> None:
        self._known: dict[str, Speed] = {}

    def of(self, scenario: Scenario, phase: Phase) -> Speed:
        """The speed of a phase."""
        data, task = scenario.data, phase.task or scenario.task
        seen = data.model_dump(mode="json", include={"name", "options", "augment", "views"})
        batch = 256 if phase.local.batch_size == "full" else phase.local.batch_size
        key = json.dumps([seen, scenario.model_of(phase).model_dump(mode="json"), task.model_dump(mode="json"), batch])
        if key not in self._known:
            self._known[key] = measured(scenario, phase, batch)
        return self._known[key]


def measured(scenario: Scenario, phase: Phase, batch: int) -> Speed:
    """Times the network of a phase on a few samples."""
    task = build_task(scenario, phase)
    store = few_samples(scenario)
    outputs = task.num_outputs(store.known_labels, store.num_classes)
    model = FlatModel(build_network(scenario, scenario.model_of(phase), store, outputs), torch.device("cpu"))
    source = BatchSource(store, torch.device("cpu"), ignored_label=task.ignored_label)
    side = final_side(scenario)
    pixels = side**2 or int(np.prod((store.input_shape or (1,))[1:3]))
    number = max(2, min(batch, PIXELS // pixels))
    rows = np.arange(number) % len(store.train)
    draws = [np.random.default_rng(view) for view in range(task.views)]

    def train() -> None:
        views, _ = next(source.training_views(rows, number, draws))
        for view in views:
            outputs = tree_leaves(model.module(enlarged(view, side)))
            torch.autograd.backward([output.float().square().mean() for output in outputs])
        model.params.add_(model.gradient, alpha=-1e-9)
        model.gradient.zero_()

    @torch.no_grad()
    def evaluate() -> None:
        model.module(enlarged(source.batch("train", rows)[0], side))

    model.module.train()
    training = fastest(train)
    model.module.eval()
    return Speed(training / number, fastest(evaluate) / number)


def few_samples(scenario: Scenario) -> ShardStore:
    """Generated samples of the scenario's form; of those without a stand-in, other images."""
    data = scenario.data
    update: dict[str, object] = {"classes": None, "owners": None, "test_share": None, "server_share": None}
    update["augment"] = tuple(step for step in data.augment if step.options.get("size", 0) <= SMALL)
    if data.name == "fractals":
        update["options"] = {**data.options, "codes": 20, "pairs": 256, "test_images": 4}
    elif data.name in KNOWN and KNOWN[data.name].generated:
        update |= {"source": "generated"} | ({} if data.name in CLIENTS else {"clients": 2})
        if data.options.get("size", 0) > SMALL:
            update["options"] = {**data.options, "size": SMALL}
    else:
        update |= {"name": "cifar10", "source": "generated", "options": {}}
    if data.partition is not None and data.partition.name != "natural":
        update["partition"] = Named(name="iid")
    return build_store(data.model_copy(update=update), 0, Path("nowhere"), cache_folder())


def final_side(scenario: Scenario) -> int:
    """The side in pixels of images that reach the network enlarged; 0 for all others."""
    crops = [step.options.get("size", 0) for step in scenario.data.augment if step.name == "crop"]
    size = 0 if scenario.data.name == "fractals" else scenario.data.options.get("size", 0)
    return int(max([*crops, size, 0]))


def enlarged(x: object, side: int) -> object:
    """Images of at least this side: generated ones are small, because they take long to make."""
    if isinstance(x, torch.Tensor) and x.dim() == 4 and x.shape[-1] < side:
        return functional.interpolate(x, size=(side, side))
    return x


def fastest(step: Callable[[], None]) -> float:
    """Seconds of processor time of the fastest of several steps."""
    times: list[float] = []
    while sum(times) < SECONDS:
        begin = time.process_time()
        step()
        times.append(time.process_time() - begin)
    return min(times)


def hours_of(name: str, speeds: Speeds) -> float:
    """Core-hours of a grid."""
    cells = load_grid(find_grids()[name]).scenarios().values()
    runs = [*cells, *{link.key: link.scenario for cell in cells for link in starts_of(cell.start)}.values()]
    return sum(seconds_of(resolve(run), speeds) for run in runs) / 3600


def seconds_of(scenario: Scenario, speeds: Speeds) -> float:
    """Seconds of one core for a scenario without its start."""
    return sum(
        speed.training * samples_trained(scenario, phase) + speed.evaluation * samples_evaluated(scenario, phase)
        for phase in scenario.phases
        if phase.rounds
        for speed in [speeds.of(scenario, phase)]
    )


def lines(names: Sequence[str]) -> Iterator[str]:
    """A line of [core_hours] for each grid."""
    speeds = Speeds()
    for name in names:
        yield f"{name} = {float(f'{hours_of(name, speeds):.2g}'):g}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(prog="python -m tools.core_hours", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("grids", nargs="*", metavar="GRID", help="names of grids, or of folders of scenarios (fps)")
    known = find_grids()
    asked = parser.parse_args(arguments).grids
    if unknown := [
        one for one in asked if one not in known and not any(one == path.parent.name for path in known.values())
    ]:
        parser.error(f"no grid or folder '{unknown[0]}'; `rayfl list --grids` lists all")
    torch.set_num_threads(1)
    for line in lines(
        [name for name, path in sorted(known.items()) if not asked or {name, path.parent.name} & set(asked)]
    ):
        print(line, flush=True)


if __name__ == "__main__":
    main()
