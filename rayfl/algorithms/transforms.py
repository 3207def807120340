"""Transforms of a client's answer before it is summed: sparsification, quantisation, or your own."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Field

from rayfl.config.component import Component
from rayfl.config.registry import Registry
from rayfl.errors import ScenarioError
from rayfl.local.state import Declaration

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
    """A vector on its way to the server; `AnswerTransform.transform` takes and returns it.

    Attributes:
        values: float32 [num_params], what the server decodes.
        count: Number of values sent.
        value_bits: Bits per value.
        extra_bits: Bits sent in addition to the values, such as indices.

    Example:
        >>> import torch
        >>> from rayfl.algorithms import Encoded
        >>> Encoded(values=torch.tensor([0.0, 3.0]), count=1, extra_bits=32).bits
        64
    """

    values: torch.Tensor
    count: int
    value_bits: int = FLOAT_BITS
    extra_bits: int = 0

    @property
    def bits(self) -> int:
        """Size of the whole message, in bits."""
        return self.count * self.value_bits + self.extra_bits


class AnswerTransform(Component, ABC):
    """Changes the parameters' part of every vector that a client sends back; derive from it to write your own.

    Buffers and single values are sent unchanged. What an algorithm keeps on the client (SCAFFOLD's control variate,
    FedDyn's dual vector) is what the client computed, not what the server decodes; for these, the server's sum differs
    from the clients' by what the transforms left out.

    Example:
        >>> from dataclasses import replace
        >>> import torch
        >>> from rayfl.algorithms import AnswerTransform, Encoded
        >>> class Sign(AnswerTransform):
        ...     name: str = "sign"
        ...
        ...     def planned(self, message):
        ...         return replace(message, value_bits=1)
        ...
        ...     def transform(self, client, vector, message):
        ...         return replace(self.planned(message), values=message.values.sign())
        >>> sent = Sign().transform(None, "delta", Encoded(torch.tensor([-2.0, 3.0]), count=2))
        >>> sent.values, sent.bits
        (tensor([-1.,  1.]), 2)
    """

    def client_state(self, vectors: Sequence[str]) -> Declaration:
        """Declares the state that clients keep for the vectors of these names."""
        return {}

    def planned(self, message: Encoded) -> Encoded:
        """Returns the size of the replacement of a message, for any values; the virtual clock needs it.

        Args:
            message: A message without values.

        Raises:
            ScenarioError: The size depends on the values. This is the default; override it if the size is known
                beforehand.
        """
        raise ScenarioError(
            f"'{self.name}' does not say beforehand how much it sends, which the clock of [participation] needs; "
            "define its planned() if the size is known"
        )

    @abstractmethod
    def transform(self, client: ClientContext, vector: str, message: Encoded) -> Encoded:
        """Transforms a message.

        Args:
            client: The client that sends it.
            vector: Name of the vector in the answer.
            message: The vector, or the output of an earlier transform.

        Returns:
            The message that is sent instead.
        """


class BiasedTransform(AnswerTransform, ABC):
    """A transform with error feedback: clients keep what it leaves out and add it to their next answer.

    Seide et al., INTERSPEECH 2014; Karimireddy et al., ICML 2019.

    Attributes:
        error_feedback: Whether to use error feedback.

    Example:
        >>> from dataclasses import replace
        >>> from types import SimpleNamespace
        >>> import torch
        >>> from rayfl.algorithms import BiasedTransform, Encoded
        >>> class Rounded(BiasedTransform):
        ...     name: str = "rounded"
        ...
        ...     def encode(self, client, vector, message):
        ...         return replace(message, values=message.values.round())
        >>> client = SimpleNamespace(state={})
        >>> Rounded().transform(client, "delta", Encoded(torch.tensor([0.75, 2.25]), count=2)).values
        tensor([1., 2.])
        >>> client.state
        {'rounded residual of delta': tensor([-0.2500,  0.2500])}
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
        """Transforms a message without error feedback; arguments as for `transform`."""

    def _residual(self, vector: str) -> str:
        return f"{self.name} residual of {vector}"


class TopK(BiasedTransform):
    """Sends only the values of largest magnitude, each with its index.

    Aji and Heafield, "Sparse Communication for Distributed Gradient Descent", EMNLP 2017.

    Attributes:
        share: Share of the values that is sent, above 0, at most 1; the number is rounded up.
    """

    name: str = "top_k"
    share: Annotated[float, Field(gt=0, le=1)] = 0.01

    def planned(self, message: Encoded) -> Encoded:
        num_kept = math.ceil(self.share * message.count - 1e-9)
        return replace(message, count=num_kept, extra_bits=message.extra_bits + num_kept * INDEX_BITS)

    def encode(self, client: ClientContext, vector: str, message: Encoded) -> Encoded:
        import torch

        sent = self.planned(message)
        # a stable sort, since topk may break ties differently
        chosen = torch.argsort(message.values.abs(), descending=True, stable=True)[: sent.count]
        values = torch.zeros_like(message.values)
        values[chosen] = message.values[chosen]
        return replace(sent, values=values)


class Quantize(AnswerTransform):
    """Sends the L2 norm, and for every value a sign and one of 2^(bits - 1) levels, by unbiased stochastic rounding.

    Alistarh et al., "QSGD: Communication-Efficient SGD via Gradient Quantization and Encoding", NeurIPS 2017, section
    3.1, without its entropy coding. There is no error feedback: unbiased rounding errors average out, but may be larger
    than the vector itself, and a residual kept by the client would grow without bound.

    Attributes:
        bits: Bits per value, from 2 to 16.
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
