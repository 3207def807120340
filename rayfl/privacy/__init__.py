"""Differential privacy of samples and of clients, and what both use: sources of noise, and accounting."""
