"""Sources of data, partitioners, the shard store, batches and augmentation."""

from rayfl.registry import Registry

sources = Registry(
    "data set",
    {
        "femnist": "rayfl.data.femnist:load",
        "fashion_mnist": "rayfl.data.fashion_mnist:load",
        "handwriting": "rayfl.data.handwriting:load",
    },
)

partitioners = Registry(
    "partitioner",
    {
        "natural": "rayfl.data.partition:natural",
        "iid": "rayfl.data.partition:iid",
        "dirichlet": "rayfl.data.partition:dirichlet",
        "dirichlet_plain": "rayfl.data.partition:dirichlet_plain",
        "shards": "rayfl.data.partition:shards",
    },
)

augmentations = Registry("augmentation", {"flip": "rayfl.data.augment:Flip", "crop": "rayfl.data.augment:Crop"})
