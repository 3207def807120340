"""[data]: which samples, how many clients, and how the samples are partitioned among them.

For `data.classes` and `data.owners` all classes (or clients of the data) are put in a random order, and `places`
selects positions in that order. Scenarios that share the order can therefore use disjoint classes: one pre-trains on
the first 80, another starts from it and uses the last 20.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeInt, PositiveInt, ValidationInfo, field_validator, model_validator

from rayfl.config.registry import nearest
from rayfl.config.section import Named, PlainOptions, Section

NORMALIZATIONS: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "feddyn_cifar10": ((0.491, 0.482, 0.447), (0.247, 0.243, 0.262)),
    "feddyn_cifar100": ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
    "moon_cifar10": ((125.3 / 255, 123.0 / 255, 113.9 / 255), (63.0 / 255, 62.1 / 255, 66.7 / 255)),
    "moon_cifar100": (
        (0.5070751592371323, 0.48654887331495095, 0.4409178433670343),
        (0.2673342858792401, 0.2564384629170883, 0.27615047132568404),
    ),
    "tiny_imagenet": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
}
"""Mean and standard deviation of each channel, for pixels in [0, 1].

feddyn_cifar10: FedDyn and FedBug, and FedExP on CIFAR-100 as well. feddyn_cifar100: FedDyn and FedBug.
moon_cifar10: MOON and FedDecorr. moon_cifar100: MOON, NIID-Bench and FedDecorr.
tiny_imagenet: FedBug, MOON, NIID-Bench and FedDecorr. imagenet: FPS on everything except CIFAR.
Taken from the code of each; for FPS, whose code does not contain them, from the paper and torchvision's constants.
"""


Range = tuple[NonNegativeInt, PositiveInt]
"""From the first position up to, but not including, the second."""


class Places(Section):
    """Positions in a random order.

    Attributes:
        places: Ranges of positions, end excluded: [[0, 10], [80, 90]] selects 0 to 9 and 80 to 89. They must not
            overlap.
        order_seed: Seed of the order, which is therefore independent of `seed` and `data.seed`. Default: 0.
    """

    places: Annotated[tuple[Range, ...], Field(min_length=1)]
    order_seed: NonNegativeInt = 0

    @model_validator(mode="after")
    def _ranges_are_apart(self) -> Places:
        for start, stop in self.places:
            if start >= stop:
                raise ValueError(f"places: the range [{start}, {stop}] is empty; the end is not included")
        ordered = sorted(self.places)
        for (start, stop), (other, end) in pairwise(ordered):
            if other < stop:
                raise ValueError(f"places: the ranges [{start}, {stop}] and [{other}, {end}] overlap")
        return self

    @property
    def number(self) -> int:
        """Number of positions."""
        return sum(stop - start for start, stop in self.places)

    @property
    def end(self) -> int:
        """The end of the last range: the minimum number of classes or clients that the data must have."""
        return max(stop for _, stop in self.places)


class Classes(Places):
    """Which classes a scenario uses, for data whose labels are classes.

    Samples of all other classes are dropped, for training and testing. The remaining classes are renumbered 0, 1, ...
    in the order of their numbers. The data's own clients without training samples of these classes are dropped.

    Attributes:
        draw: Number of classes to draw from these positions with the data's seed. By default all of them are used.
    """

    draw: PositiveInt | None = None

    @model_validator(mode="after")
    def _enough_to_draw_from(self) -> Classes:
        if self.draw is not None and self.draw > self.number:
            raise ValueError(f"draw: {self.draw} classes cannot be drawn from {self.number} places")
        return self


class Owners(Places):
    """The data's clients (the writers of FEMNIST) that a scenario uses; `data.clients` draws from these.

    Attributes:
        of: Minimum number of clients that the data must have; generated data has exactly this number. By default any
            number will do, and all clients of the data are ordered.
    """

    of: PositiveInt | None = None

    @model_validator(mode="after")
    def _places_within(self) -> Owners:
        if self.of is not None and self.end > self.of:
            raise ValueError(f"places: the last range ends at {self.end}, beyond of = {self.of}")
        return self


class Normalization(Section):
    """Normalises each channel, after pixels are scaled to [0, 1]: (x - mean) / std.

    Write the name of a paper (`"feddyn_cifar10"`; see `rayfl.config.data`) instead of the table to use its
    numbers.

    Attributes:
        mean: Mean of each channel, in units of [0, 1].
        std: Standard deviation of each channel, in the same units, above 0; as many values as `mean`.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        if value not in NORMALIZATIONS:
            raise ValueError(f"unknown normalization; {nearest(value, NORMALIZATIONS)} (or give mean and std)")
        mean, std = NORMALIZATIONS[value]
        return {"mean": mean, "std": std}

    @model_validator(mode="after")
    def _one_std_per_mean(self) -> Normalization:
        if len(self.mean) != len(self.std) or any(s <= 0 for s in self.std):
            raise ValueError("mean and std need one value per channel, std above 0")
        return self


class View(Section):
    """One of the versions of a training batch that a task compares.

    Attributes:
        augment: Augmentations of this view alone, in the form of `data.augment`. Default: none.
    """

    augment: tuple[Named, ...] = ()


Share = Annotated[float, Field(gt=0, lt=1)]

RENAMED_PARTITIONS = {"feddyn": "dirichlet_per_client", "fedexp_unequal": "dirichlet_per_client_unequal"}


class Data(Section):
    """The data set and its clients.

    Attributes:
        name: A registered source, or `package.module:object` of your own: a callable that returns the data, or the data
            itself. The data can be a `rayfl.data.Dataset`, arrays (train_x, train_y, test_x, test_y), or a mapping from
            `train`, `test` and the names of additional test sets to (x, y), (x, y, clients) or a map-style PyTorch
            Dataset, alone or as (dataset, clients). `clients` is the owner of every sample, or the rows of every client
            by name. For PyTorch Datasets every worker process calls the callable again and reads items when batches
            need them.
        source: `auto` (the default) reads the data set's files if they are found, otherwise generates a stand-in, and
            says which; `files` needs the files; `generated` always generates.
        seed: Seed of generated data, the choice of clients, the partition and the held-out samples. By default the
            scenario's `seed`. If it is set, scenarios that differ only in `seed` share one split.
        classes: Which classes are used, drawn with the data's seed: `{ places = [[80, 100]], draw = 5 }` draws five of
            the last twenty classes in a random order. By default all.
        owners: Which of the clients that come with the data are used, in the same form, with a natural partition:
            `{ places = [[300, 385]] }`. By default all.
        clients: Number of clients. A natural partition draws that many of its clients (by default all); all other
            partitions need a number.
        partition: How samples are divided among clients, with options. By default `natural` where the data names its
            clients, else `iid`. Your own partitioner takes any of `labels`, `num_classes`, `targets`,
            `num_samples`, `clients`, `rng` and `natural`, and returns `Shards` or the owner of every sample; see
            `rayfl.data.partition`.
        labels_by: Derives the classes that a partition needs from labels that are not classes: "quantiles" (`bins`, of
            a number), "argmax" (of a vector), "column" (`index`, of a vector), or your own function from the training
            labels to [n] integers. Only the partition uses these classes; `shards` then gives clients no test samples.
            By default the labels themselves are the classes.
        test_share: Share of each client's training samples, at least one sample, held out as the test set
            `client_test`; between 0 and 1. Works with any partition. Where the data's own test samples belong to
            clients, personalised scores still use those. By default nothing is held out.
        validation_share: Share of each client's training samples held out as the validation set `validation`; together
            with `test_share` below 1. By default nothing is held out.
        server_share: Share of all training samples that only the server holds, drawn uniformly before the rest is
            partitioned; between 0 and 1. Natural clients lose the samples that are drawn. By default the server holds
            none.
        normalize: Normalises images: a name from `rayfl.config.data`, or `{ mean = [...], std = [...] }`. By
            default images stay in [0, 1].
        augment: Augmentations of training batches, applied in this order; see `rayfl.data.augmentation.pipeline`.
            Default: none.
        views: The augmentations of each view, for tasks that compare several views of a batch: `[{ augment = [...] },
            ...]`. Other data that is augmented in a phase of such a task, for example for a loss that the algorithm
            requests, uses the first view; `augment` then applies only to phases of other tasks. Default: none.
        collate: Makes a batch of inputs of different lengths: "pad" (`value`), or your own function from the list of
            the samples' inputs to a tensor or a dictionary of tensors (keyword arguments of the network). By default
            all inputs must have one shape.
        options: Keyword arguments of the source, such as `labels = "coarse"` of cifar100. A relative `path` (and `root`
            of torchvision) is relative to the file that names it; the data folder is only for data sets that rayfl
            knows. Default: none.
    """

    name: str
    source: Literal["auto", "files", "generated"] = "auto"
    seed: NonNegativeInt | None = None
    clients: PositiveInt | None = None
    partition: Named | None = None
    classes: Classes | None = None
    owners: Owners | None = None
    labels_by: Named | None = None
    test_share: Share | None = None
    validation_share: Share | None = None
    server_share: Share | None = None
    normalize: Normalization | None = None
    augment: tuple[Named, ...] = ()
    views: tuple[View, ...] = ()
    collate: Named | None = None
    options: PlainOptions = Field(default_factory=dict)

    @field_validator("partition")
    @classmethod
    def _partition_by_its_present_name(cls, partition: Named | None) -> Named | None:
        if partition and partition.name in RENAMED_PARTITIONS:
            raise ValueError(f"'{partition.name}' is now called '{RENAMED_PARTITIONS[partition.name]}'")
        return partition

    @field_validator("owners")
    @classmethod
    def _owners_are_clients(cls, owners: Owners | None, info: ValidationInfo) -> Owners | None:
        partition = info.data.get("partition")
        if owners and partition and partition.name != "natural":
            raise ValueError(
                f"has no effect with partition '{partition.name}', which does not use the data's own clients"
            )
        return owners

    @field_validator("validation_share")
    @classmethod
    def _shares_leave_something(cls, validation: float | None, info: ValidationInfo) -> float | None:
        test = info.data.get("test_share")
        if validation and test and validation + test >= 1:
            raise ValueError(
                f"and data.test_share hold out {validation + test:g} of each client's samples; "
                "their sum must be below 1"
            )
        return validation
