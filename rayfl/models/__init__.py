"""The papers' networks, by name, and their flat parameters."""

from rayfl.registry import Registry

models = Registry(
    "model",
    {
        "lenet5": "rayfl.models.lenet5:LeNet5",
        "cnn_femnist": "rayfl.models.cnn_femnist:CNNFemnist",
        "cnn_fashion_mnist": "rayfl.models.cnn_fashion_mnist:CNNFashionMNIST",
        "cnn_fashion_mnist_large": "rayfl.models.cnn_fashion_mnist:CNNFashionMNISTLarge",
    },
)
