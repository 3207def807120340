"""Settings that do not support `local.dp` are rejected before the run, with their key and the remedy."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from rayfl.algorithms.coprefl import CoPreFL
from rayfl.algorithms.fedavg import FedAvg
from rayfl.algorithms.limits import SampleRequest
from rayfl.errors import ScenarioError
from tests.algorithms.scene import CLASSES, INPUTS
from tests.engine.scenes import prepared

PEOPLE = {"data": {"name": "tests.algorithms.scene:people"}, "model": {"name": "tests.algorithms.scene:TanhNet"}}
PICTURES = {"data": {"name": "handwriting", "clients": 4}, "model": {"name": "lenet5"}}
DP: dict[str, Any] = {"noise_multiplier": 1.0, "max_grad_norm": 1.0}


def refusal(
    dp: dict[str, Any] | None = None, local: dict[str, Any] | None = None, scene: Any = PEOPLE, **phase: Any
) -> str:
    chosen = {"name": "private", "rounds": 1, "cohort": 3} | phase
    chosen["local"] = {**(local or {}), "dp": {**DP, **(dp or {})}}
    with pytest.raises(ScenarioError) as caught:
        prepared(**scene, phases=[chosen])
    (line,) = str(caught.value).splitlines()
    return line


@pytest.mark.parametrize(("train", "refused"), [("body", True), ("head", False)])
def test_batch_norm_unless_it_is_frozen(train: str, refused: bool) -> None:
    scene = {**PICTURES, "model": {"name": "resnet8"}}
    if refused:
        line = refusal(scene=scene, train=train)
        assert line.startswith("phases.private.local.dp: 'bn1' of model ResNet8 is BatchNorm2d")
        assert "use group norm" in line
        assert "opacus.validators.ModuleValidator.fix" in line
    else:
        phase = {"name": "p", "rounds": 1, "cohort": 2, "train": train, "local": {"dp": DP}}
        assert prepared(**scene, phases=[phase]).phases[0].noise == 1.0


def test_batch_norm_without_running_statistics_even_if_it_is_frozen() -> None:
    scene = {**PICTURES, "model": {"name": "cnn_fedbabu"}}
    assert "is BatchNorm2d, whose statistics mix the samples" in refusal(scene=scene, train="head")


@pytest.mark.parametrize(
    ("model", "layer"), [("lenet5", "'conv1' is Conv2d"), ({"name": "resnet8", "norm": "group"}, "'conv1' is Conv2d")]
)
def test_ghost_clipping_of_layers_without_norm_samplers(model: Any, layer: str) -> None:
    line = refusal({"clipping": "ghost"}, scene={**PICTURES, "model": model})
    assert line.startswith("phases.private.local.dp.clipping: 'ghost' needs norms")
    assert layer in line
    assert line.endswith("use 'per_sample'")


def test_ghost_clipping_where_only_linear_layers_train() -> None:
    phase = {"name": "p", "rounds": 1, "cohort": 2, "train": "head", "local": {"dp": {**DP, "clipping": "ghost"}}}
    assert prepared(**PICTURES, phases=[phase]).phases[0].noise == 1.0


class Centred(nn.Module):
    """Subtracts the mean of the batch, which mixes samples without a layer that shows it."""

    def __init__(self, num_classes: int = CLASSES) -> None:
        super().__init__()
        self.first, self.read_out = nn.Linear(INPUTS, 5), nn.Linear(5, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.first(x))
        logits: torch.Tensor = self.read_out(hidden - hidden.mean(dim=0))
        return logits


class NotCalled(Centred):
    """Computes a layer from its weights, unseen by hooks."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(nn.functional.linear(x, self.first.weight, self.first.bias))
        logits: torch.Tensor = self.read_out(hidden)
        return logits


class StepsFirst(Centred):
    """Moves the samples out of the first dimension."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        steps = torch.tanh(self.first(torch.stack([x, 2 * x, 3 * x])))
        logits: torch.Tensor = self.read_out(steps.mean(dim=0))
        return logits


class InPlace(Centred):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.first(x)
        hidden += 1
        logits: torch.Tensor = self.read_out(hidden)
        return logits


@pytest.mark.parametrize("kind", [Centred, NotCalled, StepsFirst])
@pytest.mark.parametrize("clipping", ["per_sample", "ghost"])
def test_a_network_of_which_opacus_is_silently_wrong(kind: type[nn.Module], clipping: str) -> None:
    scene = {**PEOPLE, "model": f"{__name__}:{kind.__name__}"}
    line = refusal({"clipping": clipping}, scene=scene)
    start = f"phases.private.local.dp: per-sample gradients of model {kind.__name__} are wrong for '"
    assert line.startswith(start)
    assert "; call every layer as a module" in line


class CentredInTraining(Centred):
    """Mixes samples only in training mode."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.first(x)
        logits: torch.Tensor = self.read_out(hidden - hidden.mean(dim=0) if self.training else hidden)
        return logits


class TwiceBehindZeros(Centred):
    """Uses a weight outside its layer, which no gradient shows while the next layer is zero."""

    def __init__(self, num_classes: int = CLASSES) -> None:
        super().__init__(num_classes)
        nn.init.zeros_(self.read_out.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.read_out(self.first(x) + nn.functional.linear(3 * x, self.first.weight))
        return logits


@pytest.mark.parametrize(("kind", "when"), [(CentredInTraining, " in training mode"), (TwiceBehindZeros, "")])
@pytest.mark.parametrize("clipping", ["per_sample", "ghost"])
def test_a_network_that_is_wrong_only_once_it_trains(kind: type[nn.Module], when: str, clipping: str) -> None:
    line = refusal({"clipping": clipping}, scene={**PEOPLE, "model": f"{__name__}:{kind.__name__}"})
    assert f"per-sample gradients of model {kind.__name__} are wrong{when} for 'first." in line


class Jittered(Centred):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.first(x)
        logits: torch.Tensor = self.read_out(hidden + torch.randn_like(hidden) if self.training else hidden)
        return logits


def test_a_network_that_draws_in_training_what_nothing_can_turn_off() -> None:
    line = refusal(scene={**PEOPLE, "model": f"{__name__}:Jittered"})
    assert "model Jittered draws random numbers in training mode other than for dropout" in line


class Dropping(Centred):
    """Dropout as a layer and as two kinds of functions."""

    def __init__(self, num_classes: int = CLASSES) -> None:
        super().__init__(num_classes)
        self.drop = nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = nn.functional.dropout(self.drop(self.first(x)), 0.5, self.training)
        logits: torch.Tensor = self.read_out(nn.functional.alpha_dropout(hidden, 0.5, self.training))
        return logits


def test_dropout_of_every_kind_is_allowed_and_the_check_leaves_the_weights_as_they_were() -> None:
    scene = {**PEOPLE, "model": f"{__name__}:Dropping"}
    phase = {"name": "p", "rounds": 1, "cohort": 3}
    plain = prepared(**scene, phases=[phase]).workloads[0].initial.vector
    private = prepared(**scene, phases=[phase | {"local": {"dp": DP}}]).workloads[0].initial.vector
    assert np.array_equal(private, plain)


@pytest.mark.parametrize(
    "model",
    ["mlp", "lenet5", {"name": "resnet8", "norm": "group"}],
    ids=str,
)
def test_shipped_networks_are_allowed(model: Any) -> None:
    phase = {"name": "p", "rounds": 1, "cohort": 2, "local": {"dp": DP}}
    assert prepared(**{**PICTURES, "model": model}, phases=[phase]).phases[0].noise == 1.0


def test_a_network_that_opacus_cannot_have() -> None:
    line = refusal(scene={**PEOPLE, "model": f"{__name__}:InPlace"})
    assert line.startswith("phases.private.local.dp: Opacus cannot compute per-sample gradients of model InPlace")
    assert "ModuleValidator" in line


def sequence(x: torch.Tensor) -> torch.Tensor:
    return x.unsqueeze(2).expand(-1, -1, 8)


def tokens(x: torch.Tensor) -> torch.Tensor:
    return (x > 0).long() + (x > 1).long()


def own_scale(layer: nn.Module) -> nn.Module:
    """Gives a layer a parent with a parameter of its own, which Opacus differentiates as a whole."""
    return Scaled(layer)


class Scaled(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer, self.scale = layer, nn.Parameter(torch.ones(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.layer(x * self.scale, x * self.scale, x, need_weights=False)[0]
        return outputs


ATTENTION = partial(nn.MultiheadAttention, 8, 2, batch_first=True)
LAYERS: dict[str, tuple[Callable[[], nn.Module], Callable[[Any, torch.Tensor], torch.Tensor]]] = {
    "encoder": (
        lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True),
        lambda layer, x: layer(sequence(x)),
    ),
    "attention": (ATTENTION, lambda layer, x: layer(sequence(x), sequence(x), sequence(x))[0]),
    "steps_first": (lambda: nn.MultiheadAttention(8, 2), lambda layer, x: layer(*[sequence(x).transpose(0, 1)] * 3)[0]),
    "bag": (lambda: nn.EmbeddingBag(3, 8), lambda layer, x: layer(tokens(x))),
    "bilinear": (lambda: nn.Bilinear(INPUTS, INPUTS, 8), lambda layer, x: layer(x, x)),
    "cell": (lambda: nn.GRUCell(INPUTS, 8), lambda layer, x: layer(x)),
    "projecting": (
        lambda: nn.LSTM(8, 8, proj_size=4, batch_first=True),
        lambda layer, x: layer(sequence(x))[0],
    ),
    "no_bias": (lambda: nn.LayerNorm(INPUTS, bias=False), lambda layer, x: layer(x)),
    "by_frequency": (lambda: nn.Embedding(3, 8, scale_grad_by_freq=True), lambda layer, x: layer(tokens(x))),
    "padding": (lambda: nn.Embedding(3, 8, padding_idx=0), lambda layer, x: layer(tokens(x))),
    "bounded": (lambda: nn.Embedding(3, 8, max_norm=1.0), lambda layer, x: layer(tokens(x))),
    "reflecting": (
        lambda: nn.Conv1d(8, 4, 3, padding=1, padding_mode="reflect"),
        lambda layer, x: layer(sequence(x).transpose(1, 2)),
    ),
    "spectral": (lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(INPUTS, 8)), lambda layer, x: layer(x)),
    "weight_norm": (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(INPUTS, 8)), lambda layer, x: layer(x)),
    "tracking": (
        lambda: nn.InstanceNorm1d(8, affine=True, track_running_stats=True),
        lambda layer, x: layer(sequence(x * torch.arange(4.0)).transpose(1, 2)),
    ),
    "inside": (lambda: own_scale(ATTENTION()), lambda layer, x: layer(sequence(x))),
}


class Layered(nn.Module):
    def __init__(self, num_classes: int, layer: str) -> None:
        super().__init__()
        self.kind, self.layer = layer, LAYERS[layer][0]()
        width = LAYERS[layer][1](self.layer, torch.ones(2, INPUTS)).numel() // 2
        self.read_out = nn.Linear(width, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outputs = LAYERS[self.kind][1](self.layer, x)
        outputs = outputs if len(outputs) == len(x) else outputs.transpose(0, 1)
        logits: torch.Tensor = self.read_out(outputs.flatten(1))
        return logits


def repaired(num_classes: int, layer: str) -> nn.Module:
    from opacus.validators import ModuleValidator

    network: nn.Module = ModuleValidator.fix(Layered(num_classes, layer))
    return network


FIX = "opacus.validators.ModuleValidator.fix in the function that builds the network replaces it"


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize(
    ("layer", "told"),
    [
        ("encoder", f"'layer.self_attn' is MultiheadAttention, which Opacus does not support; {FIX}"),
        ("attention", f"'layer' is MultiheadAttention, which Opacus does not support; {FIX}"),
        (
            "steps_first",
            "'layer' is MultiheadAttention, which Opacus does not support; build it with batch_first = True, and",
        ),
        ("bag", "'layer' is EmbeddingBag, which Opacus does not support; use torch.nn.Embedding and the mean"),
        ("bilinear", "'layer' is Bilinear, which has two inputs, and Opacus reads one; use torch.nn.Linear"),
        ("cell", "'layer' is GRUCell, which Opacus does not support; use torch.nn.RNN, GRU or LSTM"),
        ("projecting", "'layer' is LSTM with proj_size, which Opacus does not support; leave it out"),
        ("no_bias", "'layer' is LayerNorm without bias, which Opacus does not support; use bias = True"),
        ("by_frequency", "'layer' is Embedding with scale_grad_by_freq, which mixes the samples of a batch; leave"),
        ("bounded", "'layer' of model Layered is Embedding with max_norm, which changes weights outside of the noised"),
        (
            "reflecting",
            "'layer' is Conv1d with padding_mode = 'reflect', which Opacus does not support; put torch.nn.R",
        ),
        ("spectral", "'layer' is Linear with a normalised weight, of which Opacus supports only torch.nn.utils.param"),
        ("tracking", "'layer' of model Layered is InstanceNorm1d, whose statistics mix the samples of a batch; leave"),
    ],
)
def test_a_common_layer_that_opacus_cannot_have_is_named_with_the_remedy(layer: str, told: str) -> None:
    line = refusal(scene={**PEOPLE, "model": {"name": f"{__name__}:Layered", "layer": layer}})
    assert line.startswith(f"phases.private.local.dp: {told}")


def test_padding_of_an_embedding_needs_per_sample_clipping() -> None:
    scene = {**PEOPLE, "model": {"name": f"{__name__}:Layered", "layer": "padding"}}
    assert "'layer' is Embedding with padding_idx, which Opacus does not support with clipping = 'ghost'" in refusal(
        {"clipping": "ghost"}, scene=scene
    )


@pytest.mark.parametrize(
    ("kind", "layer"),
    [
        ("repaired", "encoder"),
        ("repaired", "attention"),
        ("Layered", "padding"),
        ("Layered", "weight_norm"),
        ("Layered", "inside"),
    ],
)
def test_the_remedies_work_without_a_warning(kind: str, layer: str) -> None:
    phase = {"name": "p", "rounds": 1, "cohort": 2, "local": {"dp": DP}}
    model = {"name": f"{__name__}:{kind}", "layer": layer}
    assert prepared(**{**PEOPLE, "model": model}, phases=[phase]).phases[0].noise == 1.0


def test_parts_that_are_drawn_once_must_be_the_same_in_all_phases() -> None:
    def phase(name: str, **options: Any) -> dict[str, Any]:
        return {
            "name": name,
            "algorithm": {"name": "coprefl", **options},
            "rounds": 1,
            "cohort": 3,
            "local": {"dp": DP},
        }

    with pytest.raises(ScenarioError, match=r"phases.b.algorithm.query_share: .*\(a: 0.2, b: 0.4\).*split = 'round'"):
        prepared(**PEOPLE, phases=[phase("a"), phase("b", query_share=0.4)])
    drawn_anew = prepared(**PEOPLE, phases=[phase("a"), phase("b", query_share=0.4, split="round")])
    assert [plan.noise for plan in drawn_anew.phases] == [1.0, 1.0]


class Overlapping(FedAvg):
    """Reads the first samples as its own part, which may overlap the queries of CoPreFL."""

    def sample_requests(self) -> tuple[SampleRequest, ...]:
        return (SampleRequest("query", part="mine"), *super().sample_requests())


class OwnPart(CoPreFL):
    def sample_requests(self) -> tuple[SampleRequest, ...]:
        own = SampleRequest(part="support"), SampleRequest("query", "query", results=2, exchange=1)
        return (*own, SampleRequest("query", part="mine"))


@pytest.mark.parametrize("kind", [Overlapping, OwnPart])
def test_parts_that_are_not_known_to_be_disjoint_are_rejected(kind: type) -> None:
    line = refusal(algorithm=f"{__name__}:{kind.__name__}")
    assert line.startswith("phases.private.algorithm: '")
    assert "reads the part 'mine' of clients' samples" in line
    assert "leave `part` empty" in line
