"""Networks of the papers, by name, and their flat parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rayfl.config.registry import Registry
from rayfl.lazy_names import lazy_names

if TYPE_CHECKING:
    from rayfl.models.network import Network as Network
else:
    __getattr__, __dir__ = lazy_names(__name__)


models = Registry(
    "model",
    {
        "lenet5": "rayfl.models.cnn:LeNet5",
        "mlp": "rayfl.models.mlp:MLP",
        "cnn_femnist": "rayfl.models.cnn:CNNFemnist",
        "cnn_fashion_mnist": "rayfl.models.cnn:CNNFashionMNIST",
        "cnn_fashion_mnist_large": "rayfl.models.cnn:CNNFashionMNISTLarge",
        "cnn_feddyn": "rayfl.models.cnn:CNNFedDyn",
        "cnn_fedbug_tiny": "rayfl.models.cnn:CNNFedBugTiny",
        "cnn_fedbabu": "rayfl.models.cnn:CNNFedBABU",
        "resnet8": "rayfl.models.resnet:ResNet8",
        "resnet20": "rayfl.models.resnet:ResNet20",
        "resnet32": "rayfl.models.resnet:ResNet32",
        "resnet44": "rayfl.models.resnet:ResNet44",
        "resnet56": "rayfl.models.resnet:ResNet56",
        "resnet18": "rayfl.models.resnet:ResNet18",
        "resnet34": "rayfl.models.resnet:ResNet34",
        "mobilenet_v2": "rayfl.models.mobilenet:MobileNetV2",
        "deeplab_v3_plus": "rayfl.models.mobilenet:DeepLabV3Plus",
        "char_lstm": "rayfl.models.text:CharLSTM",
        "distilbert": "rayfl.models.text:DistilBert",
        "projected": "rayfl.models.heads:projected",
        "siamese": "rayfl.models.heads:siamese",
        "orchestra": "rayfl.models.heads:orchestra",
        "momentum_contrast": "rayfl.models.heads:momentum_contrast",
    },
)
