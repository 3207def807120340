"""Training on CUDA, shown on a machine without a GPU: devices are never mixed, and no step waits needlessly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from torch import nn

import rayfl
from rayfl.backends.inline import inline_session
from rayfl.data.batches import BatchSource
from rayfl.engine.exact_sum import ExactSum, combine
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.errors import ClientError
from rayfl.models.tensors import split
from tests.algorithms.scene import EVERYTHING, OF_ANY_SCENE, PLAIN, Setting, supported
from tests.algorithms.scene import prepared as prepared_people
from tests.engine.scenes import prepared, run_on_hosts, without_clock
from tests.pretend_cuda.device import PretendCuda, pretend_cuda

EVERY = [
    *({"name": name} for name in OF_ANY_SCENE),
    {"name": "fedavg", "weighting": "uniform", "aggregation": "median"},
    {"name": "scaffold", "option": "I"},
    {"name": "scaffold", "correction": "step"},
    {"name": "moon", "first": "initial"},
    {"name": "feddyn", "penalty": "decay", "scale_alpha": True},
    {"name": "feddecorr", "scaling": "code"},
    {"name": "fedmeta", "variant": "meta_sgd"},
    {"name": "perfedavg", "variant": "hessian_free"},
]
COPIES_PER_EPOCH = 2
"""What a pass over a client's samples takes along: which samples, and how each of them is augmented."""

WAITS_PER_CLIENT_UPDATE = 4
"""The losses; whether the parameters are finite; the largest value of an answer, and of its weight."""

Outcome = tuple[np.ndarray, list[dict[str, Any]]]


class ConvNet(nn.Module):
    """A convolutional network with what depends on a device: dropout, and the running statistics of batch norm."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 4, 5, stride=2), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2))
        self.head = nn.Sequential(nn.Flatten(), nn.Dropout(0.3), nn.Linear(4 * 6 * 6, num_classes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.features(x))
        return logits


class LeavesATensorOnTheCpu(ConvNet):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + torch.zeros(len(x), 1)


class LeavesPytorch(ConvNet):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * float(x.detach().numpy().max())


class AsksInEveryStep(ConvNet):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * x.detach().max().item()


def sequences() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Sixty sequences of twelve tokens for training and six for testing, each with the token that follows."""
    tokens = np.random.default_rng(5).integers(20, size=(66, 13))
    tokens[0, 12] = 19  # the labels decide how many tokens there are
    return tokens[:60, :12], tokens[:60, 12], tokens[60:, :12], tokens[60:, 12]


def images(device: str, model: Any = "ConvNet", augment: Any = (), phase: Any = None, **tables: Any) -> RunPlan:
    """Generated handwriting of 8 writers, and a network of this module or of rayfl."""
    usual = {"name": "p", "rounds": 1, "cohort": 3, "local": {"steps": 3, "batch_size": 8}}
    return prepared(
        data={"name": "handwriting", "clients": 8, "augment": list(augment)},
        model={"name": f"{__name__}:{model}"} if isinstance(model, str) else model,
        phases=[usual | (phase or {})],
        resources={"device": device, "relay": "spread"},
        **{"evaluation": {"every": 100}} | tables,
    )


def inline(job: RunPlan) -> Outcome:
    with inline_session(job) as session:
        events = list(session.events())
        return split(session.committed()[1])[0], without_clock(events)


def assert_same_on_both(make: Callable[[str], RunPlan], run: Callable[[RunPlan], Outcome] = inline) -> PretendCuda:
    """Runs a job on the CPU and on the pretended GPU, whose kernels are the CPU's; 4-D weights lie otherwise there."""
    on_cpu = make("cpu")
    model, events = run(on_cpu)
    with pretend_cuda() as gpu:
        on_gpu = make("cuda")
        model_on_gpu, events_on_gpu = run(on_gpu)
    assert gpu.count["kernels"] > 50, "it did not train there"
    layout, layout_on_gpu = on_cpu.result.initial.layout, on_gpu.result.initial.layout
    if layout == layout_on_gpu:
        assert np.array_equal(model, model_on_gpu)
        assert events == events_on_gpu
    for slot, slot_on_gpu in zip(layout, layout_on_gpu, strict=True):
        np.testing.assert_allclose(slot.array(model), slot_on_gpu.array(model_on_gpu), rtol=1e-4, atol=1e-5)
    assert [event.keys() for event in events] == [event.keys() for event in events_on_gpu]
    return gpu


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", EVERY, ids=lambda table: "-".join(map(str, table.values())))
def test_every_algorithm_keeps_to_one_device(algorithm: dict[str, Any]) -> None:
    local = EVERYTHING.with_local(unfreeze={"share": 0.6}).local
    setting = Setting(rounds=2, local=supported(algorithm, local))
    assert_same_on_both(lambda device: prepared_people(algorithm, setting, resources={"device": device})[0])


@pytest.mark.parametrize(
    "local",
    [
        {"optimizer": "adamw", "unfreeze": {"share": 0.6}, "lr_schedule": "cosine", "accumulate": 2, "clip_value": 0.1},
        {"optimizer": "adafactor", "epochs": {"uniform": [1, 3]}},
    ],
    ids=lambda local: str(local["optimizer"]),
)
def test_optimizers_of_torch_keep_to_one_device(local: dict[str, Any]) -> None:
    setting = replace(PLAIN.with_local(**local), rounds=2)
    phase = {"train": ["first", "second"]}
    assert_same_on_both(lambda device: prepared_people("fedprox", setting, phase, resources={"device": device})[0])


def test_a_relay_over_hosts_with_dropout_and_augmentation_keeps_to_one_device() -> None:
    augment = ["flip", {"name": "crop", "padding": 2, "mode": "reflect"}, {"name": "rotate", "degrees": 10}]
    relay = {"schedule": "relay", "rounds": 2}

    def run(job: RunPlan) -> Outcome:
        model, events = run_on_hosts(job, 3)
        return model, without_clock(events)

    gpu = assert_same_on_both(lambda device: images(device, augment=augment, phase=relay), run)
    assert len({*gpu.seeds}) >= 2 * 3, "every client update seeds the GPU's generator too"


def test_personalized_evaluation_keeps_to_one_device() -> None:
    evaluation = {"personalize": {"batch_size": 16, "steps": 2, "lr": 0.05}, "per_client": True}
    assert_same_on_both(lambda device: images(device, evaluation=evaluation))


@pytest.mark.parametrize("scale", [1.0, 1e9])
def test_sums_keep_to_one_device_and_wait_once_for_usual_values(scale: float) -> None:
    vectors = [torch.randn(50, generator=torch.Generator().manual_seed(seed)) * scale for seed in range(3)]
    expected = ExactSum("delta", 32)
    for vector in vectors:
        expected.add(vector, 7.0)
    with pretend_cuda() as gpu:
        found, moved = ExactSum("delta", 32), [vector.cuda() for vector in vectors]
        before = gpu.count["waits"]
        for vector in moved:
            found.add(vector, 7.0)
        waits = gpu.count["waits"] - before
        sums = [combine("delta", [total.partial()], 32) for total in (expected, found)]
    assert np.array_equal(sums[0], sums[1])
    assert waits == 3 if scale == 1.0 else waits <= 9


def test_a_resnet_with_augmentation_keeps_to_one_device() -> None:
    model = {"name": "resnet8", "norm": "group"}
    phase = {"cohort": 1, "local": {"steps": 2, "batch_size": 4}}
    assert_same_on_both(lambda device: images(device, augment=["flip"], phase=phase, model=model))


def test_weights_and_images_are_contiguous_on_cuda() -> None:
    job = images("cuda", augment=["flip"])
    assert not job.result.initial.channels_last
    with pretend_cuda():
        source = BatchSource(job.result.store, torch.device("cuda"))
        batches = source.training_batches(np.arange(6), 4, np.random.default_rng(0))
        assert all(x.is_contiguous() and x.shape[1] == 1 for x, _ in batches)
        assert source.test_batch(slice(0, 3))[0].is_contiguous()


@pytest.mark.parametrize("algorithm", [{"name": "scaffold", "option": "I"}, {"name": "qfedsgd"}], ids=str)
def test_the_mean_gradient_of_an_lstm_is_taken_on_cuda(algorithm: dict[str, Any]) -> None:
    """cuDNN goes backwards through an LSTM in training mode only."""

    def job(device: str) -> RunPlan:
        return prepared(
            data={"name": f"{__name__}:sequences", "clients": 3},
            model={"name": "char_lstm", "hidden": 4},
            phases=[{"name": "p", "rounds": 1, "cohort": 2, "local": {"lr": 0.1}, "algorithm": algorithm}],
            evaluation={"every": 9},
            resources={"device": device},
        )

    assert_same_on_both(job)


# How often the host waits for the device


def counted(epochs: int = 1, cohort: int = 1, **changes: Any) -> tuple[PretendCuda, int]:
    """What the GPU did in a round whose clients take many steps, and how many steps these were."""
    local = {"epochs": epochs, "batch_size": 4}
    with pretend_cuda() as gpu:
        _, events = inline(images("cuda", phase={"cohort": cohort, "local": local}, **changes))
    return gpu, sum(event.get("steps", 0) for event in events)


def of_another_epoch(**changes: Any) -> tuple[int, int, int]:
    """Copies, waits and steps that one client's second epoch adds."""
    (once, steps), (gpu, all_steps) = counted(1, **changes), counted(2, **changes)
    assert all_steps == 2 * steps > 20
    return gpu.count["copies"] - once.count["copies"], gpu.count["waits"] - once.count["waits"], steps


def test_steps_neither_copy_nor_wait() -> None:
    copies, waits, _ = of_another_epoch(augment=["flip", {"name": "crop", "padding": 2}])
    assert copies <= COPIES_PER_EPOCH
    assert waits == 0


def test_client_updates_wait_no_more_than_they_are_known_to() -> None:
    (few, _), (many, _) = counted(cohort=1), counted(cohort=3)
    sites = many.sites["waits"] - few.sites["waits"]
    assert many.count["waits"] - few.count["waits"] <= 2 * WAITS_PER_CLIENT_UPDATE, sites


def test_a_network_that_asks_for_a_number_in_every_step_is_noticed() -> None:
    _, waits, steps = of_another_epoch(model="AsksInEveryStep")
    assert waits >= steps


# That mistakes are noticed


def test_a_run_warns_before_it_trains_where_shares_of_the_gpu_are_too_small(tmp_path: Path) -> None:
    tables = {
        "data": {"name": "handwriting", "clients": 2},
        "model": {"name": "mlp", "hidden": [4000]},
        "phases": [{"name": "p", "rounds": 1, "cohort": 1, "local": {"steps": 1, "batch_size": 4}}],
    }
    told = []
    for share in (0.5, 0.04):
        printed = StringIO()
        with pretend_cuda():
            resources = {"device": "cuda", "gpus_per_host": share}
            rayfl.run(tables | {"resources": resources}, backend="inline", out=tmp_path, console=Console(file=printed))
        told.append([line for line in printed.getvalue().splitlines() if "GPU memory" in line])
    assert told[0] == []
    (line,) = told[1]
    assert line.startswith("phase p needs at least 0.12 GB of GPU memory in each worker")
    assert "resources.gpus_per_host=0.04 leaves 0.087 GB" in line


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("LeavesATensorOnTheCpu", r"expected all tensors to be on the same device, found cuda\[8, \d+\], cpu\[8, 1\]"),
        ("LeavesPytorch", r"can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu\(\) first"),
    ],
)
def test_a_network_that_leaves_the_device_is_noticed(model: str, message: str) -> None:
    inline(images("cpu", model))
    with pretend_cuda(), pytest.raises(ClientError, match=message):
        inline(images("cuda", model))
