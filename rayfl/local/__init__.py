"""A client update: the context an algorithm sees, what it requests, and local training."""
