"""What an algorithm says of its messages: what is in them, and what stays with a client."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from torch import nn


class MessageHooks:
    """What traffic, transforms and shared models follow from; a base of every `Algorithm`.

    Attributes:
        sent_vectors: Names of the answers' vectors that begin with all parameters; transforms apply to these.
    """

    sent_vectors: ClassVar[tuple[str, ...]] = ("delta",)

    def reads_first_model(self) -> bool:
        """Whether clients need the phase's first global model (`ClientContext.first_model`)."""
        return False

    def buffers_are_sent(self) -> bool:
        """Whether a message's `model` includes the network's buffers."""
        return True

    def stays_local(self, network: nn.Module) -> Collection[str]:
        """Returns the names of the parameters and buffers that clients keep to themselves: they are in no message.

        Raises:
            ScenarioError: The network has not what clients are to keep.
        """
        return ()
