"""What an algorithm needs and rules out, so that a scenario is refused before anything starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from rayfl.config.base_phase import EvalModel
from rayfl.config.local import RATE_KEYS

if TYPE_CHECKING:
    import numpy as np

Requirement = Literal["features", "buffers", "batch_norm", "no_running_statistics", "plain_objective"]
"""What an algorithm may ask of a network: a declared feature layer, buffers, batch norm layers, no running statistics;
or of a task: that what training minimises is its loss alone."""


class Limits:
    """Which networks, options, cohorts and data make no sense with an algorithm; a base of every `Algorithm`.

    Attributes:
        trains: As `Algorithm` says.
        no_relay: Why it cannot run as a relay; empty if it can.
        no_stale_answers: Why its server cannot take in answers to an older model than its own; empty if it can, where
            values that clients answer with may be discounted.
        only_eval_models: Those that have a meaning; None for all.
        local_options: Names of the fields that affect local training and so have an effect in a relay; all others must
            keep their defaults there.
    """

    trains: ClassVar[bool]
    no_relay: ClassVar[str] = ""
    no_stale_answers: ClassVar[str] = ""
    only_eval_models: ClassVar[tuple[EvalModel, ...] | None] = None
    local_options: ClassVar[frozenset[str]] = frozenset()

    def requirements(self) -> set[Requirement]:
        """Returns what the network must have, or must not have; checked before anything starts."""
        return set()

    def local_keys(self) -> frozenset[str] | None:
        """Returns which keys of `local` its clients read; None for all.

        The others must keep their defaults. `phases.N.train` needs none of them: gradients and Hessian-vector products
        that a client update asks for are zero in what does not train.
        """
        return None if self.trains else RATE_KEYS

    def assumes_sgd(self) -> str:
        """Returns why clients can train by plain SGD alone (`local.optimizer = "sgd"`); empty if by any optimizer."""
        return ""

    def check_cohort(self, smallest: int, largest: int) -> None:
        """Checks that cohorts of these sizes make sense; before anything starts, where the sizes are known by then.

        Raises:
            ScenarioError: They do not; begins with the option that asks for others.
        """

    def check_clients(self, sizes: np.ndarray) -> None:
        """Checks that clients of these sizes can take part; before anything starts.

        Args:
            sizes: [clients] int64, the training samples of every client.

        Raises:
            ScenarioError: One cannot.
        """

    def check_server(self, samples: int, largest_cohort: int) -> None:
        """Checks that the server's samples suffice, where an exchange is about them; before anything starts.

        Args:
            samples: How many there are.
            largest_cohort: The largest number of clients that a round can have.

        Raises:
            ScenarioError: They do not.
        """
