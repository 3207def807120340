"""Sources of data, partitioners, the shard store, batches and augmentation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rayfl.config.registry import Registry
from rayfl.lazy_names import lazy_names

if TYPE_CHECKING:
    from rayfl.data.augmentation.augmentation import Augmentation as Augmentation
    from rayfl.data.augmentation.augmentation import Compose as Compose
    from rayfl.data.client_source import ClientSource as ClientSource
    from rayfl.data.dataset import Dataset as Dataset
    from rayfl.data.dataset import NaturalClients as NaturalClients
    from rayfl.data.dataset import Provenance as Provenance
    from rayfl.data.dataset import Samples as Samples
    from rayfl.data.dataset import Shards as Shards
    from rayfl.data.inputs import Fields as Fields
    from rayfl.data.inputs import Ragged as Ragged
    from rayfl.data.inputs import Rendered as Rendered
    from rayfl.streams import stream as stream
else:
    __getattr__, __dir__ = lazy_names(__name__)


data_sources = Registry(
    "data set",
    {
        "cifar10": "rayfl.data.sources.cifar:load_cifar10",
        "cifar100": "rayfl.data.sources.cifar:load_cifar100",
        "femnist": "rayfl.data.sources.femnist:load",
        "fashion_mnist": "rayfl.data.sources.fashion_mnist:load",
        "fractals": "rayfl.data.fractals.images:load",
        "handwriting": "rayfl.data.generated.handwriting:load",
        "shakespeare": "rayfl.data.sources.shakespeare:load",
        "tiny_imagenet": "rayfl.data.sources.tiny_imagenet:load",
        "imagenet": "rayfl.data.sources.image_folder:load_imagenet",
        "pacs": "rayfl.data.sources.pacs:load",
        "cityscapes": "rayfl.data.sources.cityscapes:load",
        "inaturalist": "rayfl.data.sources.inaturalist:load",
        "sent140": "rayfl.data.sources.sent140:load",
        "penn_treebank": "rayfl.data.sources.next_character:load_penn_treebank",
        "chest_xray": "rayfl.data.sources.chest_xray:load",
        "text_files": "rayfl.data.sources.next_character:load_text_files",
        "image_folder": "rayfl.data.sources.image_folder:load_image_folder",
        "arrow_file": "rayfl.data.sources.own_files:load_arrow_file",
        "prepared": "rayfl.data.prepared.reader:load_prepared",
        "npz_file": "rayfl.data.sources.own_files:load_npz_file",
        "parquet_folder": "rayfl.data.sources.own_files:load_parquet_folder",
        "huggingface": "rayfl.data.sources.libraries:load_hugging_face",
        "torchvision": "rayfl.data.sources.libraries:load_torchvision",
    },
)

partitioners = Registry(
    "partitioner",
    {
        "natural": "rayfl.data.partition:natural",
        "iid": "rayfl.data.partition:iid",
        "dirichlet": "rayfl.data.partition:dirichlet",
        "dirichlet_plain": "rayfl.data.partition:dirichlet_plain",
        "dirichlet_balanced": "rayfl.data.partition:dirichlet_balanced",
        "dirichlet_per_client": "rayfl.data.partition:dirichlet_per_client",
        "dirichlet_per_client_unequal": "rayfl.data.partition:dirichlet_per_client_unequal",
        "shards": "rayfl.data.partition:shards",
        "by_domain": "rayfl.data.partition:by_domain",
    },
)

labelings = Registry(
    "way to make classes of labels",
    {
        "quantiles": "rayfl.data.partition.labels_by:quantiles",
        "argmax": "rayfl.data.partition.labels_by:argmax",
        "column": "rayfl.data.partition.labels_by:column",
    },
)

collations = Registry("collation", {"pad": "rayfl.data.tensors:pad"})

augmentations = Registry(
    "augmentation",
    {
        "flip": "rayfl.data.augmentation.geometric:Flip",
        "crop": "rayfl.data.augmentation.geometric:Crop",
        "rotate": "rayfl.data.augmentation.geometric:Rotate",
        "resized_crop": "rayfl.data.augmentation.resized_crop:ResizedCrop",
        "quarter_turn": "rayfl.data.augmentation.geometric:QuarterTurn",
        "color_jitter": "rayfl.data.augmentation.photometric:ColorJitter",
        "grayscale": "rayfl.data.augmentation.photometric:Grayscale",
        "gaussian_blur": "rayfl.data.augmentation.photometric:GaussianBlur",
        "solarize": "rayfl.data.augmentation.photometric:Solarize",
        "autoaugment_cifar10": "rayfl.data.augmentation.recipes:AutoAugmentCIFAR10",
        "feddyn_cifar": "rayfl.data.augmentation.recipes:feddyn_cifar",
        "moon_cifar10": "rayfl.data.augmentation.recipes:moon_cifar10",
        "moon_cifar100": "rayfl.data.augmentation.recipes:moon_cifar100",
        "feddecorr_cifar10": "rayfl.data.augmentation.recipes:feddecorr_cifar10",
        "feddecorr_cifar100": "rayfl.data.augmentation.recipes:feddecorr_cifar100",
        "feddecorr_cifar_autoaugment": "rayfl.data.augmentation.recipes:feddecorr_cifar_autoaugment",
        "niid_bench_tiny_imagenet": "rayfl.data.augmentation.recipes:niid_bench_tiny_imagenet",
        "fedexp_cifar": "rayfl.data.augmentation.recipes:fedexp_cifar",
        "fps_cifar": "rayfl.data.augmentation.recipes:fps_cifar",
        "fps_images": "rayfl.data.augmentation.recipes:fps_images",
        "simsiam": "rayfl.data.augmentation.recipes:simsiam",
        "orchestra_a": "rayfl.data.augmentation.recipes:orchestra_a",
        "orchestra_b": "rayfl.data.augmentation.recipes:orchestra_b",
    },
)
