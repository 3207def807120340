"""Prepared data: fragments of samples ordered by client, an index of the clients, and a manifest with every digest."""
