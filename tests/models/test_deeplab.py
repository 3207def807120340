"""DeepLabV3+: its parts, strides and sizes."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torchvision.models import mobilenet_v2

from rayfl.errors import ScenarioError
from rayfl.models.mobilenet import DeepLabV3Plus


def shapes_seen(network: nn.Module, names: list[str], x: torch.Tensor) -> dict[str, list[int]]:
    seen: dict[str, list[int]] = {}
    for name in names:
        layer = network.get_submodule(name)
        layer.register_forward_hook(lambda _, __, out, name=name: seen.update({name: list(out.shape[1:])}))
    with torch.no_grad():
        seen["outputs"] = list(network.eval()(x).shape[1:])
    return seen


def test_maps_have_the_papers_strides_and_widths() -> None:
    names = ["features.3", "features.13", "features.17", "aspp", "reduce", "fuse", "classifier"]
    assert shapes_seen(DeepLabV3Plus(5), names, torch.randn(1, 3, 96, 64)) == {
        "features.3": [24, 24, 16],
        "features.13": [96, 6, 4],
        "features.17": [320, 6, 4],
        "aspp": [256, 6, 4],
        "reduce": [48, 24, 16],
        "fuse": [256, 24, 16],
        "classifier": [5, 24, 16],
        "outputs": [5, 96, 64],
    }


def test_any_size_from_32_on_gives_outputs_of_its_size() -> None:
    with torch.no_grad():
        assert DeepLabV3Plus(3).eval()(torch.randn(1, 3, 33, 50)).shape == (1, 3, 33, 50)


def test_the_backbone_is_torchvisions_without_its_last_convolution() -> None:
    network, torchvisions = DeepLabV3Plus(19), mobilenet_v2()
    assert sum(parameter.numel() for parameter in network.features.parameters()) == 1_811_712
    wanted = {name: tensor.shape for name, tensor in torchvisions.features[:-1].state_dict().items()}
    assert {name: tensor.shape for name, tensor in network.features.state_dict().items()} == wanted
    network.check_declaration()


def test_dilated_blocks_see_what_they_saw_with_the_stride() -> None:
    """Every second pixel of the last map equals that of torchvision's network, with its stride of 32."""
    network, torchvisions = DeepLabV3Plus(19).eval(), mobilenet_v2().eval()
    torchvisions.features[:-1].load_state_dict(network.features.state_dict())
    x = torch.randn(1, 3, 128, 96, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(network.features(x)[:, :, ::2, ::2], torchvisions.features[:-1](x))


def test_the_pyramid_has_the_papers_rates_and_dropout() -> None:
    aspp = DeepLabV3Plus(19).aspp
    assert [branch[0].dilation for branch in aspp.convs[1:4]] == [(6, 6), (12, 12), (18, 18)]
    assert [module.p for module in aspp.modules() if isinstance(module, nn.Dropout)] == [0.1]


@pytest.mark.parametrize(("shape", "message"), [((31, 64, 3), "at least 32 x 32"), ((64, 64, 1), "of 3 channels")])
def test_images_that_it_cannot_take_are_rejected(shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        DeepLabV3Plus(19, shape)
