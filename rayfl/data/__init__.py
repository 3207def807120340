"""Sources of data, partitioners, the shard store, batches and augmentation."""

from rayfl.registry import Registry

sources = Registry(
    "data set",
    {
        "cifar10": "rayfl.data.cifar:load_cifar10",
        "cifar100": "rayfl.data.cifar:load_cifar100",
        "femnist": "rayfl.data.femnist:load",
        "fashion_mnist": "rayfl.data.fashion_mnist:load",
        "handwriting": "rayfl.data.handwriting:load",
        "shakespeare": "rayfl.data.shakespeare:load",
        "tiny_imagenet": "rayfl.data.tiny_imagenet:load",
        "image_folder": "rayfl.data.image_folder:load",
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
        "feddyn": "rayfl.data.partition:feddyn",
        "fedexp_unequal": "rayfl.data.partition:fedexp_unequal",
        "shards": "rayfl.data.partition:shards",
        "by_domain": "rayfl.data.partition:by_domain",
    },
)

augmentations = Registry(
    "augmentation",
    {
        "flip": "rayfl.data.augment:Flip",
        "crop": "rayfl.data.augment:Crop",
        "rotate": "rayfl.data.augment:Rotate",
        "feddyn_cifar": "rayfl.data.recipes:feddyn_cifar",
        "moon_cifar10": "rayfl.data.recipes:moon_cifar10",
        "moon_cifar100": "rayfl.data.recipes:moon_cifar100",
        "feddecorr_cifar10": "rayfl.data.recipes:feddecorr_cifar10",
        "feddecorr_cifar100": "rayfl.data.recipes:feddecorr_cifar100",
        "fedexp_cifar": "rayfl.data.recipes:fedexp_cifar",
        "fps_cifar": "rayfl.data.recipes:fps_cifar",
    },
)
