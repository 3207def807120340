"""How often each way of training copies, waits and launches kernels on a GPU, counted on the pretended one.

`python -m tests.pretend_cuda.contracts` counts all cases anew and writes `contracts.json`; `NAME ...` only those. A
figure that grows makes training slower on every GPU: say in the commit why it has to.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import torch

from rayfl.backends.inline import inline_session
from rayfl.engine.events import RoundDone
from rayfl.engine.plan.run_plan import RunPlan
from tests.algorithms.scene import OF_ANY_SCENE, supported
from tests.engine.scenes import TINY, prepared
from tests.pretend_cuda.device import pretend_cuda

FILE = Path(__file__).with_name("contracts.json")
COUNTED = ("kernels", "copies", "bytes", "waits")
OF_STEP = ("kernels", "copies", "waits")
"""Bytes depend on which samples the other steps have then."""
STEPS = 2
"""Of a client in a round; every client has samples for more in its first epoch."""

LOCAL: dict[str, Any] = {"steps": STEPS, "batch_size": 2, "lr": 0.1}
COHORT = (4, 2)
"""Clients with 16 and 14 samples."""
OF_ONE_BUCKET = ((0, 64), (0, 64, 128))
"""Clients of `unequal_images` that train at once."""
DP = {"noise_multiplier": 1.1, "max_grad_norm": 0.7, "accountant": "rdp"}
VIEWS = [{"augment": ["flip"]}, {"augment": [{"name": "crop", "padding": 2}]}]


class Case(NamedTuple):
    """One way of training.

    Attributes:
        phase: Keys of its phase; those of `local` go on top of `LOCAL`.
        tables: Other tables of the scenario.
        cohorts: Clients of the second round: fewer, and one more.
    """

    phase: Mapping[str, Any]
    tables: Mapping[str, Any] = TINY
    cohorts: tuple[Sequence[int], Sequence[int]] = (COHORT[:1], COHORT)


def _of_algorithms() -> dict[str, Case]:
    cases = {}
    for name in OF_ANY_SCENE:
        cases[name] = Case({"algorithm": name, "local": supported(name, LOCAL)})
    variants: dict[str, dict[str, Any]] = {
        "scaffold, option I": {"name": "scaffold", "option": "I"},
        "scaffold, correction of steps": {"name": "scaffold", "correction": "step"},
        "fedavg, median": {"name": "fedavg", "weighting": "uniform", "aggregation": "median"},
    }
    return cases | {name: Case({"algorithm": table, "local": LOCAL}) for name, table in variants.items()}


def _of_options() -> dict[str, Case]:
    options: dict[str, dict[str, Any]] = {
        "momentum": {"momentum": 0.9},
        "weight decay, clipped norm": {"weight_decay": 0.01, "clip_norm": 1.0},
        "clipped values, accumulated": {"clip_value": 0.1, "accumulate": 2},
        "adamw, cosine": {"optimizer": "adamw", "lr_schedule": "cosine"},
        "FedBug": {"unfreeze": {"share": 1.0}},
        "rates of modules": {"module_lr": {"first": 0.01}},
        "DP-SGD": {"dp": DP},
    }
    return {name: Case({"local": LOCAL | local}) for name, local in options.items()}


def _of_images() -> dict[str, Case]:
    """Convolutions, batch norm, augmentation, clients at once, and self-supervision."""
    writers: dict[str, Any] = {"data": {"name": "handwriting", "clients": 8}}
    squares: dict[str, Any] = {"data": {"name": "tests.engine.unequal_images:load"}}
    small = LOCAL | {"batch_size": 4}
    dropout = "tests.pretend_cuda.test_pretend_cuda:ConvNet"
    cases = {
        "LeNet-5": Case({"local": small}, writers | {"model": "lenet5"}),
        "dropout, batch norm, augmentation": Case(
            {"local": small}, {"data": writers["data"] | {"augment": ["flip", "crop"]}, "model": dropout}
        ),
        "ResNet-8": Case({"local": small}, writers | {"model": {"name": "resnet8", "norm": "group"}}),
        "clients one by one": Case({"local": LOCAL}, squares | {"model": "mlp"}, OF_ONE_BUCKET),
        "clients at once": Case(
            {"local": LOCAL}, squares | {"model": "mlp", "numerics": {"clients_at_once": 4}}, OF_ONE_BUCKET
        ),
    }
    tasks: tuple[tuple[dict[str, Any], str], ...] = (
        ({"name": "simsiam"}, "siamese"),
        ({"name": "moco", "queue": 64}, "momentum_contrast"),
    )
    for task, network in tasks:
        tables = {
            "data": writers["data"] | {"views": VIEWS},
            "model": {"name": network, "network": "mlp", "width": 16},
            "task": task,
        }
        cases[task["name"]] = Case({"local": small | {"drop_last": True}}, tables)
    return cases


CASES: Mapping[str, Case] = _of_algorithms() | _of_options() | _of_images()


def _plan(case: Case, more_steps: int) -> RunPlan:
    """Four rounds: of all clients, which then keep what they keep; of the fewer; of all; one that ends the run."""
    local = dict(case.phase["local"])
    if "steps" in local:
        local["steps"] += more_steps
    few, everyone = map(list, case.cohorts)
    phase = {"name": "p", "rounds": 4, "cohort": {"explicit": [everyone, few, everyone, few]}}
    tables = {"evaluation": {"every": 100}, "resources": {"device": "cuda"}} | dict(case.tables)
    return prepared(**tables, phases=[phase | dict(case.phase) | {"local": local}])


def of_rounds(case: Case, rounds: int, more_steps: int = 0) -> list[Counter[str]]:
    """What a GPU does in each round after the first, up to one of them."""
    plan = _plan(case, more_steps)
    marks: list[Counter[str]] = []
    with pretend_cuda() as gpu, inline_session(plan) as session:
        for event in session.events():
            if isinstance(event, RoundDone):
                marks.append(gpu.count.copy())
                if event.round == rounds:
                    break
    return [Counter({what: after[what] - before[what] for what in COUNTED}) for before, after in pairwise(marks)]


def contract(case: Case) -> dict[str, dict[str, int]]:
    """What another client in a round costs, and another step of the round's smaller cohort."""
    base, many = of_rounds(case, 3)
    costs = {"client": {what: many[what] - base[what] for what in COUNTED}}
    if "steps" in case.phase["local"]:
        (longer,) = of_rounds(case, 2, 1)
        costs["step"] = {what: longer[what] - base[what] for what in OF_STEP}
    return costs


def recorded() -> dict[str, Any]:
    """The golden file: PyTorch's version, and `contract` by case."""
    found: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def main(names: Sequence[str]) -> None:
    torch.set_num_threads(1)
    before = recorded()["contracts"] if names else {}
    found = before | {name: contract(CASES[name]) for name in names or CASES}
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(found[name])}" for name in CASES)
    FILE.write_text(f'{{"torch": "{torch.__version__}", "contracts": {{\n{lines}\n}}}}\n', encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
