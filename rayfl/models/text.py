"""Networks for text: LEAF's next-character LSTM, and DistilBERT, which requires rayfl[text]."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import torch
from pydantic import PositiveInt
from torch import nn

from rayfl.config.registry import nearest
from rayfl.errors import ScenarioError
from rayfl.models.network import Network

if TYPE_CHECKING:
    from transformers import DistilBertConfig


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


_AS_THEY_ARE: Mapping[str, int | float] = MappingProxyType({})


class DistilBert(Network):
    """66 955 010 parameters for two classes.

    `forward` maps the tokens' numbers `input_ids` [n, length] int64 and `attention_mask` [n, length] bool, false for
    padding, to [n, num_classes] logits. Names, initialisation and layers are those of `transformers`, so a start from
    the `model.safetensors` of a pre-trained DistilBERT fits.

    From Sanh et al., "DistilBERT, a distilled version of BERT", 2019. Attention is computed without fused kernels,
    whose gradients are not deterministic on CUDA.

    Args:
        num_classes: Width of the output.
        folder: Folder of a DistilBERT; its config.json gives the sizes. By default those of distilbert-base-uncased.
            Weights are not read: use `start.file` for that.
        config: Other sizes, by their names in config.json: { n_layers = 2, dim = 64, n_heads = 2 }.

    Raises:
        ScenarioError: `transformers` is not installed, the folder has no DistilBERT, or a size is unknown or wrong.
    """

    feature_layer = "classifier"

    def __init__(
        self,
        num_classes: PositiveInt = 2,
        folder: Path | None = None,
        config: Mapping[str, int | float] = _AS_THEY_ARE,
    ) -> None:
        super().__init__()
        resolved = _config(num_classes, folder, config)
        from transformers import DistilBertForSequenceClassification

        try:
            whole = DistilBertForSequenceClassification(resolved)
        except ValueError as error:
            raise _wrong(error) from error
        self.distilbert = whole.distilbert
        self.pre_classifier = whole.pre_classifier
        self.dropout = whole.dropout
        self.classifier = whole.classifier
        layers = (f"distilbert.transformer.layer.{number}" for number in range(resolved.n_layers))
        self._tokens, self._positions = resolved.vocab_size, resolved.max_position_embeddings
        self.ordered_modules = ("distilbert.embeddings", *layers, "pre_classifier", "classifier")

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        if input_ids.shape[1] > self._positions:
            raise ScenarioError(
                f"model 'distilbert': takes {self._positions} tokens, but the data has {input_ids.shape[1]}; shorten "
                "the texts (data.options.length) or change model.config.max_position_embeddings"
            )
        try:
            states = self.distilbert(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        except IndexError:
            raise ScenarioError(
                f"model 'distilbert': has a vocabulary of {self._tokens}, but the data has token "
                f"{int(input_ids.max())}; use the same folder for model.folder and data.options.tokenizer, or change "
                "model.config.vocab_size"
            ) from None
        features = nn.functional.relu(self.pre_classifier(states[:, 0]))
        logits: torch.Tensor = self.classifier(self.dropout(features))
        return logits


def _config(num_classes: int, folder: Path | None, overrides: Mapping[str, Any]) -> DistilBertConfig:
    try:
        from transformers import AutoConfig, DistilBertConfig
    except ImportError as error:
        raise ScenarioError("model 'distilbert': needs transformers; pip install 'rayfl[text]'") from error
    known = DistilBertConfig().to_dict()
    for key in overrides:
        if key not in known:
            raise ScenarioError(f"model.config.{key}: is not in DistilBERT's config.json; {nearest(key, known)}")
    options = {**overrides, "num_labels": num_classes, "attn_implementation": "eager"}
    if folder is not None and not (folder / "config.json").is_file():
        raise ScenarioError(f"model.folder: {folder} has no config.json; use the folder of a DistilBERT")
    try:
        if folder is None:
            return DistilBertConfig(**options)
        loaded = AutoConfig.from_pretrained(folder, local_files_only=True, **options)
    except Exception as error:  # exceptions of transformers have no common base
        raise _wrong(error) from error
    if not isinstance(loaded, DistilBertConfig):
        raise ScenarioError(f"model.folder: {folder} has a '{loaded.model_type}', not a DistilBERT")
    return loaded


def _wrong(error: Exception) -> ScenarioError:
    return ScenarioError(f"model 'distilbert': its config is wrong ({' '.join(str(error).split())})")
