"""Map-style PyTorch Datasets as a source of data; items are read when a batch needs them."""
