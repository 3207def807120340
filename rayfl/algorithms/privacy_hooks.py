"""What an algorithm says of privacy: why it has none, or what there is to hide."""

from __future__ import annotations

from rayfl.algorithms.exchange import Released
from rayfl.algorithms.sample_request import SampleRequest
from rayfl.errors import ScenarioError


class PrivacyHooks:
    """What `local.dp` and `phases.N.dp` ask an algorithm before anything starts; a base of every `Algorithm`.

    For that of samples (`local.dp`) an algorithm defines `no_sample_dp` and `sample_requests`, for that of clients
    (`phases.N.dp`) `releases`.
    """

    def no_sample_dp(self) -> str:
        """Returns why `local.dp` does not work with the algorithm; empty if it does.

        With `local.dp`, every request of a client (training, losses, gradients) is clipped sample by sample, noised and
        charged to its account, so that whatever the client answers or keeps is private without further code. Give a
        reason where that cannot be done (loss terms of a whole batch, Hessian-vector products), or where noise would
        leave nothing of use.
        """
        return ""

    def sample_requests(self) -> tuple[SampleRequest, ...]:
        """Returns what a client update of a round asks of the client's samples, one entry per request.

        It is what `local.dp` plans with: the noise for a `target_epsilon`, and who may still take part under a
        `max_epsilon`. By default, one local training. An algorithm that first asks for the gradient over all samples
        returns `(SampleRequest("query"), SampleRequest())`. A round that spends more ends the run.
        """
        return (SampleRequest(),)

    def releases(self) -> Released:
        """Returns the names and lengths of the vectors that clients answer with, for `phases.N.dp`.

        By declaring them an algorithm promises that its server works with noised sums alone: the vectors of a client
        are clipped as one, all clients have the weight 1, and a round asks its cohort once. FedAvg returns
        `Released({"delta": "model"})`.

        Raises:
            ScenarioError: Clients answer with something else; says with what, and what to use instead. So does every
                algorithm that declares nothing.
        """
        raise ScenarioError(
            f"{type(self).__name__} does not declare what its clients release; define releases() where clipped sums of "
            "equal weight are enough for it"
        )
