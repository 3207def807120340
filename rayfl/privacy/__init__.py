"""Differential privacy of samples and of clients, and the sources of noise that both use."""
