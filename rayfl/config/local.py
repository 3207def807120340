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
            "train",
            "must be 'all', 'head', 'body', or a list of names or patterns of the network's modules and parameters, at "
            "least one",
        ) from None


Train = Annotated[
    Literal["all", "head", "body"] | Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=1)],
    WrapValidator(_train),
]
"""Which part of the network trains.

`head`: the feature layer, which turns features into outputs. `body`: everything else (FedBABU). Or a list of names of
modules as in `named_modules()`, each including its submodules, and of parameters, or shell patterns of both
(`"*.adapter"`, `"*.lora_*"`).
"""


class Unfreezing(Section):
    """FedBug: a client update starts by training the modules next to the input; the others thaw one by one.

    Attributes:
        share: P, the share of the update's steps over which modules thaw, from 0 to 1; 0 freezes nothing.
        schedule: `paper` (the default): at step k of K the first min(M, ceil(k M / (P K))) of M units train. `code`:
            one more unit thaws every floor(P K / M) steps, as in the authors' code. The two agree if P K / M is an
            integer; otherwise `code` thaws slightly earlier.
        units: What thaws as one: `modules` (the default), or a grouping that the network declares, such as a ResNet's
            `stages` or `blocks`.
        order: `bottom_up` (the default), from the input to the output; `top_down` is the paper's ablation.
    """

    share: Annotated[float, Field(ge=0, le=1)]
    schedule: Literal["paper", "code"] = "paper"
    units: str = "modules"
    order: Literal["bottom_up", "top_down"] = "bottom_up"


class Uniform(Section):
    """A whole number drawn uniformly from a range.

    Attributes:
        uniform: The smallest and the largest number, [least, most], both included and at least 1.
    """

    uniform: Annotated[tuple[PositiveInt, ...], Field(min_length=2, max_length=2)]

    @field_validator("uniform")
    @classmethod
    def _in_order(cls, ends: tuple[int, ...]) -> tuple[int, ...]:
        if ends[0] > ends[1]:
            raise ValueError("the first number must not be larger than the second")
        return ends


class Choices(Section):
    """A whole number drawn uniformly from a list.

    Attributes:
        choices: The numbers, each at least 1; a number that is listed twice is twice as likely.
    """

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
"""A number, or one that is drawn again for every client and round."""


class Rates(Section):
    """How a learning rate changes over a number of steps.

    Write only the name (`"cosine"`) to use the default options, or a table. Over the first `warmup` steps w the rate
    rises linearly: step k = 1, 2, ... uses k / (w + 1) of it. Over the R steps that follow, t = 0, 1, ..., R - 1,
    `cosine` scales the rate by final + (1 - final) (1 + cos(pi t / R)) / 2, which is PyTorch's CosineAnnealingLR with
    T_max = R, and `linear` by 1 - (1 - final) t / R, PyTorch's LinearLR with total_iters = R.

    Attributes:
        name: Shape after the warm-up: `constant` (the default), `cosine` or `linear`.
        final: The factor that step t = R would have, from 0 to 1. Default: 0. No effect with `constant`.
        warmup: Number of warm-up steps (5), or their share of all steps (0.1), rounded. Default: 0, no warm-up.
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
        """Whether the rate of a step depends on the number of steps."""
        return self.name != "constant" or bool(self.warmup and isinstance(self.warmup, float))


class Local(Section):
    """Local training: mini-batch training with a fresh optimizer in every client update.

    A client update makes `epochs` passes over the client's samples, but at most `steps` steps. CyclicFL's cap of 20
    steps is `steps = 20` with the default single epoch: min(20, the client's number of batches).

    Attributes:
        epochs: Passes over the client's samples. Can be drawn for every client and round, as FedNova and FedProx study:
            `{ uniform = [1, 5] }` or `{ choices = [1, 5, 10] }`; the draw comes from the client's own stream, once per
            round. Default: 1.
        steps: Maximum number of optimizer steps; a number, or drawn like `epochs`. By default only `epochs` limits the
            update.
        batch_size: Samples per batch, or "full" for all of the client's samples in one step. Default: 32.
        accumulate: Batches per step. Their gradients are added, weighted by their samples, so a step equals one of a
            batch of accumulate * batch_size samples that need not fit in memory at once (but batch norm, and losses and
            penalties that compare the samples of a batch, see each batch alone). `steps`, `epochs` and `drop_last`
            count such large batches; the last one of an epoch may have fewer samples. Default: 1. No effect with
            `batch_size = "full"`.
        drop_last: Drops the last incomplete batch of an epoch, unless it is the only one. Default: false.
        sampling: `uniform` (the default): an epoch uses every sample once. `balanced`, for imbalanced classes: an epoch
            has the same number of samples, each drawn with replacement so that all classes that the client has are
            equally likely (class-balanced sampling; Kang et al., "Decoupling Representation and Classifier for
            Long-Tailed Recognition", ICLR 2020). The number of steps, the client's weight, and other quantities that an
            algorithm computes stay the same. Not available with `dp`.
        shuffle: Shuffles the samples for every epoch (the default); if false, they keep the order of the shard. No
            effect with `sampling = "balanced"`.
        optimizer: `sgd` (the default), one of `torch.optim` by its lower-case name with its options, or your own
            `torch.optim.Optimizer` by import path: `{ name = "adamw", betas = [0.9, 0.99] }`. Its learning rate is `lr`
            and its weight decay `weight_decay`, which is 0 by default even where PyTorch's default differs. As in
            PyTorch, a parameter that no loss of a step reaches (the head of another task) is left alone, also by
            momentum and decay, unless the algorithm itself adds to gradients or steps, as FedProx does; with `dp`,
            every parameter takes every step.
        lr: Learning rate of the first round. Default: 0.01.
        lr_decay: Factor applied to `lr` after every round, above 0 and at most 1. Default: 1, no decay.
        lr_decay_from: Whether rounds are counted from the start of the `scenario` (the default) or of the `phase`.
        lr_drops: Rounds, counted in the same way, after which `lr` is also multiplied by `lr_drop` (FedBABU: after half
            and three quarters of the rounds; FPS: every 30). Default: none.
        lr_drop: Factor applied at `lr_drops`, above 0 and at most 1. Default: 0.1. No effect without `lr_drops`.
        lr_schedule: How the learning rate changes over the steps of a client update, as a factor of the round's rate:
            `constant` (the default), `cosine`, `linear`, or a table with `final` and `warmup`.
        round_schedule: How the learning rate changes over the rounds of the phase, as a further factor in addition to
            `lr_decay` and `lr_drops`; the same forms as `lr_schedule`. Default: `constant`.
        module_lr: Fixed learning rates of individual modules or parameters, by name or shell pattern as in `train`: `{
            predictor = 0.05, "*.lora_B" = 0.1 }`. They are the same in every step and round (SimSiam's predictor stays
            at 0.05). Default: none.
        momentum: Heavy-ball momentum of `sgd` as in PyTorch, at least 0 and below 1. Default: 0. Other optimizers take
            theirs among their own options.
        weight_decay: The optimizer's `weight_decay`: coupled (added to the gradient) in SGD, Adam, Adagrad, RMSprop and
            most others, decoupled (params -= lr * weight_decay * params) in AdamW, Muon and Adafactor. Default: 0.
        clip_value: Maximum absolute value of each element of the gradient, applied before `clip_norm`. By default
            gradients are not clipped by value.
        clip_norm: Maximum global L2 norm of the gradient, including the algorithm's regularisers but not weight decay.
            By default the norm is not clipped.
        precision: `float32` (the default), or `bf16`: the forward pass and the loss of training, and with them the
            backward pass, run under autocast to bfloat16. Parameters, the optimizer, corrections, evaluation, and
            losses and gradients that an algorithm requests stay in float32.
        sample_weights: Weights of a client's samples in its objective, for imbalanced data, divided by their mean over
            the client's samples: `inverse_frequency` of the sample's class at the client, or your own function by
            import path that maps `labels` (an array of the client's labels) to one weight per sample. Losses and
            gradients that an algorithm requests use the same objective; subsets of the samples keep their weights. The
            client's weight among other clients does not change. By default all samples weigh the same.
        unfreeze: Gradual unfreezing (FedBug): `{ share = 0.4 }`. A frozen module gets no gradient, weight decay,
            momentum or regularisation; its batch norm running statistics are still updated. By default nothing is
            frozen.
        dp: Trains with DP-SGD, for example-level privacy (Abadi et al., CCS 2016). By default without privacy.
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
        """Allows `phases.0.local.optimizer.nesterov=true` where no optimizer is named."""
        return {"name": "sgd", **value} if isinstance(value, dict) else value

    @model_validator(mode="after")
    def _no_idle_options(self) -> Local:
        name = self.optimizer.name
        check_idle(self, {"lr_drop": not self.lr_drops}, "without lr_drops")
        falls = self.lr_decay != 1 or self.lr_drops
        check_idle(self, {"lr_decay_from": not falls}, "without lr_decay and lr_drops")
        one_step = {"accumulate": self.batch_size == "full", "drop_last": self.batch_size == "full"}
        check_idle(self, one_step, "with batch_size = 'full', which is a single step")
        check_idle(self, {"shuffle": self.sampling == "balanced"}, "with sampling = 'balanced', which has no passes")
        check_idle(self, {"momentum": name != "sgd"}, f"with optimizer '{name}', whose options are in its own table")
        return self

    @property
    def is_plain_sgd(self) -> bool:
        """Whether a step is lr times the gradient, with at most heavy-ball momentum and coupled weight decay."""
        return self.optimizer.name == "sgd" and not self.optimizer.options


class TrainingBySteps(Local):
    """Training in which `steps` without `epochs` takes exactly that many steps, over as many passes as they need.

    Clients with few samples then take just as many steps. The resolved scenario leaves `epochs` out as well.
    """

    @model_validator(mode="after")
    def _passes_for_all_steps(self) -> Self:
        if self._takes_all_steps:
            match self.steps:
                case Uniform(uniform=numbers) | Choices(choices=numbers):
                    most = max(numbers)
                case most:
                    pass
            self.__dict__["epochs"] = most  # an epoch has at least one step; `model_fields_set` stays as given
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
"""The keys that determine a round's learning rate: the only ones that algorithms without local training read."""
