"""`local.dp` and `phases.N.dp`: differential privacy of samples and of clients."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from rayfl.config.section import Section, check_idle

Delta = Annotated[float, Field(gt=0, lt=1)]

SECURE_BY_RDP = "secure needs accountant = 'rdp': 'prv' is of continuous noise, and secure noise is discrete"


def _check_either(noise_multiplier: float | None, target_epsilon: float | None) -> None:
    if noise_multiplier is None and target_epsilon is None:
        raise ValueError("give either noise_multiplier or target_epsilon; neither is there")
    if noise_multiplier is not None and target_epsilon is not None:
        raise ValueError(
            "give either noise_multiplier or target_epsilon, not both; to replace the one in the file, give the whole "
            "table again, dp = { ... }"
        )


class SampleDP(Section):
    """DP-SGD at the clients (Abadi et al., CCS 2016): a client's updates hide each of its samples.

    A step draws every sample with rate q = min(1, batch_size / samples), clips the gradient of each to `max_grad_norm`,
    adds Gaussian noise of standard deviation `noise_multiplier * max_grad_norm` to their sum, and divides by the
    expected number of drawn samples, min(batch_size, samples). What guarantee a run gives is in docs/explanation/privacy.md and in
    its privacy.json.

    Attributes:
        noise_multiplier: Standard deviation of the noise as a multiple of `max_grad_norm`.
        target_epsilon: Given instead: finds noise with which no client's epsilon exceeds this at the end of the phase,
            all earlier phases included, and the largest is within 1.5 % below.
        noise_for: With `target_epsilon`: `worst` gives all clients the noise of the one that needs the most, `client`
            each its own.
        max_grad_norm: C, the bound on the L2 norm of one sample's gradient; "inf" clips nothing, and is allowed
            only without noise.
        delta: Of the (epsilon, delta) guarantee.
        max_epsilon: With `noise_multiplier`: a client whose next update would take its epsilon above this no longer
            takes part (`when_spent`). Needs `accountant = "rdp"`, which can be asked before every update.
        when_spent: `leave_out`: such a client is left out of cohorts, which may leave a round without participants; the
            phase ends once no client that it may draw can afford an update. `stop`: the run ends before that round.
        secure: Draws noise and batches from the operating system's cryptographic source, so that no run can be
            repeated, and adds the noise exactly (`rayfl.privacy.lattice`). A run that is resumed is charged for every
            round that began, repeated ones included (`rayfl.privacy.release_ledger`). Otherwise they come from the
            scenario's seed, and the guarantee holds only against those who do not know it, nor look at single bits.
        accountant: `prv` (Gopi et al., NeurIPS 2021) is tight; `rdp` (Mironov, 2017) is an upper bound, and cheap. It
            alone knows `secure` noise, for which it is the default, at integer orders.
        sampling: `poisson` is what the accountant assumes; `shuffled` takes batches as training without privacy does,
            and no accountant covers it: records and output say so.
        clipping: `per_sample` holds every sample's gradient, of linear layers on single vectors its two factors;
            `ghost` computes the norms alone, where Opacus can (linear and embedding layers), in two passes.
        max_loss: L, where an algorithm asks for losses of its clients: each sample's is clipped to [0, L] and their
            sum noised with standard deviation `noise_multiplier * L`.
        augmentations: Augmented copies of every drawn sample, whose mean gradient is clipped as one (De et al., 2022).
        physical_batch_size: Samples whose gradients are in memory at once, copies included.
    """

    model_config = ConfigDict(allow_inf_nan=True)

    noise_multiplier: NonNegativeFloat | None = None
    target_epsilon: PositiveFloat | None = None
    noise_for: Literal["worst", "client"] = "worst"
    max_grad_norm: PositiveFloat
    delta: Delta = 1e-5
    max_epsilon: PositiveFloat | None = None
    when_spent: Literal["leave_out", "stop"] = "leave_out"
    secure: bool = False
    accountant: Literal["prv", "rdp"] = "prv"
    sampling: Literal["poisson", "shuffled"] = "poisson"
    clipping: Literal["per_sample", "ghost"] = "per_sample"
    max_loss: PositiveFloat = 10.0
    augmentations: PositiveInt = 1
    physical_batch_size: PositiveInt = 64

    @model_validator(mode="before")
    @classmethod
    def _secure_by_rdp(cls, given: Any) -> Any:
        return {"accountant": "rdp", **given} if isinstance(given, dict) and given.get("secure") is True else given

    @model_validator(mode="after")
    def _fits_together(self) -> SampleDP:
        _check_either(self.noise_multiplier, self.target_epsilon)
        if self.secure and self.accountant == "prv":
            raise ValueError(SECURE_BY_RDP)
        if self.secure and self.clipping == "ghost":
            raise ValueError("secure needs clipping = 'per_sample': 'ghost' rounds the sum before its noise")
        for key in ("noise_multiplier", "target_epsilon", "max_epsilon", "max_loss"):
            if getattr(self, key) == float("inf"):
                raise ValueError(f"{key} must be finite")
        if self.max_grad_norm == float("inf") and self.noise_multiplier != 0:
            raise ValueError("max_grad_norm = inf has no noise that hides it; set noise_multiplier = 0, or a bound")
        check_idle(self, {"noise_for": self.target_epsilon is None}, "without target_epsilon")
        check_idle(self, {"when_spent": self.max_epsilon is None}, "without max_epsilon")
        if self.max_epsilon is not None and self.target_epsilon is not None:
            raise ValueError("max_epsilon has no effect with target_epsilon, which no client exceeds; leave it out")
        if self.max_epsilon is not None and self.accountant != "rdp":
            raise ValueError(
                "max_epsilon needs accountant = 'rdp': 'prv' is too slow to be asked before every client update"
            )
        if self.max_epsilon is not None and self.sampling == "shuffled":
            raise ValueError("max_epsilon needs sampling = 'poisson': no accountant covers shuffled batches")
        if self.target_epsilon is not None and self.sampling == "shuffled":
            raise ValueError("target_epsilon needs sampling = 'poisson': no accountant covers shuffled batches")
        if self.augmentations > 1 and self.clipping == "ghost":
            raise ValueError("augmentations needs clipping = 'per_sample'")
        return self


class Quantile(Section):
    """A bound that follows a quantile of the clients' norms (Andrew et al., NeurIPS 2021).

    Attributes:
        quantile: Share of the norms that are to lie below the bound.
        initial: The first bound.
        lr: Its geometric step: C <- C exp(-lr (share below C - quantile)).
        noise_multiplier: Standard deviation of the noise of the count of those below, as a multiple of its
            sensitivity, 1/2.
    """

    quantile: Annotated[float, Field(gt=0, lt=1)]
    initial: PositiveFloat = 0.1
    lr: PositiveFloat = 0.2
    noise_multiplier: PositiveFloat = 10.0


class ClientDP(Section):
    """Privacy of whole clients (McMahan et al., ICLR 2018): a round hides who took part with what.

    All vectors that a client releases are clipped as one: `clip_norm` bounds the root of the sum of their squares.
    What neighbours are, who is trusted and what amplifies is in docs/explanation/privacy.md.

    Attributes:
        level: `central`: the server adds noise to the exact sum; `local`: each client noises what it sends.
        noise_multiplier: Standard deviation of the noise as a multiple of `clip_norm`.
        target_epsilon: Given instead: finds the least noise with which epsilon does not exceed this at the end of the
            phase.
        clip_norm: C, the bound on the L2 norm of a client's contribution, all clients having the weight 1, or
            `{ quantile = 0.5 }`.
        delta: Of the guarantee; by default, and at most, 1 / M^1.1 of M clients. It has no default where that is above
            0.01 (up to 65 clients).
        accountant: `prv` for Bernoulli cohorts, where it is the default; `rdp` for those of fixed size too.
        secure: Draws noise, and with `central` the cohorts, from the operating system's cryptographic source, so that
            no run can be repeated, and adds the noise exactly (`rayfl.privacy.lattice`); epsilon is by `rdp` at integer
            orders, and counts every round that began, those that a resumed run repeats included. Otherwise they come
            from the scenario's seed.
    """

    level: Literal["central", "local"]
    noise_multiplier: NonNegativeFloat | None = None
    target_epsilon: PositiveFloat | None = None
    clip_norm: PositiveFloat | Quantile
    delta: Delta | None = None
    accountant: Literal["prv", "rdp"] | None = None
    secure: bool = False

    @model_validator(mode="after")
    def _fits_together(self) -> ClientDP:
        _check_either(self.noise_multiplier, self.target_epsilon)
        if self.secure and self.accountant == "prv":
            raise ValueError(SECURE_BY_RDP)
        if self.level == "local" and isinstance(self.clip_norm, Quantile):
            raise ValueError("clip_norm = { quantile = ... } needs level = 'central': it is adapted by the server")
        if isinstance(self.clip_norm, Quantile) and (self.noise_multiplier or 0) >= self.clip_norm.noise_multiplier:
            raise ValueError(
                f"clip_norm.noise_multiplier = {self.clip_norm.noise_multiplier:g} must be above noise_multiplier: the "
                "count of clipped clients is a part of what that hides"
            )
        return self
