"""Requirements and limits of an algorithm, checked before a run starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from rayfl.config.base_phase import EvalModel
from rayfl.config.local import RATE_KEYS

if TYPE_CHECKING:
    import numpy as np

Requirement = Literal["features", "buffers", "batch_norm", "no_running_statistics", "plain_objective"]
"""A requirement that `Algorithm.requirements` may return.

Of the network: a declared feature layer (`features`), `buffers`, batch norm layers (`batch_norm`), or
`no_running_statistics`. Of the task: that training minimises its loss and nothing else (`plain_objective`).
"""


class Limits:
    """Which networks, options, cohorts and data do not work with an algorithm; a base class of every `Algorithm`.

    Attributes:
        trains: See `Algorithm`.
        no_relay: Why the algorithm cannot run as a relay (sequential, cyclic training); empty if it can.
        no_stale_answers: Why the server cannot use answers to an older model than its own; empty if it can, and the
            values that clients answer with may be discounted.
        only_eval_models: The `eval_model` rules that are defined for the algorithm; None for all.
        local_options: Names of the fields that affect local training and therefore a relay; all other fields must keep
            their defaults in a relay.
    """

    trains: ClassVar[bool]
    no_relay: ClassVar[str] = ""
    no_stale_answers: ClassVar[str] = ""
    only_eval_models: ClassVar[tuple[EvalModel, ...] | None] = None
    local_options: ClassVar[frozenset[str]] = frozenset()

    def requirements(self) -> set[Requirement]:
        """Returns requirements on the network and the task, which are checked before the run starts."""
        return set()

    def local_keys(self) -> frozenset[str] | None:
        """Returns the keys of `local` that clients read; None for all.

        All other keys must keep their defaults. `phases.N.train` works in any case: gradients and Hessian-vector
        products that a client update asks for are zero for parameters that do not train.
        """
        return None if self.trains else RATE_KEYS

    def assumes_sgd(self) -> str:
        """Returns why clients must train with plain SGD (`local.optimizer = "sgd"`); empty if any optimizer works."""
        return ""

    def check_cohort(self, smallest: int, largest: int) -> None:
        """Checks that cohorts of these sizes work; called before the run starts, if the sizes are known by then.

        Args:
            smallest: Number of clients in the smallest cohort that the phase can draw.
            largest: Number of clients in the largest one.

        Raises:
            ScenarioError: They do not work; the message begins with the option that requires other sizes.
        """

    def check_clients(self, sizes: np.ndarray) -> None:
        """Checks that clients of these sizes can take part; called before the run starts.

        Args:
            sizes: int64 [clients], the number of training samples of each client.

        Raises:
            ScenarioError: A client cannot take part.
        """

    def check_server(self, samples: int, largest_cohort: int) -> None:
        """Checks that the server has enough samples, if an exchange reads them; called before the run starts.

        Args:
            samples: Number of samples that the server holds.
            largest_cohort: The largest number of clients in a round.

        Raises:
            ScenarioError: There are too few samples.
        """
