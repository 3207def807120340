"""`local`: how clients train."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import (
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    SerializerFunctionWrapHandler,
    TypeAdapter,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic_core import PydanticCustomError

from rayfl.config.privacy import SampleDP
from rayfl.config.section import Named, Section, check_idle


def _train(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    try:
        return validate(tuple(value) if isinstance(value, list) else value)
    except ValidationError:
        raise PydanticCustomError(
            "train", "must be 'all', 'head', 'body', or a list of names of the network's modules, at least one"
        ) from None


Train = Annotated[
    Literal["all", "head", "body"] | Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=1)],
    WrapValidator(_train),
]
"""What of a network trains. `head`: its feature layer, which turns features into outputs. `body`: everything else
(FedBABU). Or the names of modules, each with all that is in it, as `named_modules()` has them."""


class Unfreezing(Section):
    """FedBug: a client update starts by training the modules next to the input; the others thaw one by one.

    Attributes:
        share: P, the share of the update's steps over which modules thaw; 0 freezes nothing.
        schedule: `paper`: at step k of K the first min(M, ceil(k M / (P K))) of M units train; `code`: units thaw every
            floor(P K / M) steps. They agree if P K / M is an integer; otherwise `code` thaws a little earlier.
        units: `modules`, or a grouping that the network declares, such as a ResNet's `stages` or `blocks`.
        order: `bottom_up`, from the input to the output; `top_down` is the paper's ablation.
    """

    share: Annotated[float, Field(ge=0, le=1)]
    schedule: Literal["paper", "code"] = "paper"
    units: str = "modules"
    order: Literal["bottom_up", "top_down"] = "bottom_up"


class Uniform(Section):
    """A whole number between two, both included, each as likely as the others."""

    uniform: Annotated[tuple[PositiveInt, ...], Field(min_length=2, max_length=2)]

    @field_validator("uniform")
    @classmethod
    def _in_order(cls, ends: tuple[int, ...]) -> tuple[int, ...]:
        if ends[0] > ends[1]:
            raise ValueError("the first number must not be larger than the second")
        return ends


class Choices(Section):
    """One of these numbers, each as likely as the others; one that is listed twice is twice as likely."""

    choices: Annotated[tuple[PositiveInt, ...], Field(min_length=1)]


def _number(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    if not isinstance(value, dict):
        value = value if isinstance(value, Uniform | Choices) else _POSITIVE.validate_python(value)
    try:
        return validate(value)
    except ValidationError:
        raise PydanticCustomError(
            "number",
            "must be a number (1, 2, ...), { uniform = [least, most] }, or { choices = [number, ...] }",
        ) from None


_POSITIVE: TypeAdapter[int] = TypeAdapter(PositiveInt)

Number = Annotated[PositiveInt | Uniform | Choices, WrapValidator(_number)]
"""A number, or one that is drawn anew for every client and round."""


class Rates(Section):
    """How a learning rate changes over a number of steps.

    The first `warmup` steps w rise linearly: step k = 1, 2, ... has k / (w + 1) of the rate. Over the R steps that
    follow, t = 0, 1, ..., R - 1, a `cosine` falls as final + (1 - final) (1 + cos(pi t / R)) / 2, which is PyTorch's
    CosineAnnealingLR with T_max = R, and `linear` as 1 - (1 - final) t / R, PyTorch's LinearLR with total_iters = R.

    Attributes:
        name: What follows the warm-up: `constant`, `cosine` or `linear`.
        final: What would come at t = R, as a share of the rate.
        warmup: Steps of the warm-up (5), or a share of all steps (0.1), rounded.
    """

    name: Literal["constant", "cosine", "linear"] = "constant"
    final: Annotated[float, Field(ge=0, le=1)] = 0.0
    warmup: Annotated[int, Field(strict=True, ge=0)] | Annotated[float, Field(strict=True, ge=0, lt=1)] = 0

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _no_idle_options(self) -> Rates:
        check_idle(self, {"final": self.name == "constant"}, "with name = 'constant'")
        return self

    @property
    def depends_on_length(self) -> bool:
        """Whether the rate of a step depends on how many follow."""
        return self.name != "constant" or bool(self.warmup and isinstance(self.warmup, float))


class Local(Section):
    """Local training: mini-batch training with a fresh optimizer in every client update.

    A client update takes `epochs` passes over the client's samples, and at most `steps` steps; CyclicFL's cap of 20
    steps is `steps = 20` with the default single epoch, min(20, the client's number of batches).

    `epochs` and `steps` may be drawn for every client and round, as FedNova and FedProx study: `{ uniform = [1, 5] }`,
    `{ choices = [1, 5, 10] }`. Draws come from the client's own stream, once a round, whatever it is asked to train.

    Attributes:
        epochs: Passes over the samples.
        steps: Maximum number of steps; by default only the epochs limit it.
        batch_size: A number, or "full" for all of the client's samples in one step.
        accumulate: Batches of a step. Their gradients are added, weighted by their samples, so that the step is the one
            of a batch of accumulate * batch_size samples that need not fit in memory at once (but batch norm sees
            each batch alone). Steps, epochs and `drop_last` count such large batches; the last one of an epoch may have
            fewer samples.
        drop_last: Drop the last incomplete batch of an epoch, unless it is the only one.
        sampling: `uniform`: an epoch takes every sample once. `balanced`, for imbalanced classes: it takes as many,
            each drawn with replacement so that all classes that the client has are equally likely (class-balanced
            sampling of Kang et al., "Decoupling Representation and Classifier for Long-Tailed Recognition", ICLR 2020).
            The number of steps, how much a client counts, and what an algorithm asks for besides training stay the
            same.
        shuffle: Shuffle the samples anew for every epoch; otherwise they keep the order of the shard.
        optimizer: `sgd`, or one of `torch.optim` by its name in small letters with its options, or your own
            `torch.optim.Optimizer` by import path: `{ name = "adamw", betas = [0.9, 0.99] }`. Its rate is `lr`, its
            weight decay `weight_decay`, 0 by default also where PyTorch has another default.
        lr: Learning rate of the first round.
        lr_decay: Factor applied to `lr` after every round.
        lr_decay_from: Whether rounds are counted from the start of the `scenario` or of the `phase`.
        lr_drops: Rounds, counted the same way, after which `lr` is also multiplied by `lr_drop` (FedBABU: after half
            and three quarters of the rounds; FPS: every 30).
        lr_drop: The factor applied at `lr_drops`.
        lr_schedule: How the rate changes over the steps of a client update, as a factor of the round's.
        round_schedule: How it changes over the rounds of the phase, as a further factor beside `lr_decay` and
            `lr_drops`.
        module_lr: Rates of the network's modules that have one of their own, by name, each with all that is in it: they
            are the same in every step and round (SimSiam's predictor stays at 0.05).
        momentum: Heavy-ball momentum of `sgd`, as in PyTorch's; that of other optimizers is among their own options.
        weight_decay: What the optimizer takes by this name: coupled (added to the gradient) in SGD, Adam, Adagrad,
            RMSprop and most others, decoupled (params -= lr * weight_decay * params) in AdamW, Muon and Adafactor.
        clip_value: Maximum absolute value of every element of the gradient; comes before `clip_norm`.
        clip_norm: Maximum global L2 norm of the gradient, including the algorithm's penalties but not weight decay.
        precision: `bf16` computes the forward pass and the loss of training under autocast to bfloat16, and with it the
            backward pass. Parameters, the optimizer, corrections, evaluation, and losses and gradients that an
            algorithm asks for stay float32.
        sample_weights: Weights of a client's samples in its objective, for imbalanced data, divided by their mean over
            the client's samples: `inverse_frequency` of their class among them, or a function of your own, by import
            path, from `labels` (an array of the client's) to as many weights. Losses and gradients that an algorithm
            asks for are of the same objective; parts of the samples keep their weights. How much a
            client counts among others is not changed.
        unfreeze: Gradual unfreezing. A frozen module has no gradient computed, and gets no weight decay, momentum or
            penalty; its batch norm's running statistics are still updated.
        dp: Train by DP-SGD; see `SampleDP`.
    """

    epochs: Number = 1
    steps: Number | None = None
    batch_size: PositiveInt | Literal["full"] = 32
    accumulate: PositiveInt = 1
    drop_last: bool = False
    sampling: Literal["uniform", "balanced"] = "uniform"
    shuffle: bool = True
    optimizer: Named = Named(name="sgd")
    lr: PositiveFloat = 0.01
    lr_decay: Annotated[float, Field(gt=0, le=1)] = 1.0
    lr_decay_from: Literal["scenario", "phase"] = "scenario"
    lr_drops: tuple[PositiveInt, ...] = ()
    lr_drop: Annotated[float, Field(gt=0, le=1)] = 0.1
    lr_schedule: Rates = Rates()
    round_schedule: Rates = Rates()
    module_lr: dict[str, PositiveFloat] = Field(default_factory=dict)
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    weight_decay: NonNegativeFloat = 0.0
    clip_value: PositiveFloat | None = None
    clip_norm: PositiveFloat | None = None
    precision: Literal["float32", "bf16"] = "float32"
    sample_weights: Named | None = None
    unfreeze: Unfreezing | None = None
    dp: SampleDP | None = None

    @field_validator("optimizer", mode="before")
    @classmethod
    def _options_of_the_default(cls, value: Any) -> Any:
        """`phases.0.local.optimizer.nesterov=true` where no optimizer was named."""
        return {"name": "sgd", **value} if isinstance(value, dict) else value

    @model_validator(mode="after")
    def _no_idle_options(self) -> Local:
        name = self.optimizer.name
        check_idle(self, {"lr_drop": not self.lr_drops}, "without lr_drops")
        check_idle(self, {"accumulate": self.batch_size == "full"}, "with batch_size = 'full', which is a single step")
        check_idle(self, {"shuffle": self.sampling == "balanced"}, "with sampling = 'balanced', which has no passes")
        check_idle(self, {"momentum": name != "sgd"}, f"with optimizer '{name}', whose options are in its own table")
        return self

    @property
    def is_plain_sgd(self) -> bool:
        """Whether a step is lr times the gradient, with heavy-ball momentum and coupled weight decay at most."""
        return self.optimizer.name == "sgd" and not self.optimizer.options


class TrainingBySteps(Local):
    """Training of which `steps` without `epochs` says how many steps it takes, over as many passes as they need.

    Few samples then make no fewer steps. The resolved scenario leaves `epochs` out, too.
    """

    @model_validator(mode="after")
    def _passes_for_all_steps(self) -> Self:
        if self._takes_all_steps:
            match self.steps:
                case Uniform(uniform=numbers) | Choices(choices=numbers):
                    most = max(numbers)
                case most:
                    pass
            self.__dict__["epochs"] = most  # a step is of one pass; `model_fields_set` stays what was given
        return self

    @model_serializer(mode="wrap")
    def _as_given(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {key: value for key, value in dump(self).items() if key != "epochs" or not self._takes_all_steps}

    @property
    def _takes_all_steps(self) -> bool:
        return self.steps is not None and "epochs" not in self.model_fields_set


class ServerTraining(TrainingBySteps):
    """Training on the samples that the server holds."""


RATE_KEYS = frozenset({"lr", "lr_decay", "lr_decay_from", "lr_drops", "lr_drop", "round_schedule"})
"""The keys that make up a round's learning rate: what an algorithm without local training reads."""
