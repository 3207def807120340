"""An algorithm's declarations about privacy: the values that DP must hide, or why it is not supported."""

from __future__ import annotations

from rayfl.algorithms.exchange import Released
from rayfl.algorithms.sample_request import SampleRequest
from rayfl.errors import ScenarioError


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
        `max_epsilon`. By default, it is one local training. An algorithm that first asks for the gradient over all
        samples returns `(SampleRequest("query"), SampleRequest())`. A round that spends more than declared ends the
        run.
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
