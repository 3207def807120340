"""[data]: which samples, how many clients, and how the samples are partitioned among them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeInt, PositiveInt, ValidationInfo, field_validator, model_validator

from rayfl.config.normalizations import NORMALIZATIONS
from rayfl.config.section import Named, Section, check_plain
from rayfl.config.subsets import Classes, Owners
from rayfl.registry import nearest


class Normalization(Section):
    """Normalises each channel, after pixels are scaled to [0, 1]: (x - mean) / std.

    Write the name of a paper (`"feddyn_cifar10"`; see `rayfl.config.normalizations`) instead of the table to use its
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
        normalize: Normalises images: a name from `rayfl.config.normalizations`, or `{ mean = [...], std = [...] }`. By
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
    options: dict[str, Any] = Field(default_factory=dict)

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

    @field_validator("options")
    @classmethod
    def _options_are_plain(cls, options: dict[str, Any]) -> dict[str, Any]:
        check_plain(options)
        return options
