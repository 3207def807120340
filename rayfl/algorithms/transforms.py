"""Transforms of a client's answer before it is summed: sparsification, quantisation, or your own."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Field

from rayfl.component import Component
from rayfl.errors import ScenarioError
from rayfl.local.state import Declaration
from rayfl.registry import Registry

if TYPE_CHECKING:
    import torch

    from rayfl.local.context import ClientContext

FLOAT_BITS = 32
INDEX_BITS = 32

answer_transforms = Registry(
    "transform",
    {"top_k": "rayfl.algorithms.transforms:TopK", "quantize": "rayfl.algorithms.transforms:Quantize"},
)


@dataclass(frozen=True)
class Encoded:
    """A vector on its way to the server.

    Attributes:
        values: [num_params] float32, what the server decodes.
        count: Number of values sent.
        value_bits: Bits per value.
        extra_bits: Bits sent in addition to the values.
    """

    values: torch.Tensor
    count: int
    value_bits: int = FLOAT_BITS
    extra_bits: int = 0

    @property
    def bits(self) -> int:
        """Size of the whole message in bits."""
        return self.count * self.value_bits + self.extra_bits


class AnswerTransform(Component, ABC):
    """Changes the parameters' part of every vector that a client sends back.

    Buffers and single values are sent as they are. What an algorithm keeps at the client (SCAFFOLD's control variate,
    FedDyn's dual vector) is what the client computed, not what the server decodes, so there the server's sum differs
    from that of the clients' by what the transforms left out.

    """

    def client_state(self, vectors: Sequence[str]) -> Declaration:
        """What clients keep for the vectors of these names."""
        return {}

    def planned(self, message: Encoded) -> Encoded:
        """How large what is sent instead of a message is, whatever its values; the virtual clock needs it beforehand.

        Args:
            message: Without values.

        Raises:
            ScenarioError: That depends on the values, as it does unless a class says otherwise.
        """
        raise ScenarioError(
            f"'{self.name}' does not say beforehand how much it sends, which the clock of [participation] needs; where "
            "that is known, define its planned()"
        )

    @abstractmethod
    def transform(self, client: ClientContext, vector: str, message: Encoded) -> Encoded:
        """Transforms a message.

        Args:
            client: Who sends it.
            vector: Name of the vector in the answer.
            message: The vector, or what an earlier transform made of it.

        Returns:
            What is sent instead.
        """


class BiasedTransform(AnswerTransform, ABC):
    """A transform that leaves something out, which clients keep and add to their next answer: error feedback.

    Seide et al., INTERSPEECH 2014; Karimireddy et al., ICML 2019.

    Attributes:
        error_feedback: Whether to use error feedback.
    """

    error_feedback: bool = True

    def client_state(self, vectors: Sequence[str]) -> Declaration:
        return {self._residual(vector): "phase" for vector in vectors} if self.error_feedback else {}

    def transform(self, client: ClientContext, vector: str, message: Encoded) -> Encoded:
        if not self.error_feedback:
            return self.encode(client, vector, message)
        residual = client.state.get(self._residual(vector))
        values = message.values if residual is None else message.values + residual
        sent = self.encode(client, vector, replace(message, values=values))
        client.state[self._residual(vector)] = values - sent.values
        return sent

    @abstractmethod
    def encode(self, client: ClientContext, vector: str, message: Encoded) -> Encoded:
        """As `transform`, without error feedback."""

    def _residual(self, vector: str) -> str:
        return f"{self.name} residual of {vector}"


class TopK(BiasedTransform):
    """Sends only the values of largest magnitude, each with its index.

    Aji and Heafield, "Sparse Communication for Distributed Gradient Descent", EMNLP 2017.

    Attributes:
        share: Share of the values that is sent, rounded up.
    """

    name: str = "top_k"
    share: Annotated[float, Field(gt=0, le=1)] = 0.01

    def planned(self, message: Encoded) -> Encoded:
        kept = math.ceil(self.share * message.count - 1e-9)
        return replace(message, count=kept, extra_bits=message.extra_bits + kept * INDEX_BITS)

    def encode(self, client: ClientContext, vector: str, message: Encoded) -> Encoded:
        import torch

        sent = self.planned(message)
        # a stable sort, since topk may choose differently among equals
        chosen = torch.argsort(message.values.abs(), descending=True, stable=True)[: sent.count]
        values = torch.zeros_like(message.values)
        values[chosen] = message.values[chosen]
        return replace(sent, values=values)


class Quantize(AnswerTransform):
    """Sends a sign and one of 2^(bits - 1) levels of every value, rounded at random without bias, and the L2 norm.

    Alistarh et al., "QSGD: Communication-Efficient SGD via Gradient Quantization and Encoding", NeurIPS 2017, section
    3.1, without its entropy code. There is no error feedback: rounding is unbiased, so that errors average out; they
    may be larger than the vector itself, and what a client kept of them would grow without bound.

    Attributes:
        bits: Of each value.
    """

    name: str = "quantize"
    bits: Annotated[int, Field(ge=2, le=16)] = 8

    def planned(self, message: Encoded) -> Encoded:
        return replace(message, value_bits=self.bits, extra_bits=message.extra_bits + FLOAT_BITS)

    def transform(self, client: ClientContext, vector: str, message: Encoded) -> Encoded:
        import torch

        levels, values = 2 ** (self.bits - 1) - 1, message.values
        draws = client.streams.numpy(f"quantize {vector}").random(len(values), dtype=np.float32)
        norm = values.norm().clamp_min(torch.finfo(values.dtype).tiny)
        scaled = values.abs() / norm * levels
        level = scaled.floor() + (torch.from_numpy(draws).to(values.device) < scaled.frac())
        sent = values.sign() * level * (norm / levels)
        return replace(self.planned(message), values=sent)
