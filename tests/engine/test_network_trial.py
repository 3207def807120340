"""Networks and tasks are tried before the run: state from batch to batch, outputs in training mode, the layout."""

from __future__ import annotations

import copy
import json
import warnings
from collections import deque
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from pydantic import PrivateAttr
from rich.console import Console
from torch import nn
from torch.nn import functional
from torch.nn.utils import parameters_to_vector

import rayfl
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.errors import ScenarioError
from rayfl.local import TrainingBatch
from rayfl.streams import torch_seed
from rayfl.tasks.supervised import Classification
from rayfl.tasks.task import Task
from tests.engine.scenes import prepared, run_on_hosts

CLASSES, INPUTS = 3, 4


def points() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(2)
    y = np.arange(48) % CLASSES
    x = (np.eye(CLASSES, INPUTS)[y] + 0.3 * rng.normal(size=(48, INPUTS))).astype(np.float32)
    return x[:36], y[:36], x[36:], y[36:]


def pictures() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    x, y = rng.integers(0, 255, (36, 8, 8, 1)).astype(np.uint8), np.arange(36) % CLASSES
    return x[:24], y[:24], x[24:], y[24:]


def job(model: Any = "Plain", task: Any = "classification", data: str = "points", **changes: Any) -> RunPlan:
    phase = {"name": "p", "rounds": 1, "cohort": 2, "local": {"batch_size": 6, "lr": 0.1}}
    named = f"{__name__}:{model}" if isinstance(model, str) else model
    return prepared(
        data={"name": f"{__name__}:{data}", "clients": 3}, model=named, task=task, phases=[phase], **changes
    )


def refusal(**scene: Any) -> str:
    with pytest.raises(ScenarioError) as caught:
        job(**scene)
    (line,) = str(caught.value).splitlines()
    return line


class Plain(nn.Module):
    def __init__(self, num_classes: int = CLASSES) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(INPUTS, 5), nn.Linear(5, num_classes)

    def hidden(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.first(x))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.hidden(x))
        return logits


class Recurrent(Plain):
    """Continues from the hidden state of the batch before."""

    state: Any = None

    def hidden(self, x: torch.Tensor) -> torch.Tensor:
        own: torch.Tensor = super().hidden(x)
        own = own if self.state is None or len(self.state) != len(own) else own + self.state
        self.state = own.detach()
        return own


class Retaining(Recurrent):
    """Keeps the graph of the batch before as well, which the second backward pass does not find."""

    def hidden(self, x: torch.Tensor) -> torch.Tensor:
        own = Plain.hidden(self, x)
        own = own if self.state is None or len(self.state) != len(own) else own + self.state
        self.state = own
        return own


class Annealed(Plain):
    steps = 0

    def hidden(self, x: torch.Tensor) -> torch.Tensor:
        self.steps += 1
        return super().hidden(x) * min(1.0, self.steps / 1000)


class Statistics(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mean = torch.zeros(5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.mean.lerp_(x.detach().mean(0), 0.01)
        return x - self.mean


class RunningMean(Plain):
    def __init__(self, num_classes: int = CLASSES) -> None:
        super().__init__(num_classes)
        self.layers = nn.ModuleList([Statistics()])

    def hidden(self, x: torch.Tensor) -> torch.Tensor:
        centred: torch.Tensor = self.layers[0](super().hidden(x))
        return centred


class Growing(Plain):
    def __init__(self, num_classes: int = CLASSES) -> None:
        super().__init__(num_classes)
        self.seen: list[torch.Tensor] = []

    def hidden(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.append(x)
        return super().hidden(x)


class OfTheClass(Plain):
    history: ClassVar[deque[float]] = deque([0.0], maxlen=3)

    def hidden(self, x: torch.Tensor) -> torch.Tensor:
        self.history.append(float(x.mean()))
        return super().hidden(x)


@dataclass
class Memory:
    norms: dict[str, list[np.ndarray]] = field(default_factory=lambda: {"norms": [np.zeros(1)]})


class Nested(Plain):
    def __init__(self, num_classes: int = CLASSES) -> None:
        super().__init__(num_classes)
        self.memory = (Memory(),)

    def hidden(self, x: torch.Tensor) -> torch.Tensor:
        self.memory[0].norms["norms"][0] += float(x.norm())
        return super().hidden(x)


class FromFirstBatch(Plain):
    """Takes its scale from the first batch, and keeps it."""

    scale: torch.Tensor | None = None

    def hidden(self, x: torch.Tensor) -> torch.Tensor:
        if self.scale is None:
            self.scale = x.std()
        return super().hidden(x / self.scale)


class LastTrained(Plain):
    """Evaluates with the mean of the last training batch, the same after the same batch."""

    mean: Any = 0.0

    def hidden(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.mean = x.mean(0)
        return super().hidden(x - self.mean)


class GradientMean(Plain):
    """Keeps what only the backward pass shows."""

    norm = 0.0

    def hidden(self, x: torch.Tensor) -> torch.Tensor:
        own = super().hidden(x)
        if own.requires_grad:
            own.register_hook(self.note)  # type: ignore[no-untyped-call]
        return own

    def note(self, gradient: torch.Tensor) -> None:
        self.norm = 0.9 * self.norm + 0.1 * float(gradient.norm())


class ResetByEvaluation(Plain):
    """Continues from the training batch before, and begins anew after an evaluation."""

    state: Any = None

    def hidden(self, x: torch.Tensor) -> torch.Tensor:
        own: torch.Tensor = super().hidden(x)
        if not self.training:
            self.state = None
            return own
        own = own if self.state is None or len(self.state) != len(own) else own + self.state
        self.state = own.detach()
        return own


class ResetByTraining(Plain):
    """Shifts all evaluated samples by the mean of the first ones since the last training batch."""

    mean: Any = None

    def hidden(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.mean = None
            return super().hidden(x)
        self.mean = x.mean(0) if self.mean is None else self.mean
        return super().hidden(x - self.mean)


class EmptyBuffer(Plain):
    """Keeps the last hidden state in a buffer without an initial tensor."""

    state: torch.Tensor | None

    def __init__(self, num_classes: int = CLASSES) -> None:
        super().__init__(num_classes)
        self.register_buffer("state", None)

    def hidden(self, x: torch.Tensor) -> torch.Tensor:
        own: torch.Tensor = super().hidden(x)
        own = own if self.state is None or len(self.state) != len(own) else own + self.state
        self.state = own.detach()
        return own


class Offset(nn.Module):
    """Registers a buffer in its first forward, from which it moves all later samples."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if "first" not in self._buffers:
            self.register_buffer("first", x.detach().mean(0), persistent=False)
        return x - self.get_buffer("first")


class LateBuffer(RunningMean):
    def __init__(self, num_classes: int = CLASSES) -> None:
        super().__init__(num_classes)
        self.layers = nn.ModuleList([Offset()])


class LossesSoFar(Plain):
    """Counts in a list of floats."""

    def __init__(self, num_classes: int = CLASSES) -> None:
        super().__init__(num_classes)
        self.totals = [float("nan"), 1e9, 0.0]

    def hidden(self, x: torch.Tensor) -> torch.Tensor:
        self.totals[2] += float(x.square().mean())
        return super().hidden(x)


class OwnGenerator(Plain):
    def __init__(self, num_classes: int = CLASSES) -> None:
        super().__init__(num_classes)
        self.generator = torch.Generator().manual_seed(0)

    def hidden(self, x: torch.Tensor) -> torch.Tensor:
        own = super().hidden(x)
        return own + torch.randn(own.shape, generator=self.generator) if self.training else own


@pytest.mark.parametrize(
    ("kind", "attribute"),
    [
        (Recurrent, "state"),
        (Retaining, "state"),
        (Annealed, "steps"),
        (RunningMean, "layers.0.mean"),
        (Growing, "seen"),
        (OfTheClass, "history"),
        (Nested, "memory"),
        (FromFirstBatch, "scale"),
        (LastTrained, "mean"),
        (GradientMean, "norm"),
        (LossesSoFar, "totals"),
        (ResetByEvaluation, "state"),
        (EmptyBuffer, "state"),
        (LateBuffer, "layers.0.first"),
        (ResetByTraining, "mean"),
        (OwnGenerator, "generator"),
    ],
    ids=lambda one: one.__name__ if isinstance(one, type) else "",
)
def test_a_network_that_keeps_state_in_an_attribute_is_refused_by_name(kind: type[nn.Module], attribute: str) -> None:
    assert refusal(model=kind.__name__) == (
        f"model '{__name__}:{kind.__name__}' on {__name__}:points: its attribute '{attribute}' keeps state from batch "
        "to batch, which would pass from client to client and from training to evaluation; "
        + (
            "draw from PyTorch's global generator, which rayfl seeds for every client update"
            if kind is OwnGenerator
            else "make it a buffer (register_buffer with an initial tensor; with persistent=False every client update "
            "starts anew), or set it anew in every forward"
        )
    )


class Cached(Plain):
    """What it keeps follows from the shape of the input, or from the current batch alone."""

    scale: torch.Tensor | None

    def __init__(self, num_classes: int = CLASSES) -> None:
        super().__init__(num_classes)
        self.register_buffer("scale", None)
        self.positions: dict[int, torch.Tensor] = {}
        self.attention: torch.Tensor | None = None
        self.warned = False

    def hidden(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[1] not in self.positions:
            self.positions[x.shape[1]] = torch.linspace(0, 1, x.shape[1])
        self.scale = x.detach().std(1, keepdim=True)
        self.attention = (x / self.scale).softmax(1).detach()
        self.warned = True
        return super().hidden(self.attention * self.positions[x.shape[1]])


@dataclass
class Link:
    value: float
    next: Link | None


def chain(length: int) -> Link | None:
    link = None
    for number in range(length):
        link = Link(number, link)
    return link


class Noting(Plain):
    """Notes numbers of the current batch that are undefined, or the same but for rounding; and has a deep structure."""

    scale = 1.0

    def __init__(self, num_classes: int = CLASSES) -> None:
        super().__init__(num_classes)
        self.links = chain(2000)
        self.last: tuple[Any, ...] = ()

    def hidden(self, x: torch.Tensor) -> torch.Tensor:
        none = float("nan")
        rounding = float(np.random.default_rng().normal()) * 1e-9
        self.last = ([none, 2.0], (none, float(x.mean()) + rounding), complex(none, 1), np.datetime64("NaT"))
        self.table = torch.tensor([none + 1j, 1j])
        return super().hidden(x)


class Fused(Plain):
    """Fuses its layers when it first evaluates, and forgets this when it trains."""

    fused: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.fused = None
            return self.head(self.first(x))  # type: ignore[no-any-return]
        if self.fused is None:
            self.fused = self.head.weight @ self.first.weight
        return x @ self.fused.T + self.head(self.first.bias)  # type: ignore[no-any-return]


class Drawing(Plain):
    """Draws from the global generators."""

    def hidden(self, x: torch.Tensor) -> torch.Tensor:
        kept = np.random.rand() < 0.5  # noqa: NPY002 - as users write
        return super().hidden(functional.dropout(x, 0.5, self.training) if kept else x)


class Normalised(Plain):
    """Recomputes a weight for every forward, in a plain attribute; and power iteration, in buffers."""

    def __init__(self, num_classes: int = CLASSES) -> None:
        super().__init__(num_classes)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            nn.utils.weight_norm(nn.utils.spectral_norm(self.first), "bias")
        nn.utils.parametrizations.spectral_norm(self.head)
        self.norm, self.lstm = nn.BatchNorm1d(5), nn.LSTM(5, 5)

    def hidden(self, x: torch.Tensor) -> torch.Tensor:
        own: torch.Tensor = self.lstm(self.norm(super().hidden(x)))[0]
        return own


@pytest.mark.parametrize("kind", [Cached, Noting, Fused, Drawing, Normalised])
def test_what_a_network_computes_from_the_current_batch_or_once_for_all_may_be_kept(kind: type[nn.Module]) -> None:
    assert job(kind.__name__).workloads[0].network.name.endswith(kind.__name__)


def tokens() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    x, y = np.random.default_rng(5).integers(0, 60, (36, 6)), np.arange(36) % CLASSES
    x[23, 2] = 99
    return x[:24], y[:24], x[24:], y[24:]


def unknown_tested() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    x, y, test_x, test_y = tokens()
    x[23, 2], test_x[3, 0] = 0, 99
    return x, y, test_x, test_y


class Reading(nn.Module):
    """Knows 60 tokens, and shows what it last attended to."""

    attention: torch.Tensor | None = None

    def __init__(self, num_classes: int = CLASSES) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(60, 4), nn.Linear(4, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        own = self.embedding(x)
        self.attention = own.detach().softmax(1)
        logits: torch.Tensor = self.head((own * self.attention).sum(1))
        return logits


class OwnObjective(Classification):
    def objective(self, batch: TrainingBatch) -> torch.Tensor:
        return super().objective(batch)


@pytest.mark.parametrize("task", ["classification", f"{__name__}:OwnObjective"])
@pytest.mark.parametrize(("data", "mode"), [("tokens", ", in training mode"), ("unknown_tested", "")])
def test_a_network_that_fails_on_other_samples_is_refused_with_its_error(data: str, mode: str, task: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        job("Reading", task, data)
    line, *traceback = str(caught.value).splitlines()
    assert sum("Traceback" in one for one in traceback) == 1
    assert line == (
        f"model '{__name__}:Reading' on {__name__}:{data}{mode}: a batch of inputs [2, 6] raised IndexError: index out "
        "of range in self"
    )


class Triplets(Classification):
    """Needs two classes in a batch, which the other two tried samples do not have."""

    def objective(self, batch: TrainingBatch) -> torch.Tensor:
        if len(set(batch.y.tolist())) < 2:
            raise ValueError("no negative")
        return super().objective(batch)


def sorted_points() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    x, y, test_x, test_y = points()
    y[[len(y) // 2, len(y) - 1]] = 1
    return x, y, test_x, test_y


def test_state_is_found_in_the_network_alone_where_the_objective_fails_on_other_samples() -> None:
    scene = {"task": f"{__name__}:Triplets", "data": "sorted_points"}
    assert job("Cached", **scene).workloads[0].num_outputs == CLASSES
    assert "its attribute 'state' keeps state" in refusal(model="Recurrent", **scene)


class Counting(Classification):
    """Weighs its loss by the number of batches so far."""

    name: str = "counting"
    _batches: list[int] = PrivateAttr(default_factory=lambda: [0])

    def objective(self, batch: TrainingBatch) -> torch.Tensor:
        self._batches[0] += 1
        return super().objective(batch) / self._batches[0]


def test_a_task_that_keeps_state_in_an_attribute_is_refused_by_name() -> None:
    assert refusal(task=f"{__name__}:Counting") == (
        f"task '{__name__}:Counting': its attribute '_batches' keeps state from batch to batch, which would pass from "
        "client to client and from training to evaluation; keep it in the client's state (client_state), or compute it "
        "anew in every batch"
    )


class Auxiliary(Plain):
    """Has a second output while it trains."""

    form: type = tuple

    def forward(self, x: torch.Tensor) -> Any:
        outputs = super().forward(x)
        both = {"out": outputs, "aux": outputs}
        return outputs if not self.training else both if self.form is dict else tuple(both.values())


class AuxiliaryByName(Auxiliary):
    form = dict


class Unreached(Plain):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x).detach() if self.training else super().forward(x)


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        (Auxiliary, "its forward returns a tuple; it must return a tensor"),
        (AuxiliaryByName, "its forward returns a dict; it must return a tensor"),
        (Unreached, "the backward pass raised RuntimeError: element 0 of tensors does not require grad"),
    ],
)
def test_a_network_is_also_tried_in_training_mode(kind: type[nn.Module], what: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        job(kind.__name__)
    name = f"{__name__}:{kind.__name__}"
    assert str(caught.value).startswith(f"model '{name}' on {__name__}:points, in training mode: {what}")


class WithAuxiliary(Classification):
    """Knows of the second output."""

    name: str = "with_auxiliary"

    def objective(self, batch: TrainingBatch) -> torch.Tensor:
        outputs, auxiliary = batch.module(batch.x)
        return self.loss(outputs, batch.y) + 0.3 * self.loss(auxiliary, batch.y)


def test_a_task_whose_objective_reads_other_outputs_in_training_mode_may_have_them() -> None:
    assert job("Auxiliary", f"{__name__}:WithAuxiliary").workloads[0].num_outputs == CLASSES


class FrozenBase(Plain):
    def __init__(self, num_classes: int = CLASSES) -> None:
        super().__init__(num_classes)
        self.first.requires_grad_(False)


class FrozenBaseOfTwoOutputs(FrozenBase):
    def forward(self, x: torch.Tensor) -> Any:
        outputs = super().forward(x)
        return (outputs, outputs) if self.training else outputs


class Moving(Classification):
    """Moves a parameter after each step, without a declaration of copies."""

    name: str = "moving"

    def after_step(self, module: nn.Module, client: Any) -> None:
        module.get_parameter("first.bias").lerp_(module.get_parameter("head.weight").mean(0), 0.01)


class MovingWithAuxiliary(WithAuxiliary, Moving):
    name: str = "moving_with_auxiliary"


@pytest.mark.parametrize(("network", "task"), [(FrozenBase, Moving), (FrozenBaseOfTwoOutputs, MovingWithAuxiliary)])
def test_a_task_must_not_move_a_frozen_parameter(network: type[nn.Module], task: type[Classification]) -> None:
    with pytest.raises(ScenarioError, match=r"'first\.bias' is frozen .* so a constant, but the network or its task"):
        job(network.__name__, f"{__name__}:{task.__name__}")


class Demanding(Classification):
    """Needs more samples than are tried."""

    def objective(self, batch: TrainingBatch) -> torch.Tensor:
        if len(batch.y) < 3:
            raise ValueError("no triplets in a batch of two")
        return super().objective(batch)


def test_an_objective_that_cannot_be_tried_on_two_samples_is_left_to_the_run() -> None:
    assert job(task=f"{__name__}:Demanding").workloads[0].num_outputs == CLASSES
    assert "'state' keeps state" in refusal(model="Recurrent", task=f"{__name__}:Demanding")


class AlsoFailing(Plain):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            raise ValueError("only with a third input")
        return super().forward(x)


def test_an_objective_that_calls_its_network_in_another_way_is_left_to_the_run() -> None:
    assert job("AlsoFailing", f"{__name__}:Demanding").workloads[0].num_outputs == CLASSES


class NoLoss(Classification):
    def loss(self, outputs: torch.Tensor, targets: torch.Tensor, reduction: Any = "mean") -> torch.Tensor:
        raise ValueError("no loss yet")


def test_a_loss_that_raises_is_reported_as_the_tasks() -> None:
    with pytest.raises(ScenarioError, match="on two test samples raised ValueError: no loss yet"):
        job(task=f"{__name__}:NoLoss")


class Weighted(Classification):
    """Class weights as PyTorch has them: the mean divides by their sum. The first two test samples weigh 1."""

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor, reduction: Any = "mean") -> torch.Tensor:
        return functional.cross_entropy(outputs, targets, torch.tensor([1.0, 1.0, 5.0]), reduction=reduction)


class WeightedTotal(Weighted):
    def total(self, targets: torch.Tensor) -> torch.Tensor:
        return torch.tensor([1.0, 1.0, 5.0])[targets].sum()


class AlwaysMean(Classification):
    def loss(self, outputs: torch.Tensor, targets: torch.Tensor, reduction: Any = "mean") -> torch.Tensor:
        return functional.cross_entropy(outputs, targets)


class NeverEach(Classification):
    def loss(self, outputs: torch.Tensor, targets: torch.Tensor, reduction: Any = "mean") -> torch.Tensor:
        return functional.cross_entropy(outputs, targets, reduction="sum" if reduction == "sum" else "mean")


class NotPerSample(NeverEach):
    per_sample: ClassVar[bool] = False


class Noisy(Classification):
    def loss(self, outputs: torch.Tensor, targets: torch.Tensor, reduction: Any = "mean") -> torch.Tensor:
        return super().loss(outputs + torch.randn_like(outputs), targets, reduction)


class Column(Classification):
    def loss(self, outputs: torch.Tensor, targets: torch.Tensor, reduction: Any = "mean") -> torch.Tensor:
        return super().loss(outputs, targets, reduction).reshape(1)


class Each(Classification):
    def objective(self, batch: TrainingBatch) -> torch.Tensor:
        return self.loss(batch.outputs, batch.y, "none")


REMEDY = "override total, correct 'sum', or move what is no sum over samples to objective"
WRONG_LOSSES = [  # the five tried labels, 0, 1 and every class, weigh 1 + 1 + 1 + 1 + 5 = 9
    (Weighted, f"loss for 'mean' divides the sum of 5 samples by 9, and total is 5; {REMEDY}"),
    (AlwaysMean, "loss ignores reduction; return the sum over samples for 'sum'"),
    (NeverEach, "for 'none' loss must return one value per sample, with the sum of 'sum'; or set per_sample = False"),
    (Column, "the loss of a batch is a tensor of shape [1]; it must be a scalar tensor"),
    (Each, "the loss of a batch is a tensor of shape [2]; it must be a scalar tensor"),
]


@pytest.mark.parametrize(("task", "wrong"), WRONG_LOSSES, ids=lambda one: getattr(one, "__name__", ""))
def test_a_loss_that_would_be_scored_wrongly_is_refused(task: type[Classification], wrong: str) -> None:
    assert refusal(task=f"{__name__}:{task.__name__}") == f"task '{__name__}:{task.__name__}': {wrong}"


@pytest.mark.parametrize("task", [WeightedTotal, NotPerSample, Noisy])
def test_a_loss_whose_reductions_agree_is_accepted(task: type[Classification]) -> None:
    assert job(task=f"{__name__}:{task.__name__}").workloads[0].num_outputs == CLASSES


class NumPyWidth(Classification):
    def num_outputs(self, labels: np.ndarray, num_classes: int | None) -> Any:
        return labels.max() + 1


class NoWidth(Classification):
    def num_outputs(self, labels: np.ndarray, num_classes: int | None) -> Any:
        return 3.0


class NoMetrics(Task):
    name: str = "no_metrics"
    kind: ClassVar[Any] = "multiclass"
    num_outputs = NumPyWidth.num_outputs
    output_shapes = Classification.output_shapes
    loss = NotPerSample.loss


def test_a_task_may_count_its_outputs_in_numpy(tmp_path: Path) -> None:
    result = trained(f"{__name__}:Plain", "owned_points", tmp_path, task=f"{__name__}:NumPyWidth")
    environment = json.loads((result.directory / "environment.json").read_text())
    assert environment["task"]["outputs"] == CLASSES
    named = f"{__name__}:NoWidth"
    assert refusal(task=named) == f"task '{named}': num_outputs must return an integer (got 3.0)"


def test_a_task_without_metrics_asks_for_them() -> None:
    named = f"{__name__}:NoMetrics"
    assert refusal(task=named) == f"task '{named}' has no default_metrics; set them, or evaluation.metrics"


class Shifting(Plain):
    """Moves a buffer in evaluation mode."""

    shift: torch.Tensor

    def __init__(self, num_classes: int = CLASSES) -> None:
        super().__init__(num_classes)
        self.register_buffer("shift", torch.ones(1))

    def hidden(self, x: torch.Tensor) -> torch.Tensor:
        self.shift += 1
        return super().hidden(x + self.shift)


def test_the_trial_leaves_parameters_and_buffers_as_they_were_built() -> None:
    initial = job("Shifting").workloads[0].initial
    (slot,) = (slot for slot in initial.layout if slot.name == "shift")
    assert slot.array(initial.vector) == 1


OWNERS = np.arange(24) % 3


def owned_pictures() -> dict[str, Any]:
    x, y, *test = pictures()
    return {"train": (x, y, OWNERS), "test": tuple(test)}


def owned_points() -> dict[str, Any]:
    x, y, *test = points()
    return {"train": (x[:24], y[:24], OWNERS), "test": tuple(test)}


def owned_rows() -> dict[str, Any]:
    rng = np.random.default_rng(4)
    x = rng.integers(1, 9, (36, 6))
    y = (x[:, -1] + x[:, 0]) % CLASSES
    return {"train": (x[:24], y[:24], OWNERS), "test": (x[24:], y[24:])}


STEPS, LR = 3, 0.2


def trained(model: Any, data: str, folder: Path, console: Console | None = None, **changes: Any) -> rayfl.Result:
    """One round of FedAvg, in which every client takes three steps on all of its samples."""
    local = {"epochs": STEPS, "batch_size": "full", "lr": LR}
    phase = {"name": "p", "rounds": 1, "cohort": 1.0, "local": local}
    tables = {"data": {"name": f"{__name__}:{data}"}, "model": model, "phases": [phase], **changes}
    return rayfl.run(tables, backend="inline", out=folder, data_dir=folder, console=console or Console(quiet=True))


def plainly_trained(
    module: nn.Module, x: torch.Tensor, y: torch.Tensor, penalty: float = 0.0
) -> dict[str, torch.Tensor]:
    """The mean of the parameters that torch.optim.SGD gives for each of three equal clients."""
    models = []
    for client in range(3):
        own, rows = copy.deepcopy(module), client == OWNERS
        optimizer = torch.optim.SGD(own.parameters(), LR)
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss = functional.cross_entropy(own(x[rows]), y[rows])
            torch.autograd.backward(loss + penalty * parameters_to_vector(own.parameters()).square().sum())
            optimizer.step()
        models.append(dict(own.named_parameters()))
    return {name: torch.stack([model[name].detach() for model in models]).mean(0) for name in models[0]}


def assert_close(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> None:
    for name, value in wanted.items():
        torch.testing.assert_close(found[name], value, rtol=1e-5, atol=1e-6)


def first_built(make: type[nn.Module], *options: Any) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(torch_seed(0, "initial"))
        return make(CLASSES, *options)


class Causal(nn.Module):
    """Attention with a mask of zeros and minus infinity."""

    mask: torch.Tensor

    def __init__(self, num_classes: int, width: int = 4) -> None:
        super().__init__()
        self.embedding, self.key, self.head = (
            nn.Embedding(9, width),
            nn.Linear(width, width),
            nn.Linear(width, num_classes),
        )
        self.register_buffer("mask", torch.full((6, 6), -torch.inf).triu(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        own = self.embedding(x)
        scores = self.key(own) @ own.transpose(1, 2) + self.mask
        logits: torch.Tensor = self.head((scores.softmax(-1) @ own)[:, -1])
        return logits


def test_a_network_with_an_infinite_mask_trains_as_in_pytorch_and_keeps_it(tmp_path: Path) -> None:
    found = trained(f"{__name__}:Causal", "owned_rows", tmp_path).state_dict
    x, y, _ = owned_rows()["train"]
    assert_close(found, plainly_trained(first_built(Causal), torch.from_numpy(x), torch.from_numpy(y)))
    assert torch.equal(found["mask"], torch.full((6, 6), -torch.inf).triu(1))


class Lengthening(nn.Module):
    """Keeps factors for as many samples as the largest batch so far has, which is one of an evaluation."""

    factors = torch.zeros(0, 1)

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(9, 4), nn.Linear(4, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if len(self.factors) < len(x):
            self.factors = torch.full((len(x), 1), 1.5)
        logits: torch.Tensor = self.head(self.embedding(x).mean(1) * self.factors[: len(x)])
        return logits


class Potential(Lengthening):
    """Returns forces: the negative gradient of an energy at the places that it embeds."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            places = self.embedding(x)
            energy = self.head(places.mean(1)).logsumexp(1).sum()
            slope: torch.Tensor = torch.autograd.grad(energy, places, create_graph=self.training)[0]
        return -slope[:, :, :CLASSES].sum(1)


@pytest.mark.parametrize("kind", [Lengthening, Potential])
def test_evaluation_leaves_autograd_to_networks_as_no_grad_does(kind: type[nn.Module], tmp_path: Path) -> None:
    local = {"epochs": STEPS, "batch_size": "full", "lr": LR}
    phases = [{"name": "p", "rounds": 2, "cohort": 1.0, "local": local}]
    result = trained(f"{__name__}:{kind.__name__}", "owned_rows", tmp_path, phases=phases)
    (x, y, _), test = owned_rows().values()
    module = first_built(kind)
    for _ in range(2):
        module.load_state_dict(plainly_trained(module, torch.from_numpy(x), torch.from_numpy(y)))
    assert_close(result.state_dict, module.state_dict())
    test_x, test_y = map(torch.from_numpy, test)
    with torch.no_grad():
        loss = functional.cross_entropy(module.eval()(test_x), test_y)
    assert result.metrics.to_pylist()[-1]["test_loss"] == pytest.approx(float(loss), rel=1e-5)


class RunningMaximum(Plain):
    largest: torch.Tensor

    def __init__(self, num_classes: int = CLASSES) -> None:
        super().__init__(num_classes)
        self.register_buffer("largest", torch.tensor(-torch.inf))

    def hidden(self, x: torch.Tensor) -> torch.Tensor:
        torch.maximum(self.largest, x.max(), out=self.largest)
        return super().hidden(x / self.largest)


def test_a_buffer_that_begins_with_infinities_and_changes_is_refused_by_name() -> None:
    assert "buffer 'largest' begins with infinities or NaN and changes" in refusal(model="RunningMaximum")


class Viewing(nn.Module):
    """Weight standardisation as it is usually written, which needs contiguous weights."""

    def __init__(self, num_classes: int = CLASSES) -> None:
        super().__init__()
        self.first, self.second, self.head = nn.Conv2d(1, 4, 3), nn.Conv2d(4, 5, 3), nn.Linear(5, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in (self.first, self.second):
            w = layer.weight
            x = functional.relu(functional.conv2d(x, w / w.view(len(w), -1).std(1).view(-1, 1, 1, 1)))
        logits: torch.Tensor = self.head(x.mean((2, 3)))
        return logits


class Convolutions(Viewing):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = functional.relu(self.second(functional.relu(self.first(x))))
        logits: torch.Tensor = self.head(hidden.mean((2, 3)))
        return logits


PENALTY = 1e-2


class Ridge(Classification):
    name: str = "ridge"

    def objective(self, batch: TrainingBatch) -> torch.Tensor:
        return super().objective(batch) + PENALTY * parameters_to_vector(batch.module.parameters()).square().sum()


@pytest.mark.parametrize(("kind", "task"), [(Viewing, "classification"), (Convolutions, f"{__name__}:Ridge")])
def test_what_needs_contiguous_weights_trains_as_in_pytorch_and_this_is_said_and_recorded(
    kind: type[nn.Module], task: str, tmp_path: Path
) -> None:
    console = Console(file=StringIO(), width=200)
    result = trained(f"{__name__}:{kind.__name__}", "owned_pictures", tmp_path, console, task=task)
    (x, y, _), _ = owned_pictures().values()
    images, labels = torch.from_numpy(x).permute(0, 3, 1, 2).float() / 255, torch.from_numpy(y)
    penalty = PENALTY if kind is Convolutions else 0.0
    assert_close(result.state_dict, plainly_trained(first_built(kind), images, labels, penalty))
    said = console.file.getvalue()  # type: ignore[attr-defined]
    assert f"note     {__name__}:{kind.__name__} or its task fails on channels-last weights, so they are conti" in said
    environment = json.loads((result.directory / "environment.json").read_text())
    assert environment["model"]["weights"] == environment["phases"][0]["model"]["weights"] == "contiguous"


def test_weights_are_channels_last_where_that_works_and_contiguous_in_all_workers_where_it_does_not() -> None:
    usual, contiguous = job("Convolutions", data="pictures"), job("Viewing", data="pictures")
    assert [made.workloads[0].initial.memory_format for made in (usual, contiguous)] == ["channels_last", "contiguous"]
    (first, _), (second, _) = run_on_hosts(contiguous, 1), run_on_hosts(contiguous, 2)
    assert np.array_equal(first, second)


def test_a_network_that_fails_on_contiguous_weights_as_well_is_refused_with_its_error() -> None:
    with pytest.raises(ScenarioError, match=r"raised RuntimeError: .*mat1 and mat2 shapes cannot be multiplied"):
        job("Plain", data="pictures")
