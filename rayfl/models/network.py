"""The base class of networks, with a declaration of their layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from torch import nn

from rayfl.errors import ScenarioError
from rayfl.models.tensors import followed


class Network(nn.Module):
    """A classifier that declares the order of its layers.

    `forward` maps a batch of inputs ([n, C, H, W] float for images, [n, length] int64 for text) to [n, classes] logits.
    It must call every layer with parameters as a module, so that forward hooks see all of them.

    Set the attributes on the class, or in the constructor if an option changes the layers.

    Attributes:
        ordered_modules: Names of the submodules with the parameters, from input to output. Together they have all
            parameters, and `named_parameters()` yields them in this order, so the first modules are a prefix of the
            flat parameter vector (gradual unfreezing trains prefixes). A name may be dotted (`stage1.block0`).
        feature_layer: Name of the submodule that reads the features: its input is the feature vector of a sample (the
            penultimate representation), its output the logits.
        copies: Modules that follow others and are not trained, such as a target network or a key encoder: their names,
            and those of the modules that they were copied from. Their parameters need no gradient and are no constants:
            they are sent with the buffers, and belong to no ordered module. Tensors of a copy that a start lacks are
            copied anew.
        groupings: Named ways to divide the ordered modules into units that thaw together in gradual unfreezing (the
            stages or blocks of a ResNet). Each contains every ordered module once, with units from input to output.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from rayfl.models import Network
        >>> class Small(Network):
        ...     ordered_modules = ("hidden", "head")
        ...     feature_layer = "head"
        ...     def __init__(self, num_classes, input_shape):
        ...         super().__init__()
        ...         height, width, channels = input_shape
        ...         self.hidden = nn.Linear(height * width * channels, 32)
        ...         self.head = nn.Linear(32, num_classes)
        ...     def forward(self, x):
        ...         return self.head(torch.relu(self.hidden(x.flatten(1))))
        >>> network = Small(num_classes=10, input_shape=(28, 28, 1))
        >>> network.check_declaration()
        >>> network(torch.zeros(2, 1, 28, 28)).shape
        torch.Size([2, 10])
    """

    ordered_modules: tuple[str, ...]
    feature_layer: str
    copies: Mapping[str, str] = MappingProxyType({})
    groupings: Mapping[str, tuple[tuple[str, ...], ...]] = MappingProxyType({})

    def check_declaration(self) -> None:
        """Checks the declaration against the modules.

        Raises:
            ScenarioError: An attribute is missing, names no submodule, or does not match `named_parameters()`; a
                grouping does not contain every ordered module once; or a copy is trained or does not match its
                original.
        """
        kind = type(self).__name__
        if not hasattr(self, "ordered_modules") or not hasattr(self, "feature_layer"):
            raise ScenarioError(f"model {kind}: must declare ordered_modules and feature_layer")
        submodules = dict(self.named_modules())
        for name in (*self.ordered_modules, self.feature_layer, *self.copies, *self.copies.values()):
            if name not in submodules:
                raise ScenarioError(f"model {kind}: declares '{name}', which is not one of its submodules")
        declared: list[str] = []
        first_names: dict[int, str] = {}  # named_parameters() yields a tied parameter only under its first name
        for module in self.ordered_modules:
            for name, parameter in submodules[module].named_parameters(module):
                if first_names.setdefault(id(parameter), name) == name:
                    declared.append(name)
        held = [name for name, _ in self.named_parameters() if self.original_of(name) is None]
        if declared != held:
            raise ScenarioError(
                f"model {kind}: ordered_modules give the parameters in the order {', '.join(declared)}, but "
                f"named_parameters() in the order {', '.join(held)}; create the layers from input to output "
                "and declare all that have parameters"
            )
        for grouping, units in self.groupings.items():
            if sorted(name for unit in units for name in unit) != sorted(self.ordered_modules):
                raise ScenarioError(f"model {kind}: grouping '{grouping}' must contain every ordered module once")
        for copy, original in self.copies.items():
            if any(parameter.requires_grad for parameter in submodules[copy].parameters()):
                raise ScenarioError(f"model {kind}: '{copy}' follows '{original}', so its parameters must not train")
            shapes = [
                {name: tensor.shape for name, tensor in submodules[name].state_dict().items()}
                for name in (copy, original)
            ]
            if shapes[0] != shapes[1]:
                raise ScenarioError(
                    f"model {kind}: '{copy}' is not a copy of '{original}': they have different tensors"
                )

    def original_of(self, name: str) -> str | None:
        """The name of the tensor that a tensor of a copy follows; None if it belongs to no copy."""
        return followed(name, self.copies)


class NoImagesError(ScenarioError):
    """The inputs are not images that the network can take."""


def image_shape(model: str, input_shape: Sequence[int], smallest: int) -> tuple[int, int, int]:
    """Checks that inputs are images, large enough for the layers of a model.

    Args:
        model: The name of the model, for messages.
        input_shape: Shape of one input.
        smallest: Smallest height and width in pixels.

    Returns:
        (height, width, channels).

    Raises:
        NoImagesError: The shape is not three numbers, has no channels, or is smaller.
    """
    shape = tuple(int(size) for size in input_shape)
    if len(shape) != 3 or min(shape[:2]) < smallest or shape[2] < 1:
        raise NoImagesError(
            f"model '{model}': takes images (height, width, channels) of at least {smallest} x {smallest} pixels, "
            f"the data has inputs of shape {shape}"
        )
    return shape


def after_convolutions(size: int, convolutions: int) -> int:
    """Computes the side length of an image after 5x5 convolutions without padding, each followed by 2x2 pooling."""
    for _ in range(convolutions):
        size = (size - 4) // 2
    return size
