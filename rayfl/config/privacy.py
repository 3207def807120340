"""`local.dp` and `phases.N.dp`: example-level and client-level differential privacy."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from rayfl.config.section import Section, check_idle

Delta = Annotated[float, Field(gt=0, lt=1)]

SECURE_BY_RDP = "secure needs accountant = 'rdp': secure noise is discrete, and 'prv' covers only continuous noise"


def _check_either(noise_multiplier: float | None, target_epsilon: float | None) -> None:
    if noise_multiplier is None and target_epsilon is None:
        raise ValueError("give either noise_multiplier or target_epsilon; neither is set")
    if noise_multiplier is not None and target_epsilon is not None:
        raise ValueError(
            "give either noise_multiplier or target_epsilon, not both; to replace the one in the file, write the whole "
            "table again, dp = { ... }"
        )


class SampleDP(Section):
    """Example-level privacy by DP-SGD (Abadi et al., CCS 2016): a client's updates hide each of its samples.

    Each step draws every sample with probability q = min(1, batch_size / samples), clips each sample's gradient to
    `max_grad_norm`, adds Gaussian noise of standard deviation `noise_multiplier * max_grad_norm` to their sum, and
    divides by the expected number of drawn samples, min(batch_size, samples). The documentation's page on privacy
    explains the guarantee; each run states its own in privacy.json.

    Attributes:
        noise_multiplier: Standard deviation of the noise as a multiple of `max_grad_norm`. Give either this or
            `target_epsilon`; by default `target_epsilon` determines it.
        target_epsilon: Finds the noise for which no client's epsilon exceeds this value at the end of the phase, all
            earlier phases included; the largest epsilon is at most 1.5 % below it. Needs `sampling = "poisson"`. Give
            either this or `noise_multiplier`; by default `noise_multiplier` applies.
        noise_for: With `target_epsilon`: `worst` (the default) gives all clients the noise of the client that needs
            most, `client` gives each client its own noise.
        max_grad_norm: C, the bound on the L2 norm of one sample's gradient; "inf" disables clipping and is allowed only
            without noise (`noise_multiplier = 0`).
        delta: delta of the (epsilon, delta) guarantee, between 0 and 1. Default: 1e-5.
        max_epsilon: Privacy budget of each client, with `noise_multiplier`: a client whose next update would raise its
            epsilon above this no longer takes part (see `when_spent`). Needs `accountant = "rdp"`, which is fast enough
            to run before every update, and `sampling = "poisson"`. By default there is no budget.
        when_spent: With `max_epsilon`: `leave_out` (the default) leaves such clients out of cohorts, which may leave a
            round without participants; the phase ends once no client that it may draw can afford an update. `stop` ends
            the run before that round.
        secure: Draws noise and batches from the operating system's cryptographic random source, so that no run can be
            repeated, and adds the noise exactly (`rayfl.privacy.secure_noise`). A resumed run is charged for every
            round that it began, repeated ones included (`rayfl.privacy.release_ledger`). By default (false) noise and
            batches come from the scenario's seed, and the guarantee holds only against those who neither know the seed
            nor look at single bits. Needs `accountant = "rdp"` and `clipping = "per_sample"`.
        accountant: `prv` (Gopi et al., NeurIPS 2021; the default) is tight; `rdp` (Mironov, 2017) is a cheap upper
            bound. With `secure`, `rdp` at integer orders is the default and the only choice.
        sampling: `poisson` (the default) is what the accountant assumes; `shuffled` takes batches as training without
            privacy does, and no accountant covers it: records and output say so.
        clipping: `per_sample` (the default) holds every sample's gradient in memory, or its two factors for linear
            layers on single vectors; `ghost` computes only the norms where Opacus can (linear and embedding layers), in
            two passes.
        max_loss: L, for algorithms that request losses of their clients: each sample's loss is clipped to [0, L], and
            noise of standard deviation `noise_multiplier * L` is added to their sum. Default: 10.
        augmentations: Number of augmented copies of every drawn sample; their mean gradient is clipped as one (De et
            al., 2022). Default: 1. More need `clipping = "per_sample"`.
        physical_batch_size: Maximum number of samples, copies included, whose gradients are in memory at once. Default:
            64.
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
    def _secure_by_rdp(cls, value: Any) -> Any:
        return {"accountant": "rdp", **value} if isinstance(value, dict) and value.get("secure") is True else value

    @model_validator(mode="after")
    def _fits_together(self) -> SampleDP:
        _check_either(self.noise_multiplier, self.target_epsilon)
        if self.secure and self.accountant == "prv":
            raise ValueError(SECURE_BY_RDP)
        if self.secure and self.clipping == "ghost":
            raise ValueError("secure needs clipping = 'per_sample': 'ghost' rounds the sum before noise is added")
        for key in ("noise_multiplier", "target_epsilon", "max_epsilon", "max_loss"):
            if getattr(self, key) == float("inf"):
                raise ValueError(f"{key} must be finite")
        if self.max_grad_norm == float("inf") and self.noise_multiplier != 0:
            raise ValueError(
                "max_grad_norm = inf cannot be hidden by noise; set noise_multiplier = 0, or a finite bound"
            )
        check_idle(self, {"noise_for": self.target_epsilon is None}, "without target_epsilon")
        check_idle(self, {"when_spent": self.max_epsilon is None}, "without max_epsilon")
        if self.max_epsilon is not None and self.target_epsilon is not None:
            raise ValueError("max_epsilon has no effect with target_epsilon, which no client exceeds; leave it out")
        if self.max_epsilon is not None and self.accountant != "rdp":
            raise ValueError(
                "max_epsilon needs accountant = 'rdp': 'prv' is too slow to run before every client update"
            )
        if self.max_epsilon is not None and self.sampling == "shuffled":
            raise ValueError("max_epsilon needs sampling = 'poisson': no accountant covers shuffled batches")
        if self.target_epsilon is not None and self.sampling == "shuffled":
            raise ValueError("target_epsilon needs sampling = 'poisson': no accountant covers shuffled batches")
        if self.augmentations > 1 and self.clipping == "ghost":
            raise ValueError("augmentations needs clipping = 'per_sample'")
        return self


class Quantile(Section):
    """A clipping bound that adapts to a quantile of the clients' norms (Andrew et al., NeurIPS 2021).

    Attributes:
        quantile: Share of the norms that should lie below the bound, between 0 and 1.
        initial: The first bound. Default: 0.1.
        lr: Step size of the geometric update C <- C exp(-lr (share below C - quantile)). Default: 0.2.
        noise_multiplier: Standard deviation of the noise on the count of norms below the bound, as a multiple of its
            sensitivity, 1/2. Must be above the `noise_multiplier` of the table that contains this one. Default: 10.
    """

    quantile: Annotated[float, Field(gt=0, lt=1)]
    initial: PositiveFloat = 0.1
    lr: PositiveFloat = 0.2
    noise_multiplier: PositiveFloat = 10.0


class ClientDP(Section):
    """Client-level privacy (McMahan et al., ICLR 2018): a round hides who took part and with what data.

    All vectors that a client releases are clipped together: `clip_norm` bounds the square root of the sum of their
    squared norms. The documentation's page on privacy defines neighbouring data sets, says who is trusted, and explains
    amplification.

    Attributes:
        level: `central`: the server adds noise to the exact sum. `local`: each client adds noise to what it sends.
        noise_multiplier: Standard deviation of the noise as a multiple of `clip_norm`. Give either this or
            `target_epsilon`; by default `target_epsilon` determines it.
        target_epsilon: Finds the least noise for which epsilon does not exceed this value at the end of the phase. Give
            either this or `noise_multiplier`; by default `noise_multiplier` applies.
        clip_norm: C, the bound on the L2 norm of a client's contribution; all clients have weight 1. Or `{ quantile =
            0.5 }`, which adapts the bound and needs `level = "central"`.
        delta: delta of the (epsilon, delta) guarantee. The default, and the maximum, is 1 / M^1.1 for M clients. Where
            that is above 0.01 (up to 65 clients) there is no default.
        accountant: With `level = "central"`: `prv` (Gopi et al., NeurIPS 2021) for Bernoulli cohorts, where it is the
            default; `rdp` (Mironov, 2017) also for cohorts of fixed size, where it is the default. Without sampling
            epsilon is exact, and the key has no effect.
        secure: Draws noise, and with `central` also the cohorts, from the operating system's cryptographic random
            source, so that no run can be repeated, and adds the noise exactly (`rayfl.privacy.secure_noise`). Epsilon
            is then computed by `rdp` at integer orders and counts every round that began, including those that a
            resumed run repeats. By default (false) everything is drawn from the scenario's seed.
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
            raise ValueError("clip_norm = { quantile = ... } needs level = 'central': the server adapts it")
        if isinstance(self.clip_norm, Quantile) and (self.noise_multiplier or 0) >= self.clip_norm.noise_multiplier:
            raise ValueError(
                f"clip_norm.noise_multiplier = {self.clip_norm.noise_multiplier:g} must be above noise_multiplier, "
                "whose noise must also cover the count of clipped clients"
            )
        return self
