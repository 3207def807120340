"""What a worker needs of a GPU is planned before it trains: compared with the tensors of a real run on the CPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from rayfl.backends.inline import inline_session
from rayfl.engine.memory_plan import LiveBytes, memory_note, optimizer_bytes, plan_memory
from rayfl.engine.plan.run_plan import RunPlan
from tests.engine.scenes import prepared

GB = 10**9
FACTOR = 1.25
"""Plans agree with the tensors of a run within it, either way."""

WORDS, LENGTH = 500, 24


def sentences() -> tuple[Any, ...]:
    """A hundred sentences of 24 words, in four kinds."""
    words = torch.randint(WORDS, (100, LENGTH), generator=torch.Generator().manual_seed(0)).numpy()
    return words[:80], words[:80, 0] % 4, words[80:], words[80:, 0] % 4


class Transformer(nn.Module):
    def __init__(self, num_classes: int, width: int = 64) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.layers(self.words(x)).mean(1))
        return logits


class ReadsValues(Transformer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * (1.0 if int(x.max()) < WORDS else 0.0)


def planned(model: Any, batch_size: int, local: Any = None, **tables: Any) -> RunPlan:
    """One round of two clients with 40 images, or sentences, each."""
    images = {"name": "tools.bench.data:images", "options": {"train": 80, "test": 40}}
    data = {"name": f"{__name__}:sentences"} if "Transformer" in str(model) or "Reads" in str(model) else images
    phase = {"name": "p", "rounds": 1, "cohort": 2, "local": {"steps": 2, "batch_size": batch_size} | (local or {})}
    usual = {"evaluation": {"batch_size": 16}, "data": data | {"clients": 2, "partition": "iid"}}
    return prepared(model=model, phases=[phase], **usual | tables)


def peak(run: RunPlan) -> int:
    """Bytes of the tensors that live at once in a run, at the most."""
    with LiveBytes() as live, inline_session(run) as session:
        assert list(session.events())
    return int(live.peak)


RESNET18 = {"name": "resnet18", "stem": "cifar", "norm": "group"}
TRANSFORMER = f"{__name__}:Transformer"


@pytest.mark.parametrize(
    ("model", "batch_size", "local", "tables"),
    [
        ("lenet5", 40, {}, {}),
        ("lenet5", 4, {"optimizer": "adamw"}, {}),
        ("lenet5", 8, {"momentum": 0.9}, {"evaluation": {"batch_size": 40}}),
        ("mlp", 1, {}, {}),
        pytest.param(RESNET18, 4, {}, {}, marks=pytest.mark.takes("ResNet-18 trains on the CPU")),
        (TRANSFORMER, 32, {}, {}),
        (TRANSFORMER, 4, {"optimizer": "adam"}, {}),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_plan_is_close_to_the_tensors_of_a_run(model: Any, batch_size: int, local: Any, tables: Any) -> None:
    run = planned(model, batch_size, local, **tables)
    (plan,) = plan_memory(run)
    ratio = (plan.model + plan.batch) / peak(run)
    assert 1 / FACTOR < ratio < FACTOR, (plan, ratio)


def test_clients_at_once_need_a_model_and_a_batch_each() -> None:
    data = {"name": "tests.engine.unequal_images:load"}
    for at_once in (1, 3):
        cohort = {"explicit": [[0, 64, 128]]}
        phase = {"name": "p", "rounds": 1, "cohort": cohort, "local": {"steps": 2, "batch_size": 4}}
        tables = {"data": data, "numerics": {"clients_at_once": at_once}, "evaluation": {"batch_size": 4}}
        run = prepared(model="mlp", phases=[phase], **tables)
        (plan,) = plan_memory(run)
        assert 1 / FACTOR < (plan.model + plan.batch) / peak(run) < FACTOR


def test_samples_stay_on_the_device_as_far_as_they_may() -> None:
    whole = (80 + 40) * (32 * 32 * 3 + 8)
    for gibibytes, kept in ((1, whole), (1e-4, pytest.approx(1e-4 * 2**30, rel=0.05)), (0, 0)):
        (plan,) = plan_memory(planned("lenet5", 4, resources={"device": "cuda", "device_cache_gb": gibibytes}))
        assert plan.samples == kept


@pytest.mark.parametrize(
    ("local", "expected"),
    [({}, 0), ({"momentum": 0.9}, 4), ({"optimizer": "adam"}, 8), ({"optimizer": "rmsprop"}, 4)],
    ids=str,
)
def test_optimizers_keep_so_many_bytes_a_parameter(local: Any, expected: int) -> None:
    (phase,) = planned("mlp", 4, local).phases
    assert optimizer_bytes(phase.phase.local) == expected


def test_a_share_that_cannot_fit_is_told_in_one_line() -> None:
    run = planned({"name": "mlp", "hidden": [4000]}, 16, resources={"gpus_per_host": 0.1})
    (plan,) = plan_memory(run)
    hosts = [{"gpu_memory": str(total * GB)} for total in (80, 9)]
    told = memory_note(run, hosts)
    assert told is not None
    assert told.startswith(
        f"phase p needs at least {plan.total / GB:.2g} GB of GPU memory in each worker (model 0.25, "
    )
    assert "but resources.gpus_per_host=0.1 leaves 0.3 GB: use larger shares, a smaller local.batch_size" in told
    assert "\n" not in told
    assert memory_note(run, hosts[:1]) is None, "it fits there"
    assert memory_note(run, [{"device": "cpu"}]) is None


def test_a_network_that_reads_values_is_not_planned_and_trains() -> None:
    run = planned(f"{__name__}:ReadsValues", 4, resources={"gpus_per_host": 0.1})
    told = memory_note(run, [{"gpu_memory": str(9 * GB)}])
    assert told is not None
    assert told.startswith("GPU memory is not planned: the network or task does not work with fake tensors (")
