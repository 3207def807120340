"""MobileNet-V2 equals torchvision's, and DeepLabV3+ takes over its tensors by the rules of the FPS grid."""

from __future__ import annotations

import pytest
import torch
from torchvision.models import mobilenet_v2

from rayfl.config.scenario import Start
from rayfl.config.scenario_files import find_grids
from rayfl.errors import ScenarioError
from rayfl.models.flat import FlatModel
from rayfl.models.heads import siamese
from rayfl.models.mobilenet import DeepLabV3Plus, MobileNetV2
from rayfl.models.transfer import transfer
from rayfl.studies.grid.schema import load_grid


def test_outputs_are_those_of_torchvision() -> None:
    network, theirs = MobileNetV2(5).eval(), mobilenet_v2(num_classes=5).eval()
    theirs.load_state_dict(
        {name.replace("classifier.", "classifier.1."): v for name, v in network.state_dict().items()}
    )
    x = torch.randn(2, 3, 64, 48, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(network(x), theirs(x))
    network.check_declaration()


@pytest.mark.parametrize("shape", [(32, 32, 3), (224, 224, 1)])
def test_images_that_it_cannot_take_are_rejected(shape: tuple[int, int, int]) -> None:
    with pytest.raises(ScenarioError, match="model 'mobilenet_v2': takes images"):
        MobileNetV2(2, shape)


@pytest.mark.parametrize("start_from", ["FPS", "ImageNet"])
def test_deeplab_takes_the_backbone_alone(start_from: str) -> None:
    grid = load_grid(find_grids()["fps_table_5_cityscapes"])
    start = Start.model_validate(grid.columns[start_from]["start"])
    options = {"name": "mobilenet_v2"}
    theirs = mobilenet_v2() if start_from == "ImageNet" else siamese(options, 2, (224, 224, 3), width=16, predictor=8)
    model = FlatModel(DeepLabV3Plus(19), torch.device("cpu"))
    taken = transfer(theirs.state_dict(), model, start.head, start.ignore)
    floating = {name for name, tensor in model.state_dict().items() if tensor.is_floating_point()}
    assert set(taken.taken) & floating == {name for name in floating if name.startswith("features.")}
