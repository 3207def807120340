"""Applies the augmentations of a scenario, in order, to the batches of a pass.

Steps are rayfl's augmentations, functions of the user, and transforms of torchvision's `transforms.v2`, which draw from
the PyTorch generator.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from rayfl.config.component import Choice
from rayfl.config.section import Named
from rayfl.data import augmentations
from rayfl.data.augmentation.augmentation import Augmentation, Compose, drawn_in_turn
from rayfl.errors import RayflError, ScenarioError
from rayfl.wording import report_as_theirs

if TYPE_CHECKING:
    from torchvision.transforms import v2


Per = Literal["sample", "batch"]


class TorchvisionTransform:
    """Applies a transform before scaling and normalisation, with the random numbers of the client.

    A transform draws once per call. It is therefore called for each image, unless all images of a batch share a draw.
    The PyTorch generators are seeded from `rng` for each batch and then restored, so dropout and other clients are not
    affected.

    Args:
        transform: The transform; it must keep shape and dtype.
        where: Key path and name in the scenario, for errors.
        per: Whether to draw for every sample or once per batch.
    """

    needs_pixels = True

    def __init__(self, transform: v2.Transform, where: str, per: Per = "sample") -> None:
        self._transform, self._where, self._per = transform, where, per

    def __call__(self, x: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
        """Transforms a batch.

        Args:
            x: [n, height, width, channels] uint8.
            rng: Source of the seed, drawn once per batch.

        Returns:
            A new tensor of the same shape, dtype and device, contiguous.

        Raises:
            ScenarioError: The transform raised an exception, or changed shape or dtype.
        """
        images = x.permute(0, 3, 1, 2)
        seed = int(rng.integers(2**63))
        with torch.random.fork_rng(devices=[x.device] if x.device.type == "cuda" else []):
            torch.default_generator.manual_seed(seed)
            if x.device.type == "cuda":
                torch.cuda.manual_seed(seed)
            if self._per == "batch":
                transformed = self._transformed(images)
            else:
                transformed = torch.stack([self._transformed(image) for image in images])
        return transformed.permute(0, 2, 3, 1).contiguous()

    def _transformed(self, images: torch.Tensor) -> torch.Tensor:
        try:
            transformed: Any = self._transform(images)
        except (Exception, SystemExit) as error:
            raise ScenarioError(report_as_theirs(error, self._where)) from None
        if not isinstance(transformed, torch.Tensor):
            raise ScenarioError(f"{self._where} returned an object of type {type(transformed).__name__}, not an image")
        if (transformed.shape, transformed.dtype) != (images.shape, images.dtype):
            raise ScenarioError(
                f"{self._where} returned {_type_and_shape(transformed)} for {_type_and_shape(images)}; a transform "
                "must keep the shape and dtype of images, [channels, height, width] uint8"
            )
        return transformed


def is_transform(target: Any) -> bool:
    """Whether the object is a transform of torchvision's `transforms.v2`, or such a class."""
    if (
        "torchvision.transforms.v2" not in sys.modules
    ):  # avoids an import of over a second; without it, no transform exists
        return False
    from torchvision.transforms import v2

    return isinstance(target, v2.Transform) or (inspect.isclass(target) and issubclass(target, v2.Transform))


def _type_and_shape(x: torch.Tensor) -> str:
    return f"{str(x.dtype).removeprefix('torch.')}{list(x.shape)}"


_EXPECTED = (
    "an augmentation is called as augmentation(x, rng) with a float32 tensor x [n, height, width, channels] and a "
    "numpy.random.Generator rng; it returns a new tensor of the same shape, dtype and device"
)


class UserAugmentation:
    """A user-defined augmentation: any callable with (x, rng); its result is checked.

    Args:
        target: The callable.
        where: Key path and name in the scenario, for errors.
    """

    def __init__(self, target: Callable[[torch.Tensor, np.random.Generator], torch.Tensor], where: str) -> None:
        self._target, self._where = target, where

    def __call__(self, x: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
        try:
            augmented: Any = self._target(x, rng)
        except RayflError:
            raise
        except (Exception, SystemExit) as error:
            headline, _, traceback = report_as_theirs(error, self._where).partition("\n")
            raise ScenarioError(f"{headline}; {_EXPECTED}" + (f"\n{traceback}" if traceback else "")) from None
        if not isinstance(augmented, torch.Tensor):
            raise ScenarioError(f"{self._where} returned an object of type {type(augmented).__name__}; {_EXPECTED}")
        if (augmented.shape, augmented.dtype, augmented.device) != (x.shape, x.dtype, x.device):
            raise ScenarioError(f"{self._where} returned {_in_words(augmented)} for {_in_words(x)}; {_EXPECTED}")
        return augmented.contiguous()


Step = Augmentation | UserAugmentation | TorchvisionTransform


class Pipeline:
    """Augments the batches of a pass.

    Augmentations up to the last one that needs pixels get uint8; later ones get floating point numbers, normalised if
    the scenario normalises.

    Args:
        augment: Names and options, in order.
        where: The key of the list.

    Raises:
        ScenarioError: A name or option is unknown, an object is not an augmentation, or a user-defined augmentation
            comes before one that needs pixels.
    """

    def __init__(self, augment: Sequence[Named], where: str = "data.augment") -> None:
        self.steps: list[Step] = [build(chosen, f"{where}.{index}") for index, chosen in enumerate(augment)]
        pixels = [
            index
            for index, step in enumerate(self.steps)
            if not isinstance(step, UserAugmentation) and step.needs_pixels
        ]
        self._num_on_pixels = pixels[-1] + 1 if pixels else 0
        for index in range(self._num_on_pixels):
            if isinstance(self.steps[index], UserAugmentation):
                raise ScenarioError(
                    f"{where}.{index}: '{augment[index].name}' takes normalised images, but "
                    f"'{augment[pixels[-1]].name}' after it needs pixels; move '{augment[index].name}' after it"
                )

    def takes_pixels(self, index: int) -> bool:
        """Whether a step gets pixels, and not the values that the network gets."""
        return index < self._num_on_pixels

    def draw(
        self, num_samples: int, batch_size: int, image_shape: tuple[int, int, int], rng: np.random.Generator
    ) -> torch.Tensor | None:
        """Draws for all batches of a pass at once.

        Returns:
            [draws, num_samples] float64 on the CPU, one column per sample; or None if there is nothing to draw, or if a
            user-defined augmentation draws its own numbers for each batch.
        """
        steps = [step for step in self.steps if isinstance(step, Augmentation)]
        if not steps or len(steps) < len(self.steps):
            return None
        batches = []
        for start in range(0, num_samples, batch_size):
            shape = (min(batch_size, num_samples - start), *image_shape)
            batches.append(drawn_in_turn(steps, shape, rng))
        return torch.from_numpy(np.concatenate(batches, axis=1))

    def on_pixels(self, x: torch.Tensor, draws: torch.Tensor | None, rng: np.random.Generator) -> torch.Tensor:
        """Applies the augmentations before scaling to one batch.

        Args:
            x: [n, height, width, channels] uint8.
            draws: The columns of `draw` for this batch, on the device of `x`, if there are any.
            rng: Random generator for augmentations without draws.
        """
        return _applied(x, self.steps[: self._num_on_pixels], draws, 0, rng)

    def on_values(self, x: torch.Tensor, draws: torch.Tensor | None, rng: np.random.Generator) -> torch.Tensor:
        """Applies the remaining augmentations to the scaled and normalised batch; see `on_pixels`."""
        used = sum(step.num_draws for step in self.steps[: self._num_on_pixels] if isinstance(step, Augmentation))
        return _applied(x, self.steps[self._num_on_pixels :], draws, used, rng)

    def on_labels(self, labels: torch.Tensor, draws: torch.Tensor, ignored: int | None) -> torch.Tensor:
        """Moves label maps along with the images of a batch.

        Args:
            labels: [n, height, width].
            draws: The columns of `draw` for this batch, on the device of `labels`.
            ignored: The label of pixels outside the image; None if the task has none.

        Raises:
            ScenarioError: An augmentation uncovers pixels without a label.
        """
        return Compose(tuple(step for step in self.steps if isinstance(step, Augmentation))).move_labels(
            labels, draws, ignored
        )


def pipelines(augment: Sequence[Sequence[Named]]) -> list[Pipeline]:
    """The pipelines of the views of a batch, or a single one for all views (`ShardStore.augmentations`).

    Raises:
        ScenarioError: As for `Pipeline`.
    """
    return [Pipeline(chosen, where) for chosen, where in zip(augment, pipeline_keys(len(augment)), strict=True)]


def pipeline_keys(number: int) -> list[str]:
    """The keys of the augmentations of each view."""
    return ["data.augment"] if number == 1 else [f"data.views.{view}.augment" for view in range(number)]


def build(chosen: Named, where: str) -> Step:
    """Builds one augmentation.

    Args:
        chosen: A registered name or an import path, with options. An import path names an `Augmentation`, a class or
            factory whose result is called with (x, rng), or a function (x, rng, **options). It may also name a
            transform of torchvision's `transforms.v2`: a class (with its options and `per`), an instance (with `per`),
            or a factory.
        where: Its key path.

    Raises:
        ScenarioError: The name or an option is unknown, or the object is not an augmentation.
    """
    target = AUGMENTATIONS.target(chosen.name, where)
    where_named = f"{where}: '{chosen.name}'"
    if is_transform(target):
        per = AUGMENTATIONS.set_apart(target, chosen, where)["per"]
        if inspect.isclass(target):
            return TorchvisionTransform(AUGMENTATIONS.build(chosen, where), where_named, per)
        if options := [key for key in chosen.options if key != "per"]:
            raise ScenarioError(f"{where}.{options[0]}: '{chosen.name}' is an instance and takes only per")
        return TorchvisionTransform(target, where_named, per)
    if AUGMENTATIONS.given_to(target, chosen, where):
        return UserAugmentation(AUGMENTATIONS.bound(chosen, where), where_named)
    built = AUGMENTATIONS.build(chosen, where)
    if isinstance(built, Augmentation):
        return built
    if is_transform(built):
        return TorchvisionTransform(built, where_named)
    if not callable(built):
        raise ScenarioError(f"{where_named} returned an object of type {type(built).__name__}; {_EXPECTED}")
    return UserAugmentation(built, where_named)


class _Augmentations(Choice):
    def given_to(self, target: Callable[..., Any], chosen: Named, where: str) -> Sequence[str]:
        """The first two parameters if the function itself is the augmentation; otherwise none."""
        if not inspect.isfunction(target):
            return ()
        parameters = inspect.signature(target).parameters.values()
        positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        taken = tuple(p.name for p in positional[:2] if p.default is p.empty and p.name not in chosen.options)
        return taken if len(taken) == 2 else ()

    def set_apart(self, target: Callable[..., Any], chosen: Named, where: str) -> dict[str, Any]:
        if not is_transform(target):
            return {}
        per = chosen.options.get("per", "sample")
        if per not in ("sample", "batch"):
            raise ScenarioError(f"{where}.per: must be 'sample' or 'batch' (got {per!r})")
        return {"per": per}

    def resolve(self, chosen: Named, where: str) -> Named:
        target = self.target(chosen.name, where)
        if is_transform(target) and not inspect.isclass(target):  # an instance has its options
            return Named.model_validate({**dict(chosen), **self.set_apart(target, chosen, where)})
        resolved: Named = super().resolve(chosen, where)
        return resolved


AUGMENTATIONS = _Augmentations(
    augmentations, otherwise="is an object of type {}, not an augmentation", says_where=False
)


def _applied(
    x: torch.Tensor, steps: Sequence[Step], draws: torch.Tensor | None, used: int, rng: np.random.Generator
) -> torch.Tensor:
    for step in steps:
        if draws is None or not isinstance(step, Augmentation):
            x = step(x, rng)
        else:
            x = step.apply(x, draws[used : used + step.num_draws])
            used += step.num_draws
    return x


def _in_words(x: torch.Tensor) -> str:
    return f"{str(x.dtype).removeprefix('torch.')}{list(x.shape)} on {x.device}"
