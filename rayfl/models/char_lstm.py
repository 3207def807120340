"""The next-character LSTM of LEAF's Shakespeare data."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Literal

import torch
from pydantic import PositiveInt
from torch import nn

from rayfl.errors import ScenarioError
from rayfl.models.network import Network


class CharLSTM(Network):
    """An embedding of the characters, LSTM layers, and a classifier over the vocabulary at the last time step.

    `forward` maps [n, length] int64 to [n, num_classes] logits. 819 920 parameters for the 80 characters of LEAF,
    293 584 with `layers = 1`, 133 520 with `hidden = 100` (FedDyn's).

    From Caldas et al., "LEAF: A Benchmark for Federated Settings", 2018, and its code. CyclicFL only says "LSTM-256",
    FPS two layers of 256.

    Args:
        num_classes: Size of the vocabulary, of inputs and outputs.
        input_shape: (length,). Texts of other lengths work too.
        layers: Number of LSTM layers.
        hidden: Units per layer.
        embedding: Numbers per character.
        biases: Trained bias vectors per layer. PyTorch adds up 2, so their sum learns at twice the rate; FedDyn's code
            uses these. With 1 the second stays at zero, which gives the 817 872 parameters of LEAF's TensorFlow code.

    Raises:
        ScenarioError: The inputs are not sequences.
    """

    def __init__(
        self,
        num_classes: PositiveInt = 80,
        input_shape: Sequence[int] = (80,),
        layers: PositiveInt = 2,
        hidden: PositiveInt = 256,
        embedding: PositiveInt = 8,
        biases: Literal[1, 2] = 2,
    ) -> None:
        super().__init__()
        if len(input_shape) != 1:
            raise ScenarioError(
                f"model 'char_lstm': takes texts (length,), the data has inputs of shape {tuple(input_shape)}"
            )
        self.embedding = nn.Embedding(num_classes, embedding)
        self.lstm = nn.ModuleList(LSTM(hidden if layer else embedding, hidden) for layer in range(layers))
        self.classifier = nn.Linear(hidden, num_classes)
        if biases == 1:
            for layer in self.lstm:
                nn.init.zeros_(layer.get_parameter("bias_hh_l0")).requires_grad_(False)
        self.ordered_modules = ("embedding", *(f"lstm.{layer}" for layer in range(layers)), "classifier")
        self.feature_layer = "classifier"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        states = self.embedding(x).transpose(0, 1)
        for layer in self.lstm:
            states, _ = layer(states)
        logits: torch.Tensor = self.classifier(states[-1])
        return logits


class LSTM(nn.LSTM):
    """torch.nn.LSTM with weights that stay in the flat vector, also on CUDA.

    There, PyTorch moves the weights into one chunk of memory for cuDNN whenever they have changed place; otherwise
    cuDNN copies them at every call (3 MB for two layers of 256) and warns. This class lets it copy, without the
    warning.
    """

    def flatten_parameters(self) -> None:
        """Does nothing, so the weights stay in place."""

    def forward(self, *inputs: Any) -> Any:
        """Same as torch.nn.LSTM."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk")
            return super().forward(*inputs)
