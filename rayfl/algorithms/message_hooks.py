"""The contents of an algorithm's messages, and the values that stay on a client."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from torch import nn


class MessageHooks:
    """Determines traffic, transforms and the shared part of the model; a base class of every `Algorithm`.

    Attributes:
        sent_vectors: Names of the answers' vectors that begin with all parameters; `transforms` apply to these.
    """

    sent_vectors: ClassVar[tuple[str, ...]] = ("delta",)

    def reads_first_model(self) -> bool:
        """Whether clients need the phase's first global model (`ClientContext.first_model`)."""
        return False

    def buffers_are_sent(self) -> bool:
        """Whether a message's `model` includes the network's buffers."""
        return True

    def stays_local(self, network: nn.Module) -> Collection[str]:
        """Returns the names of the parameters and buffers that clients keep to themselves and never send.

        Raises:
            ScenarioError: The network does not have what clients should keep.
        """
        return ()
