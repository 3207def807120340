"""Requirements and limits of an algorithm, also under differential privacy, checked before a run starts.

`PrivacyHooks` says which values differential privacy must hide, or why it is not supported; a `SampleRequest` declares
a request that reads clients' samples, for planning `local.dp`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from rayfl.algorithms.exchange import Released
from rayfl.config.base_phase import EvalModel
from rayfl.config.local import RATE_KEYS
from rayfl.errors import ScenarioError

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


@dataclass(frozen=True)
class SampleRequest:
    """One request of a client update that reads the client's samples; see `Algorithm.sample_requests`.

    Attributes:
        kind: `training`: a `LocalTraining`, each step of which draws a batch. `query`: a `Loss`, `Gradient` or
            `LossAndGradient`, which reads all samples of its view.
        part: Name of the part of the samples that it reads (`DataView.part`); empty for all of them.
        results: For a query, how many of loss and gradient it returns; each is noised and charged.
        every_step: Whether it is made at every local step rather than once per client update.
        epochs: For a training request, its `LocalTraining.epochs`.
        steps: For a training request, its `LocalTraining.steps`.
        exchange: The exchange of the round in which it is made, from 0; for the virtual clock.

    Example:
        >>> from rayfl.algorithms import FedAvg, SampleRequest
        >>> class GradientFirst(FedAvg):
        ...     def sample_requests(self):
        ...         return (SampleRequest("query"), SampleRequest())
        >>> [request.kind for request in GradientFirst().sample_requests()]
        ['query', 'training']
    """

    kind: Literal["training", "query"] = "training"
    part: str = ""
    results: int = 1
    every_step: bool = False
    epochs: int | None = None
    steps: int | None = None
    exchange: int = 0


class PrivacyHooks:
    """Declarations that `local.dp` and `phases.N.dp` read before a run starts; a base class of every `Algorithm`.

    For example-level DP (`local.dp`) an algorithm defines `no_sample_dp` and `sample_requests`, for client-level DP
    (`phases.N.dp`) `releases`.
    """

    def no_sample_dp(self) -> str:
        """Returns why `local.dp` does not work with the algorithm; empty if it does.

        Under `local.dp`, every request of a client (training, losses, gradients) is clipped sample by sample, noised
        and charged to its account. The client's answer and state are then private without further code. Return a
        reason if that is impossible (loss terms over a whole batch, Hessian-vector products) or if the noise would make
        the results useless.
        """
        return ""

    def sample_requests(self) -> tuple[SampleRequest, ...]:
        """Returns the requests of one client update that read the client's samples.

        `local.dp` plans with it: the noise for a `target_epsilon`, and which clients may still take part under a
        `max_epsilon`. The tried rounds of your own algorithm prove nothing of others, so with `local.dp` you define it:
        an algorithm that first asks for the gradient over all samples returns `(SampleRequest("query"),
        SampleRequest())`. A request that is not among them ends the run before it reads a sample.
        """
        return (SampleRequest(),)

    def releases(self) -> Released:
        """Returns the names and lengths of the vectors that clients answer with, for `phases.N.dp`.

        By declaring them an algorithm promises that its server needs only noised sums: the vectors of a client are
        clipped as one, all clients have weight 1, and a round asks its cohort once. FedAvg returns `Released({"delta":
        "model"})`.

        Raises:
            ScenarioError: Clients answer with something else; the message says with what, and what to use instead. The
                default raises it as well.
        """
        raise ScenarioError(
            f"{type(self).__name__} does not declare what its clients release; define releases() if clipped sums with "
            "equal weights are all that it needs"
        )
