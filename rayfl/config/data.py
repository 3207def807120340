"""[data]: which samples, how many clients, and how the samples are partitioned among them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeInt, PositiveInt, ValidationInfo, field_validator, model_validator

from rayfl.config.normalizations import NORMALIZATIONS
from rayfl.config.section import Named, Section, check_plain
from rayfl.config.subsets import Classes, Owners
from rayfl.registry import nearest


class Normalization(Section):
    """Per channel, after pixels were scaled to [0, 1]: (x - mean) / std. A paper's name stands for its numbers."""

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
        augment: As `data.augment`, of this view alone.
    """

    augment: tuple[Named, ...] = ()


Share = Annotated[float, Field(gt=0, lt=1)]

RENAMED_PARTITIONS = {"feddyn": "dirichlet_per_client", "fedexp_unequal": "dirichlet_per_client_unequal"}


class Data(Section):
    """The data set and its clients.

    Attributes:
        name: A registered source, or `package.module:object` of your own: a callable that returns a
            `rayfl.data.Dataset`, arrays (train_x, train_y, test_x, test_y), or a mapping from `train`, `test` and the
            names of further test sets to (x, y), (x, y, clients) or a map-style Dataset of PyTorch, alone or as
            (dataset, clients); or such a value itself. Every host calls it again for Datasets, whose items it reads
            when batches need them. `clients` is the owner of every sample or the rows of every client, by name.
        source: `auto` reads files where they are and otherwise generates a stand-in, and says which; `files` never
            falls back; `generated` never looks for files.
        seed: Of generated data, the choice of clients, the partition and the held-out parts; by default the scenario's
            `seed`. Scenarios that differ in `seed` alone share one split if this is set.
        classes: Which classes are used (`rayfl.config.subsets`): `{ places = [[80, 100]], draw = 5 }` is five of the
            last twenty in a random order, drawn with the data's seed. By default all.
        owners: Likewise which of the data's own clients, under a natural partition: `{ places = [[300, 385]] }`.
        clients: How many. A natural partition draws that many of its clients (default: all); the other partitions need
            it.
        partition: By default natural where the data names its clients, IID elsewhere. Your own takes what it needs of
            `labels`, `num_classes`, `targets`, `num_samples`, `clients`, `rng` and `natural`, and returns `Shards` or
            the owner of every sample; see `rayfl.data.partition`.
        labels_by: Makes the classes that a partition needs of labels that are none: "quantiles" (`bins`, of a number),
            "argmax" (of a vector), "column" (`index`, of a vector), or a function of your own from the training labels
            to [n] integers. The partition alone sees these classes. `shards` then gives no test samples to clients.
        test_share: Of each client's training samples, at least one, held out to test on: `client_test`. Works under any
            partition. Where the data's own test samples belong to clients, personalised scores are on those.
        validation_share: Likewise for validation: `validation`.
        server_share: Of all training samples, drawn uniformly before they are partitioned; the server alone holds them.
            Natural clients give up those of their samples that were drawn.
        normalize: A name of `rayfl.config.normalizations`, or mean and std; by default none (images in [0, 1]).
        augment: Applied to training batches in the order given; see `rayfl.data.augmentation.pipeline`.
        views: The same for each view by itself, where a task compares several: `[{ augment = [...] }, ...]`. What else
            is augmented in its phases, such as a loss that an algorithm asks for, is augmented as the first view;
            `augment` then is for the phases of other tasks, if there are any.
        collate: Makes one batch of inputs that differ in length: "pad" (`value`), or a function of your own from the
            list of the samples' inputs to a tensor or a dictionary of tensors (keyword arguments of the network).
        options: Keyword arguments of the source, such as `labels = "coarse"` of cifar100. A relative `path` (and `root`
            of torchvision) lies beside the file that names it; the data folder is for data sets that rayfl knows.
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
            raise ValueError(f"has no effect with partition '{partition.name}', whose clients are not the data's own")
        return owners

    @field_validator("validation_share")
    @classmethod
    def _shares_leave_something(cls, validation: float | None, info: ValidationInfo) -> float | None:
        test = info.data.get("test_share")
        if validation and test and validation + test >= 1:
            raise ValueError(f"and data.test_share hold out {validation + test:g} of each client's samples; leave some")
        return validation

    @field_validator("options")
    @classmethod
    def _options_are_plain(cls, options: dict[str, Any]) -> dict[str, Any]:
        check_plain(options)
        return options
