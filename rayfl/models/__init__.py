"""Networks of the papers, by name, and their flat parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rayfl.lazy_names import lazy_names
from rayfl.registry import Registry

if TYPE_CHECKING:
    from rayfl.models.network import Network

__all__ = [
    "Network",
]

_HOMES = {
    "Network": "rayfl.models.network",
}

__getattr__ = lazy_names(__name__, _HOMES)

models = Registry(
    "model",
    {
        "lenet5": "rayfl.models.lenet5:LeNet5",
        "mlp": "rayfl.models.mlp:MLP",
        "cnn_femnist": "rayfl.models.cnn_femnist:CNNFemnist",
        "cnn_fashion_mnist": "rayfl.models.cnn_fashion_mnist:CNNFashionMNIST",
        "cnn_fashion_mnist_large": "rayfl.models.cnn_fashion_mnist:CNNFashionMNISTLarge",
        "cnn_feddyn": "rayfl.models.cnn_feddyn:CNNFedDyn",
        "cnn_fedbug_tiny": "rayfl.models.cnn_feddyn:CNNFedBugTiny",
        "cnn_fedbabu": "rayfl.models.cnn_fedbabu:CNNFedBABU",
        "resnet8": "rayfl.models.resnet_cifar:ResNet8",
        "resnet20": "rayfl.models.resnet_cifar:ResNet20",
        "resnet32": "rayfl.models.resnet_cifar:ResNet32",
        "resnet44": "rayfl.models.resnet_cifar:ResNet44",
        "resnet56": "rayfl.models.resnet_cifar:ResNet56",
        "resnet18": "rayfl.models.resnet:ResNet18",
        "resnet34": "rayfl.models.resnet:ResNet34",
        "mobilenet_v2": "rayfl.models.mobilenet:MobileNetV2",
        "deeplab_v3_plus": "rayfl.models.deeplab:DeepLabV3Plus",
        "char_lstm": "rayfl.models.char_lstm:CharLSTM",
        "distilbert": "rayfl.models.distilbert:DistilBert",
        "projected": "rayfl.models.projected:projected",
        "siamese": "rayfl.models.siamese:siamese",
        "orchestra": "rayfl.models.orchestra:orchestra",
        "momentum_contrast": "rayfl.models.momentum_contrast:momentum_contrast",
    },
)
